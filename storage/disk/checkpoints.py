"""Small files that are replaced whole, so that a reader finds either the old content or the new one (rule 15).

The way of every write: temporary file, sync, rename over the old one, sync of the directory. The content is one line of
JSON that an operator can read, `{"body":{…},"crc32c":"…","version":1}`. It is accepted only if writing its body again
gives the same bytes, so no flipped bit goes unnoticed.
"""

from __future__ import annotations

import contextlib
import json
import os.path
from collections.abc import Callable
from typing import Any, Final, TypeAlias, TypeVar, overload

from crc32c import crc32c

from raylog.errors import DiskError, DiskFull, LogDamaged, UnsupportedFormat
from raylog.storage.disk.disk import Disk

TEMPORARY_SUFFIX: Final = ".tmp"

Body: TypeAlias = dict[str, Any]
_T = TypeVar("_T")


def write_checkpoint(disk: Disk, path: str, version: int, body: Body) -> None:
    """Replace the file at `path`. When this returns, the new content survives any crash."""
    temporary = path + TEMPORARY_SUFFIX
    try:
        disk.write_file(temporary, _encode(version, body), sync=True)
    except DiskFull:
        with contextlib.suppress(DiskError):
            disk.remove(temporary)  # the little room that there is may be what the next attempt needs
        raise
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


def write_unnamed(disk: Disk, path: str, version: int, body: Body) -> None:
    """Write a file that nobody reads yet. Its content is on disk; its name is when the directory has been synced."""
    disk.write_file(path, _encode(version, body), sync=True)


@overload
def read_checkpoint(disk: Disk, path: str, known_version: int) -> Body: ...
@overload
def read_checkpoint(disk: Disk, path: str, known_version: int, parse: Callable[[Body], _T]) -> _T: ...
def read_checkpoint(
    disk: Disk, path: str, known_version: int, parse: Callable[[Body], Any] | None = None
) -> Any:
    """Return what `parse` makes of the body of the file at `path`, or the body. A body it cannot take is damage.

    Raises `FileNotFoundError`, `LogDamaged` or `UnsupportedFormat`.
    """
    data = disk.read_file(path)
    try:
        content = json.loads(data)
        version, body = content["version"], content["body"]
        intact = isinstance(version, int) and isinstance(body, dict) and _encode(version, body) == data
    except (ValueError, TypeError, KeyError, RecursionError):
        intact = False
    if not intact:
        raise LogDamaged(path, 0, "the content does not match its checksum")
    if version > known_version:
        raise UnsupportedFormat(path, version, known_version)
    if parse is None:
        return dict(body)
    try:
        return parse(dict(body))
    except (KeyError, TypeError, ValueError) as error:
        raise LogDamaged(path, 0, f"the checksum fits, but not the content ({error!r})") from error


def _encode(version: int, body: Body) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    checksum = crc32c(f"{version}:{text}".encode())
    return f'{{"body":{text},"crc32c":"{checksum:08x}","version":{version}}}\n'.encode()

"""Small files that are replaced whole, so that a reader finds either the old content or the new one (rule 15).

The way of every write: temporary file, sync, rename over the old one, sync of the directory. The content is one line of
JSON that an operator can read, `{"body":{…},"crc32c":"…","version":1}`. It is accepted only if writing its body again
gives the same bytes, so no flipped bit goes unnoticed.
"""

from __future__ import annotations

import json
import os.path
from typing import Any, Final, TypeAlias

from crc32c import crc32c

from raylog.errors import LogDamaged, UnsupportedFormat
from raylog.storage.disk import Disk

TEMPORARY_SUFFIX: Final = ".tmp"

Body: TypeAlias = dict[str, Any]


def write_checkpoint(disk: Disk, path: str, version: int, body: Body) -> None:
    """Replace the file at `path`. When this returns, the new content survives any crash."""
    temporary = path + TEMPORARY_SUFFIX
    disk.write_file(temporary, _encode(version, body), sync=True)
    disk.rename(temporary, path)
    disk.sync_directory(os.path.dirname(path))


def read_checkpoint(disk: Disk, path: str, known_version: int) -> Body:
    """The body of the file at `path`. Raises `FileNotFoundError`, `LogDamaged` or `UnsupportedFormat`."""
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
    return dict(body)


def _encode(version: int, body: Body) -> bytes:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"))
    checksum = crc32c(f"{version}:{text}".encode())
    return f'{{"body":{text},"crc32c":"{checksum:08x}","version":{version}}}\n'.encode()

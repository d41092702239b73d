"""Binary files that are written once and can be made again from the log: indexes and producer snapshots.

    tag 4s | version u16 | reserved u16 | covers u64 | body_bytes u64 | crc32c u32 | body

`covers` ties the file to what it describes: the size of the log file (indexes) or an offset (snapshots). A file whose
checksum, length or `covers` is off is no damage to the log; its owner makes it again. So it needs no atomic write and
no sync of its own: a crash leaves at worst one that is not believed.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Sequence
from typing import Final

from crc32c import crc32c

from raylog.errors import DiskError, DiskFailed
from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import Bytes

_HEADER: Final = struct.Struct(">4sHHQQI")
_UNSUMMED: Final = struct.Struct(">4sHHQQ")

_log = logging.getLogger(__name__)


class SealBroken(Exception):
    """The file is missing, damaged, or describes something else. Internal: the owner makes it again."""


def write_sealed(disk: Disk, path: str, tag: bytes, version: int, covers: int, body: Bytes) -> None:
    front = _UNSUMMED.pack(tag, version, 0, covers, len(body))
    checksum = crc32c(body, crc32c(front))
    disk.write_file(path, b"".join((front, struct.pack(">I", checksum), body)))


def map_sealed(
    disk: Disk, path: str, tag: bytes, known_version: int, covers: int | None = None, *, entry_bytes: int = 1
) -> memoryview:
    """The body of the file at `path`, after its checksum has been compared. Raises `SealBroken`."""
    try:
        data = memoryview(disk.map_file(path))
    except FileNotFoundError:
        raise SealBroken(f"{path} is missing") from None
    if len(data) < _HEADER.size:
        raise SealBroken(f"{path} ends inside its header")
    found_tag, version, _, found_covers, body_bytes, checksum = _HEADER.unpack_from(data)
    body = data[_HEADER.size :]
    if found_tag != tag or crc32c(body, crc32c(data[: _UNSUMMED.size])) != checksum or len(body) != body_bytes:
        raise SealBroken(f"{path} does not match its checksum")
    if version > known_version:
        raise SealBroken(f"{path} has format version {version}, but this one knows {known_version}")
    if covers is not None and found_covers != covers:
        raise SealBroken(f"{path} describes {found_covers}, not {covers}")
    if len(body) % entry_bytes:
        raise SealBroken(f"{path} ends inside an entry")
    return body


def sync_sealed(disk: Disk, paths: Sequence[str]) -> None:
    """Spare the next opening the making of files that are there. One that retention has taken away is no loss."""
    for path in paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        except DiskFailed:
            raise
        except DiskError as error:  # it can be made again, so the batches' flush need not wait for it
            _log.warning("An index is not synced: %s", error)
            continue
        try:
            file.sync()
        finally:
            file.close()

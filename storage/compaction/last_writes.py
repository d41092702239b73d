"""The newest write of each producer of a log, as a file that one compaction looks into.

    tag 4s | version u16 | entry count u64 | crc32c u32 | entries, by producer id: id q, last offset q, epoch h

A log may know a million producers, so they are neither sent in a message nor held in memory: every 256th id is, and a
look-up reads the 256 entries from there on. The file is a draft of its compaction, under a name that only that one uses
(`compaction_swap.draft_suffix`). It is not synced: whatever a crash leaves of it, the next opening removes.
"""

from __future__ import annotations

import struct
from array import array
from bisect import bisect_right
from collections.abc import Iterable
from typing import Final

from crc32c import crc32c

from raylog.errors import LogDamaged
from raylog.storage.disk.disk import Disk, DiskFile
from raylog.storage.segment.producer_state import LastWrite

_HEADER: Final = struct.Struct(">4sHQI")
_TAG: Final = b"RLLW"
_VERSION: Final = 1
_ENTRY: Final = struct.Struct(">qqh")
_STEP: Final = 256
_CHUNK_BYTES: Final = _ENTRY.size * _STEP * 256  # every block begins in one


class LastWriteRows:
    """Producers with their newest writes, in 18 bytes each, in the order in which they were added."""

    def __init__(self) -> None:
        self.ids = array("q")
        self._offsets = array("q")
        self._epochs = array("h")

    def __len__(self) -> int:
        return len(self.ids)

    def add(self, writes: Iterable[tuple[int, LastWrite]]) -> None:
        for producer_id, (last_offset, epoch) in writes:
            self.ids.append(producer_id)
            self._offsets.append(last_offset)
            self._epochs.append(epoch)

    def save(self, disk: Disk, path: str) -> None:
        """Write them down. It sorts, so it takes a second for a million: not on an event loop."""
        pack, ids, offsets, epochs = _ENTRY.pack, self.ids, self._offsets, self._epochs
        order = sorted(range(len(ids)), key=ids.__getitem__)
        body = b"".join(pack(ids[at], offsets[at], epochs[at]) for at in order)
        disk.write_file(path, _HEADER.pack(_TAG, _VERSION, len(ids), crc32c(body)) + body)


class LastWrites:
    """A file of them, opened. Raises `FileNotFoundError` where its compaction is not wanted any more."""

    def __init__(self, disk: Disk, path: str) -> None:
        self._file: DiskFile = disk.open(path)
        self._firsts = array("q")  # every 256th producer id
        self._block = -1, b""  # the last that was read: a producer's batches often follow each other
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _check(self) -> None:
        header = self._file.read_at(_HEADER.size, 0)
        tag, version, count, checksum = _HEADER.unpack(header) if len(header) == _HEADER.size else (b"", 0, 0, 0)
        position, end, found = _HEADER.size, self._file.size(), 0
        while position < end:
            chunk = self._file.read_at(min(_CHUNK_BYTES, end - position), position)
            found = crc32c(chunk, found)
            whole = range(0, len(chunk) - _ENTRY.size + 1, _ENTRY.size * _STEP)
            self._firsts.extend(_ENTRY.unpack_from(chunk, at)[0] for at in whole)
            position += len(chunk)
        if (tag, version) != (_TAG, _VERSION) or end != _HEADER.size + count * _ENTRY.size or found != checksum:
            raise LogDamaged(self._file.path, 0, "the newest writes of its producers are not what was written")

    def get(self, producer_id: int) -> LastWrite | None:
        """Return the producer's newest write; None: the log does not know this producer any more."""
        at = bisect_right(self._firsts, producer_id) - 1
        if at < 0:
            return None
        if self._block[0] != at:
            start = _HEADER.size + at * _STEP * _ENTRY.size
            self._block = at, self._file.read_at(_STEP * _ENTRY.size, start)
        entries = self._block[1]
        low, high = 0, len(entries) // _ENTRY.size
        while low < high:
            middle = (low + high) // 2
            found, last_offset, epoch = _ENTRY.unpack_from(entries, middle * _ENTRY.size)
            if found == producer_id:
                return LastWrite(last_offset, epoch)
            low, high = (middle + 1, high) if found < producer_id else (low, middle)
        return None

    def close(self) -> None:
        self._file.close()

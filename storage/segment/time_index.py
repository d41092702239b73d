"""The sparse time index of one segment: from a timestamp to an offset from where to look.

An entry is 12 bytes: the largest timestamp so far, and the base offset of the batch that has it, relative to the
segment's. So every batch before an entry's offset is older than the entry says. The last entry of a sealed segment
holds the segment's largest timestamp, which is what retention goes by.
"""

from __future__ import annotations

import struct
from typing import Final

from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import map_sealed, write_sealed
from raylog.storage.format.record_batch import NO_TIMESTAMP
from raylog.storage.segment.index_entries import IndexEntries

SUFFIX: Final = ".timeindex"
ENTRY: Final = struct.Struct(">qI")
_TAG: Final = b"RLTI"
_VERSION: Final = 1


class TimeIndex:
    """Timestamps to offsets, for the segment that begins at `base_offset`."""

    def __init__(self, base_offset: int, entries: IndexEntries | None = None) -> None:
        self._base = base_offset
        self._entries = entries or IndexEntries(ENTRY)

    @classmethod
    def load(cls, disk: Disk, path: str, base_offset: int, log_bytes: int) -> TimeIndex:
        """Raises `SealBroken` where the index does not describe a log file of `log_bytes`."""
        body = map_sealed(disk, path, _TAG, _VERSION, log_bytes, entry_bytes=ENTRY.size)
        return cls(base_offset, IndexEntries.over(ENTRY, body))

    def save(self, disk: Disk, path: str, log_bytes: int) -> None:
        write_sealed(disk, path, _TAG, _VERSION, log_bytes, self._entries.encoded())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def largest_timestamp(self) -> int:
        last = self._entries.last
        return last.first if last else NO_TIMESTAMP

    def add(self, timestamp: int, base_offset: int) -> None:
        """Note that the batch at `base_offset` has the largest timestamp so far; one no larger is passed over."""
        if timestamp > self.largest_timestamp:
            self._entries.append(timestamp, base_offset - self._base)

    def start_for(self, timestamp: int) -> int:
        """An offset before which every record is older than `timestamp`."""
        entry = self._entries.before(timestamp)
        return self._base + entry.second if entry else self._base

    def pairs(self) -> list[tuple[int, int]]:
        """Every (timestamp, base offset), for the dump."""
        return [(self._entries[at].first, self._base + self._entries[at].second) for at in range(len(self))]

    def cut(self, offset: int) -> None:
        """Forget batches at `offset` and after it."""
        self._entries.cut(offset - self._base)

    def thaw(self) -> None:
        self._entries.thaw()

"""The sparse offset index of one segment: from an offset to a place in the file from where to walk.

An entry is 8 bytes: the base offset of a batch, relative to the segment's, and the batch's position in the log file.
Entries name base offsets, so whoever lands at a position can tell at once whether it is the batch it should be.
"""

from __future__ import annotations

import struct
from typing import Final

from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import map_sealed, write_sealed
from raylog.storage.segment.index_entries import IndexEntries

SUFFIX: Final = ".index"
ENTRY: Final = struct.Struct(">II")
_TAG: Final = b"RLOI"
_VERSION: Final = 1


class OffsetIndex:
    """Offsets to positions, for the segment that begins at `base_offset`."""

    def __init__(self, base_offset: int, entries: IndexEntries | None = None) -> None:
        self._base = base_offset
        self._entries = entries or IndexEntries(ENTRY)

    @classmethod
    def load(cls, disk: Disk, path: str, base_offset: int, log_bytes: int) -> OffsetIndex:
        """Raises `SealBroken` where the index does not describe a log file of `log_bytes`."""
        body = map_sealed(disk, path, _TAG, _VERSION, log_bytes, entry_bytes=ENTRY.size)
        return cls(base_offset, IndexEntries.over(ENTRY, body))

    def save(self, disk: Disk, path: str, log_bytes: int) -> None:
        write_sealed(disk, path, _TAG, _VERSION, log_bytes, self._entries.encoded())

    def __len__(self) -> int:
        return len(self._entries)

    @property
    def size_bytes(self) -> int:
        return len(self._entries) * ENTRY.size

    def add(self, base_offset: int, position: int) -> None:
        self._entries.append(base_offset - self._base, position)

    def place(self, offset: int) -> tuple[int, int]:
        """(base offset, position) of an indexed batch at or before `offset`, or of the segment's first one."""
        entry = self._entries.floor(offset - self._base)
        return (self._base + entry.first, entry.second) if entry else (self._base, 0)

    def place_before_position(self, position: int) -> tuple[int, int]:
        """(base offset, position) of the last indexed batch that starts at or before `position`."""
        entry = self._entries.floor_by_second(position)
        return (self._base + entry.first, entry.second) if entry else (self._base, 0)

    def offset_after_position(self, position: int) -> int | None:
        """The base offset of the first indexed batch that starts after `position`."""
        entry = self._entries.after_second(position)
        return self._base + entry.first if entry else None

    def pairs(self) -> list[tuple[int, int]]:
        """Every (base offset, position), for the dump."""
        return [(self._base + self._entries[at].first, self._entries[at].second) for at in range(len(self))]

    def cut(self, position: int) -> None:
        """Forget batches at `position` and after it."""
        self._entries.cut(position)

    def thaw(self) -> None:
        self._entries.thaw()

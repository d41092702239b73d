"""The sparse indexes of one segment: from an offset to a place in its file, and from a timestamp to an offset.

    index     an entry is                                              it leads to
    offset    8 bytes: the base offset of a batch, and its position    where to walk from to find an offset
    time      12 bytes: the largest timestamp so far, and the base     an offset before which every batch is older
              offset of the batch that has it

Offsets in entries are relative to the segment's. An entry of the offset index names a base offset, so whoever lands at
a position can tell at once whether it is the batch it should be. The last entry of a sealed segment's time index holds
the segment's largest timestamp, which is what retention goes by.

While its segment grows, an index lives in memory; when the segment is sealed or the log closed it is written once, as
a sealed file, and from then on searched as it stands there. So there is no half-written index to repair: one on disk is
whole, or is made again from the log.

What must stay true: the first numbers of the entries strictly rise and the second ones do not fall.

`SegmentIndexes` are the offset and the time index of one segment, and the timestamps that are noted for them.

    growing   both in memory, with an entry every `interval` bytes
    sealed    both on disk, and in memory from when they are asked for until `drop`

Only the indexes that a process has loaded last stay in memory, whichever logs their segments are of.
"""

from __future__ import annotations

import struct
import sys
import threading
import weakref
from array import array
from bisect import bisect_left, bisect_right
from collections import OrderedDict
from collections.abc import Callable
from typing import ClassVar, Final, NamedTuple, TypeVar

from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import map_sealed, write_sealed
from raylog.storage.format.record_batch import NO_TIMESTAMP, BatchHeader

_VERSION: Final = 1
_MAX_LOADED: Final = 32  # sealed segments of this process whose indexes stay in memory
_I = TypeVar("_I", bound="SparseIndex")


class SparseIndex:
    """The common part of both indexes; each is of the segment that begins at `base_offset`."""

    SUFFIX: ClassVar[str]
    ENTRY: ClassVar[struct.Struct]
    _TAG: ClassVar[bytes]

    def __init__(self, base_offset: int, entries: IndexEntries | None = None) -> None:
        self._base = base_offset
        self._entries = entries or IndexEntries(self.ENTRY)

    @classmethod
    def load(cls: type[_I], disk: Disk, path: str, base_offset: int, log_bytes: int) -> _I:
        """Raises `SealBroken` where the index does not describe a log file of `log_bytes`."""
        body = map_sealed(disk, path, cls._TAG, _VERSION, log_bytes, entry_bytes=cls.ENTRY.size)
        return cls(base_offset, IndexEntries.over(cls.ENTRY, body))

    def save(self, disk: Disk, path: str, log_bytes: int) -> None:
        write_sealed(disk, path, self._TAG, _VERSION, log_bytes, self._entries.encoded())

    def __len__(self) -> int:
        return len(self._entries)

    def thaw(self) -> None:
        self._entries.thaw()


class OffsetIndex(SparseIndex):
    """Offsets to positions."""

    SUFFIX = ".index"
    ENTRY = struct.Struct(">II")
    _TAG = b"RLOI"

    def __init__(self, base_offset: int, entries: IndexEntries | None = None) -> None:
        super().__init__(base_offset, entries)
        self.size_bytes = len(self) * self.ENTRY.size  # each append asks for it

    def add(self, base_offset: int, position: int) -> None:
        self._entries.append(base_offset - self._base, position)
        self.size_bytes += self.ENTRY.size

    def place(self, offset: int) -> tuple[int, int]:
        """Find an indexed batch at or before `offset`, or the segment's first: its base offset and position."""
        entry = self._entries.floor(offset - self._base)
        return (self._base + entry.first, entry.second) if entry else (self._base, 0)

    def place_before_position(self, position: int) -> tuple[int, int]:
        """Find the last indexed batch that starts at or before `position`: its base offset and position."""
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
        self.size_bytes = len(self) * self.ENTRY.size


class TimeIndex(SparseIndex):
    """Timestamps to offsets."""

    SUFFIX = ".timeindex"
    ENTRY = struct.Struct(">qI")
    _TAG = b"RLTI"

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


class Entry(NamedTuple):
    first: int
    second: int


class IndexEntries:
    """Pairs, either growing in memory or as they stand in a sealed file."""

    def __init__(self, layout: struct.Struct) -> None:
        self._layout = layout
        self._firsts, self._seconds = _columns(layout)
        self._sealed: memoryview | None = None

    @classmethod
    def over(cls, layout: struct.Struct, sealed: memoryview) -> IndexEntries:
        entries = cls(layout)
        entries._sealed = sealed
        return entries

    def __len__(self) -> int:
        if self._sealed is not None:
            return len(self._sealed) // self._layout.size
        return len(self._firsts)

    def __getitem__(self, at: int) -> Entry:
        if self._sealed is not None:
            return Entry._make(self._layout.unpack_from(self._sealed, at * self._layout.size))
        return Entry(self._firsts[at], self._seconds[at])

    @property
    def last(self) -> Entry | None:
        return self[len(self) - 1] if len(self) else None

    def append(self, first: int, second: int) -> None:
        self._firsts.append(first)
        self._seconds.append(second)

    def floor(self, first: int) -> Entry | None:
        """The last pair whose first number is at most `first`."""
        if self._sealed is None:
            at = bisect_right(self._firsts, first)
        else:
            at = bisect_right(range(len(self)), first, key=self._number_at(0))
        return self[at - 1] if at else None

    def before(self, first: int) -> Entry | None:
        """The last pair whose first number is less than `first`."""
        return self.floor(first - 1)

    def floor_by_second(self, second: int) -> Entry | None:
        """The last pair whose second number is at most `second`."""
        at = bisect_right(range(len(self)), second, key=self._number_at(1))
        return self[at - 1] if at else None

    def after_second(self, second: int) -> Entry | None:
        """The first pair whose second number is more than `second`."""
        at = bisect_right(range(len(self)), second, key=self._number_at(1))
        return self[at] if at < len(self) else None

    def cut(self, second: int) -> None:
        """Drop the pairs whose second number is `second` or more. They come into memory for it."""
        self.thaw()
        at = bisect_left(self._seconds, second)
        del self._firsts[at:]
        del self._seconds[at:]

    def encoded(self) -> bytes:
        if self._sealed is not None:
            return bytes(self._sealed)
        return _interleaved(self._firsts, self._seconds)

    def thaw(self) -> None:
        """Take the pairs of a sealed file apart, so that the index can grow."""
        if self._sealed is None:
            return
        sealed, self._sealed = self._sealed, None
        _deinterleave(sealed, self._firsts, self._seconds)

    def _number_at(self, column: int) -> Callable[[int], int]:
        if self._sealed is None:
            return (self._firsts, self._seconds)[column].__getitem__
        sealed, unpack, width = self._sealed, self._layout.unpack_from, self._layout.size
        return lambda at: int(unpack(sealed, at * width)[column])


# A segment of 1 GiB has a quarter of a million pairs, and sealing it must not stall the appends that wait. So the
# columns are woven together byte by byte with strided slices, which run in C.


def _columns(layout: struct.Struct) -> tuple[array[int], array[int]]:
    assert layout.format[0] == ">"
    return array(layout.format[1]), array(layout.format[2])


def _interleaved(firsts: array[int], seconds: array[int]) -> bytes:
    width = firsts.itemsize + seconds.itemsize
    woven = bytearray(width * len(firsts))
    start = 0
    for column in (firsts, seconds):
        numbers = _big_endian(column).tobytes()
        for at in range(column.itemsize):
            woven[start + at :: width] = numbers[at :: column.itemsize]
        start += column.itemsize
    return bytes(woven)


def _deinterleave(woven: memoryview, firsts: array[int], seconds: array[int]) -> None:
    width = firsts.itemsize + seconds.itemsize
    start = 0
    for column in (firsts, seconds):
        numbers = bytearray(len(woven) // width * column.itemsize)
        for at in range(column.itemsize):
            numbers[at :: column.itemsize] = bytes(woven[start + at :: width])
        column.frombytes(numbers)
        column[:] = _big_endian(column)
        start += column.itemsize


def _big_endian(column: array[int]) -> array[int]:
    """The same numbers with the bytes of each in file order, or back: swapping is its own inverse."""
    swapped = column[:]
    if sys.byteorder == "little":
        swapped.byteswap()
    return swapped


class SegmentIndexes:
    """Indexes of one segment. `offsets` and `times` are None where they are not in memory."""

    def __init__(self, base_offset: int, interval: int) -> None:
        self.offsets: OffsetIndex | None = None
        self.times: TimeIndex | None = None
        self.is_dated = False  # the largest timestamp is in memory
        self._base_offset = base_offset
        self._interval = interval
        self.start_noting()

    def start_noting(self) -> None:
        """Forget what was noted, but for the entries."""
        self.first_timestamp = NO_TIMESTAMP
        self.largest_timestamp = NO_TIMESTAMP
        self._largest_timestamp_offset = self._base_offset
        self._bytes_since_entry = 0

    def start_anew(self) -> None:
        """Empty indexes that grow."""
        _loaded.discard(self)
        self.offsets = OffsetIndex(self._base_offset)
        self.times = TimeIndex(self._base_offset)
        self.start_noting()

    # --- growing ---

    def note(self, header: BatchHeader, position: int) -> None:
        """Note the batch behind all others, which stands at `position`."""
        self.note_timestamp(header)
        if self.first_timestamp == NO_TIMESTAMP:
            self.first_timestamp = header.max_timestamp
        if self._bytes_since_entry > self._interval:
            assert self.offsets is not None
            assert self.times is not None
            self.offsets.add(header.base_offset, position)
            self.times.add(self.largest_timestamp, self._largest_timestamp_offset)
            self._bytes_since_entry = 0
        self._bytes_since_entry += header.size

    def note_timestamp(self, header: BatchHeader) -> None:
        if header.max_timestamp > self.largest_timestamp:
            self.largest_timestamp = header.max_timestamp
            self._largest_timestamp_offset = header.base_offset

    def resume_noting(self, offsets: OffsetIndex, times: TimeIndex, size: int) -> tuple[int, int]:
        """Go on where the last entries of these indexes are. Returns (base offset, position): from there on, up to
        `size`, timestamps are to be noted.
        """
        self.start_noting()
        self.is_dated = True
        if size == 0:
            return self._base_offset, 0
        self.largest_timestamp = times.largest_timestamp
        self._largest_timestamp_offset = times.start_for(self.largest_timestamp + 1)
        base_offset, position = offsets.place_before_position(size)
        self._bytes_since_entry = size - position
        return base_offset, position

    # --- sealed ---

    def date(self, largest_timestamp: int) -> None:
        self.largest_timestamp = largest_timestamp
        self.is_dated = True

    def save(self, disk: Disk, offset_path: str, time_path: str, size: int) -> None:
        """Write both, as the indexes of a log file of `size` bytes."""
        assert self.offsets is not None
        assert self.times is not None
        self.times.add(self.largest_timestamp, self._largest_timestamp_offset)
        self.offsets.save(disk, offset_path, size)
        self.times.save(disk, time_path, size)

    def load(self, disk: Disk, offset_path: str, time_path: str, size: int) -> None:
        """Raises `SealBroken` where they do not describe a log file of `size` bytes."""
        self.offsets = OffsetIndex.load(disk, offset_path, self._base_offset, size)
        self.times = TimeIndex.load(disk, time_path, self._base_offset, size)

    def may_be_dropped(self) -> None:
        """Have them dropped when enough others have been loaded: they are on disk too."""
        _loaded.add(self)

    def keep(self, offsets: OffsetIndex, times: TimeIndex) -> None:
        """Hold on to these, which are about to grow."""
        _loaded.discard(self)
        self.offsets, self.times = offsets, times

    def drop(self) -> None:
        """Let go of what can be read again."""
        self.offsets = None
        self.times = None


class _Loaded:
    """Indexes that may be dropped, of every log of the process: what was loaded first goes first."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._indexes: OrderedDict[weakref.ref[SegmentIndexes], None] = OrderedDict()
        self._lock = threading.RLock()  # logs may have owners on different threads

    def add(self, indexes: SegmentIndexes) -> None:
        with self._lock:
            self._indexes[weakref.ref(indexes)] = None
            while len(self._indexes) > self._limit:
                oldest = self._indexes.popitem(last=False)[0]()
                if oldest is not None and oldest is not indexes:
                    oldest.drop()

    def discard(self, indexes: SegmentIndexes) -> None:
        with self._lock:
            self._indexes.pop(weakref.ref(indexes), None)


_loaded: Final = _Loaded(_MAX_LOADED)

"""The offset and the time index of one segment, and the timestamps that are noted for them.

    growing   both in memory, with an entry every `interval` bytes
    sealed    both on disk, and in memory from when they are asked for until `drop`

Only the indexes that a process has loaded last stay in memory, whichever logs their segments are of.
"""

from __future__ import annotations

import threading
import weakref
from collections import OrderedDict
from typing import Final

from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import NO_TIMESTAMP, BatchHeader
from raylog.storage.segment.indexes import OffsetIndex, TimeIndex

_MAX_LOADED: Final = 32  # sealed segments of this process whose indexes stay in memory


class SegmentIndexes:
    """`offsets` and `times` are None where they are not in memory."""

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

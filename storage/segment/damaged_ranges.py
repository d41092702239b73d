"""Batches of a log that are not as they were written: finding them on disk, and keeping readers away from them.

    somebody met a wrong CRC ──spot_of──► inspect, on any thread ──► sound, or broken ──range_of──► DamagedRanges

A replica with such a range hands over and is quarantined (rules 1, 14). Only where nobody else has its records it
stays: then it serves all other offsets.

What must stay true: an inspection reads what fetches read, through the page cache, so its verdict is about what is
served. For an offset that others name it reads no more than an index interval and the batch in question.
What is in a known range is never served.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import NamedTuple

from raylog.errors import BatchError, LogDamaged
from raylog.storage.disk.disk import Disk, DiskFile
from raylog.storage.format.record_batch import HEADER_BYTES, check_shape, read_header
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.segment import LOG_SUFFIX, Place, Segment


class DamagedRange(NamedTuple):
    """Offsets that cannot be read, and why."""

    first_offset: int
    next_offset: int
    path: str
    position: int
    reason: str

    def error(self) -> LogDamaged:
        return LogDamaged(self.path, self.position, self.reason)


@dataclass(frozen=True, slots=True)
class Spot:
    """A piece of a segment's file to be inspected: from `start` through the batch of `offset`."""

    path: str
    inode: int
    start: Place
    end: Place  # of the file, as far as it held whole batches
    offset: int
    epochs: LeaderEpochs


class Broken(NamedTuple):
    """The first batch of a spot that is not sound."""

    place: Place
    next_offset: int | None  # what comes after it, where its header can be believed
    reason: str


def spot_of(segment: Segment, offset: int, epochs: LeaderEpochs) -> Spot:
    """Return where to look for the batch of `offset`."""
    return _spot(segment, segment.indexed_before(offset), offset, epochs)


def spot_from(segment: Segment, position: int, epochs: LeaderEpochs) -> Spot:
    """All of the segment from `position` on. From its beginning on needs no index, which may not be to be had."""
    start = segment.boundary_before(min(position, segment.size)) if position else Place(0, segment.base_offset)
    return _spot(segment, start, segment.next_offset - 1, epochs)


def _spot(segment: Segment, start: Place, offset: int, epochs: LeaderEpochs) -> Spot:
    return Spot(segment.path(LOG_SUFFIX), segment.file.inode(), start, segment.end, offset, epochs)


def inspect_spot(disk: Disk, spot: Spot) -> Broken | None:
    """Inspect a spot, on any thread. None: it is sound, or in another file by now, which nobody suspects."""
    try:
        file = disk.open(spot.path)
    except FileNotFoundError:
        return None
    try:
        return _first_broken(file, spot) if file.inode() == spot.inode else None
    finally:
        file.close()


def _first_broken(file: DiskFile, spot: Spot) -> Broken | None:
    place = spot.start
    try:
        for position, header, _ in scan_file(file, place.base_offset, spot.epochs, place.position, spot.end.position):
            place = Place(position + header.size, header.next_offset)
            if header.next_offset > spot.offset:
                return None
    except ChainBroken as broken:
        return Broken(place, _believable_end(file, place, spot.end), broken.reason.rstrip("."))
    if place.base_offset <= spot.offset:
        return Broken(place, None, f"the file ends before offset {spot.offset}")
    return None


def _believable_end(file: DiskFile, place: Place, file_end: Place) -> int | None:
    """The offset after a damaged batch, if what follows proves its header."""
    header = file.read_at(HEADER_BYTES, place.position)
    if len(header) < HEADER_BYTES:
        return None
    found = read_header(header)
    end = place.position + found.size
    try:
        check_shape(found)
    except BatchError:
        return None
    if found.base_offset != place.base_offset or end > file_end.position:
        return None
    if end == file_end.position:
        return file_end.base_offset
    after = file.read_at(HEADER_BYTES, end)
    is_joined_on = len(after) == HEADER_BYTES and read_header(after).base_offset == found.next_offset
    return found.next_offset if is_joined_on else None


def range_of(segment: Segment, broken: Broken) -> DamagedRange:
    """Return the range to give up. Without a header to believe, that is all that lies before the next batch that the
    index knows.
    """
    position, base_offset = broken.place
    end = _next_indexed(segment, position) if broken.next_offset is None else broken.next_offset
    return DamagedRange(base_offset, max(end, base_offset + 1), segment.path(LOG_SUFFIX), position, broken.reason)


def _next_indexed(segment: Segment, position: int) -> int:
    try:
        return segment.indexed_after(position)
    except LogDamaged:  # the index has to be made again too, and cannot be
        return segment.next_offset


class DamagedRanges:
    """The damaged ranges of one log; nearly always none."""

    def __init__(self) -> None:
        self._ranges: list[DamagedRange] = []

    def __bool__(self) -> bool:
        return bool(self._ranges)

    def __iter__(self) -> Iterator[DamagedRange]:
        return iter(self._ranges)

    def add(self, found: DamagedRange) -> bool:
        """Whether that is news."""
        if self.holding(found.first_offset) is not None:
            return False
        self._ranges = sorted([*self._ranges, found])
        return True

    def holding(self, offset: int) -> DamagedRange | None:
        return next((each for each in self._ranges if each.first_offset <= offset < each.next_offset), None)

    def forget_below(self, offset: int) -> None:
        """Forget ranges that retention, or somebody, has deleted."""
        self._ranges = [each for each in self._ranges if each.next_offset > offset]

    def readable_end(self, offset: int, end: int) -> int:
        """Return how far a reader at `offset` may read. LogDamaged where that is within a range."""
        held = self.holding(offset)
        if held is not None:
            raise held.error()
        return min((each.first_offset for each in self._ranges if offset < each.first_offset < end), default=end)

"""Reading a log: fetches, file slices, and look-ups by time.

What must stay true: nothing is served that the reader's isolation does not allow (rule 16), and nothing whose place in
the chain has not been checked.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum
from typing import NamedTuple, TypeAlias

from raylog.errors import BatchError, OffsetOutOfRange
from raylog.storage.disk.disk import Disk
from raylog.storage.format.batch_codec import QUICK_BYTES, moments, opens_quickly, unpack_limit
from raylog.storage.format.record_batch import MAX_OFFSET, BatchHeader, check_batch
from raylog.storage.log.state import LogState
from raylog.storage.segment.batch_scan import ChainBroken, walk_chain
from raylog.storage.segment.damaged_ranges import Spot, spot_from, spot_of
from raylog.storage.segment.producer_replay import know_transactions
from raylog.storage.segment.segment import LOG_SUFFIX, Place, Segment
from raylog.storage.segment.transaction_index import AbortedRange, AbortedTransaction


class Isolation(Enum):
    """The limit up to which a reader may see."""

    LOG_END = "log end"  # followers
    HIGH_WATERMARK = "read_uncommitted"
    LAST_STABLE = "read_committed"


class FetchedBatches(NamedTuple):
    """Whole batches, and the marks of the log when they were read."""

    data: bytes
    next_offset: int
    log_start_offset: int
    last_stable_offset: int
    high_watermark: int
    log_end_offset: int


class FileSlice(NamedTuple):
    """Whole batches as a piece of a file. The reader checks the inode, and the chain and CRC of what he reads."""

    path: str
    inode: int
    position: int
    length: int
    base_offset: int
    next_offset: int


class TimestampOffset(NamedTuple):
    timestamp: int
    offset: int


def visible_end(log: LogState, isolation: Isolation) -> int:
    if isolation is Isolation.LOG_END:
        return log.log_end_offset
    return log.high_watermark if isolation is Isolation.HIGH_WATERMARK else log.last_stable_offset


def read(
    log: LogState, offset: int, max_bytes: int, isolation: Isolation = Isolation.HIGH_WATERMARK
) -> FetchedBatches:
    """Whole batches from the one that holds `offset` on, at most `max_bytes` but always one if there is one.

    Beyond what `isolation` lets the reader see the answer is empty; outside the log it is `OffsetOutOfRange`.
    """
    end = _check_range(log, offset, isolation)
    data, next_offset = b"", offset
    if offset < end:
        segment = log.segments.containing(offset)
        data, next_offset = segment.read(segment.locate(offset), max(0, max_bytes), end)
    return FetchedBatches(
        data,
        max(offset, next_offset),
        log.log_start_offset,
        log.last_stable_offset,
        log.high_watermark,
        log.log_end_offset,
    )


def inspect(log: LogState, offset: int) -> BatchHeader:
    """Look at the batch of `offset` with its CRC, which fetches leave to their readers.

    For a reader who got bytes that make no sense: where the disk is to blame, the replica is damaged (rule 14).
    """
    if not log.log_start_offset <= offset < log.log_end_offset:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    segment = log.segments.containing(offset)
    place = segment.locate(offset)
    try:
        return check_batch(segment.read_batch(place))
    except BatchError as error:
        raise segment.damaged(place.position, error.describe()) from error


def spot_of_offset(log: LogState, offset: int) -> Spot:
    """`inspect` in steps: what `inspect_spot` is to look into on any thread, for `range_of`."""
    if not log.log_start_offset <= offset < log.log_end_offset:
        raise OffsetOutOfRange(offset, log.log_start_offset, log.log_end_offset)
    return spot_of(log.segments.containing(offset), offset, log.epochs)


def spot_from_position(log: LogState, base_offset: int, position: int) -> Spot:
    """The same for all from `position` on in the segment that holds `base_offset`."""
    return spot_from(log.segments.containing(max(base_offset, log.log_start_offset)), position, log.epochs)


def file_slice(
    log: LogState,
    offset: int,
    max_bytes: int,
    isolation: Isolation = Isolation.HIGH_WATERMARK,
    *,
    below: int = MAX_OFFSET,
) -> FileSlice | None:
    """The same as a piece of a file, for a reader on this machine who reads it himself.

    Its batches lie wholly below `below`, and below what the isolation lets the reader see.
    """
    end = min(_check_range(log, offset, isolation), below)
    if offset >= end:
        return None
    segment = log.segments.containing(offset)
    place = segment.locate(offset)
    limit = Place(segment.size, segment.next_offset) if end >= segment.next_offset else segment.locate(end)
    if limit.position == place.position:  # the end of what is visible lies inside this batch
        return None
    if limit.position - place.position > max_bytes:
        limit = max(segment.boundary_before(place.position + max_bytes), segment.place_after(place))
    path, inode = segment.path(LOG_SUFFIX), segment.file.inode()
    length = limit.position - place.position
    return FileSlice(path, inode, place.position, length, place.base_offset, limit.base_offset)


def read_slice(disk: Disk, piece: FileSlice) -> bytes | None:
    """The bytes of a slice, on any thread; None where that file is not there any more, or is another one now.

    They are not checked: `take_slice` does that.
    """
    try:
        file = disk.open(piece.path)
    except FileNotFoundError:
        return None
    try:
        data = file.read_at(piece.length, piece.position) if file.inode() == piece.inode else b""
    finally:
        file.close()
    return data if len(data) == piece.length else None


def take_slice(log: LogState, piece: FileSlice, data: bytes) -> FetchedBatches | None:
    """Return what was read of a slice, as `read` would have answered it; None where it is not the chain of this log."""
    try:
        size, next_offset = walk_chain(data, piece.base_offset, log.epochs)
    except ChainBroken:
        return None
    is_whole = size == len(data) and next_offset == piece.next_offset  # no CRC was checked: a header may be damaged
    if not is_whole or piece.base_offset < log.segments[0].base_offset:
        return None
    return FetchedBatches(
        data, next_offset, log.log_start_offset, log.last_stable_offset, log.high_watermark, log.log_end_offset
    )


def _check_range(log: LogState, offset: int, isolation: Isolation) -> int:
    """The end of what the reader may have. One between it and the end of the log waits: it is not out of range."""
    if not log.log_start_offset <= offset <= log.log_end_offset:
        raise OffsetOutOfRange(offset, log.log_start_offset, visible_end(log, isolation))
    end = visible_end(log, isolation)
    return log.damaged.readable_end(offset, end) if log.damaged else end


class UnopenedBatch(NamedTuple):
    """A batch that a look-up by time has to look into, and that costs more than a moment to open (rule 34)."""

    header: BatchHeader
    data: bytes
    timestamp: int
    log_start_offset: int
    unpack_limit: int

    def first_moment(self) -> TimestampOffset | None:
        """Return the first record of that time or later that is not below the log's start. On any thread."""
        header = self.header
        try:
            for moment, offset in moments(header, self.data, self.unpack_limit):
                if moment >= self.timestamp and offset >= self.log_start_offset:
                    return TimestampOffset(moment, offset)
        except BatchError:  # its writer's doing; whoever asks for the time is sent to the batch, not refused
            return TimestampOffset(header.max_timestamp, max(header.base_offset, self.log_start_offset))
        return None


Opened: TypeAlias = Mapping[UnopenedBatch, "TimestampOffset | None"]


def offset_for_timestamp(log: LogState, timestamp: int) -> TimestampOffset | None:
    """The first record of that time or later that a consumer may see."""
    opened: dict[UnopenedBatch, TimestampOffset | None] = {}
    while isinstance(found := look_up_timestamp(log, timestamp, opened), UnopenedBatch):
        opened[found] = found.first_moment()
    return found


def look_up_timestamp(log: LogState, timestamp: int, opened: Opened) -> TimestampOffset | UnopenedBatch | None:
    """The same, in steps: a batch that takes long to open is for the caller to open, elsewhere.

    Ask again when it is in `opened`.
    """
    for segment in log.segments:
        if segment.next_offset <= log.log_start_offset:
            continue
        found = _find_in_segment(log, segment, timestamp, opened)
        if isinstance(found, UnopenedBatch):
            return found
        if found is not None:
            return found if found.offset < log.high_watermark else None
    return None


def _find_in_segment(
    log: LogState, segment: Segment, timestamp: int, opened: Opened
) -> TimestampOffset | UnopenedBatch | None:
    place = segment.find_timestamp(timestamp)
    while place is not None:
        header, data = _checked(segment, place)
        batch = UnopenedBatch(header, data, timestamp, log.log_start_offset, unpack_limit(log.config))
        if batch in opened:
            found = opened[batch]
        elif _opens_quickly(header, data):
            found = batch._replace(unpack_limit=min(batch.unpack_limit, QUICK_BYTES)).first_moment()
        else:
            return batch
        if found is not None:
            return found
        # A batch's largest timestamp may belong to a record that is gone, or is below the start of the log.
        place = segment.find_timestamp(timestamp, Place(place.position + header.size, header.next_offset))
    return None


def _opens_quickly(header: BatchHeader, data: bytes) -> bool:
    try:
        return opens_quickly(header, data)
    except BatchError:
        return True  # it does not open at all


def _checked(segment: Segment, place: Place) -> tuple[BatchHeader, bytes]:
    data = segment.read_batch(place)
    try:
        return check_batch(data), data
    except BatchError as error:
        raise segment.damaged(place.position, error.describe()) from error


def aborted_between(
    log: LogState, start_offset: int, end_offset: int, now_ms: int
) -> list[AbortedTransaction]:
    """The aborted transactions with records in [start_offset, end_offset)."""
    wanted = AbortedRange(start_offset, end_offset)
    find_aborted(log, wanted, now_ms)
    return wanted.found


def find_aborted(log: LogState, wanted: AbortedRange, now_ms: int) -> None:
    """The same, at most so many as `wanted` says: it is shorter afterwards where there are more."""
    for segment in log.segments.from_offset(wanted.start_offset):
        index = know_transactions(log.segments, segment, now_ms)
        index.look_up(wanted)
        if index.complete_for(wanted.end_offset):
            break
    wanted.shorten()

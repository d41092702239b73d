"""Appending to a log, as a leader or as a follower, and beginning new segments.

A batch is checked before anything is changed. Its payload stays closed, but for two questions on compacted topics: is
there a record without a key, and may the batch be unpacked at all? It may if it unpacks to no more than
16 × `max.message.bytes` (rule 34).

What must stay true: an append that raises has changed nothing, unless it raised `DiskFailed` or `LogDamaged`. (A
follower's append may have written the batches before the one that a full disk refused.)
"""

from __future__ import annotations

import zlib
from collections.abc import Sequence
from typing import NamedTuple

from raylog.config import TopicConfig
from raylog.errors import (
    BatchTooLarge,
    DiskError,
    DiskFailed,
    InvalidBatch,
    InvalidTimestamp,
    NullKey,
    OffsetsNotContiguous,
    StaleLeaderEpoch,
)
from raylog.storage.directory.partition_directory import DELETED_SUFFIX
from raylog.storage.format.batch_codec import has_null_key, unpack_limit
from raylog.storage.format.control_records import decode_marker
from raylog.storage.format.record_batch import (
    MAX_OFFSET_DELTA,
    NO_LEADER_EPOCH,
    NO_PRODUCER_ID,
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    MutableBytes,
    check_batch,
    filler,
    read_header,
    split_batches,
    stamp,
    stamp_log_append_time,
)
from raylog.storage.log.state import LogState, make_whole
from raylog.storage.log.truncation import restart
from raylog.storage.segment.producer_state import take_in
from raylog.storage.segment.segment import LOG_SUFFIX, Segment


class Appended(NamedTuple):
    """The place of a batch in the log, and the time its records got there, if they got one.

    A duplicate names both as they were when it arrived for the first time.
    """

    first_offset: int
    last_offset: int
    is_duplicate: bool = False
    append_time_ms: int = NO_TIMESTAMP


class _Waiting(NamedTuple):
    """Batches that will be in the growing segment before the one in question."""

    size: int = 0
    first_timestamp: int = NO_TIMESTAMP

    def and_also(self, header: BatchHeader) -> _Waiting:
        first = header.max_timestamp if self.first_timestamp == NO_TIMESTAMP else self.first_timestamp
        return _Waiting(self.size + header.size, first)


_NOTHING_WAITS = _Waiting()


def append_as_leader(
    log: LogState,
    batch: MutableBytes,
    leader_epoch: int,
    now_ms: int,
    checked: BatchHeader | None = None,
    *,
    control: bool = False,
) -> Appended:
    """Check `batch`, stamp offset and epoch into it in place, and append it.

    After that `batch` holds the bytes to push to followers. A duplicate is answered, not appended. It is to be
    acknowledged once the high watermark has passed it (rule 18). `checked` is what `check_new_batch` has returned.
    """
    if leader_epoch != log.epochs.latest or leader_epoch == NO_LEADER_EPOCH:
        raise StaleLeaderEpoch(leader_epoch, log.epochs.latest)
    if log.cut is not None or log.marks.restart_ahead is not None:
        make_whole(log)
    if log.epochs.is_stale:
        log.epochs.take_back()
    header = checked or check_new_batch(batch, log.config, now_ms, control=control)
    if control:
        marker = decode_marker(header, batch)
        assert marker is not None  # a new batch has records
        log.producers.check_marker(header, marker)
    elif header.has_producer:
        earlier = log.producers.check(header)
        if earlier is not None:
            return Appended(earlier.first_offset, earlier.last_offset, True, earlier.append_time_ms)
    append_time_ms = NO_TIMESTAMP
    if log.config.message_timestamp_type == "LogAppendTime":
        append_time_ms = now_ms
        stamp_log_append_time(batch, now_ms)
    stamp(batch, log.segments.active.next_offset, leader_epoch)
    header = read_header(batch)
    if _must_roll(log, header):
        _roll(log)
    _write(log, batch, (header,), (batch,), now_ms)
    return Appended(header.base_offset, header.last_offset, False, append_time_ms)


def append_as_follower(log: LogState, data: Bytes, now_ms: int) -> int:
    """Append batches as the leader stamped them; returns the new log end offset.

    All of `data` is checked before any of it is written, and it must join on to the log's end. Where a write fails
    (`DiskFull`), the batches before it are in the log: the log end offset tells.
    """
    if log.cut is not None or log.marks.restart_ahead is not None or log.marks.registers_later:
        make_whole(log)
    end = log.segments.active.next_offset
    arrived = check_replicated(data, end, log.epochs.latest)
    if not arrived:
        return end
    first = arrived[0][0].base_offset
    if first < end:  # the leader's log starts inside a batch, and this log is still empty
        _begin_inside_batch(log, first)
    try:
        _append_checked(log, arrived, now_ms)
    finally:
        start = log.marks.log_start_offset
        if log.segments.active.next_offset < start and log.offline_because is None:
            restart(log, start, start)  # not even the batch across the start could be written
    return log.segments.active.next_offset


def _begin_inside_batch(log: LogState, base_offset: int) -> None:
    start = log.log_start_offset
    if log.size_bytes or start != log.log_end_offset:
        raise OffsetsNotContiguous(base_offset, log.log_end_offset)
    restart(log, base_offset, start)


def _append_checked(log: LogState, arrived: Sequence[tuple[BatchHeader, memoryview]], now_ms: int) -> None:
    group: list[tuple[BatchHeader, memoryview]] = []
    waiting = _NOTHING_WAITS
    for header, batch in arrived:
        if group:
            waiting = waiting.and_also(group[-1][0])
        new_epoch = header.leader_epoch != log.epochs.latest
        must_roll = _must_roll(log, header, waiting)
        if new_epoch or must_roll:
            _write_group(log, group, now_ms)
            waiting = _NOTHING_WAITS
        if new_epoch:
            log.epochs.assign(header.leader_epoch, header.base_offset)
        elif log.epochs.is_stale:
            log.epochs.take_back()
        if must_roll:
            _roll(log)
        group.append((header, batch))
    _write_group(log, group, now_ms)


def _write_group(log: LogState, group: list[tuple[BatchHeader, memoryview]], now_ms: int) -> None:
    """Write neighbouring batches with one call, and empty the group."""
    if not group:
        return
    headers, batches = zip(*group, strict=True)
    data = batches[0] if len(batches) == 1 else b"".join(batches)
    _write(log, data, headers, batches, now_ms)
    group.clear()


def _write(
    log: LogState, data: Bytes, headers: Sequence[BatchHeader], batches: Sequence[Bytes], now_ms: int
) -> None:
    active = log.segments.active
    if not active.size:
        log.make_first_file()
    active.append(data, headers)
    active.written_ms = now_ms
    for header, batch in zip(headers, batches, strict=True):
        if header.producer_id >= 0:
            aborted = take_in(log.producers, header, batch, now_ms)
            if aborted is not None:
                active.transactions.add(aborted)
        log.flushes.appended(header.record_count, now_ms)


# --- rolling ---


def _must_roll(log: LogState, header: BatchHeader, waiting: _Waiting = _NOTHING_WAITS) -> bool:
    """Whether `header` begins a new segment, once the batches that are `waiting` have been written."""
    active, config = log.segments.active, log.config
    size = active.size + waiting.size
    if size == 0:
        return False
    return (
        size + header.size > config.segment_bytes
        or header.last_offset - active.base_offset > MAX_OFFSET_DELTA
        or active.offset_index.size_bytes >= config.segment_index_bytes
        or active.transactions.size_bytes >= config.segment_index_bytes
        or _is_old_for(log, header, active, waiting)
    )


def _is_old_for(log: LogState, header: BatchHeader, active: Segment, waiting: _Waiting) -> bool:
    """Whether the segment has been growing for `segment.ms` by the time of `header`. Fillers have no time."""
    first = active.first_timestamp
    if first == NO_TIMESTAMP:
        first = waiting.first_timestamp
    if first == NO_TIMESTAMP:
        return False
    config = log.config
    jitter = _jitter_ms(log, active) if config.segment_jitter_ms else 0
    return header.max_timestamp - first > config.segment_ms - jitter


def _jitter_ms(log: LogState, active: Segment) -> int:
    """The same for one segment however often it is asked, different between segments and partitions."""
    jitter = min(log.config.segment_jitter_ms, log.config.segment_ms)
    return zlib.crc32(active.path(LOG_SUFFIX).encode()) % (jitter + 1)


def roll(log: LogState) -> None:
    """Seal the growing segment and begin a new one."""
    make_whole(log)
    if log.segments.active.size:
        _roll(log)


def _roll(log: LogState) -> None:
    active = log.segments.active
    successor = log.new_segment(active.next_offset)
    try:
        successor.save_snapshot(log.producers)
        active.seal()
    except DiskError:
        _take_back(log, successor)
        raise
    log.segments.add(successor)
    log.flushes.rolled()


def _take_back(log: LogState, successor: Segment) -> None:
    """Remove a segment's file that the log does not know of: it would be taken for damage after a clean close."""
    successor.close()
    try:
        for path in successor.retire(DELETED_SUFFIX):
            log.disk.remove(path)
    except DiskError as error:
        raise DiskFailed(f"A file of a refused segment stays: {error.describe()}") from error


# --- checks, before anything is changed -------------------------------------------------------------------------------


def check_new_batch(
    batch: Bytes, config: TopicConfig, now_ms: int, *, control: bool, unpacks: bool = True
) -> BatchHeader:
    """Check a batch that a producer, or with `control` a coordinator, wants to have appended.

    Without `unpacks`, `check_payload` is left to the caller.
    """
    if len(batch) > config.max_batch_bytes and not control:
        raise BatchTooLarge(len(batch), config.max_batch_bytes)
    header = check_batch(batch)
    _check_count(header)
    if header.is_control != control:
        raise InvalidBatch("Only transaction coordinators write control batches, and nothing else.")
    if header.producer_id < NO_PRODUCER_ID or (header.is_transactional and not header.has_producer):
        raise InvalidBatch(f"Producer id {header.producer_id} cannot write this batch.")
    if not control:  # a marker that is refused for its age would leave its transaction open for ever
        _check_timestamps(header, config, now_ms)
    if config.is_compacted and not control and unpacks:
        check_payload(header, batch, unpack_limit(config))
    return header


def check_payload(header: BatchHeader, batch: Bytes, limit: int) -> None:
    """Check what a batch of a compacted topic has to hold. NullKey, PayloadTooLarge, and other errors of batches."""
    if has_null_key(header, batch, limit):
        raise NullKey("A record has no key, but the topic is compacted.")


def _check_count(header: BatchHeader) -> None:
    # Gaps inside a batch come from compaction only: a new batch is dense.
    if header.record_count < 1 or header.record_count != header.last_offset_delta + 1:
        raise InvalidBatch(
            f"A new batch counts {header.record_count} records, but spans {header.last_offset_delta + 1} offsets."
        )


def _check_timestamps(header: BatchHeader, config: TopicConfig, now_ms: int) -> None:
    if config.message_timestamp_type == "LogAppendTime":
        return
    if header.is_log_append_time:
        raise InvalidTimestamp("The batch claims the broker's time, but the topic keeps its writers' (CreateTime).")
    if header.max_timestamp < header.base_timestamp or header.base_timestamp < 0:
        raise InvalidTimestamp(f"Timestamps {header.base_timestamp} to {header.max_timestamp} cannot be.")
    if header.max_timestamp - now_ms > config.message_timestamp_after_max_ms:
        raise InvalidTimestamp(
            f"Timestamp {header.max_timestamp} is {header.max_timestamp - now_ms} ms ahead of the broker."
        )
    if now_ms - header.base_timestamp > config.message_timestamp_before_max_ms:
        raise InvalidTimestamp(
            f"Timestamp {header.base_timestamp} is {now_ms - header.base_timestamp} ms behind the broker."
        )


def check_replicated(
    data: Bytes, log_end_offset: int, latest_epoch: int
) -> list[tuple[BatchHeader, memoryview]]:
    """Check batches that a leader sent: each whole, and joining on to the one before it, the first to the log."""
    arrived = []
    expected = log_end_offset
    for number, sent in enumerate(split_batches(data)):
        header, batch = check_batch(sent), sent
        if header.is_filler and header.base_offset < expected < header.next_offset:
            # Compaction on the leader merged offsets that this log has with some that it lacks.
            batch = memoryview(filler(expected, header.next_offset, header.leader_epoch))
            header = read_header(batch)
        if header.base_offset != expected and not (number == 0 and header.base_offset < expected < header.next_offset):
            raise OffsetsNotContiguous(header.base_offset, expected)
        if header.leader_epoch < 0:
            raise InvalidBatch(f"A replicated batch at offset {header.base_offset} has no leader epoch.")
        if header.leader_epoch < latest_epoch:
            raise StaleLeaderEpoch(header.leader_epoch, latest_epoch)
        if header.is_control:
            decode_marker(header, batch)  # raises here rather than after it has been written
        arrived.append((header, batch))
        expected, latest_epoch = header.next_offset, header.leader_epoch
    return arrived

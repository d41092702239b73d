"""Checks of a leader before it takes a batch in. Nothing is changed here; a refusal leaves the log as it was.

The payload stays closed, but for two questions on compacted topics: is there a record without a key, and may the batch
be unpacked at all? It may if it unpacks to no more than 16 × `max.message.bytes` (rule 34).
"""

from __future__ import annotations

from typing import Final

from raylog.config import TopicConfig
from raylog.errors import (
    BatchError,
    BatchTooLarge,
    InvalidBatch,
    InvalidTimestamp,
    NullKey,
    OffsetsNotContiguous,
    StaleLeaderEpoch,
)
from raylog.storage.format.batch_codec import has_null_key
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT
from raylog.storage.format.control_records import decode_marker
from raylog.storage.format.record_batch import (
    NO_PRODUCER_ID,
    BatchHeader,
    Bytes,
    check_batch,
    filler,
    read_header,
    split_batches,
)

_UNPACK_FACTOR: Final = 16


def unpack_limit(config: TopicConfig) -> int:
    """Return how much a broker unpacks of one batch of this topic."""
    return min(_UNPACK_FACTOR * config.max_message_bytes, DEFAULT_UNPACK_LIMIT)


def check_new_batch(
    batch: Bytes, config: TopicConfig, now_ms: int, *, control: bool, unpacks: bool = True
) -> BatchHeader:
    """Check a batch that a producer, or with `control` a coordinator, wants to have appended.

    Without `unpacks`, `check_payload` is left to the caller.
    """
    limit = min(config.max_message_bytes, config.segment_bytes)
    if len(batch) > limit and not control:
        raise BatchTooLarge(len(batch), limit)
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


def first_unsound(data: Bytes, offset: int) -> int:
    """The offset of the first batch in `data` that is not as its writer made it; `offset`: where the first begins."""
    try:
        for batch in split_batches(data):
            offset = check_batch(batch).next_offset
    except BatchError:
        return offset
    return offset

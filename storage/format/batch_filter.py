"""Batches with some of their records taken out, for compaction.

What must stay true: offsets, sequences, producer and epoch stay as they were; so the batch still spans all its offsets
and still tells the next sequence of its producer.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress as select

from raylog.storage.format import kafka_records
from raylog.storage.format.batch_codec import DecodedBatch, unpacked
from raylog.storage.format.columns import encode_columns, pack_int64
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT, compress
from raylog.storage.format.record_batch import CODEC_MASK, MAGIC_COLUMNS, BatchHeader, Bytes, seal


def only_records(header: BatchHeader, batch: Bytes, records: DecodedBatch, stays: Sequence[bool]) -> bytearray:
    """Make `batch` anew with only the records that stay; at least one does."""
    parts = _columns(header, records, stays) if header.magic == MAGIC_COLUMNS else _kafka(header, batch, stays)
    payload: list[Bytes] = parts if header.codec == 0 else [compress(header.codec, b"".join(parts))]
    newest = header.max_timestamp if header.is_log_append_time else max(select(records.timestamps, stays))
    return _sealed(header, payload, header.attributes, newest, sum(stays))


def emptied(header: BatchHeader) -> bytearray:
    """The batch without records: what is left to remember a producer by."""
    return _sealed(header, [], header.attributes & ~CODEC_MASK, header.max_timestamp, 0)


def _columns(header: BatchHeader, records: DecodedBatch, stays: Sequence[bool]) -> list[Bytes]:
    headers = list(select(records.headers, stays))
    return encode_columns(
        list(select(records.keys, stays)),
        list(select(records.values, stays)),
        pack_int64([moment - header.base_timestamp for moment in select(records.timestamps, stays)]),
        [offset - header.base_offset for offset in select(records.offsets, stays)],
        headers if any(headers) else None,
    )


def _kafka(header: BatchHeader, batch: Bytes, stays: Sequence[bool]) -> list[Bytes]:
    records = kafka_records.parse_records(unpacked(header, batch, DEFAULT_UNPACK_LIMIT), header)
    return [kafka_records.join_retained(list(select(records, stays)))]


def _sealed(
    header: BatchHeader, payload: list[Bytes], attributes: int, max_timestamp: int, record_count: int
) -> bytearray:
    return seal(
        payload,
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        magic=header.magic,
        attributes=attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=record_count,
    )

"""Records and batches for the codec tests: strategies, builders, and a plain encoder of Kafka's records.

The plain encoder is written from the format's description and shares nothing with `kafka_records`; it can
also encode what no client would.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, TypeAlias

import pytest
from aiokafka.record.default_records import DefaultRecordBatchBuilder
from aiokafka.record.memory_records import MemoryRecords
from hypothesis import settings
from hypothesis import strategies as st

from raylog.storage.format.batch_codec import DecodedBatch, encode_batch
from raylog.storage.format.record_batch import MAGIC_COLUMNS, BatchHeader, Bytes, seal

CODECS = range(5)
MODERN = 1_700_000_000_000

# For properties that are also parametrized. A share, so that the profile `deep` reaches them too.
fewer_examples = settings(max_examples=settings().max_examples // 4)


Headers: TypeAlias = tuple[tuple[str, bytes | None], ...]


class Record(NamedTuple):
    """A record as a user sees it."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers = ()


# --- strategies -------------------------------------------------------------------------------------------

_items = st.none() | st.binary(max_size=8) | st.just(b"") | st.binary(min_size=70, max_size=300)
_headers = st.lists(st.tuples(st.text(max_size=5), st.none() | st.binary(max_size=70)), max_size=3).map(tuple)
_timestamps = st.integers(MODERN, MODERN + 100_000) | st.integers(0, 2**55)


def records(*, sparse: bool = False) -> st.SearchStrategy[list[Record]]:
    """Lists of records with the offsets 0, 1, 2, …, or with gaps."""
    fields = st.tuples(st.integers(1, 300) if sparse else st.just(1), _timestamps, _items, _items, _headers)
    return st.lists(fields, min_size=1, max_size=8).map(_with_offsets)


def _with_offsets(drawn: list[tuple[int, int, bytes | None, bytes | None, Headers]]) -> list[Record]:
    offset, result = -1, []
    for step, timestamp, key, value, headers in drawn:
        offset += step
        result.append(Record(offset, timestamp, key, value, headers))
    return result


# --- builders ---------------------------------------------------------------------------------------------


def encoded(records: Sequence[Record], codec: int = 0) -> bytes:
    """A columnar batch of records with dense offsets."""
    batch = encode_batch(
        [record.value for record in records],
        timestamps=[record.timestamp for record in records],
        keys=[record.key for record in records],
        headers=[record.headers for record in records],
        codec=codec,
    )
    return bytes(batch)


def written_by_aiokafka(
    records: Sequence[Record],
    codec: int = 0,
    *,
    transactional: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    builder = DefaultRecordBatchBuilder(2, codec, int(transactional), *producer, 1 << 30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def written_by_kafka_python(
    records: Sequence[Record],
    codec: int = 0,
    *,
    transactional: bool = False,
    producer: tuple[int, int, int] = (-1, -1, -1),
) -> bytes:
    default_records = pytest.importorskip("kafka.record.default_records", reason="the extra `kafka` is not installed")
    builder = default_records.DefaultRecordBatchBuilder(2, codec, transactional, *producer, 1 << 30)
    for record in records:
        builder.append(record.offset, record.timestamp, record.key, record.value, list(record.headers))
    return bytes(builder.build())


def read_by_aiokafka(batch: Bytes) -> list[Record]:
    reader = MemoryRecords(bytes(batch)).next_batch()
    assert reader.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]


def read_by_kafka_python(batch: Bytes) -> list[Record]:
    memory_records = pytest.importorskip("kafka.record.memory_records", reason="the extra `kafka` is not installed")
    reader = memory_records.MemoryRecords(bytes(batch)).next_batch()
    assert reader.validate_crc()
    return [Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)) for r in reader]


def rows(batch: DecodedBatch) -> list[Record]:
    columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, map(tuple, batch.headers))
    return [Record(*fields) for fields in zip(*columns, strict=True)]


def sealed(
    payload: Bytes,
    count: int,
    *,
    magic: int = MAGIC_COLUMNS,
    codec: int = 0,
    last_offset_delta: int | None = None,
) -> bytearray:
    """Any payload under a header that fits it, with a CRC that is right."""
    return seal(
        [payload],
        magic=magic,
        attributes=codec,
        last_offset_delta=count - 1 if last_offset_delta is None else last_offset_delta,
        base_timestamp=MODERN,
        max_timestamp=MODERN,
        record_count=count,
    )


def resealed(header: BatchHeader, payload: Bytes, record_count: int) -> bytearray:
    """The batch of `header` with another payload, as compaction makes it."""
    return seal(
        [payload],
        base_offset=header.base_offset,
        leader_epoch=header.leader_epoch,
        magic=header.magic,
        attributes=header.attributes,
        last_offset_delta=header.last_offset_delta,
        base_timestamp=header.base_timestamp,
        max_timestamp=header.max_timestamp,
        producer_id=header.producer_id,
        producer_epoch=header.producer_epoch,
        base_sequence=header.base_sequence,
        record_count=record_count,
    )


# --- a plain encoder of Kafka's records -------------------------------------------------------------------


def varint(number: int) -> bytes:
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    encoding = bytearray()
    while rest > 0x7F:
        encoding.append(0x80 | rest & 0x7F)
        rest >>= 7
    encoding.append(rest)
    return bytes(encoding)


def kafka_bytes(item: bytes | None) -> bytes:
    return varint(-1) if item is None else varint(len(item)) + item


def kafka_record(record: Record, base_timestamp: int = MODERN) -> bytes:
    headers = [kafka_bytes(name.encode()) + kafka_bytes(value) for name, value in record.headers]
    body = b"".join(
        [
            b"\0",
            varint(record.timestamp - base_timestamp),
            varint(record.offset),
            kafka_bytes(record.key),
            kafka_bytes(record.value),
            varint(len(headers)),
            *headers,
        ]
    )
    return varint(len(body)) + body


def kafka_payload(records: Sequence[Record]) -> bytes:
    return b"".join(map(kafka_record, records))

"""Records into batches and batches into records, whichever layout the payload has.

`encode_batch` is what producers and the brokers' own topics use; `decode_batch` is what every reader ends in.
The CRC is checked here (rule 1), and only after it does anything look at the payload.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat
from operator import add
from typing import Final, NamedTuple, TypeAlias, cast

from raylog.config import BATCHES_OF_KAFKA, TopicConfig
from raylog.errors import InvalidBatch
from raylog.storage.format import kafka_records
from raylog.storage.format.columns import (
    Column,
    ColumnPayload,
    Headers,
    RawColumns,
    column_size,
    encode_columns,
    join_columns,
    new_columns,
    pack_timestamps,
)
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT, compress, declared_size, decompress
from raylog.storage.format.kafka_columns import kafka_columns, plain_columns
from raylog.storage.format.kafka_encoding import encode_records
from raylog.storage.format.record_batch import (
    CONTROL_BIT,
    HEADER_BYTES,
    MAGIC_COLUMNS,
    MAGIC_KAFKA,
    NO_PRODUCER_EPOCH,
    NO_PRODUCER_ID,
    NO_SEQUENCE,
    TRANSACTIONAL_BIT,
    BatchHeader,
    Bytes,
    check_batch,
    seal,
)

QUICK_BYTES: Final = 256 * 1024  # what is unpacked on an event loop at most (rule 34)
_UNPACK_FACTOR: Final = 16
_QUICK_RECORDS: Final = 4_000  # of Kafka's own layout, of which each record costs a microsecond

# Timestamps as runs (how many records, milliseconds): records come in bursts, and a run costs as much as one record.
TimestampRuns: TypeAlias = tuple[tuple[int, int], ...]


class BatchForm(NamedTuple):
    """The form of a batch: how its payload is compressed, and its layout."""

    codec: int
    magic: int

    @classmethod
    def of(cls, codec: int, batch_format: str) -> BatchForm:
        """Return the form for new batches of a topic with this `batch.format`, where Python writes them."""
        return cls(codec, MAGIC_KAFKA if batch_format == BATCHES_OF_KAFKA else MAGIC_COLUMNS)


PLAIN_COLUMNS: Final = BatchForm(0, MAGIC_COLUMNS)


@dataclass(frozen=True)
class DecodedBatch:
    """A batch's records as parallel columns."""

    header: BatchHeader
    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    offsets: Sequence[int]
    headers: Sequence[Headers]

    def __len__(self) -> int:
        return self.header.record_count


def encode_batch(
    values: Sequence[bytes | None],
    *,
    timestamps: Sequence[int] | TimestampRuns | int,
    keys: Sequence[bytes | None] | None = None,
    headers: Sequence[Headers | None] | None = None,
    codec: int = 0,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
) -> bytearray:
    """One columnar batch of `values`, for a leader to stamp. A single timestamp stands for all; runs will do too."""
    count = len(values)
    if count == 0:
        raise InvalidBatch("A batch without records cannot be written.")
    for name, column in (("keys", keys), ("headers", headers)):
        if column is not None and len(column) != count:
            raise InvalidBatch(f"{len(column)} {name} were given for {count} values.")
    base, newest, deltas = _timestamp_column(timestamps, count)
    payload = encode_columns(keys, values, deltas, headers=headers)
    return seal(
        payload if codec == 0 else [compress(codec, b"".join(payload))],
        attributes=codec | (TRANSACTIONAL_BIT if transactional else 0) | (CONTROL_BIT if control else 0),
        last_offset_delta=count - 1,
        base_timestamp=base,
        max_timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


def encode_raw(
    count: int,
    key_lengths: Column,
    keys: Column,
    value_lengths: Column,
    values: Column,
    timestamps: Sequence[int] | TimestampRuns | int,
    headers: Sequence[Headers | None] | None = None,
    *,
    form: BatchForm = PLAIN_COLUMNS,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
) -> bytearray:
    """One batch of columns that are joined already, with their lengths as little-endian int32."""
    if count == 0 or column_size(key_lengths) != 4 * count or column_size(value_lengths) != 4 * count:
        raise InvalidBatch(f"The columns are not those of {count} records.")
    base, newest, deltas = _timestamp_column(timestamps, count)
    payload: list[Bytes]
    if form.magic == MAGIC_COLUMNS:
        payload = join_columns(key_lengths, value_lengths, keys, values, deltas, headers=headers)
    else:
        columns = new_columns(count, key_lengths, keys, value_lengths, values, deltas, headers)
        payload = [b"".join(encode_records(columns))]
    return seal(
        payload if form.codec == 0 else [compress(form.codec, b"".join(payload))],
        magic=form.magic,
        attributes=form.codec | (TRANSACTIONAL_BIT if transactional else 0),
        last_offset_delta=count - 1,
        base_timestamp=base,
        max_timestamp=newest,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        record_count=count,
    )


def _timestamp_column(timestamps: Sequence[int] | TimestampRuns | int, count: int) -> tuple[int, int, bytes]:
    if isinstance(timestamps, int):
        return timestamps, timestamps, pack_timestamps([timestamps], timestamps) * count
    if isinstance(timestamps, tuple) and timestamps and isinstance(timestamps[0], tuple):
        return _timestamp_runs(cast(TimestampRuns, timestamps), count)
    timestamps = cast(Sequence[int], timestamps)
    if len(timestamps) != count:
        raise InvalidBatch(f"{len(timestamps)} timestamps were given for {count} values.")
    base = timestamps[0]
    return base, max(timestamps), pack_timestamps(timestamps, base)


def _timestamp_runs(runs: TimestampRuns, count: int) -> tuple[int, int, bytes]:
    covered = sum(length for length, _ in runs)
    if covered != count:
        raise InvalidBatch(f"Runs of {covered} timestamps were given for {count} values.")
    lengths, timestamps = zip(*runs, strict=True)
    base = timestamps[0]
    each = pack_timestamps(timestamps, base)  # all in one call: there may be as many runs as records
    column = b"".join([each[8 * run : 8 * run + 8] * length for run, length in enumerate(lengths)])
    return base, max(timestamps), column


def decode_batch(batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT) -> DecodedBatch:
    """Check and decode `batch`, the bytes of exactly one batch."""
    header = check_batch(batch)
    return decode_checked(header, batch, unpack_limit)


def decode_checked(
    header: BatchHeader, batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT
) -> DecodedBatch:
    """Decode a batch whose header and CRC have just been checked. The payload itself is never trusted."""
    if header.record_count == 0:
        return DecodedBatch(header, [], [], [], [], [])
    if header.magic == MAGIC_COLUMNS:
        payload = column_payload(header, batch, unpack_limit)
        keys, values, headers = payload.keys(), payload.values(), payload.headers()
        timestamps, offsets = payload.timestamps(header.base_timestamp), payload.offsets(header.base_offset)
    else:
        found = plain_columns(unpacked(header, batch, unpack_limit), header)
        keys, values, timestamps, offsets, headers = found
    if header.is_log_append_time:
        timestamps = [header.max_timestamp] * header.record_count
    return DecodedBatch(header, keys, values, timestamps, offsets, headers)


def read_checked(header: BatchHeader, batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT) -> DecodedBatch:
    """Do what `decode_checked` does, by a compiled parser if one is installed. For readers, and not for brokers."""
    if header.magic == MAGIC_COLUMNS or header.record_count == 0:
        return decode_checked(header, batch, unpack_limit)
    keys, values, timestamps, offsets, headers = kafka_columns(unpacked(header, batch, unpack_limit), header)
    if header.is_log_append_time:
        timestamps = [header.max_timestamp] * header.record_count
    return DecodedBatch(header, keys, values, timestamps, offsets, headers)


class BatchColumns(NamedTuple):
    """A batch's records as parallel columns, each to be walked once."""

    offsets: Sequence[int]
    timestamps: Iterator[int]
    keys: Iterator[bytes | None]
    values: Iterator[bytes | None]
    headers: Iterator[Headers]


def walk_checked(header: BatchHeader, batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT) -> BatchColumns:
    """Do what `decode_checked` does, but make nothing before it is asked for. What is wrong with the batch is found
    here.
    """
    if header.magic != MAGIC_COLUMNS or header.record_count == 0:
        decoded = read_checked(header, batch, unpack_limit)
        columns = (decoded.timestamps, decoded.keys, decoded.values, decoded.headers)
        return BatchColumns(decoded.offsets, *map(iter, columns))  # type: ignore[arg-type]  # four types of items
    payload = column_payload(header, batch, unpack_limit)
    timestamps = payload.each_timestamp(header.base_timestamp)
    if header.is_log_append_time:
        timestamps = repeat(header.max_timestamp, header.record_count)
    headers = payload.record_headers
    return BatchColumns(
        payload.offsets(header.base_offset),
        timestamps,
        payload.each_key(),
        payload.each_value(),
        repeat((), header.record_count) if headers is None else iter(headers),
    )


def column_payload(
    header: BatchHeader, batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT
) -> ColumnPayload:
    """The columns of a checked magic-16 batch."""
    return ColumnPayload.parse(
        unpacked(header, batch, unpack_limit), header.record_count, header.last_offset_delta
    )


def unpacked(header: BatchHeader, batch: Bytes, unpack_limit: int) -> Bytes:
    payload = memoryview(batch)[HEADER_BYTES:]
    return payload if header.codec == 0 else decompress(header.codec, payload, unpack_limit)


def unpack_limit(config: TopicConfig) -> int:
    """Return how much a broker unpacks of one batch of this topic."""
    return min(_UNPACK_FACTOR * config.max_message_bytes, DEFAULT_UNPACK_LIMIT)


def has_null_key(header: BatchHeader, batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT) -> bool:
    """Whether some record has no key. Nothing of the payload is looked at but its keys."""
    if header.record_count == 0:
        return False
    payload = unpacked(header, batch, unpack_limit)
    if header.magic == MAGIC_COLUMNS:
        return RawColumns.take_apart(payload, header.record_count).has_null_key()
    return kafka_records.has_null_key(payload, header.record_count)


def moments(header: BatchHeader, batch: Bytes, unpack_limit: int) -> Iterator[tuple[int, int]]:
    """Timestamp and offset of each record of a checked batch. Keys, values and headers are not looked at."""
    if header.record_count == 0:
        return iter(())
    payload = unpacked(header, batch, unpack_limit)
    timestamps: Iterator[int]
    deltas: Sequence[int]
    if header.magic == MAGIC_COLUMNS:
        raw = RawColumns.take_apart(payload, header.record_count)
        timestamps, deltas = raw.moments(header.base_timestamp, header.last_offset_delta)
    else:
        records = kafka_records.parse_records(payload, header)
        timestamps = (header.base_timestamp + record.timestamp_delta for record in records)
        deltas = [record.offset_delta for record in records]
    if header.is_log_append_time:
        timestamps = repeat(header.max_timestamp, header.record_count)
    return zip(timestamps, map(add, repeat(header.base_offset), deltas), strict=True)


def opens_quickly(header: BatchHeader, batch: Bytes) -> bool:
    """Whether looking into this batch takes a few milliseconds at most, by what it says of itself.

    It may say too little: whoever relies on this unpacks no more than `QUICK_BYTES`. CorruptBatch.
    """
    if header.magic != MAGIC_COLUMNS and header.record_count > _QUICK_RECORDS:
        return False
    size = declared_size(header.codec, memoryview(batch)[HEADER_BYTES:])
    return size is not None and size <= QUICK_BYTES

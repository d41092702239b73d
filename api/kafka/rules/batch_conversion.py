"""Columnar batches as Kafka's own (magic 2), for clients that know no other; and those of such clients as columns.

What must stay true:
- A converted batch has the records of the other one, under the same offsets and timestamps, by the same producer,
  epoch and sequence, in the same transaction. Only magic, payload, length and CRC are new.
- The CRC of the batch is checked first (rule 1): the new one would hide damage.
- Batches without records stand for offsets that compaction removed. A client never gets them beside data: a gap is
  fine with all clients, but KafkaJS stops for ever at an answer of nothing but an empty batch while there is data
  behind it. Where nothing but such batches is there, one stands for all, so that the client's position moves on.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import chain
from typing import Final, NamedTuple

from crc32c import crc32c

from raylog.errors import CorruptBatch, PayloadTooLarge
from raylog.storage.format.batch_codec import column_payload, unpacked
from raylog.storage.format.columns import encode_columns, pack_int64
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT, codec_named, compress, declared_size
from raylog.storage.format.kafka_columns import kafka_columns
from raylog.storage.format.kafka_encoding import encode_records
from raylog.storage.format.record_batch import (
    CODEC_MASK,
    CRC_START,
    HEADER,
    HEADER_BYTES,
    LENGTH_PREFIX_BYTES,
    MAGIC_COLUMNS,
    MAGIC_KAFKA,
    NO_LEADER_EPOCH,
    BatchHeader,
    Bytes,
    check_batch,
    filler,
    read_header,
    split_batches,
)

NO_COMPRESSION: Final = codec_named("none").number
_LZ4: Final = codec_named("lz4").number
_ZSTD: Final = codec_named("zstd").number
_FETCH_WITH_ZSTD: Final = 10  # the first version whose clients read it
_BYTES_OF_A_RECORD: Final = 16  # what a record costs beside its own bytes
_BLANK_HEADER: Final = bytes(HEADER_BYTES)
_UNPACK_FACTOR: Final = 16  # as leaders unpack (rule 34)
_MOST_UNPACKED: Final = 32 * 1024 * 1024
_MOST_RECORDS: Final = 250_000
_OBJECTS_OF_A_RECORD: Final = 250  # bytes, while it is converted


def codec_for(stored: int, fetch_version: int) -> int:
    """Return the codec of a converted batch: that of the stored one, unless a client of this version cannot read it."""
    return _LZ4 if stored == _ZSTD and fetch_version < _FETCH_WITH_ZSTD else stored


def as_kafka(batch: Bytes, codec: int | None = None) -> bytearray:
    """One checked columnar batch as a magic-2 one. `codec=None` keeps its codec. BatchError."""
    header = check_batch(batch)
    if header.record_count == 0:
        return _sealed(header, MAGIC_KAFKA, bytearray(_BLANK_HEADER), NO_COMPRESSION)
    codec = header.codec if codec is None else codec
    records = encode_records(column_payload(header, batch, DEFAULT_UNPACK_LIMIT))
    if codec != NO_COMPRESSION:
        records = iter((compress(codec, b"".join(records)),))
    return _sealed(header, MAGIC_KAFKA, bytearray().join(chain((_BLANK_HEADER,), records)), codec)


def as_columns(batch: Bytes, unpack_limit: int = DEFAULT_UNPACK_LIMIT) -> bytearray:
    """One batch of Kafka's own as a columnar one, in its codec. BatchError."""
    header = check_batch(batch)
    if header.record_count == 0:
        return _sealed(header, MAGIC_COLUMNS, bytearray(_BLANK_HEADER), NO_COMPRESSION)
    records = kafka_columns(unpacked(header, batch, unpack_limit), header)
    is_dense = header.record_count == header.last_offset_delta + 1
    parts = encode_columns(
        None if records.keys.count(None) == header.record_count else records.keys,
        records.values,
        pack_int64([timestamp - header.base_timestamp for timestamp in records.timestamps]),
        None if is_dense else [offset - header.base_offset for offset in records.offsets],
        records.headers,
    )
    if header.codec != NO_COMPRESSION:
        parts = [compress(header.codec, b"".join(parts))]
    return _sealed(header, MAGIC_COLUMNS, bytearray().join(chain((_BLANK_HEADER,), parts)), header.codec)


def stored_columns(batch: Bytes, max_batch_bytes: int) -> Bytes:
    """Return what is appended where a topic wants columns and this was produced. BatchError.

    That is the batch as it came where columns would be larger than its topic takes, or are too much work. Kafka's
    clients fill their batches up to that size, and columns of small records are larger.
    """
    header = check_batch(batch)
    if len(batch) > max_batch_bytes or header.record_count > _MOST_RECORDS:
        return batch
    try:
        columns = as_columns(batch, _unpack_limit(max_batch_bytes))
    except PayloadTooLarge:
        return batch
    return columns if len(columns) <= max_batch_bytes else batch


def conversion_bytes(header: BatchHeader, batch: Bytes) -> int:
    """Return how much work a batch is to convert, in bytes that are unpacked or written. CorruptBatch.

    A batch of some hundred bytes may hold millions of records.
    """
    unpacked = declared_size(header.codec, memoryview(batch)[HEADER_BYTES:])
    return (DEFAULT_UNPACK_LIMIT if unpacked is None else unpacked) + header.record_count * _BYTES_OF_A_RECORD


def columns_memory(header: BatchHeader, batch: Bytes, max_batch_bytes: int) -> int:
    """Return how many bytes `stored_columns` may hold beside the batch: unpacked, as objects, and written.

    CorruptBatch. It is what the batch says of itself; what it holds in truth is refused beyond the same bounds.
    """
    limit = _unpack_limit(max_batch_bytes)
    unpacked = declared_size(header.codec, memoryview(batch)[HEADER_BYTES:])
    records = min(header.record_count, _MOST_RECORDS)
    return (limit if unpacked is None else min(unpacked, limit)) + records * _OBJECTS_OF_A_RECORD + max_batch_bytes


def _unpack_limit(max_batch_bytes: int) -> int:
    return min(_UNPACK_FACTOR * max_batch_bytes, _MOST_UNPACKED)


def _sealed(header: BatchHeader, magic: int, batch: bytearray, codec: int) -> bytearray:
    """Write the header of the batch before, with what has changed, over the first bytes of the new one."""
    fields = header._replace(
        magic=magic,
        batch_length=len(batch) - LENGTH_PREFIX_BYTES,
        attributes=header.attributes & ~CODEC_MASK | codec,
        crc=0,
    )
    HEADER.pack_into(batch, 0, *fields)
    crc = crc32c(memoryview(batch)[CRC_START:])
    HEADER.pack_into(batch, 0, *fields._replace(crc=crc))
    return batch


def check_fetched(data: Bytes, offset: int) -> list[tuple[BatchHeader, memoryview]]:
    """Return the batches that were fetched from an offset on, each with its CRC checked (rule 1).

    The fields that no CRC covers are proved by the neighbours: the batches are a chain, and the first of them holds the
    offset. CorruptBatch.
    """
    found = [(check_batch(batch), batch) for batch in split_batches(data)]
    end, epoch = found[0][0].base_offset, NO_LEADER_EPOCH
    for header, _ in found:
        if header.base_offset != end or header.leader_epoch < epoch:
            raise CorruptBatch(f"A batch of offset {header.base_offset} was fetched behind one that ends at {end}.")
        end, epoch = header.next_offset, header.leader_epoch
    if not found[0][0].base_offset <= offset < end:
        raise CorruptBatch(f"Offsets {found[0][0].base_offset} to {end} were fetched where {offset} was asked for.")
    return found


class Visible(NamedTuple):
    """Batches for a client, as pieces that follow each other; where they end; and whether they hold any records."""

    pieces: list[Bytes]
    next_offset: int
    has_records: bool


def visible_batches(data: Bytes, convert: Callable[[memoryview, BatchHeader], Bytes]) -> Visible:
    """The stored batches in `data` as a client gets them. Those of magic 2 pass in runs, as slices.

    `convert` makes a magic-2 batch of a columnar one, or has it from before. Without records there is one empty batch,
    which is to be sent only if nothing else can be read. BatchError.
    """
    view = memoryview(data)
    pieces: list[Bytes] = []
    position = run_start = 0  # a run is what passes as it is, up to the position
    first_offset, last_full = -1, None
    for batch in split_batches(view):
        header = last = read_header(batch)
        first_offset = header.base_offset if first_offset < 0 else first_offset
        passes = header.record_count > 0 and header.magic == MAGIC_KAFKA
        if not passes:
            if run_start < position:
                pieces.append(view[run_start:position])
            run_start = position + len(batch)
        if header.record_count > 0:
            last_full = header
            if not passes:
                pieces.append(convert(batch, header))
        position += len(batch)
    if run_start < position:
        pieces.append(view[run_start:position])
    if last_full is None:
        return Visible([_empty(first_offset, last)], last.next_offset, False)
    return Visible(pieces, last_full.next_offset, True)


def _empty(base_offset: int, last: BatchHeader) -> bytearray:
    """The batch that stands for everything from `base_offset` to the end of the last one."""
    return as_kafka(filler(base_offset, last.next_offset, last.leader_epoch))

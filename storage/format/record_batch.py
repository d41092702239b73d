"""The record batch: header bytes, checks, stamping.

A batch is Kafka's record batch v2 header, 61 bytes, big-endian, followed by a payload:

      0  base_offset        i64   stamped by the leader          ┐
      8  batch_length       i32   bytes after this field         │ outside the CRC, so the leader stamps
     12  leader_epoch       i32   stamped by the leader          │ without summing the payload again
     16  magic              i8    2 = Kafka records, 16 = columns┘
     17  crc32c             u32   over everything from byte 21 on
     21  attributes         i16   bits 0-2 codec, 3 timestamp type, 4 transactional, 5 control
     23  last_offset_delta  i32
     27  base_timestamp     i64
     35  max_timestamp      i64
     43  producer_id        i64   -1: none
     51  producer_epoch     i16
     53  base_sequence      i32
     57  record_count       i32
     61  payload

What must stay true: batches in a log form a chain. Each one begins at the offset after the last one of its
predecessor, so the four header fields outside the CRC are checked by their neighbours (see `segment.py`).
Where compaction removes whole batches it leaves a *filler* - a batch without records or producer - that spans the
removed offsets and keeps the chain whole.
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, TypeAlias

from crc32c import crc32c

from raylog.errors import BatchError, CorruptBatch, InvalidBatch, UnsupportedCodec, UnsupportedMagic

Bytes: TypeAlias = bytes | bytearray | memoryview
MutableBytes: TypeAlias = bytearray | memoryview

MAGIC_KAFKA: Final = 2
MAGIC_COLUMNS: Final = 16
KNOWN_MAGICS: Final = frozenset((MAGIC_KAFKA, MAGIC_COLUMNS))

HEADER: Final = struct.Struct(">qiibIhiqqqhii")
HEADER_BYTES: Final = HEADER.size
LENGTH_PREFIX_BYTES: Final = 12  # base_offset and batch_length, which batch_length does not count
CRC_START: Final = 21
_ATTRIBUTES_LOW: Final = 22  # the byte that holds all flags
MIN_BATCH_LENGTH: Final = HEADER_BYTES - LENGTH_PREFIX_BYTES
MAX_BATCH_LENGTH: Final = 2**31 - 1
MAX_OFFSET_DELTA: Final = 2**31 - 1
MAX_OFFSET: Final = 2**63 - 1
MAX_LEADER_EPOCH: Final = 2**31 - 1

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_BIT: Final = 0x08
TRANSACTIONAL_BIT: Final = 0x10
CONTROL_BIT: Final = 0x20
KNOWN_ATTRIBUTES: Final = CODEC_MASK | LOG_APPEND_TIME_BIT | TRANSACTIONAL_BIT | CONTROL_BIT
MAX_CODEC: Final = 4

NO_PRODUCER_ID: Final = -1
NO_PRODUCER_EPOCH: Final = -1
NO_SEQUENCE: Final = -1
NO_TIMESTAMP: Final = -1
NO_LEADER_EPOCH: Final = -1

# The fields that place a batch in its chain, for walks that need no more: base_offset, batch_length, leader_epoch,
# magic, (crc, attributes skipped), last_offset_delta.
CHAIN_FIELDS: Final = struct.Struct(">qiib6xi")
_STAMP_OFFSET = struct.Struct(">q")
_STAMP_EPOCH = struct.Struct(">i")
_PRODUCER = struct.Struct(">qhi")
_CRC = struct.Struct(">I")
_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")


class BatchHeader(NamedTuple):
    """The 13 header fields, in their order on disk."""

    base_offset: int
    batch_length: int
    leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch, header included."""
        return self.batch_length + LENGTH_PREFIX_BYTES

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def codec(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_log_append_time(self) -> bool:
        return bool(self.attributes & LOG_APPEND_TIME_BIT)

    @property
    def is_transactional(self) -> bool:
        return bool(self.attributes & TRANSACTIONAL_BIT)

    @property
    def is_control(self) -> bool:
        return bool(self.attributes & CONTROL_BIT)

    @property
    def has_producer(self) -> bool:
        return self.producer_id >= 0

    @property
    def last_sequence(self) -> int:
        """Sequence of the last record; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence < 0:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF

    @property
    def is_filler(self) -> bool:
        """Stands only for offsets that compaction removed."""
        return self.record_count == 0 and self.producer_id < 0


def read_header(buffer: Bytes, position: int = 0) -> BatchHeader:
    """The header at `position`, unchecked. The caller has made sure that 61 bytes are there."""
    return tuple.__new__(BatchHeader, HEADER.unpack_from(buffer, position))


def is_transactional(batch: Bytes) -> bool:
    """Return what the header of this batch says, without reading the rest of it. Fewer bytes than a header say nothing.
    """
    return len(batch) >= HEADER_BYTES and bool(batch[_ATTRIBUTES_LOW] & TRANSACTIONAL_BIT)


def check_shape(header: BatchHeader) -> None:
    """Refuse a header whose fields cannot be true of any batch."""
    attributes, base_offset, last_delta = header.attributes, header.base_offset, header.last_offset_delta
    if header.magic not in KNOWN_MAGICS:
        raise UnsupportedMagic(header.magic)
    if header.batch_length < MIN_BATCH_LENGTH:
        raise CorruptBatch(f"Batch length {header.batch_length} is less than a header.")
    if attributes & CODEC_MASK > MAX_CODEC:
        raise UnsupportedCodec(header.codec)
    if attributes & ~KNOWN_ATTRIBUTES:
        raise InvalidBatch(f"Attributes {attributes:#06x} set bits without a meaning.")
    if base_offset < 0 or last_delta < 0 or base_offset + last_delta > MAX_OFFSET:
        raise InvalidBatch(f"Offsets {base_offset} + {last_delta} cannot be.")
    if not 0 <= header.record_count <= last_delta + 1:
        raise InvalidBatch(f"Batch counts {header.record_count} records over {last_delta + 1} offsets.")
    if header.producer_id >= 0 and not header.is_control and (header.producer_epoch < 0 or header.base_sequence < 0):
        raise InvalidBatch("A producer id comes with an epoch and a sequence.")


def check_crc(header: BatchHeader, batch: Bytes) -> None:
    """Compare the CRC of `batch`, which holds exactly one batch, with the one in its header (rule 1)."""
    found = crc32c(memoryview(batch)[CRC_START:])
    if found != header.crc:
        raise CorruptBatch(
            f"Batch at offset {header.base_offset} has CRC {found:#010x} where {header.crc:#010x} is declared."
        )


def check_batch(batch: Bytes) -> BatchHeader:
    """Check `batch`, the bytes of exactly one batch, as far as one can without its neighbours."""
    if len(batch) < HEADER_BYTES:
        raise CorruptBatch(f"{len(batch)} bytes are less than a batch header.")
    header = read_header(batch)
    check_shape(header)
    if header.batch_length + LENGTH_PREFIX_BYTES != len(batch):
        raise CorruptBatch(f"Batch declares {header.size} bytes, {len(batch)} are there.")
    check_crc(header, batch)
    return header


def split_batches(data: Bytes) -> list[memoryview]:
    """Cut `data` into its batches by their declared lengths. All of `data` must be whole batches."""
    view = memoryview(data)
    batches = []
    position, end = 0, len(view)
    while position < end:
        if end - position < HEADER_BYTES:
            raise CorruptBatch(f"{end - position} bytes at the end are less than a batch header.")
        (length,) = _STAMP_EPOCH.unpack_from(view, position + 8)
        size = length + LENGTH_PREFIX_BYTES
        if size < HEADER_BYTES or position + size > end:
            raise CorruptBatch(f"A batch declares {size} bytes where {end - position} are left.")
        batches.append(view[position : position + size])
        position += size
    return batches


def next_offset_of(data: Bytes) -> int:
    """The offset after the last of some whole batches."""
    return read_header(split_batches(data)[-1]).next_offset


def stamp(batch: MutableBytes, base_offset: int, leader_epoch: int) -> None:
    """Write the leader's offset and epoch into `batch`; the CRC does not cover them."""
    _STAMP_OFFSET.pack_into(batch, 0, base_offset)
    _STAMP_EPOCH.pack_into(batch, 12, leader_epoch)


def stamp_log_append_time(batch: MutableBytes, timestamp: int) -> None:
    """Give every record of `batch` the broker's time. This changes bytes under the CRC, so it is summed again."""
    (attributes,) = _ATTRIBUTES.unpack_from(batch, 21)
    _ATTRIBUTES.pack_into(batch, 21, attributes | LOG_APPEND_TIME_BIT)
    _TIMESTAMP.pack_into(batch, 35, timestamp)
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))


def seal(
    payload: list[Bytes],
    *,
    base_offset: int = 0,
    leader_epoch: int = NO_LEADER_EPOCH,
    magic: int = MAGIC_COLUMNS,
    attributes: int = 0,
    last_offset_delta: int,
    base_timestamp: int,
    max_timestamp: int,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = NO_PRODUCER_EPOCH,
    base_sequence: int = NO_SEQUENCE,
    record_count: int,
) -> bytearray:
    """Join header and payload parts into one batch, with its length and CRC. The parts are copied once."""
    length = MIN_BATCH_LENGTH + sum(map(len, payload))
    header = HEADER.pack(
        base_offset,
        length,
        leader_epoch,
        magic,
        0,
        attributes,
        last_offset_delta,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        record_count,
    )
    batch = bytearray().join([header, *payload])
    _CRC.pack_into(batch, 17, crc32c(memoryview(batch)[CRC_START:]))
    return batch


def with_producer(batch: Bytes, producer_id: int, producer_epoch: int, base_sequence: int) -> bytearray:
    """A copy of a batch that is in no log, from another producer or under another sequence: both are in the CRC.

    A copy, because the batch as it was may still wait in a socket's buffer.
    """
    copy = bytearray(batch)
    _PRODUCER.pack_into(copy, 43, producer_id, producer_epoch, base_sequence)
    _CRC.pack_into(copy, 17, crc32c(memoryview(copy)[CRC_START:]))
    return copy


def filler(base_offset: int, next_offset: int, leader_epoch: int) -> bytearray:
    """A batch that stands for the removed offsets from `base_offset` up to `next_offset`."""
    return seal(
        [],
        base_offset=base_offset,
        leader_epoch=leader_epoch,
        last_offset_delta=next_offset - base_offset - 1,
        base_timestamp=NO_TIMESTAMP,
        max_timestamp=NO_TIMESTAMP,
        record_count=0,
    )


def first_unsound(data: Bytes, offset: int) -> int:
    """The offset of the first batch in `data` that is not as its writer made it; `offset`: where the first begins."""
    try:
        for batch in split_batches(data):
            offset = check_batch(batch).next_offset
    except BatchError:
        return offset
    return offset

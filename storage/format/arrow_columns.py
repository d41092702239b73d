"""Batches as Arrow columns, without touching a record. Needs the extra `arrow`; replicas never import this.

The joined bytes of a column are an Arrow data buffer as they are. Lengths become Arrow's offsets by one running sum,
and -1 in a length becomes a cleared validity bit. What must stay true: the columns are trusted no more than
`ColumnPayload.parse` trusts them; only the looking is done by Arrow's kernels, a thousand times as fast.
"""

from __future__ import annotations

import functools
import sys
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from raylog.errors import InvalidBatch
from raylog.storage.format.batch_codec import read_checked, unpacked
from raylog.storage.format.columns import Headers, RawColumns, machine_order
from raylog.storage.format.compression import DEFAULT_UNPACK_LIMIT
from raylog.storage.format.record_batch import MAGIC_COLUMNS, BatchHeader, Bytes, check_batch

HEADERS_TYPE: Final = pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())]))
SCHEMA: Final = pa.schema(
    [
        pa.field("offset", pa.int64(), nullable=False),
        pa.field("timestamp", pa.int64(), nullable=False),
        pa.field("key", pa.binary()),
        pa.field("value", pa.binary()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", HEADERS_TYPE))
_MAX_BINARY: Final = 2**31 - 1
_ZERO: Final = bytes(4)
_NOTHING: Final = pa.scalar(0, pa.int32())


def batch_to_arrow(
    batch: Bytes, *, include_headers: bool = False, unpack_limit: int = DEFAULT_UNPACK_LIMIT
) -> pa.RecordBatch:
    """Check and decode `batch`, the bytes of exactly one batch, into Arrow columns."""
    return checked_to_arrow(check_batch(batch), batch, include_headers=include_headers, unpack_limit=unpack_limit)


def checked_to_arrow(
    header: BatchHeader, batch: Bytes, *, include_headers: bool = False, unpack_limit: int = DEFAULT_UNPACK_LIMIT
) -> pa.RecordBatch:
    """Decode a batch whose header and CRC have just been checked."""
    if header.magic == MAGIC_COLUMNS and header.record_count:
        raw = RawColumns.take_apart(unpacked(header, batch, unpack_limit), header.record_count)
        columns = _from_columns(header, raw, include_headers)
    else:
        columns = _from_lists(header, batch, include_headers, unpack_limit)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS if include_headers else SCHEMA)


def _from_columns(header: BatchHeader, raw: RawColumns, include_headers: bool) -> list[pa.Array]:
    columns = [
        _offsets(header, raw),
        _timestamps(header, raw),
        _binary("key", raw.key_lengths, raw.keys),
        _binary("value", raw.value_lengths, raw.values),
    ]
    headers = raw.headers()  # looked at in any case: a batch is refused or read whole
    if include_headers:
        columns.append(_headers(headers))
    return columns


def _from_lists(header: BatchHeader, batch: Bytes, include_headers: bool, unpack_limit: int) -> list[pa.Array]:
    records = read_checked(header, batch, unpack_limit)
    columns = [
        pa.array(records.offsets, pa.int64()),
        pa.array(records.timestamps, pa.int64()),
        pa.array(records.keys, pa.binary()),
        pa.array(records.values, pa.binary()),
    ]
    if include_headers:
        columns.append(_headers(records.headers))
    return columns


def _numbers(typecode: str, column: Bytes) -> pa.Array:
    """A little-endian column of numbers as it lies there."""
    arrow_type = pa.int32() if typecode == "i" else pa.int64()
    native = column if sys.byteorder == "little" else machine_order(typecode, column).tobytes()
    count = len(native) // (arrow_type.bit_width // 8)
    return pa.Array.from_buffers(arrow_type, count, [None, pa.py_buffer(native)])


def _offsets(header: BatchHeader, raw: RawColumns) -> pa.Array:
    count = raw.record_count
    if raw.offset_deltas is None:
        if count != header.last_offset_delta + 1:
            raise InvalidBatch(f"{count} records without an offset column cannot span {header.last_offset_delta + 1}.")
        return pc.add(_count_up(count), _scalar(header.base_offset))
    deltas = _numbers("i", raw.offset_deltas)
    rising = count < 2 or pc.all(pc.less(deltas[:-1], deltas[1:])).as_py()
    if not rising or deltas[0].as_py() < 0 or deltas[-1].as_py() > header.last_offset_delta:
        raise InvalidBatch("The offset column does not rise within the batch.")
    return pc.add(deltas.cast(pa.int64()), _scalar(header.base_offset))


@functools.lru_cache(maxsize=16)  # the batches of a log mostly have a few sizes
def _count_up(count: int) -> pa.Array:
    return pa.array(range(count), pa.int64())


def _scalar(number: int) -> pa.Scalar:
    """Arrow takes ten times as long to find the type of a Python number as to add it to 5,000 others."""
    return pa.scalar(number, pa.int64())


def _timestamps(header: BatchHeader, raw: RawColumns) -> pa.Array:
    try:
        timestamps = pc.add_checked(_numbers("q", raw.timestamp_deltas), _scalar(header.base_timestamp))
    except pa.ArrowInvalid as error:
        raise InvalidBatch("A timestamp does not fit 64 bits.") from error
    if header.is_log_append_time:
        return pa.repeat(_scalar(header.max_timestamp), raw.record_count)
    return timestamps


def _binary(what: str, lengths: memoryview, joined: memoryview) -> pa.Array:
    if len(joined) > _MAX_BINARY:
        raise InvalidBatch(f"A {what} column of {len(joined)} bytes is more than Arrow's binary type holds.")
    count = len(lengths) // 4
    raw = bytes(lengths)  # comparing views goes number by number
    if raw == raw[:4] * count:  # keys that are ids, or no keys at all: the running sum is known
        length = int.from_bytes(raw[:4], "little", signed=True)
        if length == -1 and not joined:
            return pa.nulls(count, pa.binary())
        if length >= 0 and length * count == len(joined):
            offsets = _multiples(count, length).buffers()[1]
            return pa.Array.from_buffers(pa.binary(), count, [None, offsets, pa.py_buffer(joined)])
    return _binary_of_any_lengths(what, lengths, joined)


@functools.lru_cache(maxsize=64)
def _multiples(count: int, length: int) -> pa.Array:
    return pa.array(range(0, (count + 1) * length, length) if length else [0] * (count + 1), pa.int32())


def _binary_of_any_lengths(what: str, lengths: memoryview, joined: memoryview) -> pa.Array:
    # One number more than there are records, so that the running sum begins with 0.
    sizes = _numbers("i", b"".join((_ZERO, lengths)))
    least = pc.min(sizes).as_py()
    validity, nulls = None, 0
    if least < 0:
        if least < -1:
            raise InvalidBatch(f"A {what} has length {least}.")
        present = pc.greater_equal(_numbers("i", lengths), _NOTHING)
        validity, nulls = present.buffers()[1], len(present) - present.true_count
        sizes = pc.max_element_wise(sizes, _NOTHING)
    try:
        offsets = pc.cumulative_sum_checked(sizes)
    except pa.ArrowInvalid as error:
        raise InvalidBatch(f"The {what} lengths add up to more than a batch holds.") from error
    if (total := offsets[-1].as_py()) != len(joined):
        raise InvalidBatch(f"The {what} lengths add up to {total}, but {len(joined)} bytes are there.")
    buffers = [validity, offsets.buffers()[1], pa.py_buffer(joined)]
    return pa.Array.from_buffers(pa.binary(), len(lengths) // 4, buffers, null_count=nulls)


def _headers(headers: Sequence[Headers]) -> pa.Array:
    return pa.array([[{"key": name, "value": value} for name, value in record] for record in headers], HEADERS_TYPE)

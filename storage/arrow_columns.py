"""Batches as Arrow columns, without touching a record. Needs the extra `arrow`; replicas never import this.

The joined bytes of a column are an Arrow data buffer as they are. Lengths become Arrow's offsets by one running sum,
and -1 in a length becomes a cleared validity bit.
"""

from __future__ import annotations

from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from raylog.errors import InvalidBatch
from raylog.storage.batch_codec import column_payload, decode_checked
from raylog.storage.columns import ColumnPayload
from raylog.storage.compression import DEFAULT_UNPACK_LIMIT
from raylog.storage.record_batch import MAGIC_COLUMNS, BatchHeader, Bytes, check_batch

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


def batch_to_arrow(
    batch: Bytes, *, include_headers: bool = False, unpack_limit: int = DEFAULT_UNPACK_LIMIT
) -> pa.RecordBatch:
    """Check and decode `batch`, the bytes of exactly one batch, into Arrow columns."""
    header = check_batch(batch)
    if header.magic == MAGIC_COLUMNS and header.record_count:
        columns = _from_columns(header, column_payload(header, batch, unpack_limit), include_headers)
    else:
        columns = _from_lists(header, batch, include_headers, unpack_limit)
    return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS if include_headers else SCHEMA)


def _from_columns(header: BatchHeader, payload: ColumnPayload, include_headers: bool) -> list[pa.Array]:
    columns = [
        _offsets(header, payload),
        _timestamps(header, payload),
        _binary(payload.key_lengths, payload.joined_keys),
        _binary(payload.value_lengths, payload.joined_values),
    ]
    if include_headers:
        columns.append(_headers(payload.headers()))
    return columns


def _from_lists(header: BatchHeader, batch: Bytes, include_headers: bool, unpack_limit: int) -> list[pa.Array]:
    records = decode_checked(header, batch, unpack_limit)
    columns = [
        pa.array(records.offsets, pa.int64()),
        pa.array(records.timestamps, pa.int64()),
        pa.array(records.keys, pa.binary()),
        pa.array(records.values, pa.binary()),
    ]
    if include_headers:
        columns.append(_headers(records.headers))
    return columns


def _numbers(column: Any, arrow_type: pa.DataType) -> pa.Array:
    return pa.Array.from_buffers(arrow_type, len(column), [None, pa.py_buffer(column)])


def _offsets(header: BatchHeader, payload: ColumnPayload) -> pa.Array:
    if payload.offset_deltas is None:
        return pa.array(range(header.base_offset, header.base_offset + payload.record_count), pa.int64())
    return pc.add(_numbers(payload.offset_deltas, pa.int32()).cast(pa.int64()), header.base_offset)


def _timestamps(header: BatchHeader, payload: ColumnPayload) -> pa.Array:
    if header.is_log_append_time:
        return pa.repeat(pa.scalar(header.max_timestamp, pa.int64()), payload.record_count)
    return pc.add(_numbers(payload.timestamp_deltas, pa.int64()), header.base_timestamp)


def _binary(lengths: Any, joined: bytes) -> pa.Array:
    if len(joined) > _MAX_BINARY:
        raise InvalidBatch(f"A column of {len(joined)} bytes is more than Arrow's binary type holds.")
    count = len(lengths)
    sizes = _numbers(lengths, pa.int32())
    nulls = lengths.count(-1)
    validity = None
    if nulls:
        present = pc.greater_equal(sizes, 0)
        validity = present.buffers()[1]
        sizes = pc.max_element_wise(sizes, 0)
    ends = pc.cumulative_sum(sizes)
    offsets = pa.concat_arrays([pa.array([0], pa.int32()), ends])
    return pa.Array.from_buffers(
        pa.binary(), count, [validity, offsets.buffers()[1], pa.py_buffer(joined)], null_count=nulls
    )


def _headers(headers: Any) -> pa.Array:
    return pa.array(
        [[{"key": name, "value": value} for name, value in record] for record in headers], HEADERS_TYPE
    )

"""The columns of a record as Spark sees them: exactly those of Spark's Kafka source, in its order. Needs pyarrow."""

from __future__ import annotations

import functools
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from raylog.storage.format.arrow_columns import HEADERS_TYPE

SPARK_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
SPARK_HEADERS: Final = "headers array<struct<key: string, value: binary>>"
_TIME: Final = pa.timestamp("us", tz="UTC")
_THOUSAND: Final = pa.scalar(1000, pa.int64())
_FIELDS: Final = (
    pa.field("key", pa.binary()),
    pa.field("value", pa.binary()),
    pa.field("topic", pa.string()),
    pa.field("partition", pa.int32()),
    pa.field("offset", pa.int64()),
    pa.field("timestamp", _TIME),
    pa.field("timestampType", pa.int32()),
)
ROWS: Final = pa.schema(_FIELDS)
ROWS_WITH_HEADERS: Final = ROWS.append(pa.field("headers", HEADERS_TYPE))


def spark_schema(include_headers: bool) -> str:
    return f"{SPARK_COLUMNS}, {SPARK_HEADERS}" if include_headers else SPARK_COLUMNS


def to_rows(records: pa.RecordBatch, topic: str, partition: int, timestamp_type: int) -> pa.RecordBatch:
    """Return what `arrow_columns` has made of a batch, as rows; the bytes of keys and values are not touched."""
    offset, timestamp, key, value, *headers = records.columns
    count = records.num_rows
    columns = [
        key,
        value,
        _repeated(topic, pa.string(), count),
        _repeated(partition, pa.int32(), count),
        offset,
        pc.multiply_checked(timestamp, _THOUSAND).view(_TIME),
        _repeated(timestamp_type, pa.int32(), count),
        *headers,
    ]
    return pa.RecordBatch.from_arrays(columns, schema=ROWS_WITH_HEADERS if headers else ROWS)


@functools.lru_cache(maxsize=64)  # the batches of a partition mostly have a few sizes
def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)

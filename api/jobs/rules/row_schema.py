"""The columns of a record as jobs see them: exactly those of Spark's Kafka source, in its order. Needs pyarrow."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc

from raylog.storage.format.arrow_columns import HEADERS_TYPE

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


def schema_of(columns: Sequence[str]) -> pa.Schema:
    return pa.schema([ROWS_WITH_HEADERS.field(name) for name in columns])


def to_rows(
    records: pa.RecordBatch, topic: str, partition: int, timestamp_type: int, schema: pa.Schema
) -> pa.RecordBatch:
    """Return what `arrow_columns` has made of a batch, as rows with these columns; no key or value is touched."""
    count = records.num_rows
    constants = {"topic": topic, "partition": partition, "timestampType": timestamp_type}
    columns = [
        _repeated(constants[field.name], field.type, count)
        if field.name in constants
        else _times(records) if field.name == "timestamp" else records.column(field.name)
        for field in schema
    ]
    return pa.RecordBatch.from_arrays(columns, schema=schema)


def _times(records: pa.RecordBatch) -> pa.Array:
    return pc.multiply_checked(records.column("timestamp"), _THOUSAND).view(_TIME)


@functools.lru_cache(maxsize=64)  # the batches of a partition mostly have a few sizes
def _repeated(value: str | int, kind: pa.DataType, count: int) -> pa.Array:
    return pa.repeat(pa.scalar(value, kind), count)

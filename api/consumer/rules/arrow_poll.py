"""Polled batches as one Arrow table. Needs pyarrow: pip install raylog[arrow]

table = consumer.poll_arrow(timeout_ms=100)     # topic, partition, offset, timestamp, key, value
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Final

import pyarrow as pa

from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.storage.format.arrow_columns import SCHEMA, SCHEMA_WITH_HEADERS

_PLACE: Final = [pa.field("topic", pa.string(), nullable=False), pa.field("partition", pa.int32(), nullable=False)]
TABLE: Final = pa.schema([*_PLACE, *SCHEMA])
TABLE_WITH_HEADERS: Final = pa.schema([*_PLACE, *SCHEMA_WITH_HEADERS])


def to_table(batches: Sequence[ColumnBatch], *, include_headers: bool = False) -> pa.Table:
    """One chunk per batch; no batches, no rows."""
    schema = TABLE_WITH_HEADERS if include_headers else TABLE
    return pa.Table.from_batches([_with_place(batch, schema, include_headers) for batch in batches], schema)


def _with_place(batch: ColumnBatch, schema: pa.Schema, include_headers: bool) -> pa.RecordBatch:
    columns = batch.to_arrow(include_headers=include_headers)
    place = _place(batch.topic, batch.partition, columns.num_rows)
    return pa.RecordBatch.from_arrays([*place, *columns.columns], schema=schema)


@functools.lru_cache(maxsize=32)  # the batches of a partition mostly have a few sizes
def _place(topic: str, partition: int, count: int) -> tuple[pa.Array, pa.Array]:
    # Arrow takes far longer to find the type of a Python value than to repeat it.
    return pa.repeat(pa.scalar(topic, pa.string()), count), pa.repeat(pa.scalar(partition, pa.int32()), count)

"""The columns of a record in Spark's words. `raylog.api.jobs.rules.row_schema` has them in Arrow's."""

from __future__ import annotations

from typing import Final

SPARK_COLUMNS: Final = (
    "key binary, value binary, topic string, partition int, offset bigint, timestamp timestamp, timestampType int"
)
SPARK_HEADERS: Final = "headers array<struct<key: string, value: binary>>"


def spark_schema(include_headers: bool) -> str:
    return f"{SPARK_COLUMNS}, {SPARK_HEADERS}" if include_headers else SPARK_COLUMNS

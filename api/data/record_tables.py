"""Blocks of a Dataset as the columns of records: key, value, partition, headers. Needs pyarrow."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping
from datetime import date, datetime, time
from typing import Any, Final

import pyarrow as pa

from raylog.api.data.rules.record_columns import RecordColumns
from raylog.errors import RowNotWritable


def check_schema(columns: RecordColumns, schema: pa.Schema) -> None:
    """DatasetNotWritable."""
    fit = {part: _fits(is_fit, schema) for part, is_fit in _FIT.items()}
    columns.check(schema.names, fit, lambda name: str(schema.field(name).type))


def record_table(columns: RecordColumns, rows: pa.Table) -> pa.Table:
    """Return what `Producer.send_arrow` takes, and `partition`. DatasetNotWritable, RowNotWritable."""
    check_schema(columns, rows.schema)
    found = {"value": _value(columns, rows)}
    if columns.key is not None:
        found["key"] = rows[columns.key].cast(pa.binary())
    if columns.headers is not None:
        found["headers"] = rows[columns.headers]
    if columns.partition is not None:
        found["partition"] = _partitions(rows[columns.partition])
    return pa.table(found)


def _value(columns: RecordColumns, rows: pa.Table) -> Any:
    if columns.fields:
        return _as_json(rows.select(list(columns.fields)).to_pylist())
    column = rows[columns.value]
    return _as_json(column.to_pylist()) if pa.types.is_struct(column.type) else column.cast(pa.binary())


def _as_json(objects: Iterable[Mapping[str, Any] | None]) -> pa.Array:
    return pa.array([None if each is None else _json_of(each) for each in objects], pa.binary())


def _json_of(row: Mapping[str, Any]) -> bytes:
    try:
        text = json.dumps(row, separators=(",", ":"), ensure_ascii=False, allow_nan=False, default=_plain)
        return text.encode()
    except (TypeError, ValueError) as error:
        raise RowNotWritable(f"it cannot become a JSON object: {error}") from error


def _plain(value: Any) -> Any:
    if isinstance(value, datetime | date | time):
        return value.isoformat()
    raise TypeError(f"a field is of type {type(value).__name__}")


def _partitions(column: pa.ChunkedArray) -> pa.ChunkedArray:
    try:
        return column.cast(pa.int32())
    except pa.ArrowInvalid as error:
        raise RowNotWritable(f"its partition is none: {error}") from error


# --- types ------------------------------------------------------------------------------------------------------------


def _is_bytes(kind: pa.DataType) -> bool:
    plain = kind.value_type if pa.types.is_dictionary(kind) else kind
    return any(each(plain) for each in _BYTES)


def _is_value(kind: pa.DataType) -> bool:
    return _is_bytes(kind) or pa.types.is_struct(kind)


def _is_headers(kind: pa.DataType) -> bool:
    if pa.types.is_null(kind):
        return True
    if not pa.types.is_list(kind) or not pa.types.is_struct(kind.value_type):
        return False
    names = {each.name for each in kind.value_type}
    return names == {"key", "value"}


def _fits(is_fit: Callable[[pa.DataType], bool], schema: pa.Schema) -> Callable[[str], bool]:
    return lambda name: is_fit(schema.field(name).type)


_BYTES: Final = (
    pa.types.is_null,
    pa.types.is_string,
    pa.types.is_binary,
    pa.types.is_large_string,
    pa.types.is_large_binary,
    pa.types.is_fixed_size_binary,
)
_FIT: Final[Mapping[str, Callable[[pa.DataType], bool]]] = {
    "value": _is_value,
    "key": _is_bytes,
    "partition": lambda kind: pa.types.is_integer(kind) or pa.types.is_null(kind),
    "headers": _is_headers,
}

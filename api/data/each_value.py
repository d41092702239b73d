"""Parts that decoders of values share, and the way of those that decode one value at a time. Needs pyarrow."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

import pyarrow as pa

from raylog.errors import InvalidConfig

ARROW_ERRORS: Final = (pa.ArrowInvalid, pa.ArrowTypeError, pa.ArrowNotImplementedError)


class BadValue(Exception):
    """The value in this row cannot be decoded. `raylog.errors.ValueNotDecoded` is made of it, with its offset."""

    def __init__(self, row: int, reason: str) -> None:
        super().__init__(row, reason)
        self.row = row
        self.reason = reason


@dataclass(frozen=True)
class Decoded:
    """Columns of the fields; `rows`: for each row the one that its value was in. None: each its own."""

    columns: Sequence[pa.Array]
    rows: pa.Array | None = None


def decode_each(schema: pa.Schema, values: pa.Array, unpack: Callable[[bytes], object]) -> Decoded:
    """Return the fields of maps that `unpack` makes, one of each value. BadValue."""
    unpacked = [_unpacked(row, value, unpack) for row, value in enumerate(values.to_pylist())]
    try:
        return Decoded(_column(schema, unpacked).flatten())
    except ARROW_ERRORS as error:
        raise _first_bad(schema, unpacked, str(error)) from None


def _unpacked(row: int, value: bytes | None, unpack: Callable[[bytes], object]) -> dict[str, Any] | None:
    if value is None:
        return None
    try:
        found = unpack(value)
    except Exception as error:
        raise BadValue(row, f"{type(error).__name__}: {error}".rstrip(".")) from error
    if not isinstance(found, dict):
        raise BadValue(row, f"it is of type {type(found).__name__}, and not a map")
    return found


def _column(schema: pa.Schema, values: list[dict[str, Any] | None]) -> Any:
    return pa.array(values, pa.struct(list(schema)))


def _first_bad(schema: pa.Schema, values: list[dict[str, Any] | None], reason: str) -> BadValue:
    for row, value in enumerate(values):
        try:
            _column(schema, [value])
        except ARROW_ERRORS as error:
            return BadValue(row, str(error).rstrip("."))
    return BadValue(0, reason)


def check_fields(schema: object) -> None:
    if not isinstance(schema, pa.Schema) or not schema.names:
        raise InvalidConfig("schema", schema, "a pyarrow.Schema with the fields of the values")
    if len(set(schema.names)) < len(schema.names):
        raise InvalidConfig("schema", schema, "a pyarrow.Schema whose fields have different names")

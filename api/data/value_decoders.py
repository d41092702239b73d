"""Values of records as columns: JSON, msgpack, Arrow's IPC streams. Needs pyarrow.

What must stay true: each value is decoded as itself, or refused with its place. A value never becomes rows of another.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgpack
import pyarrow as pa
import pyarrow.compute as pc

from raylog.api.data.each_value import ARROW_ERRORS, BadValue, Decoded, check_fields, decode_each
from raylog.config import MIB

_BEFORE: Final = pa.scalar(b'{"v":', pa.binary())
_AFTER: Final = pa.scalar(b"}\n", pa.binary())
_BETWEEN: Final = pa.scalar(b"", pa.binary())


class ValueDecoder(Protocol):
    """A way to decode values; `schema`: the fields that they have."""

    @property
    def schema(self) -> pa.Schema: ...

    @property
    def explodes(self) -> bool:
        """Whether a value may be several rows."""

    def decode(self, values: pa.Array) -> Decoded:
        """BadValue."""


@dataclass(frozen=True)
class Json:
    """Each value is a JSON object. Fields that it lacks, and all of a null value, are null; others are left out.

    A field with another type than the schema's is an error, and so is a number that does not fit.
    """

    schema: pa.Schema
    explodes = False

    def __post_init__(self) -> None:
        check_fields(self.schema)

    def decode(self, values: pa.Array) -> Decoded:
        if not len(values):
            return Decoded(_no_rows(self.schema))
        try:
            return Decoded(self._read(values).flatten())
        except ARROW_ERRORS as error:
            raise self._first_bad(values, str(error)) from None

    def _read(self, values: pa.Array) -> Any:
        """All at once: each value stands in an object of its own, so that none can end in its neighbour."""
        import pyarrow.json as arrow_json

        joined = pc.binary_join_element_wise(_BEFORE, pc.fill_null(values, b"null"), _AFTER, _BETWEEN)
        text = joined.buffers()[2]
        read = arrow_json.read_json(
            pa.BufferReader(text),
            arrow_json.ReadOptions(use_threads=False, block_size=max(MIB, len(text))),
            arrow_json.ParseOptions(
                explicit_schema=pa.schema([("v", pa.struct(list(self.schema)))]), unexpected_field_behavior="ignore"
            ),
        )
        if read.num_rows != len(values):
            raise pa.ArrowInvalid("it is not one JSON object")
        found = read["v"].combine_chunks()
        found.validate(full=True)  # bytes that are no UTF-8
        return found

    def _first_bad(self, values: pa.Array, reason: str) -> BadValue:
        for row, value in enumerate(values.to_pylist()):
            try:
                if value is not None and not isinstance(json.loads(value), dict | None):
                    return BadValue(row, "it is not a JSON object")
                self._read(values.slice(row, 1))
            except (ValueError, *ARROW_ERRORS) as error:
                return BadValue(row, str(error).rstrip("."))
        return BadValue(0, f"it, or one of the {len(values)} that follow, is not one JSON object: {reason.rstrip('.')}")


@dataclass(frozen=True)
class MsgPack:
    """Each value is a map in msgpack's form. Fields that it lacks, and all of a null value, are null."""

    schema: pa.Schema
    explodes = False

    def __post_init__(self) -> None:
        check_fields(self.schema)

    def decode(self, values: pa.Array) -> Decoded:
        return decode_each(self.schema, values, msgpack.unpackb)


@dataclass(frozen=True)
class ArrowIpc:
    """Each value is an Arrow IPC stream of any number of rows, each of which becomes a row; a null value is one."""

    schema: pa.Schema
    explodes = True

    def __post_init__(self) -> None:
        check_fields(self.schema)

    def decode(self, values: pa.Array) -> Decoded:
        tables = [self._table(row, value) for row, value in enumerate(values)]
        counts = [table.num_rows for table in tables]
        rows = pa.array([row for row, count in enumerate(counts) for _ in range(count)], pa.int64())
        joined = pa.concat_tables([self.schema.empty_table(), *tables])
        return Decoded([_one_chunk(column) for column in joined.columns], rows)

    def _table(self, row: int, value: pa.Scalar) -> pa.Table:
        if not value.is_valid:
            return pa.table([pa.nulls(1, field.type) for field in self.schema], schema=self.schema)
        try:
            found = pa.ipc.open_stream(value.as_buffer()).read_all()
            found.validate(full=True)
            return found.select(self.schema.names).cast(self.schema)
        except (KeyError, OSError, ValueError, *ARROW_ERRORS) as error:
            raise BadValue(row, str(error).rstrip(".")) from error


def _no_rows(schema: pa.Schema) -> list[pa.Array]:
    return [pa.array([], field.type) for field in schema]


def _one_chunk(column: pa.ChunkedArray) -> pa.Array:
    joined = column.combine_chunks()
    return joined.combine_chunks() if isinstance(joined, pa.ChunkedArray) else joined

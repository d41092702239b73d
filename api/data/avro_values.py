"""Values in Avro's form, of a schema that a registry knows. Needs pyarrow and fastavro."""

from __future__ import annotations

import io
import json
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any, Final

import pyarrow as pa

from raylog.api.data.each_value import Decoded, check_fields, decode_each
from raylog.api.data.schema_registry import RegisteredSchema, SchemaRegistry, SchemaUnknown, schema_number

_KEPT_SCHEMAS: Final = 1000


@dataclass(frozen=True)
class Avro:
    """Each value is a record of Avro with the number of its schema before it, as Confluent's serializers write it.

        raylog.data.Avro(pa.schema([("user", pa.string())]), "http://registry:8081")

    Fields that a value lacks, and all of a null value, are null; others are left out. `registry` may hold user and
    password; they are sent to the tasks.
    """

    schema: pa.Schema
    registry: str = field(repr=False)
    explodes = False

    def __post_init__(self) -> None:
        check_fields(self.schema)
        SchemaRegistry(self.registry)

    def decode(self, values: pa.Array) -> Decoded:
        return decode_each(self.schema, values, self._record)

    def _record(self, value: bytes) -> Any:
        from fastavro import schemaless_reader

        number, rest = schema_number(value)
        content = io.BytesIO(rest)
        found = schemaless_reader(content, _parsed(self.registry, number), None)
        if content.read(1):
            raise ValueError("bytes are left behind its end")
        return found


@lru_cache(maxsize=_KEPT_SCHEMAS)
def _parsed(registry: str, number: int) -> Any:
    from fastavro import parse_schema

    found = SchemaRegistry(registry).schema(number)
    if found.kind != "AVRO":
        raise SchemaUnknown(f"schema {number} is of the kind {found.kind}")
    known: dict[str, Any] = {}
    _parse_references(found, known)
    return parse_schema(_plain(json.loads(found.text)), known)


def _parse_references(schema: RegisteredSchema, known: dict[str, Any]) -> None:
    from fastavro import parse_schema

    for name, each in schema.references.items():
        if name not in known:
            _parse_references(each, known)
            parse_schema(_plain(json.loads(each.text)), known)


def _plain(schema: Any) -> Any:
    """Return the same, where a uuid is its text: Arrow has no type for what it would be in Python."""
    if isinstance(schema, list):
        return [_plain(each) for each in schema]
    if isinstance(schema, dict):
        return {
            key: each if key in ("default", "symbols", "aliases") else _plain(each)
            for key, each in schema.items()
            if (key, each) != ("logicalType", "uuid")
        }
    return schema

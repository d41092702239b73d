"""Messages for tests: values drawn for a description, and kafka-python's own codec for the same description."""

from __future__ import annotations

import io
import warnings
from functools import cache
from typing import Any, cast
from uuid import UUID

from hypothesis import strategies as st
from kafka.protocol.schemas import StructField, load_json

from raylog.api.kafka.protocol.message_types import type_of
from raylog.api.kafka.protocol.own_schemas import OWN_SCHEMAS
from raylog.api.kafka.protocol.schemas import INTEGERS, Field, Schema, Struct, schema, schema_names

MESSAGES = [name for name in schema_names() if name not in {"RequestHeader", "ResponseHeader"}]
_BITS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_TEXT = st.sampled_from(["", "a", "clicks", "ключ", "x" * 130])
_BYTES = st.sampled_from([b"", b"\x00", b"records", b"y" * 200])


def values(struct: Struct) -> st.SearchStrategy[dict[str, Any]]:
    """A value for each field of all versions; those of structures are dictionaries too."""
    return st.fixed_dictionaries({field.name: _value(field) for field in struct.fields})


@cache
def _value(field: Field) -> st.SearchStrategy[Any]:
    single = values(field.struct) if field.struct is not None else _plain(field.kind)
    found: st.SearchStrategy[Any] = st.lists(single, max_size=2) if field.is_array else single
    if field.struct is not None and field.tag is not None and not field.is_array:
        return st.none() | found
    return st.none() | found if len(field.nullable) else found


def _plain(kind: str) -> st.SearchStrategy[Any]:
    if kind == "uint16":
        return st.sampled_from([0, 1, 2**16 - 1])
    if kind in INTEGERS:
        most = 2 ** (_BITS[kind] - 1)
        return st.sampled_from([0, 1, -1, 7, most - 1, -most])
    return {
        "bool": st.booleans(),
        "float64": st.sampled_from([0.0, -1.5, 1e300]),
        "uuid": st.sampled_from([bytes(16), bytes(range(16))]),
        "string": _TEXT,
        "bytes": _BYTES,
        "records": _BYTES,
    }[kind]


def message_of(struct: Struct, found: dict[str, Any]) -> Any:
    """The same as a message of ours."""
    return type_of(struct)(*(_converted(field, found[field.name]) for field in struct.fields))


def _converted(field: Field, value: Any) -> Any:
    if value is None or field.struct is None:
        return value
    if field.is_array:
        return [message_of(field.struct, each) for each in value]
    return message_of(field.struct, value)


class KafkaPython:
    """Its codec for one message."""

    def __init__(self, name: str) -> None:
        own = OWN_SCHEMAS.get(name)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # of the way in which it reads its files
            self._struct = StructField(load_json(name) if own is None else _as_theirs(name, own))
        self._schema = schema(name)

    def encode(self, found: dict[str, Any], version: int) -> bytes:
        flexible = version in self._schema.flexible
        theirs = self._theirs(self._schema.body, found)
        return cast(bytes, self._struct.encode(theirs, version=version, compact=flexible, tagged=flexible))

    def decode(self, data: bytes, version: int) -> tuple[Any, bytes]:
        """The message as one of ours, and what is left of the bytes."""
        flexible = version in self._schema.flexible
        stream = io.BytesIO(data)
        found = self._struct.decode(stream, version=version, compact=flexible, tagged=flexible)
        return self._ours(self._schema.body, found), stream.read()

    def _theirs(self, struct: Struct, found: dict[str, Any]) -> dict[str, Any]:
        """Identifiers as UUIDs, defaults as they know them."""
        converted = {}
        for field in struct.fields:
            value = found[field.name]
            if field.kind == "uuid" and value is not None:
                value = UUID(bytes=value) if any(value) else None  # what they call their default
            elif field.struct is not None and value is not None:
                several = [self._theirs(field.struct, each) for each in (value if field.is_array else [value])]
                value = several if field.is_array else several[0]
            converted[field.name] = value
        return converted

    def _ours(self, struct: Struct, found: dict[str, Any]) -> Any:
        made = type_of(struct)()
        given = {}
        for field in struct.fields:
            if field.name not in found:
                continue
            value = found[field.name]
            if field.kind == "uuid":
                value = bytes(16) if value is None else value.bytes
            elif field.struct is not None and value is not None:
                several = [self._ours(field.struct, each) for each in (value if field.is_array else [value])]
                value = several if field.is_array else several[0]
            given[field.name] = value
        return made._replace(**given)


def _as_theirs(name: str, own: dict[str, Any]) -> dict[str, Any]:
    common = {each["name"]: each["fields"] for each in own.get("commonStructs", ())}
    return {"name": name, "type": name, **own, "fields": [_with_fields(each, common) for each in own["fields"]]}


def _with_fields(field: dict[str, Any], common: dict[str, Any]) -> dict[str, Any]:
    fields = field.get("fields") or common.get(field["type"].removeprefix("[]"))
    return field if fields is None else {**field, "fields": [_with_fields(each, common) for each in fields]}


def fits(struct: Struct, version: int, message: Any) -> bool:
    """Whether this version may have None where the message has."""
    for field, value in zip(struct.fields, message, strict=True):
        if version not in field.versions:
            continue
        if value is None and version not in field.nullable and not field.is_tagged(version):
            return False
        if value is not None and field.struct is not None:
            several = value if field.is_array else [value]
            if not all(fits(field.struct, version, each) for each in several):
                return False
    return True


def kept_in(described: Schema, version: int, message: Any) -> Any:
    """The message as one of this version holds it: what that lacks is at its default."""
    return _kept(described.body, version, message)


def _kept(struct: Struct, version: int, message: Any) -> Any:
    given = {}
    for field, value in zip(struct.fields, message, strict=True):
        if version not in field.versions:
            continue
        kept = value
        if field.struct is not None and value is not None:
            several = [_kept(field.struct, version, each) for each in (value if field.is_array else [value])]
            kept = several if field.is_array else several[0]
        given[field.name] = kept
    return type_of(struct)(**given)

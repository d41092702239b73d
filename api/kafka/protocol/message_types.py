"""A named tuple for each message, and for each structure in it, with the fields of all its versions.

A field that a version lacks is its default after decoding, and is left out when encoding. So whoever reads or makes a
message need not know its version. Structures are found by the message's name and their own:

    message_type("FetchResponse")(session_id=7, responses=[...])
    message_type("FetchResponse", "PartitionData")(partition_index=0, high_watermark=12)

Identifiers are 16 bytes. Arrays are any sequence; a decoded one is a list, and `()` where the version lacks it. A
tagged structure that is absent is None.
"""

from __future__ import annotations

from collections import namedtuple
from collections.abc import Iterator
from functools import cache
from typing import Any

from raylog.api.kafka.protocol.schemas import Struct, schema


@cache
def message_type(message: str, struct: str | None = None) -> Any:
    """The type of a message, or of a structure in it. Its fields have their defaults. KeyError, KafkaSchemasMissing."""
    body = schema(message).body
    return type_of(body if struct is None else {each.name: each for each in _structs(body)}[struct])


@cache
def type_of(struct: Struct) -> Any:
    """The named tuple of a structure."""
    names = [field.name for field in struct.fields]
    return namedtuple(struct.name, names, defaults=defaults_of(struct))


@cache
def defaults_of(struct: Struct) -> tuple[Any, ...]:
    """Return what each field of a structure is unless something else is said."""
    found: list[Any] = []
    for field in struct.fields:
        absent = field.is_array or field.tag is not None or len(field.nullable) > 0
        found.append(field.default if field.struct is None or absent else type_of(field.struct)())
    return tuple(found)


def _structs(struct: Struct) -> Iterator[Struct]:
    for field in struct.fields:
        if field.struct is not None:
            yield field.struct
            yield from _structs(field.struct)

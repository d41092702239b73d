"""Kafka's descriptions of its messages: each field with its type, and the versions that have it.

The package kafka-python carries them as Kafka's own JSON files. They are read where that package lies, and the package
itself is not imported: it would bring a whole client along. `own_schemas.py` has the messages that it lacks.

    { "name": "Partitions", "type": "[]Partition", "versions": "0+", "nullableVersions": "7+", "fields": [...] }

A field is in a message if `versions` says so. In `taggedVersions` it stands, with its tag, behind the others, and only
if it is not its default. In versions of the message that are `flexibleVersions` lengths are varints.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, Final

from raylog.api.kafka.protocol.own_schemas import OWN_SCHEMAS
from raylog.errors import KafkaSchemasMissing

_RESOURCES: Final = ("protocol", "schemas", "resources")
_COMMENT_LINES: Final = re.compile(r"(?m)^\s*//.*$")
_INNER_CAPITAL: Final = re.compile(r"(?<!^)(?=[A-Z])")
_NEVER: Final = range(0)
_LAST: Final = 2**15 - 1
_FALSE: Final = ("", "false", "False")
_ZERO_ID: Final = bytes(16)
INTEGERS: Final = frozenset(("int8", "int16", "uint16", "int32", "int64"))


@dataclass(frozen=True)
class Field:
    """One field. `kind` is the type of it, or of its items if it is an array; `struct` if that is a structure."""

    name: str
    kind: str
    is_array: bool
    versions: range
    nullable: range
    tag: int | None
    tagged: range
    default: object
    struct: Struct | None

    def is_tagged(self, version: int) -> bool:
        return self.tag is not None and version in self.tagged


@dataclass(frozen=True)
class Struct:
    """A structure, or a whole message without its header."""

    name: str
    fields: tuple[Field, ...]

    def plain_fields(self, version: int) -> list[Field]:
        """The fields of this version that are always there, in order."""
        return [each for each in self.fields if version in each.versions and not each.is_tagged(version)]

    def tagged_fields(self, version: int) -> list[Field]:
        """The fields of this version that may be there, by their tags."""
        found = [each for each in self.fields if version in each.versions and each.is_tagged(version)]
        return sorted(found, key=lambda field: field.tag or 0)


@dataclass(frozen=True)
class Schema:
    """One message. `api_key` is None for what travels inside other messages."""

    name: str
    api_key: int | None
    versions: range
    flexible: range
    body: Struct


@cache
def schema(name: str) -> Schema:
    """The description of this message, such as "FetchRequest". KafkaSchemasMissing."""
    found = OWN_SCHEMAS.get(name)
    described = json.loads(_COMMENT_LINES.sub("", (_folder() / f"{name}.json").read_text())) if found is None else found
    common = {each["name"]: each["fields"] for each in described.get("commonStructs", ())}
    return Schema(
        name,
        described.get("apiKey"),
        _versions(described["validVersions"]),
        _versions(described["flexibleVersions"]),
        _struct(name, described["fields"], common),
    )


def schema_names() -> list[str]:
    """Return every message that there is a description of."""
    return sorted({path.stem for path in _folder().glob("*.json")} | OWN_SCHEMAS.keys())


@cache
def _folder() -> Path:
    package = find_spec("kafka")
    for place in (package and package.submodule_search_locations) or ():
        folder = Path(place, *_RESOURCES)
        if folder.is_dir():
            return folder
    raise KafkaSchemasMissing("kafka-python")


def _versions(text: str | None) -> range:
    if not text or text == "none":
        return _NEVER
    if text.endswith("+"):
        return range(int(text[:-1]), _LAST + 1)
    first, _, last = text.partition("-")
    return range(int(first), int(last or first) + 1)


def _struct(name: str, fields: list[dict[str, Any]], common: dict[str, list[dict[str, Any]]]) -> Struct:
    return Struct(name, tuple(_field(each, common) for each in fields))


def _field(described: dict[str, Any], common: dict[str, list[dict[str, Any]]]) -> Field:
    kind = described["type"].removeprefix("[]")
    is_array = kind != described["type"]
    fields = described.get("fields") or common.get(kind)
    struct = None if fields is None else _struct(kind, fields, common)
    return Field(
        _INNER_CAPITAL.sub("_", described["name"]).lower(),
        kind,
        is_array,
        _versions(described["versions"]),
        _versions(described.get("nullableVersions")),
        described.get("tag"),
        _versions(described.get("taggedVersions")),
        _default(kind, is_array, struct is not None, str(described.get("default", ""))),
        struct,
    )


def _default(kind: str, is_array: bool, is_struct: bool, text: str) -> object:
    """Return what the field is where nothing else is said. None for a structure: it is made of its fields' defaults."""
    if text == "null" or (is_struct and not is_array):
        return None
    if is_array:
        return ()
    if kind in INTEGERS:
        return int(text or "0", 0)
    if kind == "float64":
        return float(text or "0")
    if kind == "bool":
        return text not in _FALSE
    if kind == "uuid":
        return _ZERO_ID
    return text if kind == "string" else text.encode()

"""Values in Protobuf's form, of a schema that a registry knows. Needs pyarrow and protobuf.

The registry gives a schema as a descriptor (`format=serialized`), so that nothing has to parse the language of .proto.
Which of its messages a value is stands between the schema's number and the message:

    count of indexes | index of a message | index of one that is declared in that one | …     zigzag varints; 0: [0]
"""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import timezone
from functools import lru_cache
from importlib import import_module
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import pyarrow as pa

from raylog.api.data.each_value import Decoded, check_fields, decode_each
from raylog.api.data.schema_registry import RegisteredSchema, SchemaRegistry, SchemaUnknown, schema_number

if TYPE_CHECKING:
    from google.protobuf.descriptor import Descriptor, FieldDescriptor
    from google.protobuf.message import Message

    Getter = Callable[[Message], Any]

_KEPT_MESSAGES: Final = 1000
_SERIALIZED: Final = "serialized"
_OF_GOOGLE: Final = "google/protobuf/"  # files that the library brings
_NO_WRAPPERS: Final = ("google.protobuf.Value", "google.protobuf.ListValue", "google.protobuf.EnumValue")
_MOST_INDEXES: Final = 100
_MOST_VARINT_BITS: Final = 63


@dataclass(frozen=True)
class Protobuf:
    """Each value is a message of Protobuf, with the numbers of schema and message before it, as Confluent's write it.

        raylog.data.Protobuf(pa.schema([("user", pa.string())]), "http://registry:8081")

    Fields are found by name. Those that the message lacks or does not set, and all of a null value, are null; but a
    field without presence has its default. An enum is its name or its number, by the type that is wanted. `registry`
    may hold user and password; they are sent to the tasks.
    """

    schema: pa.Schema
    registry: str = field(repr=False)
    explodes = False

    def __post_init__(self) -> None:
        check_fields(self.schema)
        SchemaRegistry(self.registry)

    def decode(self, values: pa.Array) -> Decoded:
        struct = pa.struct(list(self.schema))
        ways: dict[tuple[int, tuple[int, ...]], _Way] = {}  # looked up by less than a type of Arrow, which is slow

        def fields(value: bytes) -> object:
            number, rest = schema_number(value)
            indexes, message = _indexes(rest)
            way = ways.get((number, indexes)) or ways.setdefault(
                (number, indexes), _way(self.registry, number, indexes, struct)
            )
            return way.get(way.parse(bytes(message)))

        return decode_each(self.schema, values, fields)


class _Way(NamedTuple):
    """The steps from a message's bytes to its fields."""

    parse: Callable[[bytes], Message]
    get: Getter


def _indexes(content: memoryview) -> tuple[tuple[int, ...], memoryview]:
    """Return which message it is, and the message. ValueError."""
    count, rest = _zigzag(content)
    if count == 0:
        return (0,), rest
    if not 0 < count <= _MOST_INDEXES:
        raise ValueError("what stands before its message is damaged")
    found = []
    for _ in range(count):
        index, rest = _zigzag(rest)
        found.append(index)
    return tuple(found), rest


def _zigzag(content: memoryview) -> tuple[int, memoryview]:
    number = 0
    for place, byte in enumerate(content):
        number |= (byte & 0x7F) << 7 * place
        if byte < 0x80:
            return (number >> 1) ^ -(number & 1), content[place + 1 :]
        if 7 * place > _MOST_VARINT_BITS:
            break
    raise ValueError("it ends before its message")


# --- messages ---------------------------------------------------------------------------------------------------------


@lru_cache(maxsize=_KEPT_MESSAGES)
def _way(registry: str, number: int, indexes: tuple[int, ...], struct: pa.StructType) -> _Way:
    """SchemaUnknown."""
    from google.protobuf import message_factory

    descriptor = _message(registry, number, indexes)
    return _Way(message_factory.GetMessageClass(descriptor).FromString, _struct_getter(descriptor, struct))


def _message(registry: str, number: int, indexes: tuple[int, ...]) -> Descriptor:
    found = SchemaRegistry(registry).schema(number, _SERIALIZED)
    if found.kind != "PROTOBUF":
        raise SchemaUnknown(f"schema {number} is of the kind {found.kind}")
    file = _file(found)
    first, *inner = indexes
    try:
        chosen = list(file.message_types_by_name.values())[first]
        for each in inner:
            chosen = chosen.nested_types[each]
    except IndexError:
        raise SchemaUnknown(f"schema {number} has no message {list(indexes)}") from None
    return chosen


def _file(schema: RegisteredSchema) -> Any:
    """Return the file's descriptor, in a pool of its own with all that it imports. SchemaUnknown."""
    from google.protobuf.descriptor_pool import DescriptorPool

    pool = DescriptorPool()
    known: set[str] = set()
    try:
        return pool.FindFileByName(_add(pool, schema, "", known))
    except (KeyError, TypeError, ValueError, ImportError) as error:
        raise SchemaUnknown(f"its schema cannot be used: {error}") from error


def _add(pool: Any, schema: RegisteredSchema, name: str, known: set[str]) -> str:
    """Add a file behind those that it imports; its name, which for what is imported is that of the reference."""
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    file = FileDescriptorProto.FromString(base64.b64decode(schema.text, validate=True))
    file.name = name or file.name or "value.proto"
    for each, reference in schema.references.items():
        if each not in known:
            _add(pool, reference, each, known)
    for each in file.dependency:
        if each.startswith(_OF_GOOGLE):
            _add_of_google(pool, each, known)
    known.add(file.name)
    pool.AddSerializedFile(file.SerializeToString())
    return str(file.name)


def _add_of_google(pool: Any, name: str, known: set[str]) -> None:
    from google.protobuf.descriptor_pb2 import FileDescriptorProto

    if name in known:
        return
    known.add(name)
    file = FileDescriptorProto()
    import_module(name.removesuffix(".proto").replace("/", ".") + "_pb2").DESCRIPTOR.CopyToProto(file)
    for each in file.dependency:
        _add_of_google(pool, each, known)
    pool.AddSerializedFile(file.SerializeToString())


# --- fields -----------------------------------------------------------------------------------------------------------


def _struct_getter(descriptor: Descriptor, struct: pa.StructType) -> Getter:
    getters = dict(_getters(descriptor, struct))
    return lambda message: {name: get(message) for name, get in getters.items()}


def _getters(descriptor: Descriptor, struct: pa.StructType) -> Iterator[tuple[str, Getter]]:
    for each in struct:
        there = descriptor.fields_by_name.get(each.name)
        if there is not None:
            yield each.name, _getter(there, each.type)


def _getter(there: FieldDescriptor, kind: pa.DataType) -> Getter:
    name = there.name
    of_map = _map_entry(there)
    if of_map is not None:
        item = kind.item_type if pa.types.is_map(kind) else kind
        value = _value(of_map.fields_by_name["value"], item)
        return lambda message: [(key, value(each)) for key, each in getattr(message, name).items()]
    if there.is_repeated:
        value = _value(there, kind.value_type if _is_list(kind) else kind)
        return lambda message: [value(each) for each in getattr(message, name)]
    value = _value(there, kind)
    if there.has_presence:
        return lambda message: value(getattr(message, name)) if message.HasField(name) else None
    return lambda message: value(getattr(message, name))


def _map_entry(there: FieldDescriptor) -> Descriptor | None:
    inner = there.message_type
    return inner if inner is not None and there.is_repeated and inner.GetOptions().map_entry else None


def _is_list(kind: pa.DataType) -> bool:
    return any(each(kind) for each in (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list))


def _value(there: FieldDescriptor, kind: pa.DataType) -> Callable[[Any], Any]:
    inner = there.message_type
    if inner is not None:
        return _of_google(inner.full_name) or _struct_getter(inner, kind if pa.types.is_struct(kind) else pa.struct([]))
    if there.enum_type is not None and (pa.types.is_string(kind) or pa.types.is_large_string(kind)):
        names = {number: each.name for number, each in there.enum_type.values_by_number.items()}
        return lambda number: names.get(number, str(number))
    return lambda value: value


def _of_google(name: str) -> Callable[[Any], Any] | None:
    """Return how a message that the library knows is a plain value."""
    if name == "google.protobuf.Timestamp":
        return lambda message: message.ToDatetime(tzinfo=timezone.utc)
    if name == "google.protobuf.Duration":
        return lambda message: message.ToTimedelta()
    if name.startswith("google.protobuf.") and name.endswith("Value") and name not in _NO_WRAPPERS:
        return lambda message: message.value
    return None

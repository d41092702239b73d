"""Functions that make bytes of keys and values, and the type errors where there is none.

A serializer is a function of the object, or an object with kafka-python's `serialize(topic, headers, data)`:

    Producer(value_serializer=lambda row: json.dumps(row).encode())

None is passed by: a record without a key stays one, and a value of None is a tombstone. Whatever a serializer
returns has to be bytes, or None. Without one, keys and values are bytes; `bytearray` and `memoryview` are copied,
since their owner may change them while they wait.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final, Protocol, TypeAlias

from raylog.errors import InvalidConfig, RecordNotSerialized
from raylog.storage.format.columns import Headers

Serialize: TypeAlias = Callable[[str, Headers, Any], Any]


@dataclass(frozen=True)
class _Plain:
    """A function of the object alone."""

    function: Callable[[Any], Any]

    def __call__(self, _topic: str, _headers: Headers, data: Any) -> Any:
        return self.function(data)


class SerializingObject(Protocol):
    """kafka-python's kind of serializer."""

    def serialize(self, topic: str, headers: Any, data: Any, /) -> bytes | None: ...


_INT64: Final = range(2**63)
_WHAT_HELPS = "give bytes, or set {}_serializer"


def serializer(name: str, value: object) -> Serialize:
    """The check of the options key_serializer and value_serializer."""
    method: object = None if isinstance(value, type) else getattr(value, "serialize", None)
    if callable(method):
        return method
    if callable(value):
        return _Plain(value)
    raise InvalidConfig(name, value, "a function, or an object with a method serialize(topic, headers, data)")


def to_bytes(what: str, topic: str, headers: Headers, data: Any, serialize: Serialize | None) -> bytes | None:
    """The key or the value (`what`) of a record. TypeError."""
    if data is None:
        return None
    if serialize is not None:
        data = _serialized(what, topic, headers, data, serialize)
    if type(data) is bytes or data is None:
        return data
    return plain_bytes(what, data)


def _serialized(what: str, topic: str, headers: Headers, data: Any, serialize: Serialize) -> Any:
    try:
        made = serialize(topic, headers, data)
    except Exception as error:
        reason = f"raised {type(error).__name__} on a {type(data).__name__}: {error}".rstrip(".")
        raise RecordNotSerialized(topic, what, name_of(serialize), reason) from error
    if made is None or isinstance(made, bytes | bytearray | memoryview):
        return made
    raise RecordNotSerialized(topic, what, name_of(serialize), f"returned a {type(made).__name__}, not bytes")


def name_of(function: Any) -> str:
    """Return what people call a serializer or deserializer: `json.dumps`, or the class of an object."""
    function = function.function if isinstance(function, _Plain) else getattr(function, "__self__", function)
    named = function if hasattr(function, "__qualname__") else type(function)
    return f"{named.__module__}.{named.__qualname__}"


def plain_bytes(what: str, data: object) -> bytes:
    if isinstance(data, bytes | bytearray | memoryview):
        return bytes(data)
    raise TypeError(f"A {what} is bytes or None, not a {type(data).__name__}: {_WHAT_HELPS.format(what)}.")


def check_headers(headers: object) -> Headers:
    """A sequence of (name, value): text, and bytes or None. A dictionary will do. TypeError."""
    if headers is None:
        return ()
    if isinstance(headers, dict):
        headers = list(headers.items())
    if not isinstance(headers, list | tuple):
        raise TypeError(f"Headers are a list of (name, value), not a {type(headers).__name__}.")
    return tuple(map(_header, headers))


def check_timestamp(timestamp_ms: object) -> None:
    if timestamp_ms is None:
        return
    if type(timestamp_ms) is not int:
        raise TypeError(f"A timestamp is a whole number of milliseconds, not a {type(timestamp_ms).__name__}.")
    if timestamp_ms not in _INT64:
        raise ValueError(f"{timestamp_ms} milliseconds since 1970 is no timestamp.")


def _header(pair: object) -> tuple[str, bytes | None]:
    if not isinstance(pair, tuple | list) or len(pair) != 2:
        raise TypeError(f"A header is a pair (name, value), not {pair!r}.")
    name, value = pair
    if not isinstance(name, str):
        raise TypeError(f"The name of a header is text, not a {type(name).__name__}.")
    if not name.isascii():
        name.encode()  # UnicodeEncodeError here, not when the batch is made
    return name, None if value is None else plain_bytes("header's value", value)


def column(what: str, items: Sequence[Any], topic: str, serialize: Serialize | None) -> Sequence[bytes | None]:
    """Keys or values of many records. TypeError."""
    if serialize is not None:
        return [to_bytes(what, topic, (), item, serialize) for item in items]
    if set(map(type, items)) <= _PLAIN:
        return items
    return [None if item is None else plain_bytes(what, item) for item in items]


_PLAIN = {bytes, type(None)}

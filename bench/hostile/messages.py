"""Every way in which a message's fields can be large, for any type of message, made from its annotations.

`largest` makes the valid ones: each field that can grow is grown to the limit while the others stay small. `malformed`
makes bytes that are of no type, and expensive to find out about.
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Iterator, Mapping
from dataclasses import fields
from typing import Any, Final, NamedTuple, Union

import msgpack

from raylog.actors.protocol.messages import Message

_ARRAY32: Final = struct.Struct(">BI")
_ARRAY32_TAG: Final = 0xDD
_MAP32_TAG: Final = 0xDF
_DEEP: Final = 500
_UUID_BYTES: Final = 16
_EXTREMES: Final = (2**63 - 1, -(2**63), 2**31 - 1)


class Body(NamedTuple):
    """The bytes of a message, and what is bad about them."""

    name: str
    data: bytes


def largest(cls: type[Message], limit: int, known: Mapping[str, object]) -> Iterator[Body]:
    """Valid bodies of about `limit` bytes. `known`: values of fields, by name, that a handler looks at first."""
    hints = typing.get_type_hints(cls)
    names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # messages are dataclasses
    small = {name: known.get(name, _small(hints[name])) for name in names}
    yield Body("smallest", _packed(small.values()))
    room = limit - len(_packed(small.values())) - 16
    for name in names:
        for how, value in _grown(hints[name], room):
            yield Body(f"{name}: {how}", _packed({**small, name: value}.values()))


def malformed(limit: int) -> Iterator[Body]:
    """Bytes that no message has."""
    yield Body("no msgpack", b"\xc1" * limit)
    yield Body("a million numbers", _array(limit - 5) + bytes(limit - 5))
    yield Body("empty arrays", _array(limit - 5) + b"\x90" * (limit - 5))
    yield Body("arrays of one in each other", b"\x91" * (limit - 1) + b"\x90")
    # A reader that makes room for what is declared makes it at each depth.
    yield Body("declares more than there is", _array(limit) * _DEEP + bytes(limit - 5 * _DEEP))
    yield Body("maps that declare more", _ARRAY32.pack(_MAP32_TAG, limit // 2) * _DEEP + bytes(limit - 5 * _DEEP))
    yield Body("short strings", _array((limit - 5) // 2) + b"\xa1x" * ((limit - 5) // 2))


def _packed(values: Any) -> bytes:
    return msgpack.packb(tuple(values), use_bin_type=True)  # type: ignore[no-any-return]


def _array(count: int) -> bytes:
    return _ARRAY32.pack(_ARRAY32_TAG, count)


def _shape(annotation: Any) -> tuple[Any, tuple[Any, ...]]:
    """(origin, arguments); a named tuple travels as a plain one."""
    if hasattr(annotation, "_fields"):
        return tuple, tuple(typing.get_type_hints(annotation).values())
    return typing.get_origin(annotation), typing.get_args(annotation)


def _small(annotation: Any) -> object:
    origin, arguments = _shape(annotation)
    if origin in (Union, types.UnionType):
        return None if type(None) in arguments else _small(arguments[0])
    if origin is tuple:
        return () if arguments[-1] is Ellipsis else tuple(map(_small, arguments))
    return {int: 0, float: 0.0, bool: False, str: "", bytes: bytes(_UUID_BYTES)}.get(annotation)


def _grown(annotation: Any, room: int) -> Iterator[tuple[str, object]]:
    """(how, a value of this type that takes about `room` bytes); extreme numbers too, though they are small."""
    origin, arguments = _shape(annotation)
    if annotation is int:
        yield from ((f"{number:,}", number) for number in _EXTREMES)
    elif annotation in (str, object):
        yield "long text", "x" * room
    elif annotation is bytes:
        yield "long bytes", bytes(room)
    elif origin in (Union, types.UnionType):
        for each in arguments:
            yield from _grown(each, room)
    elif origin is tuple and arguments[-1] is Ellipsis:
        yield "many", tuple(_distinct(arguments[0], number) for number in range(_count(arguments[0], room)))
        yield from ((f"one with {how}", (value,)) for how, value in _grown(arguments[0], room))
    elif origin is tuple:
        least = tuple(map(_small, arguments))
        for place, each in enumerate(arguments):
            for how, value in _grown(each, room):
                yield f"[{place}] {how}", (*least[:place], value, *least[place + 1 :])


def _count(annotation: Any, room: int) -> int:
    """Return how many distinct entries fit."""
    each = len(_packed([_distinct(annotation, 2**31)])) - 1
    return max(1, room // each)


def _distinct(annotation: Any, number: int) -> object:
    """Small, and another one for each number, so that nothing takes two for the same."""
    origin, arguments = _shape(annotation)
    if origin in (Union, types.UnionType):
        return _distinct(next(each for each in arguments if each is not type(None)), number)
    if origin is tuple:
        return () if arguments[-1] is Ellipsis else tuple(_distinct(each, number) for each in arguments)
    if annotation is bytes:
        return number.to_bytes(_UUID_BYTES, "big")
    if annotation in (str, object):
        return f"{number:x}"
    return number % 2**31 if annotation is int else _small(annotation)

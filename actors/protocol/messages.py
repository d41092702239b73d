"""The messages that travel in frames: frozen types, each with a kind and a version.

    kinds    whose
    1–15     the transport's own, here
    16–      the replica's, the broker's, ... as they come

A message goes over the wire as the msgpack array of its fields, in their order. A field's annotation is what its value
is checked against on arrival: `int`, `float`, `bool`, `str`, `bytes`, `None`, `object` (any of these, or tuples),
unions, `tuple[X, ...]`, `tuple[X, Y]`, and subclasses of `NamedTuple`, which travel as plain tuples. So a new message
is

    @message(kind=16)
    @dataclass(frozen=True, slots=True)
    class SeekRequest(Message):
        "One sentence."

        offset: int

What must stay true: a kind and version mean the same fields for ever (rule 32). Fields are added in a new class
with the next version; both are registered as long as old peers may send the old one.
"""

from __future__ import annotations

import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple, TypeVar, Union

import msgpack

from raylog.errors import FrameInvalid, MessageUnknown
from raylog.storage.format.record_batch import Bytes

_Check = Callable[[object], bool]
_Maker = Callable[[Any], object]
_SCALARS: Final = (int, float, bool, str, bytes, type(None))
_MAX_KIND: Final = 255


class Message:
    """Base of every type that travels in a frame."""

    __slots__ = ()


_M = TypeVar("_M", bound=Message)
_PACKER: Final = msgpack.Packer(use_bin_type=True)


class _Codec:
    """How one type of message is packed, unpacked and checked."""

    __slots__ = ("_checks", "cls", "field_types", "fields", "kind", "make", "version")

    def __init__(self, cls: type[Message], kind: int, version: int) -> None:
        names = [field.name for field in fields(cls)]  # type: ignore[arg-type]  # checked by `message`
        hints = typing.get_type_hints(cls)
        self.cls = cls
        self.kind = kind
        self.version = version
        self.make = _maker_of(cls, [_maker_for(hints[name]) for name in names])
        self.fields = _fields_getter(names)
        self._checks = [_check_for(hints[name]) for name in names]
        self.field_types = [hints[name] for name in names]

    def check(self, values: object) -> None:
        """Refuse what is not of these types; unions are told from the rest only here."""
        if type(values) is not tuple or len(values) != len(self._checks):
            raise FrameInvalid(f"Message kind {self.kind} is not an array of {len(self._checks)} fields.")
        for place, (check, value) in enumerate(zip(self._checks, values, strict=True)):
            if not check(value):
                raise FrameInvalid(f"Field {place} of message kind {self.kind} has a {type(value).__name__}.")


_by_number: dict[tuple[int, int], _Codec] = {}
_by_type: dict[type[Message], _Codec] = {}


_for_clients: set[type[Message]] = set()


def message(kind: int, version: int = 1, *, for_clients: bool = False) -> Callable[[type[_M]], type[_M]]:
    """Register a frozen dataclass under its numbers.

    `for_clients`: a client may ask this over its stream (rule 33). What does not say so is refused there, so that a
    new kind is closed until somebody opens it. Answers need not say so.
    """

    def register(cls: type[_M]) -> type[_M]:
        params = getattr(cls, "__dataclass_params__", None)
        if params is None or not params.frozen:
            raise TypeError(f"{cls.__name__} is not a frozen dataclass.")
        if not (0 < kind <= _MAX_KIND and 0 < version <= _MAX_KIND) or (kind, version) in _by_number:
            raise ValueError(f"Kind {kind} in version {version} is taken, or not between 1 and {_MAX_KIND}.")
        _by_number[kind, version] = _by_type[cls] = _Codec(cls, kind, version)
        if for_clients:
            _for_clients.add(cls)
        return cls

    return register


def is_for_clients(kind: type[Message]) -> bool:
    """Whether a client may ask this (rule 33)."""
    return kind in _for_clients


class Numbers(NamedTuple):
    kind: int
    version: int


def numbers_of(kind: type[Message]) -> Numbers:
    """Under which it travels."""
    return Numbers(_by_type[kind].kind, _by_type[kind].version)


def all_messages() -> tuple[type[Message], ...]:
    """Every registered type, by its numbers."""
    return tuple(codec.cls for _, codec in sorted(_by_number.items()))


def pack(outgoing: Message) -> tuple[int, int, bytes]:
    """(kind, version, bytes)."""
    codec = _by_type[type(outgoing)]
    return codec.kind, codec.version, _PACKER.pack(codec.fields(outgoing))


def unpack(kind: int, version: int, data: Bytes) -> Message:
    """The message in `data`; MessageUnknown where the kind is, FrameInvalid where the bytes are not of that kind."""
    codec = _by_number.get((kind, version))
    if codec is None:
        raise MessageUnknown(kind, version)
    try:
        values = msgpack.unpackb(data, use_list=False)
    except (ValueError, TypeError, msgpack.UnpackException) as error:
        raise FrameInvalid(f"Message kind {kind} is not msgpack: {error}.") from None
    if type(values) is not tuple or list(map(type, values)) != codec.field_types:  # nearly always equal: no calls
        codec.check(values)
    return codec.make(*values)


def is_plain(value: object) -> bool:
    """Whether a value crosses the wire unchanged: scalars, and tuples of them."""
    if type(value) is tuple:
        return all(map(is_plain, value))
    return type(value) in _SCALARS


def _fields_getter(names: list[str]) -> Callable[[Message], tuple[object, ...]]:
    if len(names) > 1:
        return attrgetter(*names)
    if names:
        only = attrgetter(names[0])
        return lambda message: (only(message),)
    return lambda _message: ()


def _check_for(annotation: Any) -> _Check:
    """What a value on arrival has to pass. A bool is no int here, whatever Python says."""
    if annotation in _SCALARS:
        return lambda value: type(value) is annotation
    if annotation is object:
        return is_plain
    if _is_named_tuple(annotation):
        return _tuple_check(tuple(typing.get_type_hints(annotation).values()))
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin in (Union, types.UnionType):
        choices = [_check_for(each) for each in arguments]
        return lambda value: any(check(value) for check in choices)
    if origin is tuple:
        return _tuple_check(arguments)
    raise TypeError(f"A message cannot have a field of type {annotation}.")


def _tuple_check(arguments: tuple[Any, ...]) -> _Check:
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        each = _check_for(arguments[0])
        return lambda value: type(value) is tuple and all(map(each, value))
    checks = [_check_for(argument) for argument in arguments]

    def check_all(value: object) -> bool:
        if type(value) is not tuple or len(value) != len(checks):
            return False
        return all(check(item) for check, item in zip(checks, value, strict=True))

    return check_all


# --- named tuples -------------------------------------------------------------------------------------------------


def _maker_of(cls: type[Message], makers: list[_Maker | None]) -> Callable[..., Message]:
    """What makes a message of its unpacked fields: the class itself, unless a field holds named tuples."""
    if not any(makers):
        return cls
    all_makers = [maker or _unchanged for maker in makers]
    return lambda *values: cls(*(maker(value) for maker, value in zip(all_makers, values, strict=True)))


def _maker_for(annotation: Any) -> _Maker | None:
    """What turns a checked value into the named tuples of its annotation; None: there are none in it."""
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if _is_named_tuple(annotation):
        return _named_maker(annotation)
    if origin in (Union, types.UnionType):
        return _optional_maker(annotation, arguments)
    if origin is not tuple:
        return None
    if len(arguments) == 2 and arguments[1] is Ellipsis:
        each = _maker_for(arguments[0])
        return None if each is None else lambda values: tuple(map(each, values))
    makers = list(map(_maker_for, arguments))
    return _each_maker(makers, tuple) if any(makers) else None


def _named_maker(cls: Any) -> _Maker:
    makers = list(map(_maker_for, typing.get_type_hints(cls).values()))
    return _each_maker(makers, cls._make) if any(makers) else cls._make


def _each_maker(makers: list[_Maker | None], make: Callable[[Iterable[object]], object]) -> _Maker:
    all_makers = [maker or _unchanged for maker in makers]
    return lambda values: make(maker(value) for maker, value in zip(all_makers, values, strict=True))


def _optional_maker(annotation: Any, choices: tuple[Any, ...]) -> _Maker | None:
    """For `X | None`. Which other choice a plain tuple was meant for could not be told."""
    makers = [maker for maker in map(_maker_for, choices) if maker is not None]
    if not makers:
        return None
    if len(choices) != 2 or type(None) not in choices:
        raise TypeError(f"A message cannot have a field of type {annotation}.")
    return lambda value: None if value is None else makers[0](value)


def _is_named_tuple(annotation: Any) -> bool:
    return isinstance(annotation, type) and issubclass(annotation, tuple) and hasattr(annotation, "_fields")


def _unchanged(value: object) -> object:
    return value


# --- the transport's own messages ---------------------------------------------------------------------------------


@message(kind=1)
@dataclass(frozen=True, slots=True)
class Hello(Message):
    """From whoever connects, the first message: who it is, and whom it means to have reached (`admission.py`)."""

    role: str
    endpoint: str
    nonce: bytes


@message(kind=2)
@dataclass(frozen=True, slots=True)
class Challenge(Message):
    """The answer to a hello: prove that you hold the secret."""

    role: str
    nonce: bytes


@message(kind=3)
@dataclass(frozen=True, slots=True)
class Proof(Message):
    """What only a holder of the secret can compute, from both sides in turn."""

    digest: bytes


@message(kind=4, for_clients=True)
@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Answered with Done by the transport itself: the other loop turns."""


@message(kind=5)
@dataclass(frozen=True, slots=True)
class Done(Message):
    """The answer where there is nothing to say."""


@message(kind=6)
@dataclass(frozen=True, slots=True)
class Failure(Message):
    """An error as the answer; `arguments` are those of its constructor (`remote_errors.py`)."""

    name: str
    text: str
    arguments: tuple[object, ...]


@message(kind=7)
@dataclass(frozen=True, slots=True)
class DoorFull(Message):
    """To somebody who has not proved itself yet, as the last word: too many wait here; come again."""

"""Messages, which are frozen types with a kind and a version, and the frames that carry them over streams.

    kinds    declared
    1–15     here: those of the transport itself
    16–      in the other modules of this package

A message goes over the wire as the msgpack array of its fields, in their order. A value is checked on arrival against
its field's annotation: `int`, `float`, `bool`, `str`, `bytes`, `None`, `object` (any of these, or tuples), unions,
`tuple[X, ...]`, `tuple[X, Y]`, and subclasses of `NamedTuple`, which travel as plain tuples. So a new message is

    @message(kind=16)
    @dataclass(frozen=True, slots=True)
    class SeekRequest(Message):
        "One sentence."

        offset: int

A frame is a header of 40 bytes, big-endian, then a message, then a payload: record batches as they are on disk, which
no hop encodes again.

      0  frame_length     u32   bytes after this field
      4  version          u8    of this layout; length and version stay where they are in every version
      5  kind             u8    of the message
      6  message_version  u8    of that kind
      7  flags            u8    see below
      8  correlation_id   u64   chosen by the requester, repeated in the answer; 0 in one-way frames
     16  topic_id         16 B  uuid; zeros: none
     32  partition        i32   -1: none
     36  message_length   u32
     40  message          message_length bytes
         payload          the rest

    flags    what the frame is                 correlation id
    0        a request; an answer is due       not 0
    1        the answer                        that of the request
    1 | 2    an error as the answer            that of the request
    4        one-way; no answer will come      0

What must stay true:
- A kind and version mean the same fields for ever (rule 32). Fields are added in a new class with the next version;
  both are registered as long as old peers may send the old one.
- The whole header is checked before any byte behind it is waited for. A frame that fails these checks ends its stream,
  since the start of the next frame is unknown then (rule 30).
"""

from __future__ import annotations

import struct
import types
import typing
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Final, NamedTuple, NoReturn, TypeVar, Union

import msgpack

from raylog.errors import FrameInvalid, FrameTooLarge, MessageUnknown, UnsupportedFrameVersion
from raylog.storage.format.record_batch import Bytes

FRAME_VERSION: Final = 1

REQUEST: Final = 0
RESPONSE: Final = 1
ERROR: Final = 2
ONE_WAY: Final = 4
_WITH_ID: Final = frozenset((REQUEST, RESPONSE, RESPONSE | ERROR))
_FLAGS: Final = _WITH_ID | {ONE_WAY}

HEADER: Final = struct.Struct(">IBBBBQ16siI")
HEADER_BYTES: Final = HEADER.size
_FLAGS_AT: Final = 7
_LANE: Final = slice(16, 36)  # topic id and partition
LENGTH_BYTES: Final = 4  # frame_length, which it does not count itself
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# What a client asks is smaller: reading a message of this size takes some 15 ms of the other side's loop (rule 34).
# `portions` in `groups/records/messages.py` cuts what would be larger.
CLIENT_MESSAGE_BYTES: Final = 256 * 1024
MAX_FRAME_BYTES: Final = 2**31 - 1
# Hello, challenge and proof fit; a stranger cannot make us hold more (rule 30).
MAX_ADMISSION_FRAME_BYTES: Final = 512

NO_TOPIC: Final = bytes(16)
NO_PARTITION: Final = -1
MAX_CORRELATION_ID: Final = 2**64 - 1


class FrameHeader(NamedTuple):
    """The header fields, in their order on the wire."""

    length: int
    version: int
    kind: int
    message_version: int
    flags: int
    correlation_id: int
    topic_id: bytes
    partition: int
    message_length: int

    @property
    def size(self) -> int:
        """Return the bytes of the whole frame."""
        return self.length + LENGTH_BYTES

    @property
    def body_length(self) -> int:
        """Return the bytes of message and payload."""
        return self.length + LENGTH_BYTES - HEADER_BYTES


class Frame(NamedTuple):
    """A whole frame. `message` is valid until the next bytes are read; `payload` belongs to the handler."""

    header: FrameHeader
    message: memoryview
    payload: bytearray | memoryview


def encode_header(
    kind: int,
    message_version: int,
    flags: int,
    correlation_id: int,
    message_length: int,
    payload_length: int,
    topic_id: bytes = NO_TOPIC,
    partition: int = NO_PARTITION,
) -> bytes:
    """Return the 40 bytes that go before message and payload."""
    return HEADER.pack(
        HEADER_BYTES - LENGTH_BYTES + message_length + payload_length,
        FRAME_VERSION,
        kind,
        message_version,
        flags,
        correlation_id,
        topic_id,
        partition,
        message_length,
    )


def lane_of(header: Bytes) -> bytes | None:
    """Return what names the partition of an encoded request: such requests keep their order. None: it is an answer."""
    return None if header[_FLAGS_AT] & RESPONSE else bytes(header[_LANE])


def check_outgoing(
    message_length: int, payload_length: int, max_frame_bytes: int, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> int:
    """Return the size of the frame. FrameTooLarge: the other side would not take it."""
    size = HEADER_BYTES + message_length + payload_length
    if size > max_frame_bytes:
        raise FrameTooLarge(size, max_frame_bytes)
    if message_length > max_message_bytes:
        raise FrameTooLarge(message_length, max_message_bytes)
    return size


def read_header(buffer: Bytes, position: int, max_frame_bytes: int) -> FrameHeader:
    """Return the header at `position`, checked. The caller makes sure that 40 bytes are there."""
    header = tuple.__new__(FrameHeader, HEADER.unpack_from(buffer, position))
    length, version, _, _, flags, correlation_id, _, partition, message_length = header
    body_length = length + (LENGTH_BYTES - HEADER_BYTES)
    if (
        version != FRAME_VERSION
        or body_length + HEADER_BYTES > max_frame_bytes
        or not body_length >= message_length <= MAX_MESSAGE_BYTES
        or flags not in _FLAGS
        or (flags == ONE_WAY) != (correlation_id == 0)
        or partition < NO_PARTITION
    ):
        _refuse(header, max_frame_bytes)
    return header


def _refuse(header: FrameHeader, max_frame_bytes: int) -> NoReturn:
    """Raise the error of the check that has failed. `read_header` makes all of them in one expression first."""
    if header.version != FRAME_VERSION:
        raise UnsupportedFrameVersion(header.version, FRAME_VERSION)
    if header.size > max_frame_bytes:
        raise FrameTooLarge(header.size, max_frame_bytes)
    if header.body_length < header.message_length:
        raise FrameInvalid(f"A frame of {header.size} bytes declares a message of {header.message_length}.")
    if header.message_length > MAX_MESSAGE_BYTES:
        raise FrameTooLarge(header.message_length, MAX_MESSAGE_BYTES)
    if header.flags in _WITH_ID:
        if header.correlation_id == 0:
            raise FrameInvalid("A request or answer has no correlation id.")
    elif header.flags != ONE_WAY:
        raise FrameInvalid(f"Flags {header.flags:#04x} have no meaning.")
    elif header.correlation_id != 0:
        raise FrameInvalid("A one-way frame has a correlation id.")
    raise FrameInvalid(f"Partition {header.partition} cannot be.")


# --- messages ---------------------------------------------------------------------------------------------------------

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
    """The way in which one type of message is packed, unpacked and checked."""

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
        """Raise FrameInvalid for values of other types. Members of unions are told apart only here."""
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

    `for_clients`: a client may ask this over its stream (rule 33). Other kinds are refused there, so that a new kind is
    closed until it is opened on purpose. Answers need not say so.
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
    """Return whether a client may ask this (rule 33)."""
    return kind in _for_clients


class Numbers(NamedTuple):
    kind: int
    version: int


def numbers_of(kind: type[Message]) -> Numbers:
    """Return the numbers under which it travels."""
    return Numbers(_by_type[kind].kind, _by_type[kind].version)


def all_messages() -> tuple[type[Message], ...]:
    """Return every registered type, ordered by its numbers."""
    return tuple(codec.cls for _, codec in sorted(_by_number.items()))


def pack(outgoing: Message) -> tuple[int, int, bytes]:
    """Return (kind, version, bytes)."""
    codec = _by_type[type(outgoing)]
    return codec.kind, codec.version, _PACKER.pack(codec.fields(outgoing))


def unpack(kind: int, version: int, data: Bytes) -> Message:
    """Return the message in `data`. MessageUnknown: unknown kind or version. FrameInvalid: wrong bytes."""
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
    """Return whether a value crosses the wire unchanged: scalars do, and tuples of them."""
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
    """Return the check that a value has to pass on arrival. A bool is not an int here, other than in Python."""
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
    """Return what makes a message of its unpacked fields: the class itself, unless a field holds named tuples."""
    if not any(makers):
        return cls
    all_makers = [maker or _unchanged for maker in makers]
    return lambda *values: cls(*(maker(value) for maker, value in zip(all_makers, values, strict=True)))


def _maker_for(annotation: Any) -> _Maker | None:
    """Return what turns a checked value into the named tuples of its annotation; None: it has none."""
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
    """Return the same for `X | None`. In other unions a plain tuple would be ambiguous."""
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
    """Sent by the side that connects, first of all: its role, and the endpoint it means to reach (`admission.py`)."""

    role: str
    endpoint: str
    nonce: bytes


@message(kind=2)
@dataclass(frozen=True, slots=True)
class Challenge(Message):
    """The answer to Hello: prove that you hold the secret."""

    role: str
    nonce: bytes


@message(kind=3)
@dataclass(frozen=True, slots=True)
class Proof(Message):
    """Sent by both sides in turn: what only a holder of the secret can compute."""

    digest: bytes


@message(kind=4, for_clients=True)
@dataclass(frozen=True, slots=True)
class Ping(Message):
    """Sent by either side. Answered with Done by the transport itself, which shows that the other loop runs."""


@message(kind=5)
@dataclass(frozen=True, slots=True)
class Done(Message):
    """The answer that only says that something is done."""


@message(kind=6)
@dataclass(frozen=True, slots=True)
class Failure(Message):
    """The answer that is an error. `arguments` are those of its constructor (`remote_errors.py`)."""

    name: str
    text: str
    arguments: tuple[object, ...]


@message(kind=8)
@dataclass(frozen=True, slots=True)
class TakesFrames(Message):
    """Sent by the transport to a client, one-way: larger frames than this would end the stream."""

    most_bytes: int


@message(kind=9)
@dataclass(frozen=True, slots=True)
class GivenUp(Message):
    """Sent by the transport, one-way: nobody waits for the answers to these requests any more."""

    requests: tuple[int, ...]  # their correlation ids


@message(kind=7)
@dataclass(frozen=True, slots=True)
class DoorFull(Message):
    """Sent to a peer that has not proved itself yet, as the last message: too many wait here, so try again."""

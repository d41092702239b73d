"""Messages to bytes and back: functions compiled for a message and a version when they are first used.

A frame is a length of four bytes, a header and a message. The header's form follows from the message's version:

    request    api key, version (i16 each), correlation id (i32), client id (i16 and text); flexible: tagged fields
    answer     correlation id (i32); flexible: tagged fields

The client id never has a varint, so that a server can read the header of a version that it does not know. The answer to
an ApiVersions never has tagged fields in its header, for the same reason at the client.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from struct import Struct
from struct import error as struct_error
from typing import Any, Final, NamedTuple

from raylog.api.kafka.protocol.decoder_source import decoder as _new_decoder
from raylog.api.kafka.protocol.encoder_source import encoder as _new_encoder
from raylog.api.kafka.protocol.schemas import schema
from raylog.api.kafka.protocol.wire import Refused, split_tags
from raylog.errors import MalformedRequest, UnsupportedRequestVersion
from raylog.storage.format.record_batch import Bytes

API_VERSIONS_KEY: Final = 18
_HEADER: Final = Struct(">hhih")
_CORRELATION: Final = Struct(">i")
_ANSWER: Final = Struct(">ii")  # length and correlation id
_FLEXIBLE_ANSWER: Final = Struct(">iiB")
_LENGTH: Final = Struct(">i")
_NO_TAGS: Final = b"\0"


class RequestHeader(NamedTuple):
    """Header of a request. `end` is where it ends in the frame."""

    api_key: int
    api_version: int
    correlation_id: int
    client_id: str | None
    end: int


@cache
def decoder(message: str, version: int) -> Callable[..., Any]:
    """Return `decode(data, position=0)`, which gives the message that fills `data` from there on. MalformedRequest."""
    return _new_decoder(schema(message), version)


@cache
def encoder(message: str, version: int) -> Callable[[Any], list[Bytes]]:
    """Return `encode(message)`, which gives the parts to write one after the other."""
    return _new_encoder(schema(message), version)


def read_request_header(frame: Bytes, flexible: Callable[[int, int], bool]) -> RequestHeader:
    """The header of a request, whose length has been cut off. `flexible(api_key, version)` says which form it has.

    MalformedRequest.
    """
    size = len(frame)
    if size < _HEADER.size:
        raise MalformedRequest("RequestHeader", 1, f"it has {size} bytes")
    api_key, version, correlation_id, length = _HEADER.unpack_from(frame)
    end = _HEADER.size + max(0, length)
    if length < -1 or end > size:
        raise MalformedRequest("RequestHeader", 1, f"{size - _HEADER.size} bytes are left for a client id of {length}")
    try:
        client_id = None if length < 0 else str(memoryview(frame)[_HEADER.size : end], "utf-8")
        if flexible(api_key, version):
            _, end = split_tags(frame, end + 1, frame[end], size)
    except (Refused, IndexError, UnicodeDecodeError) as error:
        raise MalformedRequest("RequestHeader", 2, _reason(error)) from None
    return RequestHeader(api_key, version, correlation_id, client_id, end)


def read_answer_header(frame: Bytes, api_key: int, flexible: bool) -> tuple[int, int]:
    """(correlation id, where the message begins) of an answer, whose length has been cut off. MalformedRequest."""
    try:
        (correlation_id,) = _CORRELATION.unpack_from(frame)
        if not flexible or api_key == API_VERSIONS_KEY:
            return correlation_id, _CORRELATION.size
        _, end = split_tags(frame, _CORRELATION.size + 1, frame[_CORRELATION.size], len(frame))
    except (Refused, IndexError, struct_error) as error:
        raise MalformedRequest("ResponseHeader", int(flexible), _reason(error)) from None
    return correlation_id, end


def _reason(error: Exception) -> str:
    return str(error) if isinstance(error, Refused | UnicodeDecodeError) else "its frame ends before it does"


def request_frame(
    name: str, version: int, message: Any, *, correlation_id: int, client_id: str | None = None
) -> list[Bytes]:
    """The parts of a whole request. `name` is that of the API, such as "Fetch"."""
    described = schema(f"{name}Request")
    client = b"" if client_id is None else client_id.encode()
    length = -1 if client_id is None else len(client)
    header = _HEADER.pack(_key(described.api_key, version), version, correlation_id, length) + client
    if version in described.flexible:
        header += _NO_TAGS
    parts = encoder(described.name, version)(message)
    parts[0] = b"".join((_LENGTH.pack(len(header) + sum(map(len, parts))), header, parts[0]))
    return parts


def answer_frame(name: str, version: int, message: Any, correlation_id: int) -> list[Bytes]:
    """The parts of a whole answer. `name` is that of the API, such as "Fetch"."""
    described = schema(f"{name}Response")
    parts = encoder(described.name, version)(message)
    size = sum(map(len, parts))
    if version in described.flexible and described.api_key != API_VERSIONS_KEY:
        header = _FLEXIBLE_ANSWER.pack(size + 5, correlation_id, 0)
    else:
        header = _ANSWER.pack(size + 4, correlation_id)
    parts[0] = header + parts[0]
    return parts


def _key(api_key: int | None, version: int) -> int:
    if api_key is None:
        raise UnsupportedRequestVersion(-1, version)
    return api_key

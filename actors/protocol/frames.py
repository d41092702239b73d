"""The bytes of a frame, the unit on a stream between two processes.

A frame is a header of 40 bytes, big-endian, then a message (msgpack, see `messages.py`), then a payload: record
batches as they are on disk, which no hop encodes again.

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

What must stay true: whatever the header says is checked before a byte behind it is waited for. A frame that fails
these checks ends its stream, for nothing says where the next one would begin (rule 30).
"""

from __future__ import annotations

import struct
from typing import Final, NamedTuple, NoReturn

from raylog.errors import FrameInvalid, FrameTooLarge, UnsupportedFrameVersion
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
LENGTH_BYTES: Final = 4  # frame_length, which it does not count itself
MAX_MESSAGE_BYTES: Final = 16 * 1024 * 1024
# What a client asks is smaller: reading a message of this size takes some 15 ms of the other side's loop (rule 34).
# `group_messages.portions` cuts what would be larger.
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
        """Bytes of the whole frame."""
        return self.length + LENGTH_BYTES

    @property
    def body_length(self) -> int:
        """Bytes of message and payload."""
        return self.length + LENGTH_BYTES - HEADER_BYTES


class Frame(NamedTuple):
    """A frame that has arrived whole. `message` is read before the next bytes arrive; `payload` is the taker's own."""

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
    """The 40 bytes that go before message and payload."""
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


def check_outgoing(
    message_length: int, payload_length: int, max_frame_bytes: int, max_message_bytes: int = MAX_MESSAGE_BYTES
) -> int:
    """The size of the frame, if the other side will take it."""
    size = HEADER_BYTES + message_length + payload_length
    if size > max_frame_bytes:
        raise FrameTooLarge(size, max_frame_bytes)
    if message_length > max_message_bytes:
        raise FrameTooLarge(message_length, max_message_bytes)
    return size


def read_header(buffer: Bytes, position: int, max_frame_bytes: int) -> FrameHeader:
    """The header at `position`, checked. The caller has made sure that 40 bytes are there."""
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
    """Say which of the checks it was: every frame passes them, so they are made in one go first."""
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

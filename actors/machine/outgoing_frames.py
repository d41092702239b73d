"""The writing half of a stream: messages as frames, and frames onto the transport.

The first frame in a turn of the event loop is sent at once, since the peer may wait for it. What follows in the same
turn is sent together, and so are the answers to a burst of requests. Only small payloads are ever copied.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Final

from raylog.actors.protocol import messages
from raylog.actors.protocol.messages import (
    HEADER_BYTES,
    MAX_MESSAGE_BYTES,
    NO_PARTITION,
    NO_TOPIC,
    Message,
    check_outgoing,
    encode_header,
)
from raylog.config import KIB
from raylog.storage.format.record_batch import Bytes

_JOIN_BYTES: Final = 4 * KIB  # a payload up to here is copied into one piece with its header: three pieces cost more
_FLUSH_BYTES: Final = 128 * KIB  # collected so much: no reason to wait for the end of the turn


class OutgoingFrames:
    """Writes nothing before `start` and after `end`."""

    def __init__(self, loop: asyncio.AbstractEventLoop, max_frame_bytes: int) -> None:
        self.is_corked = False  # what is written now waits for what follows
        self.max_message_bytes = MAX_MESSAGE_BYTES
        self._max_frame_bytes = max_frame_bytes
        self._loop = loop
        self._transport: asyncio.Transport | None = None
        self._waiting: list[Bytes] = []
        self._bytes_waiting = 0

    def start(self, transport: asyncio.Transport) -> None:
        self._transport = transport

    def end(self) -> None:
        """Drop what waits, and all that is written from now on."""
        self._transport = None
        self._waiting.clear()
        self._bytes_waiting = 0

    @property
    def bytes_unsent(self) -> int:
        """Return how many bytes wait here and in the transport."""
        return self._bytes_waiting + (0 if self._transport is None else self._transport.get_write_buffer_size())

    def encode(
        self,
        message: Message,
        payload: Bytes,
        flags: int,
        correlation_id: int,
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
    ) -> tuple[list[Bytes], int]:
        """Return (the parts of the frame, its size). What cannot be sent fails here, before any byte is written."""
        kind, version, packed = messages.pack(message)
        if type(payload) is memoryview:
            payload = payload.cast("B")
        message_length, payload_length = len(packed), len(payload)
        size = HEADER_BYTES + message_length + payload_length
        if size > self._max_frame_bytes or message_length > self.max_message_bytes:
            check_outgoing(message_length, payload_length, self._max_frame_bytes, self.max_message_bytes)
        header = encode_header(
            kind, version, flags, correlation_id, message_length, payload_length, topic_id, partition
        )
        if payload_length > _JOIN_BYTES:
            return [header, packed, payload], size
        return [b"".join((header, packed, payload))], size

    def write(self, parts: Sequence[Bytes]) -> None:
        """Write the parts of a frame, at the latest when this turn of the loop ends."""
        if self._transport is None:
            return
        if not self.is_corked:
            self.is_corked = True
            self._loop.call_soon(self.uncork)
            self._transport.writelines(parts)
            return
        self._waiting += parts
        self._bytes_waiting += sum(map(len, parts))
        if self._bytes_waiting >= _FLUSH_BYTES:
            self._flush()

    def uncork(self) -> None:
        """Write what waits; the next frame goes out at once."""
        self.is_corked = False
        if self._waiting:
            self._flush()

    def _flush(self) -> None:
        waiting, self._waiting = self._waiting, []
        self._bytes_waiting = 0
        if self._transport is not None:
            self._transport.writelines(waiting)

"""A client that is admitted and then sends whatever it likes: bytes of its own making under any kind of message.

It shares with well-behaved clients the admission and the layout of a frame, and nothing else.
"""

from __future__ import annotations

import os
import socket
from typing import Final, NamedTuple

from raylog.actors.machine.admission import NONCE_BYTES, Dialer
from raylog.actors.protocol.cluster_secrets import Key
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import (
    ERROR,
    HEADER_BYTES,
    LENGTH_BYTES,
    MAX_FRAME_BYTES,
    NO_PARTITION,
    NO_TOPIC,
    ONE_WAY,
    REQUEST,
    RESPONSE,
    Failure,
    Message,
    Ping,
    encode_header,
    pack,
    read_header,
    unpack,
)

_SECONDS: Final = 20.0
_PIECE_BYTES: Final = 1 << 20


class StreamClosed(Exception):
    """The other side has ended the stream."""


class Answered(NamedTuple):
    """An answer or a refusal: `error` names the refusal, and is empty for an answer."""

    message: Message | None
    error: str
    size: int


class HostileClient:
    """One admitted stream, used by one thread. `key` is that of clients."""

    def __init__(self, endpoint: Endpoint, key: Key) -> None:
        self._socket = _connected(endpoint)
        self._last_id = 0
        self._admit(str(endpoint), key)

    def close(self) -> None:
        self._socket.close()

    def ping(self) -> None:
        """Returns when the other side's loop has turned."""
        kind, version, body = pack(Ping())
        self.send(kind, version, body)
        self.answer()

    def ask(
        self, message: Message, payload: bytes = b"", topic_id: bytes = NO_TOPIC, partition: int = NO_PARTITION
    ) -> Answered:
        kind, version, body = pack(message)
        self.send(kind, version, body, payload, topic_id, partition)
        return self.answer()

    def send(
        self,
        kind: int,
        version: int,
        body: bytes,
        payload: bytes = b"",
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
    ) -> None:
        """One request, whatever its body says. StreamClosed."""
        self._last_id += 1
        header = encode_header(
            kind, version, REQUEST, self._last_id, len(body), len(payload), topic_id=topic_id, partition=partition
        )
        try:
            self._socket.sendall(b"".join((header, body, payload)))
        except OSError as error:
            raise StreamClosed(str(error)) from error

    def answer(self) -> Answered:
        """The next answer, whichever request it is for. StreamClosed, TimeoutError."""
        flags = ONE_WAY
        while flags == ONE_WAY:  # what it says by itself: how large a frame it takes
            header = read_header(self._read(HEADER_BYTES), 0, MAX_FRAME_BYTES)
            body = self._read(header.body_length)
            flags = header.flags
        if flags not in (RESPONSE, RESPONSE | ERROR):
            raise StreamClosed(f"it sent a frame with flags {flags}")
        message = unpack(header.kind, header.message_version, body[: header.message_length])
        size = header.length + LENGTH_BYTES
        if isinstance(message, Failure):
            return Answered(None, message.name, size)
        return Answered(message, "", size)

    def _admit(self, endpoint: str, key: Key) -> None:
        dialer = Dialer(key, "hostile", endpoint, os.urandom(NONCE_BYTES))
        outgoing: Message | None = dialer.opening()
        while not dialer.is_admitted:
            if outgoing is not None:
                kind, version, body = pack(outgoing)
                self._socket.sendall(encode_header(kind, version, ONE_WAY, 0, len(body), 0) + body)
            header = read_header(self._read(HEADER_BYTES), 0, MAX_FRAME_BYTES)
            outgoing = dialer.step(unpack(header.kind, header.message_version, self._read(header.body_length)))

    def _read(self, count: int) -> bytes:
        parts = []
        while count:
            try:
                part = self._socket.recv(min(count, _PIECE_BYTES))
            except TimeoutError:
                raise
            except OSError as error:
                raise StreamClosed(str(error)) from error
            if not part:
                raise StreamClosed("it was closed")
            parts.append(part)
            count -= len(part)
        return b"".join(parts)


def _connected(endpoint: Endpoint) -> socket.socket:
    if endpoint.is_unix:
        made = socket.socket(socket.AF_UNIX)
        made.settimeout(_SECONDS)
        made.connect(endpoint.path)
        return made
    return socket.create_connection((endpoint.host, endpoint.port), timeout=_SECONDS)

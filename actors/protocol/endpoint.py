"""Addresses at which processes accept streams, and the bounds of one stream."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Final

from raylog.actors.protocol.messages import MAX_FRAME_BYTES
from raylog.config import MIB
from raylog.errors import InvalidConfig

_MAX_SOCKET_PATH: Final = 107


@dataclass(frozen=True, slots=True)
class Endpoint:
    """The address of a process's streams: a unix socket, or host and port. `str()` gives its form in metadata."""

    path: str = ""
    host: str = ""
    port: int = 0

    def __post_init__(self) -> None:
        if bool(self.path) == bool(self.host):
            raise InvalidConfig("endpoint", str(self), "a path, or a host and a port")
        if len(self.path.encode()) > _MAX_SOCKET_PATH:
            raise InvalidConfig("endpoint", self.path, f"a path of at most {_MAX_SOCKET_PATH} bytes")
        if not 0 <= self.port <= 65535:
            raise InvalidConfig("endpoint", self.port, "a port between 0 and 65535")

    @classmethod
    def parse(cls, text: str) -> Endpoint:
        """Return the endpoint whose `str()` is `text`."""
        scheme, _, rest = text.partition(":")
        host, _, port = rest.rpartition(":")
        if scheme == "unix":
            return cls(path=rest)
        if scheme == "tcp" and port.isascii() and port.isdigit():
            return cls(host=host.removeprefix("[").removesuffix("]"), port=int(port))
        raise InvalidConfig("endpoint", text, "unix:PATH or tcp:HOST:PORT")

    @property
    def is_unix(self) -> bool:
        return bool(self.path)

    def __str__(self) -> str:
        if self.path:
            return f"unix:{self.path}"
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"tcp:{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class StreamLimits:
    """Bounds of one stream (rule 31). Both sides should have the same."""

    max_frame_bytes: int = 128 * MIB
    # What the other side has not answered yet. A request that was given up still counts, until its answer comes: the
    # other side still holds it. One frame alone may be larger.
    in_flight_bytes: int = 64 * MIB
    # Requests that have arrived and are not answered; more of them, and the socket is not read. Answers come over the
    # same socket, so this stays above what a peer with the bounds above can have in flight; otherwise two sides could
    # wait for each other's answers for ever.
    held_bytes: int = 160 * MIB
    # The same two on a stream that a client has opened (rule 34): a large batch, and another behind it. A leader whose
    # topic takes larger ones says so (`Stream.take_frames_of`). A client is asked nothing, so any bound may stop it.
    client_frame_bytes: int = 20 * MIB
    client_held_bytes: int = 40 * MIB
    max_handlers: int = 1024  # that run at once; further requests wait in their order
    # Requests whose answer is owed, and for which nothing runs: fetches until there is something, appends until they
    # are replicated. They would otherwise keep the handlers from the requests that they wait for.
    max_owed: int = 16_384
    admission_seconds: float = 5.0
    stall_seconds: float = 10.0  # a frame that has begun and of which nothing more comes
    request_seconds: float = 30.0  # the time-out of a request that names none

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise InvalidConfig(field.name, getattr(self, field.name), "more than 0")
        if self.max_frame_bytes > MAX_FRAME_BYTES:
            raise InvalidConfig("max_frame_bytes", self.max_frame_bytes, f"at most {MAX_FRAME_BYTES}")

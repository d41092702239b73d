"""What the rest of raylog sees of a stream: requests, answers, and the `Stream` they go over.

Nothing here knows of sockets. `streams.py` makes real ones; the simulator puts its fake network behind
the same protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator
from dataclasses import dataclass, fields
from typing import Any, Final, Protocol, TypeAlias

from raylog.actors.frames import MAX_FRAME_BYTES, NO_PARTITION, NO_TOPIC
from raylog.actors.messages import Message
from raylog.config import MIB
from raylog.errors import InvalidConfig
from raylog.storage.record_batch import Bytes, MutableBytes

_MAX_SOCKET_PATH: Final = 107


@dataclass(frozen=True, slots=True)
class Endpoint:
    """Where a process takes streams: a unix socket, or host and port. `str()` of it is its name in metadata."""

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
        """The endpoint whose `str()` is `text`."""
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
    admission_seconds: float = 5.0
    stall_seconds: float = 10.0  # a frame that has begun and of which nothing more comes
    request_seconds: float = 30.0  # the time-out of a request that names none

    def __post_init__(self) -> None:
        for field in fields(self):
            if getattr(self, field.name) <= 0:
                raise InvalidConfig(field.name, getattr(self, field.name), "more than 0")
        if self.max_frame_bytes > MAX_FRAME_BYTES:
            raise InvalidConfig("max_frame_bytes", self.max_frame_bytes, f"at most {MAX_FRAME_BYTES}")


@dataclass(slots=True)
class Request:
    """A message that has arrived. `payload` is the taker's own: it may be written to and kept."""

    message: Message
    payload: MutableBytes
    topic_id: bytes
    partition: int
    stream: Stream  # that it came over
    correlation_id: int  # 0: one-way, nobody waits for an answer
    size: int


@dataclass(slots=True)
class Response:
    """An answer, on either side. A payload that is sent stays as it is until it is with the kernel."""

    message: Message
    payload: Bytes = b""


Answer: TypeAlias = Response | None
AnswerTaker: TypeAlias = Callable[[Response | Exception], None]


class LaterAnswer:
    """An answer that a handler owes. It goes out in the very moment in which it is given, which no task could do."""

    __slots__ = ("_answer", "_cancelled", "_error", "_is_over", "_taken")

    def __init__(self) -> None:
        self._is_over = False
        self._answer: Answer = None
        self._error: BaseException | None = None
        self._taken: Callable[[Answer, BaseException | None], None] | None = None
        self._cancelled: Callable[[], None] | None = None

    def done(self) -> bool:
        """It has been given, or nobody waits for it any more."""
        return self._is_over

    def give(self, answer: Answer) -> None:
        self._end(answer, None)

    def fail(self, error: BaseException) -> None:
        self._end(None, error)

    def cancel(self) -> None:
        """Nobody waits for it any more."""
        self._is_over, self._taken = True, None
        if self._cancelled is not None:
            self._cancelled()

    def when_cancelled(self, cancelled: Callable[[], None]) -> None:
        """Call this when nobody waits for it any more, so that what it keeps goes too."""
        self._cancelled = cancelled

    def when_over(self, taken: Callable[[Answer, BaseException | None], None]) -> None:
        """Call `taken` with the answer, or what became of it. At once, if it is there already."""
        if self._is_over:
            taken(self._answer, self._error)
        else:
            self._taken = taken

    def _end(self, answer: Answer, error: BaseException | None) -> None:
        self._is_over, self._answer, self._error = True, answer, error
        taken, self._taken = self._taken, None
        if taken is not None:
            taken(answer, error)

    def __await__(self) -> Generator[Any, None, Answer]:
        future: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()

        def over(answer: Answer, error: BaseException | None) -> None:
            if future.done():
                return
            if error is None:
                future.set_result(answer)
            else:
                future.set_exception(error)

        self.when_over(over)
        return future.__await__()


def pass_on(answer: Answer | LaterAnswer, owed: LaterAnswer) -> None:
    """Give what one call has answered, or will, as the answer that is owed."""

    def over(given: Answer, error: BaseException | None) -> None:
        if owed.done():
            return
        if error is not None:
            owed.fail(error)
        else:
            owed.give(given)

    if isinstance(answer, LaterAnswer):
        answer.when_over(over)
    else:
        over(answer, None)


# A handler that can answer at once returns the answer, which costs no task. One that cannot returns a coroutine, as an
# `async def` does by itself, a future, or quicker, a `LaterAnswer`. None answers with Done. What it raises goes back as
# the answer.
Handler: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]


class Stream(Protocol):
    """A connection with another process, over which both sides ask and answer."""

    closed: asyncio.Future[None]  # done when the stream has ended, for whatever reason

    @property
    def peer(self) -> str:
        """Who is on the other side, for people."""

    @property
    def is_internal(self) -> bool:
        """Whether the other side is a process of the cluster, as it has proved; otherwise a client (rule 33)."""

    @property
    def is_congested(self) -> bool:
        """Whether the other side does not take what it is answered: nothing large is to be read for it now."""

    @property
    def bytes_unsent(self) -> int:
        """What was written and has not left this process."""

    def when_it_reads(self, call: Callable[[], None]) -> None:
        """Call this once it is not congested any more; never, where it ends before that."""

    @property
    def bytes_in_flight(self) -> int:
        """What the other side has not answered."""

    def take_frames_of(self, size: int) -> None:
        """Let a client send frames as large as this, where that is more than it may send anyway."""

    def request(
        self,
        message: Message,
        payload: Bytes = b"",
        *,
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
        timeout: float | None = None,
        wait: bool = True,
    ) -> asyncio.Future[Response]:
        """Ask. The payload stays as it is until the answer has come.

        Where too much is in flight already this waits, within the time-out, or with `wait=False` fails at once; both
        end in TooManyBytesInFlight, and nothing was sent. RequestTimedOut and StreamClosed say nothing about the
        outcome (rules 27 and 30). An error of the other side comes as RemoteFailed.
        """

    def request_then(
        self,
        taken: AnswerTaker,
        message: Message,
        payload: Bytes = b"",
        *,
        topic_id: bytes = NO_TOPIC,
        partition: int = NO_PARTITION,
        timeout: float | None = None,
    ) -> None:
        """As `request`, where a turn of the loop counts: `taken` is called in the moment in which the answer arrives.

        Of an error it hears a turn later.
        """

    def send(
        self, message: Message, payload: Bytes = b"", *, topic_id: bytes = NO_TOPIC, partition: int = NO_PARTITION
    ) -> None:
        """Say, and expect no answer. TooManyBytesInFlight where the other side does not read."""

    async def close(self, timeout: float = 5.0) -> None:
        """Wait for the handlers so long, then end the stream. What is in flight from here fails with StreamClosed."""

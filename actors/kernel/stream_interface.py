"""The face of a stream for the rest of raylog: requests, answers, and the `Stream` that they go over.

Nothing here knows of sockets. `machine/stream_server.py` makes real streams; the simulator puts its network behind the
same protocol.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Generator, Mapping
from dataclasses import dataclass
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from raylog.actors.protocol.messages import NO_PARTITION, NO_TOPIC, Message, numbers_of
from raylog.errors import AnswerUnexpected, MessageUnknown
from raylog.storage.format.record_batch import Bytes, MutableBytes

_Handler = TypeVar("_Handler", bound=Callable[..., Any])


@dataclass(slots=True)
class Request:
    """A message that has arrived. `payload` belongs to the handler, which may change and keep it."""

    message: Message
    payload: MutableBytes
    topic_id: bytes
    partition: int
    stream: Stream  # that it came over
    correlation_id: int  # 0: one-way, no answer is awaited
    size: int


@dataclass(slots=True)
class Response:
    """An answer, on either side. A payload that is sent must not change until the kernel has it."""

    message: Message
    payload: Bytes = b""


_Kind = TypeVar("_Kind", bound=Message)
_Told_co = TypeVar("_Told_co", bound=Message, covariant=True)


class Told(Protocol[_Told_co]):
    """A `Response` whose message is of a known kind."""

    @property
    def message(self) -> _Told_co: ...
    @property
    def payload(self) -> Bytes: ...


def expected(answer: Message, kind: type[_Kind], peer: str) -> _Kind:
    """Return the answer of that peer, which has to be of that kind: AnswerUnexpected."""
    if type(answer) is not kind:
        raise AnswerUnexpected(peer, kind.__name__, type(answer).__name__)
    return answer


Answer: TypeAlias = Response | None
AnswerTaker: TypeAlias = Callable[[Response | Exception], None]


class LaterAnswer:
    """An answer that a handler gives later. It is sent in the moment in which it is given, without a task."""

    __slots__ = ("_answer", "_cancelled", "_error", "_is_over", "_taken")

    def __init__(self) -> None:
        self._is_over = False
        self._answer: Answer = None
        self._error: BaseException | None = None
        self._taken: Callable[[Answer, BaseException | None], None] | None = None
        self._cancelled: Callable[[], None] | None = None

    def done(self) -> bool:
        """Return whether it has been given, or is not waited for any more."""
        return self._is_over

    def give(self, answer: Answer) -> None:
        self._is_over, self._answer = True, answer
        taken, self._taken = self._taken, None
        if taken is not None:
            taken(answer, None)

    def fail(self, error: BaseException) -> None:
        self._is_over, self._error = True, error
        taken, self._taken = self._taken, None
        if taken is not None:
            taken(None, error)

    def cancel(self) -> None:
        """Note that it is not waited for any more."""
        self._is_over, self._taken = True, None
        if self._cancelled is not None:
            self._cancelled()

    def when_cancelled(self, cancelled: Callable[[], None]) -> None:
        """Call this when it is not waited for any more, so that what it keeps can be released."""
        self._cancelled = cancelled

    def when_over(self, taken: Callable[[Answer, BaseException | None], None]) -> None:
        """Call `taken` with the answer or the error. At once, if it is there already."""
        if self._is_over:
            taken(self._answer, self._error)
        else:
            self._taken = taken

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
    """Give the answer of one call, now or when it comes, as the answer that is owed."""

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


# A handler that can answer at once returns the answer, which costs no task. One that cannot returns a coroutine (as an
# `async def` does), a future, or a `LaterAnswer`, which is quickest. None stands for Done. What a handler raises goes
# back as the answer.
Handler: TypeAlias = Callable[[Request], Answer | Awaitable[Answer]]


class Stream(Protocol):
    """A connection with another process, over which both sides ask and answer."""

    closed: asyncio.Future[None]  # done when the stream has ended, whatever the reason

    @property
    def peer(self) -> str:
        """Return a name of the other side, for people."""

    @property
    def is_internal(self) -> bool:
        """Return whether the other side has proved to be a process of the cluster; else it is a client (rule 33)."""

    @property
    def is_congested(self) -> bool:
        """Return whether the other side does not read its answers. Nothing large is to be read for it then."""

    @property
    def bytes_unsent(self) -> int:
        """Return how many bytes were written and have not left this process."""

    def when_it_reads(self, call: Callable[[], None]) -> None:
        """Call this once it is not congested any more. It is not called where the stream ends before that."""

    @property
    def bytes_in_flight(self) -> int:
        """Return how many bytes of requests the other side has not answered."""

    def take_frames_of(self, size: int) -> None:
        """Let a client send frames as large as this from now on, where that is more than it may send already."""

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
        """Send a request, and return its answer. The payload must not change until the answer has come.

        TooManyBytesInFlight: too many bytes are in flight, for the whole time-out or with `wait=False` right now, and
        nothing was sent. RequestTimedOut, StreamClosed: the outcome is unknown (rules 27 and 30). RemoteFailed: the
        other side answered with an error.
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
        """Ask as `request` does, without losing a turn of the loop: `taken` is called in the moment of the answer.

        It is called with an error one turn later.
        """

    def look_for_cancelled(self) -> None:
        """Let the other side know, soon, which requests were cancelled: it drops what it has not begun."""

    def send(
        self, message: Message, payload: Bytes = b"", *, topic_id: bytes = NO_TOPIC, partition: int = NO_PARTITION
    ) -> None:
        """Send a message that is not answered. TooManyBytesInFlight: the other side does not read."""

    async def close(self, timeout: float = 5.0) -> None:
        """Wait for the handlers so long, then end the stream. What is in flight from here fails with StreamClosed."""


class Dispatch(Generic[_Handler]):
    """Handlers by the kinds of message that they take. The owner of the table calls them."""

    __slots__ = ("_handlers",)

    def __init__(self, handlers: Mapping[type[Message], _Handler]) -> None:
        self._handlers = dict(handlers)

    def handler_of(self, message: Message) -> _Handler:
        """Return the handler of this kind of message. MessageUnknown: there is none."""
        handler = self._handlers.get(type(message))
        if handler is None:
            raise unknown(message)
        return handler


def unknown(message: Message) -> MessageUnknown:
    """Return the error that refuses this message."""
    return MessageUnknown(*numbers_of(type(message)))

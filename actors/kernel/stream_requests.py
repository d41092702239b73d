"""The requests of one stream: `RequestsInFlight`, which this side has made, and `RequestsHeld`, which it has to answer.

A request that was made:

    state     what ends it
    waiting   room: sent, in flight · time-out: TooManyBytesInFlight · the stream closes: StreamNotOpen · cancelled
    in flight its answer · time-out: RequestTimedOut, given up · the stream closes: StreamClosed · cancelled: given up
    given up  its answer, which is dropped · the stream closes

What must stay true of requests that were made:
- A request counts from when it is sent until it is answered, also after its requester has given it up: for so long the
  other side holds it (rule 31).
- A request that was never sent ends in an error that says so. One that was sent and not answered ends in an error that
  says that the outcome is unknown (rule 27).
- Requests that wait for room are sent in the order in which they were made.
- The other side hears which requests were cancelled, and answers them: what it had not begun it need not do.

What must stay true of requests that have arrived:
- Their bytes have a bound; past it the socket is not read until half of them are gone (rule 31).
- Of many requests that come at once some begin in each turn of the loop: a client's (rule 34), and also those of a
  thousand replicas that have a new leader (rule 35).
- Requests begin in the order in which they came. None begins while the peer does not read its answers, or too many
  handlers run, or too many answers are owed. One that is owed takes no handler's place.
- A request that only processes of the cluster may send is refused here on a client's stream (rule 33).
- A request that only waits, or has not begun, ends with its stream, and when nobody waits for its answer any more. A
  handler that is running goes on, since its work may be half done.
- Each request gets one answer, also one that was given up: until then it counts on the other side (rule 31).
- No handler's error is lost: each goes to `answer`. A cancelled handler counts as failed.

The time-outs of all requests in flight share one timer of the event loop, set for the earliest. Nearly every request
is answered long before that, and a timer of its own would be set and cancelled for nothing.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from math import inf
from typing import Any, Final, TypeAlias

from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.kernel.stream_interface import Answer, AnswerTaker, Handler, LaterAnswer, Request, Response, unknown
from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.messages import Done, GivenUp, Ping, is_for_clients
from raylog.errors import (
    InternalOnly,
    RequestTimedOut,
    StreamClosed,
    StreamNotOpen,
    TooManyBytesInFlight,
)
from raylog.storage.format.record_batch import Bytes

_CANCEL_SECONDS: Final = 1.0
_PER_TURN: Final = 64  # requests of a stream that begin; then others have their turn of the loop (rules 34, 35)
_CLOCK_SECONDS: Final = 0.001  # what the loop's timers are rounded to
# What a request costs beside its bytes, on either side; so many tiny ones are bounded too.
OVERHEAD_BYTES: Final = 512
_TOLD_AT_ONCE: Final = 1_000  # requests that were given up, in one message

_of_clients: Final = RareLog(logging.getLogger(__name__))

Reply: TypeAlias = "asyncio.Future[Response]"


class AnswerCall:
    """A reply without a future: `taken` is called in the moment in which the answer arrives.

    It is called with an error one turn of the loop later, since a stream may end while other code is running.
    """

    __slots__ = ("_loop", "_taken", "is_over")

    def __init__(self, loop: asyncio.AbstractEventLoop, taken: AnswerTaker) -> None:
        self._loop = loop
        self._taken = taken
        self.is_over = False

    def done(self) -> bool:
        return self.is_over

    def set_result(self, response: Response) -> None:
        self.is_over = True
        try:
            self._taken(response)
        except Exception as error:  # noqa: BLE001 (as with a callback of a future: the stream has no part in it)
            self._loop.call_exception_handler({"message": "Taking an answer failed.", "exception": error})

    def set_exception(self, error: Exception) -> None:
        self.is_over = True
        self._loop.call_soon(self._taken, error)


class _InFlight:
    __slots__ = ("deadline", "is_told", "reply", "size", "timeout")

    def __init__(self, reply: Reply | AnswerCall, size: int, deadline: float, timeout: float) -> None:
        self.reply = reply
        self.size = size
        self.deadline = deadline
        self.timeout = timeout
        self.is_told = False  # the other side has heard that it was given up

    @property
    def is_cancelled(self) -> bool:
        """Whether its requester has given it up."""
        return isinstance(self.reply, asyncio.Future) and self.reply.cancelled()


class _Waiting:
    __slots__ = ("correlation_id", "in_flight", "parts")

    def __init__(self, correlation_id: int, parts: Sequence[Bytes], in_flight: _InFlight) -> None:
        self.correlation_id = correlation_id
        self.parts = parts
        self.in_flight = in_flight  # as it will be


def fail(reply: Reply | AnswerCall, error: Exception) -> None:
    """End a request in an error. Nothing is logged where the future was dropped."""
    if not reply.done():
        reply.set_exception(error)
        if isinstance(reply, asyncio.Future):
            reply.exception()


class RequestsInFlight:
    """The requests of one stream. `write` sends the parts of a frame, `tell` which requests were given up."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        limit_bytes: int,
        write: Callable[[Sequence[Bytes]], None],
        tell: Callable[[GivenUp], None],
    ) -> None:
        self.peer = ""
        self.bytes_in_flight = 0
        self.is_congested = False  # the transport has more than enough to write
        self._loop = loop
        self._limit = limit_bytes
        self._write = write
        self._tell = tell
        self._is_to_tell = False
        self._in_flight: dict[int, _InFlight] = {}
        self._waiting: deque[_Waiting] = deque()
        self.last_id = 0  # of the requests that were made; the next one takes the next
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def __len__(self) -> int:
        """Return how many requests are in flight, with those that were given up."""
        return len(self._in_flight)

    def start(
        self,
        reply: Reply | AnswerCall,
        correlation_id: int,
        parts: Sequence[Bytes],
        size: int,
        timeout: float,
        wait: bool = True,
    ) -> None:
        """Send a request, or make it wait for room."""
        size += OVERHEAD_BYTES
        if not self._waiting and self._has_room(size):
            self._send(correlation_id, parts, _InFlight(reply, size, self._loop.time() + timeout, timeout))
        elif wait:
            in_flight = _InFlight(reply, size, self._loop.time() + timeout, timeout)
            self._waiting.append(_Waiting(correlation_id, parts, in_flight))
            if in_flight.deadline < self._timer_at:
                self._look_at(in_flight.deadline)
        else:
            fail(reply, self._refusal(size))

    def answered(self, correlation_id: int) -> Reply | AnswerCall | None:
        """Return the reply of the request that was answered. It may be done already. None: there is no such request."""
        entry = self._in_flight.pop(correlation_id, None)
        if entry is None:
            return None
        self.bytes_in_flight -= entry.size
        if self._waiting:
            self.send_waiting()
        return entry.reply

    def send_waiting(self) -> None:
        """Send waiting requests, as far as there is room."""
        while self._waiting:
            first = self._waiting[0]
            is_over = first.in_flight.reply.done()
            if not is_over and not self._has_room(first.in_flight.size):
                return
            self._waiting.popleft()
            if not is_over:
                self._send(first.correlation_id, first.parts, first.in_flight)

    def look_for_cancelled(self) -> None:
        """Look, once this turn of the loop is over, which requests were cancelled, and tell the other side."""
        if not self._is_to_tell:
            self._is_to_tell = True
            self._loop.call_soon(self._give_up_cancelled)

    def _give_up_cancelled(self) -> None:
        self._is_to_tell = False
        gone = [number for number, each in self._in_flight.items() if each.is_cancelled and not each.is_told]
        for number in gone:
            self._in_flight[number].is_told = True
        for first in range(0, len(gone), _TOLD_AT_ONCE):
            self._tell(GivenUp(tuple(gone[first : first + _TOLD_AT_ONCE])))
        if self._waiting:
            self._waiting = deque(each for each in self._waiting if not each.in_flight.is_cancelled)
            self.send_waiting()

    def fail_all(self, reason: str) -> None:
        """End all requests, since the stream has ended (rule 30)."""
        waiting, self._waiting = self._waiting, deque()
        in_flight, self._in_flight = self._in_flight, {}
        self.bytes_in_flight = 0
        if self._timer is not None:
            self._timer.cancel()
        for entry in in_flight.values():
            fail(entry.reply, StreamClosed(self.peer, reason))
        for each in waiting:
            fail(each.in_flight.reply, StreamNotOpen(self.peer, reason))

    def _has_room(self, size: int) -> bool:
        if self.is_congested:
            return False
        return self.bytes_in_flight == 0 or self.bytes_in_flight + size <= self._limit

    def _send(self, correlation_id: int, parts: Sequence[Bytes], in_flight: _InFlight) -> None:
        self._in_flight[correlation_id] = in_flight
        self.bytes_in_flight += in_flight.size
        if in_flight.deadline < self._timer_at:
            self._look_at(in_flight.deadline)
        self._write(parts)

    def _look_at(self, deadline: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer_at = deadline
        self._timer = self._loop.call_at(deadline, self._look_for_late)

    def _look_for_late(self) -> None:
        self._timer, self._timer_at = None, inf
        now = self._loop.time() + _CLOCK_SECONDS
        next_deadline = inf
        for entry in self._in_flight.values():
            if entry.deadline <= now:
                entry.deadline = inf
                fail(entry.reply, RequestTimedOut(self.peer, round(entry.timeout * 1000)))
            elif entry.deadline < next_deadline:
                next_deadline = entry.deadline
        if self._waiting:
            next_deadline = min(next_deadline, self._refuse_late(now))
        if next_deadline < inf:
            self._look_at(next_deadline)

    def _refuse_late(self, now: float) -> float:
        """Fail requests that found no room in time. Return the next deadline of those that go on waiting."""
        next_deadline = inf
        for waiting in self._waiting:
            entry = waiting.in_flight
            if entry.deadline <= now:
                entry.deadline = inf
                fail(entry.reply, self._refusal(entry.size))
                waiting.parts = ()
            elif entry.deadline < next_deadline:
                next_deadline = entry.deadline
        # One of them may have been too large to start with; those behind it may fit.
        self._loop.call_soon(self.send_waiting)
        return next_deadline

    def _refusal(self, size: int) -> TooManyBytesInFlight:
        return TooManyBytesInFlight(size, self.bytes_in_flight, self._limit)


def refuse_all(request: Request) -> Answer:
    """Refuse a request: the handler of a side that takes none."""
    raise unknown(request.message)


class RequestsHeld:
    """Requests of one stream. `answer` takes (correlation id, answer, failure); `read_on` resumes or stops reading."""

    def __init__(
        self,
        handler: Handler,
        limits: StreamLimits,
        answer: Callable[[int, Answer, BaseException | None], None],
        read_on: Callable[[bool], None],
    ) -> None:
        self.bytes_held = 0
        self.is_internal = False  # set once the other side has proved what it is; before that it may ask nothing
        self.peer = ""
        self.is_congested = False  # the peer does not read its answers
        self.most_bytes = limits.held_bytes
        self.begun_in_turn = 0  # the stream sets it to 0 when it begins to pass on what has arrived
        self._goes_on = False  # in the next turn
        self._handler = handler
        self._limits = limits
        self._answer = answer
        self._read_on = read_on
        self._is_reading = True
        self._queued: deque[Request] = deque()
        self._waiting_for_reads: deque[Callable[[], None]] = deque()
        self._running: dict[asyncio.Future[Answer], Request] = {}
        self._owed: dict[LaterAnswer, Request] = {}
        self._nothing_owed: asyncio.Future[None] | None = None

    def take(self, request: Request) -> None:
        """Handle a request now, or when its turn comes."""
        if not self.is_internal and not is_for_clients(type(request.message)):
            refused = InternalOnly(type(request.message).__name__, self.peer)
            _of_clients.warning("A request is refused: %s", refused)
            if request.correlation_id:
                self._answer(request.correlation_id, None, refused)
            return
        self.bytes_held += request.size
        if self.bytes_held > self.most_bytes and self._is_reading:
            self._is_reading = False
            self._read_on(False)
        if (
            self._queued
            or self.is_congested
            or ((self._running or self._owed) and self._is_full())
            or (self.begun_in_turn >= _PER_TURN and self._is_turn_over())
        ):
            self._queued.append(request)
        else:
            self.begun_in_turn += 1
            self._handle(request)

    def when_it_reads(self, call: Callable[[], None]) -> None:
        """See `Stream.when_it_reads`."""
        if self.is_congested:
            self._waiting_for_reads.append(call)
        else:  # the caller has counted unwritten bytes, before the transport has said that it is congested
            asyncio.get_running_loop().call_soon(call)

    def handle_queued(self) -> None:
        """Begin queued requests: the peer reads its answers again, or a handler is done."""
        while self._waiting_for_reads and not self.is_congested:
            self._waiting_for_reads.popleft()()
        while self._queued and not self._is_busy() and not self._is_turn_over():
            self.begun_in_turn += 1
            self._handle(self._queued.popleft())

    def forget_queued(self) -> None:
        """Drop requests that have not begun, since the stream has ended."""
        for request in self._queued:
            self.bytes_held -= request.size
        self._queued.clear()

    def given_up(self, numbers: Iterable[int]) -> None:
        """End requests that nobody waits for any more, unless a handler is at work on them."""
        gone = frozenset(numbers)
        dropped = [request for request in self._queued if request.correlation_id in gone]
        self._queued = deque(request for request in self._queued if request.correlation_id not in gone)
        for owed in [each for each, request in self._owed.items() if request.correlation_id in gone]:
            dropped.append(self._owed.pop(owed))
            owed.cancel()
        for request in dropped:
            self._finish(request, None, self._cancelled())
        for running in [each for each, request in self._running.items() if request.correlation_id in gone]:
            _cancel_wait(running)
        self._owes_less()

    def stream_ended(self) -> None:
        """Cancel requests that only wait, since the stream has ended. Running handlers go on (rule 31)."""
        self.forget_queued()
        self._waiting_for_reads.clear()
        for owed in list(self._owed):
            self.bytes_held -= self._owed.pop(owed).size
            owed.cancel()
        for running in list(self._running):
            _cancel_wait(running)

    async def end(self, timeout: float) -> None:
        """Wait so long for running handlers, then cancel those that are not done and let them end."""
        self.forget_queued()
        me = asyncio.current_task()
        for seconds in (timeout, _CANCEL_SECONDS):
            others: list[asyncio.Future[Any]] = [each for each in self._running if each is not me]
            if self._owed:
                self._nothing_owed = asyncio.get_running_loop().create_future()
                others.append(self._nothing_owed)
            if others:
                _, late = await asyncio.wait(others, timeout=seconds)
                for each in late:
                    each.cancel()
                for owed in list(self._owed):
                    owed.cancel()
                    self._given(owed, None, self._cancelled())

    def _is_turn_over(self) -> bool:
        """Return whether the stream has used up its share of this turn of the loop. It goes on in the next one."""
        if self.begun_in_turn < _PER_TURN:
            return False
        if not self._goes_on:
            self._goes_on = True
            asyncio.get_running_loop().call_soon(self._next_turn)
        return True

    def _next_turn(self) -> None:
        self._goes_on = False
        self.begun_in_turn = 0
        self.handle_queued()

    def _is_busy(self) -> bool:
        return self.is_congested or self._is_full()

    def _is_full(self) -> bool:
        return len(self._running) >= self._limits.max_handlers or len(self._owed) >= self._limits.max_owed

    def _handle(self, request: Request) -> None:
        try:
            answer = Response(Done()) if type(request.message) is Ping else self._handler(request)
            if answer is None or isinstance(answer, Response):
                self._finish(request, answer)
                return
            if type(answer) is LaterAnswer:
                self._owed[answer] = request
                answer.when_over(partial(self._given, answer))
                return
            running = asyncio.ensure_future(answer)
        except Exception as error:  # noqa: BLE001 (whatever it is, it goes back to the requester)
            self._finish(request, None, error)
            return
        self._running[running] = request
        running.add_done_callback(partial(self._handled, request))

    def _given(self, owed: LaterAnswer, answer: Answer, failure: BaseException | None) -> None:
        self._finish(self._owed.pop(owed), answer, failure)
        if self._queued or self._nothing_owed is not None:
            self._owes_less()

    def _owes_less(self) -> None:
        if self._queued:  # not now: the code that gave this answer may be in the middle of something
            asyncio.get_running_loop().call_soon(self.handle_queued)
        if self._nothing_owed is not None and not self._owed and not self._nothing_owed.done():
            self._nothing_owed.set_result(None)

    def _cancelled(self) -> StreamNotOpen:
        return StreamNotOpen("its peer", "the handler of this request was cancelled")

    def _handled(self, request: Request, running: asyncio.Future[Answer]) -> None:
        del self._running[running]
        if running.cancelled():
            self._finish(request, None, self._cancelled())
        elif (error := running.exception()) is not None:
            self._finish(request, None, error)
        else:
            self._finish(request, running.result())
        if self._queued:
            self.handle_queued()

    def _finish(self, request: Request, answer: Answer, failure: BaseException | None = None) -> None:
        self._answer(request.correlation_id, answer, failure)
        self.bytes_held -= request.size
        if not self._is_reading and self.bytes_held * 2 <= self.most_bytes:
            self._is_reading = True
            self._read_on(True)


def _cancel_wait(running: asyncio.Future[Answer]) -> None:
    """Cancel a handler that only waits. One that has a task of its own may be in the middle of its work."""
    if not isinstance(running, asyncio.Task):
        running.cancel()

"""The asking half of a stream: which requests wait for their answer, which wait for room, and how many bytes that is.

    state     what ends it
    waiting   room: sent, in flight · time-out: TooManyBytesInFlight · the stream closes: StreamNotOpen
    in flight its answer · time-out: RequestTimedOut, given up · the stream closes: StreamClosed
    given up  its answer, which nobody sees any more · the stream closes

What must stay true:
- A request counts from when it is sent until it is answered, also when its requester has given it up, for so long
  the other side holds it (rule 31).
- What was never sent ends in an error that says so; what was sent and not answered, in one that says that the outcome
  is unknown (rule 27).
- Requests that wait for room are sent in the order in which they were made.

The time-outs of all of them share one timer of the event loop, set for the earliest: nearly every request is answered
long before, and then a timer of its own would have been set and cancelled for nothing, on a wheel too.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from math import inf
from typing import Final, TypeAlias

from raylog.actors.kernel.stream_interface import AnswerTaker, Response
from raylog.errors import RequestTimedOut, StreamClosed, StreamNotOpen, TooManyBytesInFlight
from raylog.storage.format.record_batch import Bytes

# What a request costs beside its bytes, on either side; so many tiny ones are bounded too.
OVERHEAD_BYTES: Final = 512

_CLOCK_SECONDS: Final = 0.001  # what the loop's timers are rounded to

Reply: TypeAlias = "asyncio.Future[Response]"


class AnswerCall:
    """A reply without a future: `taken` hears the answer in the very moment in which it arrives.

    It hears of an error a turn of the loop later, for a stream may end in the middle of anything.
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
    __slots__ = ("deadline", "reply", "size", "timeout")

    def __init__(self, reply: Reply | AnswerCall, size: int, deadline: float, timeout: float) -> None:
        self.reply = reply
        self.size = size
        self.deadline = deadline
        self.timeout = timeout


class _Waiting:
    __slots__ = ("correlation_id", "in_flight", "parts")

    def __init__(self, correlation_id: int, parts: Sequence[Bytes], in_flight: _InFlight) -> None:
        self.correlation_id = correlation_id
        self.parts = parts
        self.in_flight = in_flight  # as it will be


def fail(reply: Reply | AnswerCall, error: Exception) -> None:
    """End a request in an error. Whoever has dropped the future is not told, and neither is the log."""
    if not reply.done():
        reply.set_exception(error)
        if isinstance(reply, asyncio.Future):
            reply.exception()


class RequestsInFlight:
    """The book of one stream. `write` puts the parts of a frame on the wire."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limit_bytes: int, write: Callable[[Sequence[Bytes]], None]
    ) -> None:
        self.peer = ""
        self.bytes_in_flight = 0
        self.is_congested = False  # the transport has more than enough to write
        self._loop = loop
        self._limit = limit_bytes
        self._write = write
        self._in_flight: dict[int, _InFlight] = {}
        self._waiting: deque[_Waiting] = deque()
        self.last_id = 0  # of the requests that were made; the next one takes the next
        self._timer: asyncio.TimerHandle | None = None
        self._timer_at = inf

    def __len__(self) -> int:
        """Requests in flight, given up ones too."""
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
        """Send a request, or let it wait for room."""
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
        """The reply of the request that this is the answer to, which may be done; None: there is no such request."""
        entry = self._in_flight.pop(correlation_id, None)
        if entry is None:
            return None
        self.bytes_in_flight -= entry.size
        if self._waiting:
            self.send_waiting()
        return entry.reply

    def send_waiting(self) -> None:
        """Send what waits, as far as there is room."""
        while self._waiting:
            first = self._waiting[0]
            is_over = first.in_flight.reply.done()
            if not is_over and not self._has_room(first.in_flight.size):
                return
            self._waiting.popleft()
            if not is_over:
                self._send(first.correlation_id, first.parts, first.in_flight)

    def fail_all(self, reason: str) -> None:
        """The stream has ended (rule 30)."""
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
        """Those that found no room in their time. The next deadline of those that wait on."""
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

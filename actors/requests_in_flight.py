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

The time-outs are timers of the event loop, not of `timing_wheel.py`. Measured with 10,000 others pending: to set and
cancel one takes 0.95 µs on uvloop against 0.8 to 1.1 on the wheel, which needs a tick of its own on top.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Sequence
from typing import Final, TypeAlias

from raylog.actors.stream_interface import Response
from raylog.errors import RequestTimedOut, StreamClosed, StreamNotOpen, TooManyBytesInFlight
from raylog.storage.record_batch import Bytes

# What a request costs beside its bytes, on either side; so many tiny ones are bounded too.
OVERHEAD_BYTES: Final = 512

Reply: TypeAlias = "asyncio.Future[Response]"


class _Waiting:
    __slots__ = ("correlation_id", "future", "parts", "size", "timeout", "timer")

    def __init__(self, correlation_id: int, parts: Sequence[Bytes], size: int, timeout: float, future: Reply) -> None:
        self.correlation_id = correlation_id
        self.parts = parts
        self.size = size
        self.timeout = timeout
        self.future = future
        self.timer: asyncio.TimerHandle | None = None


class _InFlight:
    __slots__ = ("future", "size", "timer")

    def __init__(self, future: Reply, size: int, timer: asyncio.TimerHandle) -> None:
        self.future = future
        self.size = size
        self.timer = timer


def fail(future: Reply, error: Exception) -> None:
    """End a request in an error. Whoever has dropped the future is not told, and neither is the log."""
    if not future.done():
        future.set_exception(error)
        future.exception()


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
        self._last_id = 0

    def __len__(self) -> int:
        """Requests in flight, given up ones too."""
        return len(self._in_flight)

    def next_id(self) -> int:
        self._last_id += 1
        return self._last_id

    def start(self, correlation_id: int, parts: Sequence[Bytes], size: int, timeout: float, wait: bool) -> Reply:
        """Send a request, or let it wait for room."""
        future: Reply = self._loop.create_future()
        size += OVERHEAD_BYTES
        if not self._waiting and self._has_room(size):
            self._send(correlation_id, parts, size, timeout, future)
        elif wait:
            waiting = _Waiting(correlation_id, parts, size, timeout, future)
            waiting.timer = self._loop.call_later(timeout, self._found_no_room, waiting)
            self._waiting.append(waiting)
        else:
            fail(future, self._refusal(size))
        return future

    def answered(self, correlation_id: int) -> Reply | None:
        """The future of the request that this is the answer to, which may be done; None: there is no such request."""
        entry = self._in_flight.pop(correlation_id, None)
        if entry is None:
            return None
        entry.timer.cancel()
        self.bytes_in_flight -= entry.size
        if self._waiting:
            self.send_waiting()
        return entry.future

    def send_waiting(self) -> None:
        """Send what waits, as far as there is room."""
        while self._waiting:
            first = self._waiting[0]
            if not first.future.done() and not self._has_room(first.size):
                return
            self._waiting.popleft()
            assert first.timer is not None
            first.timer.cancel()
            if not first.future.done():
                left = max(0.0, first.timer.when() - self._loop.time())
                self._send(first.correlation_id, first.parts, first.size, left, first.future, first.timeout)

    def fail_all(self, reason: str) -> None:
        """The stream has ended (rule 30)."""
        waiting, self._waiting = self._waiting, deque()
        in_flight, self._in_flight = self._in_flight, {}
        self.bytes_in_flight = 0
        for entry in in_flight.values():
            entry.timer.cancel()
            fail(entry.future, StreamClosed(self.peer, reason))
        for each in waiting:
            assert each.timer is not None
            each.timer.cancel()
            fail(each.future, StreamNotOpen(self.peer, reason))

    def _has_room(self, size: int) -> bool:
        if self.is_congested:
            return False
        return self.bytes_in_flight == 0 or self.bytes_in_flight + size <= self._limit

    def _send(
        self,
        correlation_id: int,
        parts: Sequence[Bytes],
        size: int,
        left: float,
        future: Reply,
        timeout: float | None = None,
    ) -> None:
        timer = self._loop.call_later(left, self._timed_out, correlation_id, left if timeout is None else timeout)
        self._in_flight[correlation_id] = _InFlight(future, size, timer)
        self.bytes_in_flight += size
        self._write(parts)

    def _timed_out(self, correlation_id: int, timeout: float) -> None:
        fail(self._in_flight[correlation_id].future, RequestTimedOut(self.peer, round(timeout * 1000)))

    def _found_no_room(self, waiting: _Waiting) -> None:
        fail(waiting.future, self._refusal(waiting.size))
        waiting.parts = ()
        # It may have been the one too large to start with; those behind it may fit.
        self._loop.call_soon(self.send_waiting)

    def _refusal(self, size: int) -> TooManyBytesInFlight:
        return TooManyBytesInFlight(size, self.bytes_in_flight, self._limit)

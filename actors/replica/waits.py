"""What waits at a leader: appends for the high watermark to pass them (rules 2 and 18), fetches for more to read.

What must stay true:
- An append under acks=all is answered exactly once: when the high watermark has reached its end, when its time is over,
  when the in-sync replicas have become too few, or when this replica no longer leads. The last three leave the outcome
  open: the batch is in the log, and its producer repeats it under the same sequence. How many bytes wait has a bound,
  over all streams (rule 31).
- A fetch that waits (`fetch.min.bytes`, `fetch.max.wait.ms`) is answered once: when there is enough, when its time is
  over, or when this replica no longer leads. Nothing is left of it once its stream has ended.
- While no fetch waits, an append costs nothing here; a slow reader stalls nobody.
- Nothing is read for a client that does not take its answers; its fetches wait on, and what they wait for costs nothing
  (rule 31). So an answer goes out in the moment in which it is read: the next one sees how much is unsent.
"""

from __future__ import annotations

import asyncio
import heapq
from collections.abc import Callable, Iterator
from functools import partial
from math import inf
from typing import Final

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Response, Stream
from raylog.actors.protocol.messages import Message
from raylog.actors.replica.hosted_log import PartitionName
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.config import MIB
from raylog.errors import AppendTimedOut, RaylogError, TooManyBytesInFlight

MAX_WAITING_BYTES: Final = 256 * MIB


class _WaitingAppend:
    __slots__ = ("answer", "began", "deadline_ms", "end_offset", "number", "owed", "size", "timeout_ms")

    def __init__(
        self, end_offset: int, number: int, size: int, answer: Message, began: float, now_ms: float, timeout_ms: int
    ) -> None:
        self.end_offset = end_offset
        self.number = number
        self.size = size
        self.answer = answer
        self.began = began
        self.owed = LaterAnswer()
        self.timeout_ms = timeout_ms
        self.deadline_ms = now_ms + timeout_ms

    def __lt__(self, other: _WaitingAppend) -> bool:
        return (self.end_offset, self.number) < (other.end_offset, other.number)


class AppendWaits:
    """In order of their end; a duplicate may wait for an earlier one than the newest.

    One timer, set for the earliest time-out, serves all: nearly every append is over long before its own.
    """

    def __init__(self, name: PartitionName, timers: Timers, counters: ReplicaCounters) -> None:
        self._name = name
        self._timers = timers
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._heap: list[_WaitingAppend] = []
        self._numbers = 0
        self._bytes = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = inf

    def __len__(self) -> int:
        return sum(not waiting.owed.done() for waiting in self._heap)

    def check_room(self, size: int) -> None:
        """Refuse, before it is written, what would have to wait behind too much."""
        if self._bytes + size > MAX_WAITING_BYTES and self._heap:
            raise TooManyBytesInFlight(size, self._bytes, MAX_WAITING_BYTES)

    def wait(self, end_offset: int, size: int, answer: Message, timeout_ms: int, began: float) -> LaterAnswer:
        """`began`: when its turn came, by the clock of the counters."""
        self._numbers += 1
        self._bytes += size
        now_ms = self._loop.time() * 1000
        waiting = _WaitingAppend(end_offset, self._numbers, size, answer, began, now_ms, timeout_ms)
        heapq.heappush(self._heap, waiting)
        if waiting.deadline_ms < self._timer_at_ms:
            self._look_at(waiting.deadline_ms, timeout_ms)
        return waiting.owed

    def broken_invariants(self, high_watermark: int) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        if self._heap and self._heap[0].end_offset <= high_watermark:
            yield f"an append up to {self._heap[0].end_offset} waits, and the high watermark is {high_watermark}"
        if self._bytes < 0 or (not self._heap and self._bytes):
            yield f"{self._bytes} bytes are counted as waiting, of {len(self._heap)} appends"

    def release(self, high_watermark: int) -> None:
        """Answer all that the high watermark has passed."""
        heap, counters = self._heap, self._counters
        while heap and heap[0].end_offset <= high_watermark:
            waiting = heapq.heappop(heap)
            self._bytes -= waiting.size
            if not waiting.owed.done():
                waiting.owed.give(Response(waiting.answer))
                counters.appends.add(counters.clock() - waiting.began)

    def fail_all(self, error: RaylogError) -> None:
        waiting_ones, self._heap = self._heap, []
        self._bytes = 0
        for waiting in waiting_ones:
            if not waiting.owed.done():
                waiting.owed.fail(error)

    def _look_at(self, deadline_ms: float, delay_ms: float) -> None:
        if self._timer is not None:
            self._timers.cancel(self._timer)
        self._timer_at_ms = deadline_ms
        self._timer = self._timers.after(delay_ms, self._look_for_late)

    def _look_for_late(self) -> None:
        """Who is late stays in the heap until the high watermark gets there or the leadership ends; nobody waits."""
        self._timer, self._timer_at_ms = None, inf
        now_ms = self._loop.time() * 1000
        still = [waiting for waiting in self._heap if not waiting.owed.done()]
        for waiting in still:
            if waiting.deadline_ms <= now_ms:
                waiting.owed.fail(AppendTimedOut(self._name.topic, self._name.partition, waiting.timeout_ms))
        next_ms = min((waiting.deadline_ms for waiting in still if waiting.deadline_ms > now_ms), default=inf)
        if next_ms < self._timer_at_ms:
            self._look_at(next_ms, next_ms - now_ms)


class _WaitingFetch:
    __slots__ = ("is_deferred", "is_due", "owed", "stream", "timer", "try_answer")

    def __init__(self, stream: Stream, try_answer: Callable[[bool], Answer]) -> None:
        self.stream = stream
        self.try_answer = try_answer
        self.owed = LaterAnswer()
        self.timer: TimerHandle | None = None
        self.is_due = False  # its time is over
        self.is_deferred = False  # until its client reads


class FetchWaits:
    """`try_answer` of a waiting fetch is asked at each wake-up; with True it has to answer with what there is."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._waiting: dict[_WaitingFetch, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, stream: Stream, try_answer: Callable[[bool], Answer], max_wait_ms: int) -> LaterAnswer:
        waiting = _WaitingFetch(stream, try_answer)
        self._waiting[waiting] = None
        waiting.timer = self._timers.after(max_wait_ms, partial(self._is_over, waiting))
        waiting.owed.when_cancelled(partial(self._forget, waiting))
        return waiting.owed

    def wake(self) -> None:
        """There is more to read, or the marks have moved."""
        for waiting in list(self._waiting):
            self._attempt(waiting)

    def fail_all(self, error: RaylogError) -> None:
        for waiting in list(self._waiting):
            self._fail(waiting, error)

    def _is_over(self, waiting: _WaitingFetch) -> None:
        waiting.is_due = True
        self._attempt(waiting)

    def _reads_again(self, waiting: _WaitingFetch) -> None:
        waiting.is_deferred = False
        self._attempt(waiting)

    def _attempt(self, waiting: _WaitingFetch) -> None:
        if waiting not in self._waiting or waiting.is_deferred:
            return
        if waiting.stream.is_congested:
            waiting.is_deferred = True
            waiting.stream.when_it_reads(partial(self._reads_again, waiting))
            return
        try:
            answer = waiting.try_answer(waiting.is_due)
        except RaylogError as error:
            self._fail(waiting, error)
            return
        if answer is not None:
            self._forget(waiting)
            waiting.owed.give(answer)

    def _fail(self, waiting: _WaitingFetch, error: RaylogError) -> None:
        self._forget(waiting)
        waiting.owed.fail(error)

    def _forget(self, waiting: _WaitingFetch) -> None:
        self._waiting.pop(waiting, None)
        if waiting.timer is not None:
            self._timers.cancel(waiting.timer)

"""Appends under acks=all that wait for the high watermark to pass them (rules 2 and 18).

What must stay true: each is answered exactly once: when the high watermark has reached its end, when its time is over,
when the in-sync replicas have become too few, or when this replica no longer leads. The last three leave the
outcome open: the batch is in the log, and its producer repeats it under the same sequence. How many bytes wait has a
bound, over all streams (rule 31).
"""

from __future__ import annotations

import asyncio
import heapq
from math import inf
from typing import Final

from raylog.actors.kernel.clock import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import LaterAnswer, Response
from raylog.actors.protocol.messages import Message
from raylog.actors.replica.hosted_log import PartitionName
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.config import MIB
from raylog.errors import AppendTimedOut, RaylogError, TooManyBytesInFlight

MAX_WAITING_BYTES: Final = 256 * MIB


class _Waiting:
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

    def __lt__(self, other: _Waiting) -> bool:
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
        self._heap: list[_Waiting] = []
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
        waiting = _Waiting(end_offset, self._numbers, size, answer, began, now_ms, timeout_ms)
        heapq.heappush(self._heap, waiting)
        if waiting.deadline_ms < self._timer_at_ms:
            self._look_at(waiting.deadline_ms, timeout_ms)
        return waiting.owed

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

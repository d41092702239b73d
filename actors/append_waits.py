"""Appends under acks=all that wait for the high watermark to pass them (rules 2 and 18).

What must stay true: each is answered exactly once: when the high watermark has reached its end, when its time is over,
when the in-sync replicas have become too few, or when this replica no longer leads. The last three leave the
outcome open: the batch is in the log, and its producer repeats it under the same sequence. How many bytes wait has a
bound, over all streams (rule 31).
"""

from __future__ import annotations

import asyncio
import heapq
from functools import partial
from typing import Final

from raylog.actors.clock import TimerHandle, Timers
from raylog.actors.hosted_log import PartitionName
from raylog.actors.messages import Message
from raylog.actors.stream_interface import Answer, Response
from raylog.config import MIB
from raylog.errors import AppendTimedOut, RaylogError, TooManyBytesInFlight

MAX_WAITING_BYTES: Final = 256 * MIB


class _Waiting:
    __slots__ = ("answer", "end_offset", "future", "number", "size", "timer")

    def __init__(
        self, end_offset: int, number: int, size: int, answer: Message, future: asyncio.Future[Answer]
    ) -> None:
        self.end_offset = end_offset
        self.number = number
        self.size = size
        self.answer = answer
        self.future = future
        self.timer: TimerHandle | None = None

    def __lt__(self, other: _Waiting) -> bool:
        return (self.end_offset, self.number) < (other.end_offset, other.number)


class AppendWaits:
    """In order of their end; a duplicate may wait for an earlier one than the newest."""

    def __init__(self, name: PartitionName, timers: Timers) -> None:
        self._name = name
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._heap: list[_Waiting] = []
        self._numbers = 0
        self._bytes = 0

    def __len__(self) -> int:
        return sum(not waiting.future.done() for waiting in self._heap)

    def check_room(self, size: int) -> None:
        """Refuse, before it is written, what would have to wait behind too much."""
        if self._bytes + size > MAX_WAITING_BYTES and self._heap:
            raise TooManyBytesInFlight(size, self._bytes, MAX_WAITING_BYTES)

    def wait(self, end_offset: int, size: int, answer: Message, timeout_ms: int) -> asyncio.Future[Answer]:
        self._numbers += 1
        self._bytes += size
        future: asyncio.Future[Answer] = self._loop.create_future()
        waiting = _Waiting(end_offset, self._numbers, size, answer, future)
        waiting.timer = self._timers.after(timeout_ms, partial(self._time_out, waiting, timeout_ms))
        heapq.heappush(self._heap, waiting)
        return future

    def release(self, high_watermark: int) -> None:
        """Answer all that the high watermark has passed."""
        heap = self._heap
        while heap and heap[0].end_offset <= high_watermark:
            waiting = heapq.heappop(heap)
            self._bytes -= waiting.size
            assert waiting.timer is not None
            self._timers.cancel(waiting.timer)
            if not waiting.future.done():
                waiting.future.set_result(Response(waiting.answer))

    def fail_all(self, error: RaylogError) -> None:
        waiting_ones, self._heap = self._heap, []
        self._bytes = 0
        for waiting in waiting_ones:
            assert waiting.timer is not None
            self._timers.cancel(waiting.timer)
            if not waiting.future.done():
                waiting.future.set_exception(error)

    def _time_out(self, waiting: _Waiting, timeout_ms: int) -> None:
        """It stays in the heap until the high watermark gets there or the leadership ends, but nobody waits for it."""
        if not waiting.future.done():
            waiting.future.set_exception(AppendTimedOut(self._name.topic, self._name.partition, timeout_ms))

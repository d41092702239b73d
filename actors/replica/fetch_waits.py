"""Fetches that wait for more to read: `fetch.min.bytes` and `fetch.max.wait.ms`.

What must stay true:
- A waiting fetch is answered once, when there is enough, when its time is over, or when this replica no longer leads.
  Nothing is left of it once its stream has ended.
- While nothing waits, an append costs nothing here; a slow reader stalls nobody.
- Nothing is read for a client that does not take its answers; its fetches wait on, and what they wait for costs nothing
  (rule 31). So an answer goes out in the moment in which it is read: the next one sees how much is unsent.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from raylog.actors.kernel.clock import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Stream
from raylog.errors import RaylogError


class _Waiting:
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
        self._waiting: dict[_Waiting, None] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, stream: Stream, try_answer: Callable[[bool], Answer], max_wait_ms: int) -> LaterAnswer:
        waiting = _Waiting(stream, try_answer)
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

    def _is_over(self, waiting: _Waiting) -> None:
        waiting.is_due = True
        self._attempt(waiting)

    def _reads_again(self, waiting: _Waiting) -> None:
        waiting.is_deferred = False
        self._attempt(waiting)

    def _attempt(self, waiting: _Waiting) -> None:
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

    def _fail(self, waiting: _Waiting, error: RaylogError) -> None:
        self._forget(waiting)
        waiting.owed.fail(error)

    def _forget(self, waiting: _Waiting) -> None:
        self._waiting.pop(waiting, None)
        if waiting.timer is not None:
            self._timers.cancel(waiting.timer)

"""Fetches that wait for more to read: `fetch.min.bytes` and `fetch.max.wait.ms`.

What must stay true: a waiting fetch is answered once, when there is enough, when its time is over, or when this replica
no longer leads. While nothing waits, an append costs nothing here; a slow reader stalls nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial

from raylog.actors.clock import Timers
from raylog.actors.stream_interface import Answer
from raylog.errors import RaylogError


class FetchWaits:
    """`try_answer` of a waiting fetch is asked at each wake-up; with True it has to answer with what there is."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[asyncio.Future[Answer], Callable[[bool], Answer]] = {}

    def __len__(self) -> int:
        return len(self._waiting)

    def wait(self, try_answer: Callable[[bool], Answer], max_wait_ms: int) -> asyncio.Future[Answer]:
        future: asyncio.Future[Answer] = self._loop.create_future()
        self._waiting[future] = try_answer
        timer = self._timers.after(max_wait_ms, partial(self._attempt, future, True))

        def over(_: asyncio.Future[Answer]) -> None:
            self._timers.cancel(timer)
            self._waiting.pop(future, None)

        future.add_done_callback(over)  # also where the stream has ended and the fetch was cancelled
        return future

    def wake(self) -> None:
        """There is more to read, or the marks have moved."""
        for future in list(self._waiting):
            self._attempt(future, False)

    def fail_all(self, error: RaylogError) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(error)

    def _attempt(self, future: asyncio.Future[Answer], must_answer: bool) -> None:
        if future.done():
            return
        try:
            answer = self._waiting[future](must_answer)
        except RaylogError as error:
            future.set_exception(error)
            return
        if answer is not None:
            future.set_result(answer)

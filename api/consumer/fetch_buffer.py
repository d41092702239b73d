"""The way of fetched data from the loop of the process's clients to the one thread that polls.

    fetcher ──take──► pump (a task) ──► at most two takes wait here ──► first, taken, wait (the polling thread)

What must stay true:
- Nothing that was taken is lost, however a wait ends: by data, by its time-out, by `wake`, or by Ctrl-C. An item stays
  here until whoever looks at it has said that he is done with it; interrupted between, he meets it once more.
- Ctrl-C leaves no lock behind: the signal is a bare lock. To enter a Condition, as an Event has one, is not one step.
- The pump stops taking while two takes wait, and goes on when one is through. Not to poll costs nothing.
- A wait ends also when the pump has ended, and why it did is raised.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.rules.fetched import Item

MOST_WAITING: Final = 2
_SLICE_SECONDS: Final = 0.5  # a signal that comes just before a thread goes to sleep does not wake it up


class FetchBuffer:
    """Made on the loop. `listener` is called, on any thread, whenever a wait ends, for who waits in another way."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.listener: Callable[[], object] | None = None
        self._fetcher = fetcher
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[deque[Item]] = deque()
        self._signal = threading.Lock()  # free: there is something to look at
        self._is_full: asyncio.Future[None] | None = None  # the pump waits
        self._error: BaseException | None = None
        self._pump = self._loop.create_task(self._run())
        self._pump.add_done_callback(self._over)

    # --- on the loop ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            self._arrived.append(deque(await self._fetcher.take()))
            self.wake()
            if len(self._arrived) >= MOST_WAITING:
                await self._until_popped()

    async def _until_popped(self) -> None:
        self._is_full = self._loop.create_future()
        if len(self._arrived) >= MOST_WAITING:  # looked at again: it may have been popped before it was said
            await self._is_full
        self._is_full = None

    def _go_on(self) -> None:
        if self._is_full is not None and not self._is_full.done():
            self._is_full.set_result(None)

    def _over(self, pump: asyncio.Task[None]) -> None:
        if not pump.cancelled():
            self._error = pump.exception()
        self.wake()

    def close(self) -> None:
        self._pump.cancel()

    # --- on the thread that polls ---------------------------------------------------------------------------------

    def first(self) -> Item | None:
        """Return the item that has come first, or nothing; without waiting."""
        while self._arrived and not self._arrived[0]:
            self._arrived.popleft()
            self._let_pump_go_on()
        if self._arrived:
            return self._arrived[0][0]
        if self._error is not None:
            raise self._error
        self._let_pump_go_on()  # once more, for an interrupt may have come between the two steps above
        return None

    def taken(self) -> None:
        """Drop the first item, which is dealt with."""
        self._arrived[0].popleft()

    def _let_pump_go_on(self) -> None:
        if self._is_full is not None:
            self._loop.call_soon_threadsafe(self._go_on)

    def wait(self, seconds: float) -> None:
        """Wait until something has come, somebody wakes this thread, or some of the time is over."""
        self._signal.acquire(timeout=min(seconds, _SLICE_SECONDS))

    def expect(self) -> None:
        """Have whatever comes from here on end the next wait. To be called before one looks at what is there."""
        self._signal.acquire(blocking=False)

    def wake(self) -> None:
        """End a wait, also one that is about to begin. From any thread."""
        with contextlib.suppress(RuntimeError):  # it is free already
            self._signal.release()
        if self.listener is not None:
            self.listener()

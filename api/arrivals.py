"""From a fetcher, on the loop of the process's clients, to the one thread that polls.

    fetcher ──take──► pump (a task) ──► at most two takes wait here ──► pop, wait (the polling thread)

What must stay true:
- Nothing that was taken is lost, however a wait ends: by data, by its time-out, by `wake`, or by Ctrl-C.
- The pump stops taking while two takes wait, and goes on when one is popped. A thread that does not poll costs nothing.
- A wait ends also when the pump has ended, and why it did is raised.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from typing import Final

from raylog.api.fetched_items import Item
from raylog.api.fetcher import Fetcher

MOST_WAITING: Final = 2
_SLICE_SECONDS: Final = 0.5  # a signal that comes just before a thread goes to sleep does not wake it up


class Arrivals:
    """Made on the loop. `listener` is called, on any thread, whenever a wait ends, for who waits in another way."""

    def __init__(self, fetcher: Fetcher) -> None:
        self.listener: Callable[[], object] | None = None
        self._fetcher = fetcher
        self._loop = asyncio.get_running_loop()
        self._arrived: deque[list[Item]] = deque()
        self._signal = threading.Event()
        self._is_full: asyncio.Future[None] | None = None  # the pump waits
        self._error: BaseException | None = None
        self._pump = self._loop.create_task(self._run())
        self._pump.add_done_callback(self._over)

    # --- on the loop ----------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            items = await self._fetcher.take()
            self._arrived.append(items)
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

    def pop(self) -> list[Item]:
        """What has come, or nothing; without waiting."""
        if not self._arrived:
            if self._error is not None:
                raise self._error
            return []
        items = self._arrived.popleft()
        if self._is_full is not None:
            self._loop.call_soon_threadsafe(self._go_on)
        return items

    def wait(self, seconds: float) -> None:
        """Until something has come, somebody wakes this thread, or some of the time is over."""
        self._signal.wait(min(seconds, _SLICE_SECONDS))

    def expect(self) -> None:
        """From here on whatever comes ends the next wait. To be called before one looks at what is there."""
        self._signal.clear()

    def wake(self) -> None:
        """End a wait, also one that is about to begin. From any thread."""
        self._signal.set()
        if self.listener is not None:
            self.listener()

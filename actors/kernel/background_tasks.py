"""The tasks that a core runs beside its answers. They are kept from being collected, and no failure is lost.

An unexpected error ends the core: something was half done, and the core's state may be wrong. Its owner ends the
process, and a new one begins from what is durable.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any


class BackgroundTasks:
    """Tasks of one core. `on_error` is called with the error of a task that failed."""

    def __init__(self, on_error: Callable[[BaseException], None]) -> None:
        self._on_error = on_error
        self._tasks: dict[asyncio.Task[Any], None] = {}  # a dictionary keeps their order, a set would not
        self._is_closed = False

    def start(self, work: Coroutine[Any, Any, Any]) -> None:
        if self._is_closed:
            work.close()
            return
        task = asyncio.get_running_loop().create_task(work)
        self._tasks[task] = None
        task.add_done_callback(self._ended)

    async def close(self, timeout: float = 1.0) -> None:
        """Cancel all tasks, and wait so long for them to end."""
        self._is_closed = True
        others = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in others:
            task.cancel()
        if others:
            await asyncio.wait(others, timeout=timeout)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        del self._tasks[task]
        if not task.cancelled() and (error := task.exception()) is not None:
            self._on_error(error)

"""The event loop that a core runs on: on a thread of its own, so that it shares nothing with Ray's calls but the GIL.

The core lives as long as its process, whatever becomes of calls through Ray. The process lives no longer than the loop
(rule 34): without a loop it would answer no request, and keep its successor from its files and ports.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
import threading
from collections.abc import Callable, Coroutine
from typing import Any, Final, TypeVar

import uvloop

from raylog.actors.machine.own_processes import mark_thread

# Beside a busy thread a loop gets a turn this often; with Python's own 5 ms it fell to a twentieth of its speed.
SWITCH_SECONDS: Final = 0.0005
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


class CoreThread:
    """A running event loop. Its thread bears the mark of `own_processes`."""

    def __init__(self, cluster_id: str) -> None:
        sys.setswitchinterval(SWITCH_SECONDS)
        self._loop: asyncio.AbstractEventLoop = uvloop.new_event_loop()
        self._cluster_id = cluster_id
        self._thread = threading.Thread(target=self._turn, name="raylog core", daemon=True)
        self._thread.start()

    def start(self, work: Coroutine[Any, Any, _T], when_over: Callable[[asyncio.Task[_T]], None]) -> None:
        """Run `work` on the loop, and call `when_over` there with its task when it is over."""
        asyncio.run_coroutine_threadsafe(self._watched(work, when_over), self._loop).result()

    async def call(self, work: Coroutine[Any, Any, _T]) -> _T:
        """Run this on the core's loop, called from another loop, and wait for it."""
        return await asyncio.wrap_future(asyncio.run_coroutine_threadsafe(work, self._loop))

    def do(self, work: Coroutine[Any, Any, _T], timeout: float) -> _T:
        """Run this on the core's loop, called from a plain thread, and wait for it."""
        return asyncio.run_coroutine_threadsafe(work, self._loop).result(timeout)

    def _turn(self) -> None:
        mark_thread(self._cluster_id)
        asyncio.set_event_loop(self._loop)
        try:
            self._loop.run_forever()
        except BaseException:  # noqa: BLE001 (whatever it is, it ends the process)
            _log.critical("The event loop of this core has ended, and with it the process.", exc_info=True)
        else:
            _log.critical("The event loop of this core was stopped, and with it the process ends.")
        finally:
            logging.shutdown()
            os._exit(1)

    async def _watched(self, work: Coroutine[Any, Any, _T], when_over: Callable[[asyncio.Task[_T]], None]) -> None:
        self._task = asyncio.ensure_future(work)
        self._task.add_done_callback(when_over)

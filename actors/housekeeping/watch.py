"""A broker's watch over its housekeeping process: where it is, and whether it still answers.

Where somebody starts the process on demand (`wanted`), a replica that asks for it waits until it is there.

What must stay true: one such process at most is named to replicas, the last that said hello (`process_watch.py`).
`on_ray/housekeeper_keeper.py` starts the next.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable
from typing import Final

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.process_watch import ProcessWatch
from raylog.actors.kernel.stream_interface import Answer, Response, Stream
from raylog.actors.protocol.housekeeping_messages import HousekeeperFound, HousekeeperHello, StopHousekeeper

_START_SECONDS: Final = 4.0  # less than a replica waits for an answer

_log = logging.getLogger(__name__)


class HousekeeperWatch:
    """Watches the housekeeping process of one broker."""

    def __init__(self, env: Environment, tasks: BackgroundTasks) -> None:
        self._process = ProcessWatch(env, tasks, "housekeeping process", StopHousekeeper())
        self._endpoints: tuple[str, ...] = ()
        self._wanted = asyncio.Event()
        self._came = asyncio.Event()
        self._is_on_demand = False

    @property
    def stream(self) -> Stream | None:
        """The stream to the process, while there is one."""
        return self._process.stream

    def hello(self, hello: HousekeeperHello, stream: Stream) -> None:
        """A housekeeping process presents itself, perhaps once more."""
        self._process.hello(hello.pid, stream)
        self._endpoints = hello.endpoints
        self._wanted.clear()
        self._came.set()

    async def wanted(self, timeout: float) -> bool:
        """Return whether a replica asks for the process in that time. The caller starts it then."""
        self._is_on_demand = True
        try:
            await asyncio.wait_for(self._wanted.wait(), timeout)
        except asyncio.TimeoutError:
            return False
        return True

    def find(self) -> Answer | Awaitable[Answer]:
        """Tell a replica where the process is; no place where there is none, or none in time."""
        if self.stream is None and self._is_on_demand:
            return self._find_when_started()
        return self._found()

    async def _find_when_started(self) -> Answer:
        self._came.clear()
        self._wanted.set()
        try:
            await asyncio.wait_for(self._came.wait(), _START_SECONDS)
        except asyncio.TimeoutError:
            _log.info("The housekeeping process is not there yet; the replica asks again later.")
        return self._found()

    def _found(self) -> Response:
        return Response(HousekeeperFound(() if self.stream is None else self._endpoints))

    async def stop(self) -> None:
        """Let it end; kill it if it takes long."""
        await self._process.stop()

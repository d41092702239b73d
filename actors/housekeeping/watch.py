"""A broker's watch over its housekeeping process: where it is, and whether it still answers.

What must stay true: one such process at most is named to replicas, the last that said hello. One that was replaced, or
that does not answer, is killed; `on_ray/housekeeper_keeper.py` starts the next.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.housekeeping_messages import HousekeeperFound, HousekeeperHello, StopHousekeeper
from raylog.actors.protocol.messages import Ping
from raylog.errors import RequestTimedOut, StreamError

_PING_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class HousekeeperWatch:
    """Watches the housekeeping process of one broker."""

    def __init__(self, env: Environment, tasks: BackgroundTasks) -> None:
        self._env = env
        self._tasks = tasks
        self._hello: HousekeeperHello | None = None
        self._stream: Stream | None = None

    @property
    def stream(self) -> Stream | None:
        """The stream to the process, while there is one."""
        return None if self._stream is None or self._stream.closed.done() else self._stream

    def hello(self, hello: HousekeeperHello, stream: Stream) -> None:
        """A housekeeping process presents itself, perhaps once more."""
        before = self._hello
        if before is not None and before.pid != hello.pid:
            self._env.kill(before.pid)
        self._hello, self._stream = hello, stream
        self._tasks.start(self._watch(hello, stream))

    def find(self) -> Response:
        """Tell a replica where the process is."""
        gone = self._stream is None or self._stream.closed.done()
        return Response(HousekeeperFound(() if gone or self._hello is None else self._hello.endpoints))

    async def stop(self) -> None:
        """Let it end; kill it if it takes long."""
        if self._hello is None or self._stream is None or self._stream.closed.done():
            return
        try:
            self._stream.send(StopHousekeeper())
        except StreamError as error:
            _log.info("The housekeeping process was not told to stop: %s", error)
        await asyncio.wait([self._stream.closed], timeout=_STOP_SECONDS)
        if not self._stream.closed.done():
            self._env.kill(self._hello.pid)

    async def _watch(self, hello: HousekeeperHello, stream: Stream) -> None:
        while not stream.closed.done():
            try:
                await stream.request(Ping(), timeout=_ANSWER_SECONDS)
            except RequestTimedOut:
                _log.warning("The housekeeping process %d does not answer and is killed.", hello.pid)
                self._env.kill(hello.pid)
                return
            except StreamError:
                return  # it has ended, and is found to have when the next says hello
            await asyncio.wait([stream.closed], timeout=_PING_SECONDS)

"""A broker's watch over a process beside it, which dials the broker and says hello.

What must stay true: one such process at most is believed in, the last that said hello. One that was replaced, or that
does not answer, is killed. Whoever keeps the process running starts the next.
"""

from __future__ import annotations

import asyncio
import logging
from typing import Final

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.messages import Message, Ping
from raylog.errors import RequestTimedOut, StreamError

_PING_SECONDS: Final = 5.0
_ANSWER_SECONDS: Final = 10.0
_STOP_SECONDS: Final = 2.0

_log = logging.getLogger(__name__)


class ProcessWatch:
    """Watches one process. `name`: what it is, for people. `stop`: the message that ends it."""

    def __init__(self, env: Environment, tasks: BackgroundTasks, name: str, stop: Message) -> None:
        self._env = env
        self._tasks = tasks
        self._name = name
        self._stop = stop
        self._pid: int | None = None
        self._stream: Stream | None = None

    @property
    def stream(self) -> Stream | None:
        """The stream to the process, while there is one."""
        return None if self._stream is None or self._stream.closed.done() else self._stream

    def hello(self, pid: int, stream: Stream) -> None:
        """A process presents itself, perhaps once more."""
        if self._pid is not None and self._pid != pid:
            self._env.kill(self._pid)
        self._pid, self._stream = pid, stream
        self._tasks.start(self._watch(pid, stream))

    def tell(self, message: Message) -> bool:
        """Send a message. Return whether it was sent: there is a process, and its stream is not congested.

        A process that is just ending misses it.
        """
        if self.stream is None:
            return False
        try:
            self.stream.send(message)
        except StreamError as error:
            _log.info("The %s was not told %s: %s", self._name, type(message).__name__, error)
            return False
        return True

    async def stop(self) -> None:
        """Let it end; kill it if it takes long."""
        stream = self.stream
        if stream is None or self._pid is None:
            return
        self.tell(self._stop)
        await asyncio.wait([stream.closed], timeout=_STOP_SECONDS)
        if not stream.closed.done():
            self._env.kill(self._pid)

    async def _watch(self, pid: int, stream: Stream) -> None:
        while not stream.closed.done():
            try:
                await stream.request(Ping(), timeout=_ANSWER_SECONDS)
            except RequestTimedOut:
                _log.warning("The %s %d does not answer and is killed.", self._name, pid)
                self._env.kill(pid)
                return
            except StreamError:
                return  # it has ended, and is found to have when the next says hello
            await asyncio.wait([stream.closed], timeout=_PING_SECONDS)

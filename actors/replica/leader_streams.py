"""The streams of a host to the processes of the leaders that its replicas follow: one each, whoever uses it.

    none ──first use──► dialling ──► open ──the last user has left, or no answer to a ping──► closed
                        │      ▲
                        └─pause┘ until it is reached, or the last user has left

What must stay true:
- A stream that has ended is never given out again.
- One attempt at a time is made to reach a process, for all who wait for it. The thousand followers of a leader that was
  killed would else each dial it in vain, again and again, while their host is to take over.
- A stream over which nothing arrives any more ends within seconds, for all who use it: none of them has to ask by
  itself whether the leader still hears it.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from functools import partial
from typing import Any, Final

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Handler, Stream
from raylog.actors.protocol.control_messages import ReplicaAddress
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Ping
from raylog.errors import PeerUnreachable, StreamError

_PING_SECONDS: Final = 1.0  # between two of them
_ANSWER_SECONDS: Final = 3.0
_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_log = logging.getLogger(__name__)


class _Shared:
    """One stream, or the attempts to open it."""

    __slots__ = ("dialled", "keeper", "users")

    def __init__(self, reach: Callable[[_Shared], Coroutine[Any, Any, Stream]]) -> None:
        self.keeper: asyncio.Task[None] | None = None
        self.users = 0
        self.dialled = asyncio.ensure_future(reach(self))

    @property
    def stream(self) -> Stream | None:
        """The stream, once it is open and until it ends."""
        if not self.dialled.done() or self.dialled.cancelled() or self.dialled.exception() is not None:
            return None
        stream = self.dialled.result()
        return None if stream.closed.done() else stream


class LeaderStreams:
    """`handler` takes what leaders ask over them: their pushes."""

    def __init__(self, env: Environment, handler: Handler) -> None:
        self._env = env
        self._handler = handler
        self._shared: dict[tuple[str, ...], _Shared] = {}  # by the leader's endpoints

    async def open(self, leader: ReplicaAddress) -> Stream:
        """Return the stream to this leader's process, for one user more, once that is reached."""
        shared = self._shared.get(leader.endpoints)
        if shared is None or (shared.dialled.done() and shared.stream is None):
            shared = self._shared[leader.endpoints] = _Shared(partial(self._reach, leader.endpoints))
        shared.users += 1
        try:
            stream = await asyncio.shield(shared.dialled)
        except BaseException:
            await self._leave(leader.endpoints, shared)
            raise
        if shared.keeper is None:
            shared.keeper = asyncio.ensure_future(self._keep(stream))
        return stream

    async def release(self, leader: ReplicaAddress, stream: Stream) -> None:
        """Give it back: one of its users needs it no more. The last one closes it."""
        shared = self._shared.get(leader.endpoints)
        if shared is not None and shared.stream is stream:
            await self._leave(leader.endpoints, shared)

    async def close(self) -> None:
        """Close all of them; nobody uses them any more."""
        for endpoints, shared in list(self._shared.items()):
            shared.users = 1
            await self._leave(endpoints, shared)

    async def _leave(self, endpoints: tuple[str, ...], shared: _Shared) -> None:
        shared.users -= 1
        if shared.users:
            return
        if self._shared.get(endpoints) is shared:
            del self._shared[endpoints]
        if shared.keeper is not None:
            shared.keeper.cancel()
        shared.dialled.cancel()
        shared.dialled.add_done_callback(_was_seen)
        if shared.stream is not None:
            await shared.stream.close(0)

    async def _keep(self, stream: Stream) -> None:
        """Ping until it ends; end it where the other side does not answer at all."""
        while not stream.closed.done():
            await asyncio.sleep(_PING_SECONDS * (0.5 + self._env.random.random()))
            try:
                await stream.request(Ping(), timeout=_ANSWER_SECONDS)
            except StreamError as error:
                _log.info("The stream to %s is given up: %s", stream.peer, error)
                await stream.close(0)

    async def _reach(self, endpoints: tuple[str, ...], shared: _Shared) -> Stream:
        """Dial until the process is reached, or nobody waits for it any more."""
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._env.random)
        while True:
            try:
                return await self._dial(endpoints)
            except StreamError as error:
                if not shared.users:
                    raise
                _log.info("The leader of %d replicas is dialled again soon: %s", shared.users, error)
            await asyncio.sleep(backoff.next())

    async def _dial(self, endpoints: tuple[str, ...]) -> Stream:
        """Try the nearest endpoint first."""
        refused: StreamError = PeerUnreachable("the leader", "it has no endpoint")
        for endpoint in endpoints:
            try:
                return await self._env.dial(Endpoint.parse(endpoint), "follower", self._handler)
            except StreamError as error:
                refused = error
        raise refused


def _was_seen(dialled: asyncio.Task[Stream]) -> None:
    """Look at its failure, so that asyncio does not log it where all users have gone."""
    if not dialled.cancelled():
        dialled.exception()

"""A client's streams, one for each process that it asks, dialled when needed; and its requests to leaders.

    none ──get──► dialling ──► open ──ended, dropped──► none
      ▲               │
      └── paused ◄────┘ nothing answers there: for a growing pause `get` fails at once

What must stay true:
- Calls of `get` while a stream is being dialled wait for that stream, and go on in their order.
- A dial that is not waited for any more still ends, and its stream is kept.
- A request that was sent ends in its answer, or in an error that says that its outcome is unknown. It is given up once
  a newer leader epoch is known, for then the answer may never come (rule 27).
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Container
from typing import Any, Final, TypeAlias

from raylog.actors.kernel.background import BackgroundTasks, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Ping
from raylog.errors import PeerNotAdmitted, PeerUnreachable, RaylogError, RequestTimedOut, StreamNotOpen

_FIRST_PAUSE: Final = 0.02
_LONGEST_PAUSE: Final = 1.0
_PING_SECONDS: Final = 5.0

Endpoints: TypeAlias = tuple[Endpoint, ...]  # of one process, in the order in which they are tried


class _Peer:
    __slots__ = ("backoff", "endpoints", "error", "is_busy", "is_pinged", "paused_until", "stream", "waiting")

    def __init__(self, endpoints: Endpoints, backoff: Backoff) -> None:
        self.endpoints = endpoints
        self.stream: Stream | None = None
        self.is_busy = False  # it is being dialled, or some of those that waited have not gone on yet
        self.is_pinged = False
        self.waiting: deque[asyncio.Future[Stream]] = deque()
        self.error: RaylogError | None = None  # what the last attempt ended in
        self.backoff = backoff
        self.paused_until = 0.0


class StreamPool:
    """The streams of one client, made on its event loop."""

    def __init__(
        self, env: Environment, tasks: BackgroundTasks, find_again: Callable[[], Awaitable[None]] | None = None
    ) -> None:
        """`find_again` fetches newer secrets, for when those of this process are not valid any more."""
        self._env = env
        self._find_again = find_again
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._timers = Timers(self._loop)
        self._peers: dict[Endpoints, _Peer] = {}
        self._is_closed = False

    def open(self, endpoints: Endpoints) -> Stream | None:
        """Return the stream to that process. None: there is none, or others wait for it."""
        peer = self._peers.get(endpoints)
        return None if peer is None or peer.is_busy else peer.stream

    def get(self, endpoints: Endpoints, timeout: float) -> asyncio.Future[Stream]:
        """Return a stream to that process, and dial it if there is none. Nothing was sent where this fails.

        PeerUnreachable, PeerNotAdmitted, in a pause at once; StreamNotOpen: closed.
        """
        future: asyncio.Future[Stream] = self._loop.create_future()
        name = ", ".join(map(str, endpoints)) or "the leader"
        if self._is_closed or not endpoints:
            future.set_exception(StreamNotOpen(name, "this client was closed" if self._is_closed else "there is none"))
            return future
        peer = self._peers.get(endpoints)
        if peer is None:
            backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._env.random)
            peer = self._peers[endpoints] = _Peer(endpoints, backoff)
        if peer.stream is not None and not peer.is_busy:
            future.set_result(peer.stream)
        elif peer.error is not None and not peer.is_busy and self._loop.time() < peer.paused_until:
            _fail(future, peer.error)
        else:
            peer.waiting.append(future)
            late = PeerUnreachable(name, "no stream in time")
            timer = self._timers.after(1000 * timeout, lambda: _fail(future, late))
            future.add_done_callback(lambda _: self._timers.cancel(timer))
            if not peer.is_busy:
                peer.is_busy = True
                self._tasks.start(self._dial(peer))
        return future

    def is_paused(self, endpoints: Endpoints) -> bool:
        peer = self._peers.get(endpoints)
        return peer is not None and self._loop.time() < peer.paused_until

    def failed(self, endpoints: Endpoints, error: RaylogError) -> None:
        """Give up the stream to that process, since a request failed there; dial again after a pause."""
        peer = self._peers.get(endpoints)
        if peer is not None and not peer.is_busy:
            self._let_go(peer)
            self._pause(peer, error)

    def check(self, endpoints: Endpoints) -> None:
        """Ping that process, since an answer is overdue. The stream is given up where the ping fails too."""
        peer = self._peers.get(endpoints)
        if peer is not None and peer.stream is not None and not peer.is_pinged:
            peer.is_pinged = True
            self._tasks.start(self._ping(peer, peer.stream))

    def retain(self, wanted: Container[Endpoints]) -> None:
        """Close all other open streams. Requests in flight on them end in StreamClosed."""
        for endpoints, peer in list(self._peers.items()):
            if endpoints not in wanted and not peer.is_busy:
                del self._peers[endpoints]
                self._let_go(peer)

    async def close(self) -> None:
        self._is_closed = True
        peers, self._peers = list(self._peers.values()), {}
        for peer in peers:
            self._end_waiting(peer)
            if peer.stream is not None:
                await peer.stream.close(0.0)

    # --- dialling -------------------------------------------------------------------------------------------------

    async def _dial(self, peer: _Peer) -> None:
        stream = await self._dial_one_of(peer)
        if isinstance(peer.error, PeerNotAdmitted) and stream is None and await self._has_newer_secrets():
            stream = await self._dial_one_of(peer)
        if stream is not None:
            if self._peers.get(peer.endpoints) is peer:
                self._has_dialled(peer, stream)
            else:  # this pool was closed meanwhile
                self._end_waiting(peer)
                await stream.close(0.0)
            return
        peer.is_busy = False
        assert peer.error is not None
        self._pause(peer, peer.error)
        waiting, peer.waiting = peer.waiting, deque()
        for future in waiting:
            _fail(future, peer.error)

    async def _dial_one_of(self, peer: _Peer) -> Stream | None:
        for endpoint in peer.endpoints:
            try:
                return await self._env.dial(endpoint, "client", refuse_all)
            except RaylogError as error:
                peer.error = error
        return None

    async def _has_newer_secrets(self) -> bool:
        held = self._env.keys.secrets.version
        if self._find_again is not None:
            await self._find_again()
        return self._env.keys.secrets.version > held

    def _has_dialled(self, peer: _Peer, stream: Stream) -> None:
        peer.stream, peer.error = stream, None
        peer.backoff.reset()
        stream.closed.add_done_callback(lambda _: self._has_ended(peer, stream))
        self._hand_out(peer)

    def _hand_out(self, peer: _Peer) -> None:
        """Give the stream to those that wait, in order. Calls that come before they have resumed queue behind them."""
        waiting, peer.waiting = peer.waiting, deque()
        for future in waiting:
            if not future.done():
                if peer.stream is None:
                    _fail(future, StreamNotOpen(str(peer.endpoints[0]), "it ended"))
                else:
                    future.set_result(peer.stream)
        if waiting:
            self._loop.call_soon(self._hand_out, peer)
        else:
            peer.is_busy = False

    def _end_waiting(self, peer: _Peer) -> None:
        waiting, peer.waiting = peer.waiting, deque()
        for future in waiting:
            _fail(future, StreamNotOpen(str(peer.endpoints[0]), "it was given up"))

    # --- ending ---------------------------------------------------------------------------------------------------

    def _has_ended(self, peer: _Peer, stream: Stream) -> None:
        if peer.stream is stream:
            peer.stream = None

    def _let_go(self, peer: _Peer) -> None:
        stream, peer.stream = peer.stream, None
        if stream is not None:
            self._tasks.start(stream.close(0.0))

    def _pause(self, peer: _Peer, error: RaylogError) -> None:
        peer.error = error
        peer.paused_until = self._loop.time() + peer.backoff.next()

    async def _ping(self, peer: _Peer, stream: Stream) -> None:
        try:
            await stream.request(Ping(), timeout=_PING_SECONDS)
        except RaylogError:
            if peer.stream is stream:
                self._let_go(peer)
        finally:
            peer.is_pinged = False


def _fail(future: asyncio.Future[Any], error: RaylogError) -> None:
    """Fail a future with an error of its own. Nothing is logged where it was dropped."""
    if not future.done():
        future.set_exception(type(error)(*error.args))
        future.exception()


class LeaderRequests:
    """Requests and dials of this client to leaders, given up when a leader is replaced."""

    def __init__(self) -> None:
        self._sent: dict[asyncio.Future[Any], PartitionLeader] = {}
        self._dialling: dict[asyncio.Future[Any], PartitionLeader] = {}

    def __len__(self) -> int:
        return len(self._sent) + len(self._dialling)

    async def sent(self, future: asyncio.Future[Any], leader: PartitionLeader) -> Any:
        """Wait for an answer."""
        self._sent[future] = leader
        try:
            return await future
        finally:
            del self._sent[future]

    async def dialling(self, future: asyncio.Future[Any], leader: PartitionLeader) -> Any:
        """Wait for a stream."""
        self._dialling[future] = leader
        try:
            return await future
        finally:
            del self._dialling[future]

    def give_up(self, is_outdated: Callable[[PartitionLeader], bool]) -> None:
        """End what was asked of such leaders."""
        for future, leader in self._dialling.items():
            if is_outdated(leader):
                _fail(future, replaced(leader))
        for future, leader in self._sent.items():
            if is_outdated(leader):
                _fail(future, RequestTimedOut(f"{_name(leader)}, which is replaced,", 0))


def replaced(leader: PartitionLeader) -> StreamNotOpen:
    """Return the error for a leader that was replaced before anything was sent to it."""
    return StreamNotOpen(_name(leader), "it does not lead any more")


def _name(leader: PartitionLeader) -> str:
    return f"the leader of {leader.topic}-{leader.partition} under epoch {leader.epoch}"

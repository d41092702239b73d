"""The replicas that should run, and their starts (rule 26: the controller alone has them started).

    missing ──slot of its node──► StartReplicas ─► a host opens it ──registration──► running ──lost──► missing
       ▲                              └── refused, lost, not registered in time ──► pause ──┘

A replica should run where the committed state places it, on a broker that is live and connected. In which process is
the broker's choice.

Which of many comes first is in `start_order.py`.

What must stay true:
- Its broker lets none open before no older one is left.
- Each gets an incarnation that no other ever had: controller epoch, then a counter.
- A replica that keeps dying is started ever more slowly; so it takes nothing from the others.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from random import Random
from typing import Any, Final

from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.controller.start_order import Rank, StartOrder, rank
from raylog.actors.controller.start_requests import StartRequests
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.control_messages import EndReplica
from raylog.actors.protocol.start_messages import ReplicaStart
from raylog.errors import RaylogError, ReplicaNotStarted, StreamNotOpen

_FEW: Final = 4  # replicas of a broker, of which none has to wait for the others
_ORDER_SECONDS: Final = 8.0
_REGISTER_SECONDS: Final = 30.0  # one that is lost is noticed at once; one that is slow is not to be begun anew
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 10.0  # one that has run for so long did not fail to start

_log = logging.getLogger(__name__)


@dataclass(slots=True)
class _Attempts:
    """The latest starts of one replica, and how they went."""

    failures: int = 0
    running: int = -1  # the incarnation that is registered
    started_at: float = 0.0


def _failure(registered: asyncio.Future[bool], closed: asyncio.Future[None]) -> str:
    """Return why a replica was not registered; empty: it was."""
    if registered.done():
        return "" if registered.result() else "it was lost before it was registered"
    return "its broker went away" if closed.done() else "it was not up in time"


@dataclass(slots=True)
class _Waiting:
    """A wait for the registration of a replica, or for its loss."""

    incarnation: int
    registered: asyncio.Future[bool]


class ReplicaSupervisor:
    def __init__(
        self,
        changes: ClusterChanges,
        tasks: BackgroundTasks,
        random: Random,
        next_incarnation: Callable[[], int],
        starts_at_once: Callable[[str], int],
    ) -> None:
        """`starts_at_once`: how many processes are best under way on a node."""
        self._changes = changes
        self._tasks = tasks
        self._backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, random)
        self._next_incarnation = next_incarnation
        self._loop = asyncio.get_running_loop()
        self._sessions: BrokerSessions | None = None
        self._wanted: dict[ReplicaKey, None] = {}  # as of the committed state
        self._wanted_on: dict[int, dict[ReplicaKey, None]] = {}
        self._attempts: dict[ReplicaKey, _Attempts] = {}
        self._starting: dict[ReplicaKey, None] = {}
        self._waiting: dict[ReplicaKey, _Waiting] = {}
        self._order = StartOrder(self._rank, starts_at_once)
        self._requests = StartRequests()
        self._is_stopped = False

    # --- what should run ------------------------------------------------------------------------------------------

    def begin(self, sessions: BrokerSessions) -> None:
        """Start what the recovered state wants, all of which is committed."""
        self._sessions = sessions
        for partition in self._changes.state.partitions.values():
            for broker_id in partition.replicas:
                self._want(ReplicaKey(*partition.id, broker_id))

    def stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True

    def committed(self, changes: Sequence[ReplicaChange]) -> None:
        for change in changes:
            for broker_id in change.before:
                if broker_id not in change.after:
                    self._forget(ReplicaKey(*change.partition, broker_id))
            for broker_id in change.after:
                key = ReplicaKey(*change.partition, broker_id)
                self._want(key)
                self.check(key, is_new=not change.before)

    def check_broker(self, broker_id: int) -> None:
        """Start what a broker misses, now that it has registered."""
        for key in list(self._wanted_on.get(broker_id, ())):
            self.check(key)

    def check(self, key: ReplicaKey, *, is_new: bool = False) -> None:
        """See to it that this replica runs if it should. `is_new`: its partition was created, so nothing was lost."""
        if key not in self._starting and self._is_missing(key):
            self._starting[key] = None
            self._tasks.start(self._bring_up(key, gather=not is_new))

    def _want(self, key: ReplicaKey) -> None:
        self._wanted[key] = None
        self._wanted_on.setdefault(key.broker_id, {})[key] = None

    def _forget(self, key: ReplicaKey) -> None:
        self._wanted.pop(key, None)
        self._wanted_on.get(key.broker_id, {}).pop(key, None)
        self._attempts.pop(key, None)
        if key in self._waiting:
            self._ended(key, self._waiting[key].incarnation)

    def _is_missing(self, key: ReplicaKey) -> bool:
        return (
            not self._is_stopped
            and key in self._wanted
            and key not in self._changes.live.replicas
            and key.broker_id in self._changes.live.brokers
            and self._stream(key.broker_id) is not None
        )

    # --- what becomes of them -------------------------------------------------------------------------------------

    def registered(self, key: ReplicaKey, incarnation: int) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and not waiting.registered.done():
            waiting.registered.set_result(True)
        attempts = self._attempts.setdefault(key, _Attempts())
        attempts.running, attempts.started_at = incarnation, self._loop.time()

    def lost(self, key: ReplicaKey, incarnation: int) -> None:
        self._ended(key, incarnation)
        self._order.rank_anew()
        attempts = self._attempts.get(key)
        if attempts is not None and attempts.running == incarnation:
            lived = self._loop.time() - attempts.started_at
            attempts.failures = attempts.failures + 1 if lived < _STEADY_SECONDS else 0
            attempts.running = -1
        self.check(key)

    def _ended(self, key: ReplicaKey, incarnation: int) -> None:
        waiting = self._waiting.get(key)
        if waiting is not None and waiting.incarnation == incarnation and not waiting.registered.done():
            waiting.registered.set_result(False)

    def unwanted(self, key: ReplicaKey) -> None:
        """End a replica that no record wants. Its data stays."""
        stream = self._stream(key.broker_id)
        if stream is not None:
            self._tasks.start(self._end_unwanted(key, stream))

    async def end(self, key: ReplicaKey) -> None:
        """End a replica as it runs now; it is started anew. ReplicaNotFree, StreamError."""
        stream = self._stream(key.broker_id)
        if stream is None:
            raise StreamNotOpen(f"broker {key.broker_id}", "it is not connected")
        await stream.request(EndReplica(key.topic_id, key.partition, self._next_incarnation()), timeout=_ORDER_SECONDS)

    async def _end_unwanted(self, key: ReplicaKey, stream: Stream) -> None:
        order = EndReplica(key.topic_id, key.partition, self._next_incarnation())
        try:
            await stream.request(order, timeout=_ORDER_SECONDS)
        except RaylogError as error:
            _log.warning("A replica on broker %d that nobody wants was not ended: %s", key.broker_id, error)

    # --- getting one to run ---------------------------------------------------------------------------------------

    async def _bring_up(self, key: ReplicaKey, *, gather: bool) -> None:
        """Try to start it until it runs, or need not. `gather`: see `StartOrder.turn`."""
        while self._is_missing(key):
            failures = self._attempts.setdefault(key, _Attempts()).failures
            if failures:
                await asyncio.sleep(self._backoff.after(failures))
            has_many = len(self._wanted_on.get(key.broker_id, ())) > _FEW
            async with self._order.turn(key, self._node_of(key), gather=gather and has_many):
                if not self._is_missing(key):
                    break
                try:
                    await self._attempt(key)
                except RaylogError as error:
                    self._failed(key, error)
            gather = True
        del self._starting[key]

    def _node_of(self, key: ReplicaKey) -> str:
        broker = self._changes.state.brokers.get(key.broker_id)
        return "" if broker is None else broker.node_id

    def _rank(self, key: ReplicaKey) -> Rank:
        lives, underway = self._changes.live.replicas, self._order.underway
        return rank(self._changes.state, lambda other: other in lives or other in underway, key)

    async def _attempt(self, key: ReplicaKey) -> None:
        order = self._order_for(key)
        stream = self._stream(key.broker_id)
        if stream is None:
            raise StreamNotOpen(f"broker {key.broker_id}", "it is not connected")
        waiting = self._waiting[key] = _Waiting(order.incarnation, self._loop.create_future())
        try:
            if (await self._requests.send(stream, order, waiting.registered)).has_place:
                self._order.found_place(self._node_of(key))
            else:
                self._order.needs_process(key, self._node_of(key))
            # A broker that has ended has forgotten what it was to start.
            until: set[asyncio.Future[Any]] = {waiting.registered, stream.closed}
            await asyncio.wait(until, timeout=_REGISTER_SECONDS, return_when=asyncio.FIRST_COMPLETED)
        finally:
            del self._waiting[key]
        if why := _failure(waiting.registered, stream.closed):
            raise ReplicaNotStarted(order.topic, order.partition, key.broker_id, why)

    def _failed(self, key: ReplicaKey, error: RaylogError) -> None:
        """Loudly, once for each step by which the pause grows."""
        attempts = self._attempts.setdefault(key, _Attempts())
        attempts.failures += 1
        grows = self._backoff.full(attempts.failures) < _LONGEST_PAUSE
        level = logging.WARNING if grows else logging.INFO
        _log.log(level, "A replica could not be started, attempt %d: %s", attempts.failures, error)

    def _order_for(self, key: ReplicaKey) -> ReplicaStart:
        """UnknownTopic, UnknownPartition: not wanted any more, though that may not be committed yet."""
        state = self._changes.state
        state.partition(key.topic_id, key.partition)
        topic = state.topics[key.topic_id]
        return ReplicaStart(topic.name, topic.id, key.partition, self._next_incarnation(), topic.settings)

    def _stream(self, broker_id: int) -> Stream | None:
        session = None if self._sessions is None else self._sessions.get(broker_id)
        return None if session is None or session.stream.closed.done() else session.stream

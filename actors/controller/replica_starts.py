"""The replicas that should run, and their starts (rule 26: the controller alone has them started).

    missing ──slot of its node──► StartReplicas ─► a host opens it ──registration──► running ──lost──► missing
       ▲                              └── refused, lost, not registered in time ──► pause ──┘

A replica should run where the committed state places it, on a broker that is live and connected. In which process is
the broker's choice.

A node starts few processes at a time. So when many are missing at once, the order decides how long nothing is
acknowledged. What a partition needs for its
`min.insync.replicas` comes first, users' topics before raylog's own, and among these whatever has the fewest replicas
yet. A partition needs one of its last members first, which alone may lead (rule 6). Further replicas only make
partitions safer again: they come last. Replicas for which a host has a place are no matter of processes: as long as no
broker of a node says that a start has to wait for one, more and more are under way there.

What must stay true:
- Its broker lets none open before no older one is left.
- Each gets an incarnation that no other ever had: controller epoch, then a counter.
- A replica that keeps dying is started ever more slowly; so it takes nothing from the others.
- A replica that waits for a slot gets one in the end: each that is done frees one, and those that are wanted more are
  finitely many.
"""

from __future__ import annotations

import asyncio
import logging
from collections import Counter
from collections.abc import AsyncIterator, Callable, Container, Iterable, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from functools import partial
from heapq import heapify, heappop, heappush
from itertools import count
from random import Random
from typing import Any, Final, NamedTuple

from raylog.actors.cluster.state import ClusterState, ReplicaKey
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Response, Stream, expected
from raylog.actors.protocol.control_messages import EndReplica
from raylog.actors.protocol.messages import Failure
from raylog.actors.protocol.remote_errors import remote_failed
from raylog.actors.protocol.start_messages import ReplicaStart, StartReplicas, StartsUnderWay, StartUnderWay
from raylog.errors import AnswerUnexpected, RaylogError, ReplicaNotStarted, StreamNotOpen

_FEW: Final = 4  # replicas of a broker, of which none has to wait for the others
_MOST_AT_ONCE: Final = 256  # under way on a node
_MORE_AT_ONCE: Final = 16  # for each that has found a place
_STARTS_TOGETHER: Final = 64  # in one message: reading it holds neither loop for long (rule 31)
_ORDER_SECONDS: Final = 8.0
_REGISTER_SECONDS: Final = 30.0  # one that is lost is noticed at once; one that is slow is not to be begun anew
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 10.0  # one that has run for so long did not fail to start
# Losses that one event has caused are reported one after the other: a broker reports what is new when its last report
# is committed. So where it has many replicas, a slot is given when none was reported for so long, and after the longer
# time in any case. What is wanted so much that nothing could come before it gets a slot at once.
_QUIET_SECONDS: Final = 0.15
_LONGEST_SECONDS: Final = 0.5
_RANKED_EACH_TIME: Final = 64  # of more that wait, not each is looked at whenever a slot is free

_log = logging.getLogger(__name__)


class Rank(NamedTuple):
    """The lowest is started first."""

    is_spare: bool  # the partition has what acknowledgements need without it
    is_internal: bool
    there: int  # replicas that live already, or are being started

    @property
    def is_highest(self) -> bool:
        return not (self.is_spare or self.is_internal or self.there)


def rank(state: ClusterState, is_present: Callable[[ReplicaKey], bool], key: ReplicaKey) -> Rank:
    """`is_present`: whether a replica lives, or is being started."""
    partition = state.partitions.get(key.partition_id)
    if partition is None:  # it is not wanted any more, which its turn will show
        return Rank(False, False, 0)
    members = partition.last_members or partition.replicas
    others = [broker for broker in partition.replicas if broker != key.broker_id]
    present = {broker for broker in others if is_present(ReplicaKey(*partition.id, broker))}
    minimum, there = state.min_insync(partition), len(present)
    if key.broker_id in members:
        is_spare = there >= minimum and not present.isdisjoint(members)
    else:  # of use once there is a leader, and where the members alone are too few
        is_spare = len(present.difference(members)) >= minimum - len(members)
        there = max(there, 1)
    return Rank(is_spare, state.topics[partition.topic_id].is_internal, there)


class StartOrder:
    """`rank_of` is asked anew each time a slot is free, and `slots`, how many a node has at least, too."""

    def __init__(self, rank_of: Callable[[ReplicaKey], Rank], slots: Callable[[str], int]) -> None:
        self.underway: set[ReplicaKey] = set()
        self._rank_of = rank_of
        self._slots_at_least = slots
        self._more: Counter[str] = Counter()  # slots by node, while none there needs a process
        self._need_process: dict[ReplicaKey, str] = {}
        self._loop = asyncio.get_running_loop()
        self._taken: Counter[str] = Counter()  # by node
        self._gathering: dict[str, tuple[float, asyncio.TimerHandle]] = {}  # until when at most
        self._waiting: dict[str, dict[ReplicaKey, asyncio.Future[None]]] = {}
        self._ranked: dict[str, _Ranked] = {}  # by node, of very many that wait there

    @asynccontextmanager
    async def turn(self, key: ReplicaKey, node: str, *, gather: bool) -> AsyncIterator[None]:
        """Have a slot of its node. `gather`: others may be missing too, which is not known yet."""
        granted: asyncio.Future[None] = self._loop.create_future()
        waiting = self._waiting.setdefault(node, {})
        waiting[key] = granted
        if node in self._ranked:
            self._ranked[node].add(key)
        if gather and self._rank_of(key).is_highest and self._taken[node] < self._slots(node):
            self._give(node, key)
        elif gather:
            self._grant_later(node)
        else:
            self._grant(node)
        try:
            await granted
            yield
        finally:
            waiting.pop(key, None)
            if granted.done() and not granted.cancelled():
                self.underway.discard(key)
                self._need_process.pop(key, None)
                self._taken[node] -= 1
                self._grant(node)

    def found_place(self, node: str) -> None:
        """A start there needs no process, so more may be under way."""
        self._more[node] = min(self._more[node] + _MORE_AT_ONCE, _MOST_AT_ONCE)
        self._grant(node)

    def needs_process(self, key: ReplicaKey, node: str) -> None:
        """A start under way has to wait for a process. Others would wait with it, in no order."""
        self._need_process[key] = node
        del self._more[node]

    def _slots(self, node: str) -> int:
        more = 0 if node in self._need_process.values() else self._more[node]
        return self._slots_at_least(node) + more

    def _grant_later(self, node: str) -> None:
        now = self._loop.time()
        until, timer = self._gathering.pop(node, (now + _LONGEST_SECONDS, None))
        if timer is not None:
            timer.cancel()
        self._gathering[node] = until, self._loop.call_at(min(now + _QUIET_SECONDS, until), self._gathered, node)

    def _gathered(self, node: str) -> None:
        del self._gathering[node]
        self._grant(node)

    def _grant(self, node: str) -> None:
        waiting = self._waiting.get(node, {})
        while node not in self._gathering and waiting and self._taken[node] < self._slots(node):
            self._give(node, self._next(node, waiting))

    def rank_anew(self) -> None:
        """Take note that something was lost: what waits may be wanted more than it was."""
        for ranked in self._ranked.values():
            ranked.is_outdated = True

    def _next(self, node: str, waiting: dict[ReplicaKey, asyncio.Future[None]]) -> ReplicaKey:
        """Return who is wanted most."""
        if len(waiting) <= _RANKED_EACH_TIME:
            self._ranked.pop(node, None)
            return min(waiting, key=self._rank_of)
        ranked = self._ranked.get(node)
        if ranked is None or (ranked.is_outdated and ranked.taken >= _RANKED_EACH_TIME):
            ranked = self._ranked[node] = _Ranked(self._rank_of, waiting)
        return ranked.take(waiting)

    def _give(self, node: str, key: ReplicaKey) -> None:
        granted = self._waiting[node].pop(key)
        if not granted.done():
            self._taken[node] += 1
            self.underway.add(key)
            granted.set_result(None)


class _Ranked:
    """Replicas that wait at one node, the most wanted first. It holds all of them, and perhaps some that went away.

    Of those that are wanted less by now, since others of their partitions are there, `take` finds that out.
    """

    def __init__(self, rank_of: Callable[[ReplicaKey], Rank], waiting: Iterable[ReplicaKey]) -> None:
        self.is_outdated = False  # some may be wanted more than it says
        self.taken = 0
        self._rank_of = rank_of
        self._numbers = count()
        self._heap = [(rank_of(key), next(self._numbers), key) for key in waiting]
        heapify(self._heap)

    def add(self, key: ReplicaKey) -> None:
        heappush(self._heap, (self._rank_of(key), next(self._numbers), key))

    def take(self, waiting: Container[ReplicaKey]) -> ReplicaKey:
        """Return who is wanted most of those that wait. There is one."""
        while True:
            believed, _, key = heappop(self._heap)
            if key not in waiting:
                continue
            if self._rank_of(key) <= believed:
                self.taken += 1
                return key
            self.add(key)


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


class StartMessages:
    """Starts of one turn of the loop, as a message to each broker: a thousand replicas are no thousand requests."""

    def __init__(self) -> None:
        self._loop = asyncio.get_running_loop()
        self._unsent: dict[Stream, list[tuple[ReplicaStart, asyncio.Future[StartUnderWay]]]] = {}

    async def send(self, stream: Stream, start: ReplicaStart, registered: asyncio.Future[bool]) -> StartUnderWay:
        """Send it with the others of this turn, and return what the broker says of it. Raises what refuses it.

        The answer comes when the slowest start of a message is done, say after the seconds for which a broker waits for
        a directory in use. One that is `registered` by then has had a place, and is not waited for.
        """
        told: asyncio.Future[StartUnderWay] = self._loop.create_future()
        registered.add_done_callback(lambda _: None if told.done() else told.set_result(StartUnderWay(has_place=True)))
        unsent = self._unsent.setdefault(stream, [])
        unsent.append((start, told))
        if len(unsent) == 1:
            self._loop.call_soon(self._send, stream)
        outcome = await told
        if outcome.refused is not None:
            refused = remote_failed(stream.peer, Failure(*outcome.refused))
            raise refused.error or refused
        return outcome

    def _send(self, stream: Stream) -> None:
        unsent = self._unsent.pop(stream)
        for at in range(0, len(unsent), _STARTS_TOGETHER):
            part = unsent[at : at + _STARTS_TOGETHER]
            answer = stream.request(StartReplicas(tuple(start for start, _ in part)), timeout=_ORDER_SECONDS)
            answer.add_done_callback(partial(self._answered, stream.peer, [told for _, told in part]))

    def _answered(
        self, peer: str, waiting: Sequence[asyncio.Future[StartUnderWay]], answer: asyncio.Future[Response]
    ) -> None:
        try:
            outcomes = expected(answer.result().message, StartsUnderWay, peer).outcomes
            if len(outcomes) != len(waiting):
                raise AnswerUnexpected(peer, f"{len(waiting)} outcomes", str(len(outcomes)))
        except RaylogError as error:
            for told in waiting:
                if not told.done():
                    told.set_exception(error)
            return
        for told, outcome in zip(waiting, outcomes, strict=True):
            if not told.done():
                told.set_result(outcome)


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
        self._messages = StartMessages()
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
            if (await self._messages.send(stream, order, waiting.registered)).has_place:
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

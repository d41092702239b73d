"""Keeps a coordinator open for each partition of a coordinated topic (rule 25). Part of the controller.

    missing ──placed (a record: epoch + 1)──► opening ──heartbeats──► running ──silent, ended──► missing
       ▲                                          └── not up in time, not opened ──► pause ──┘

They are opened in processes that stand ready (`coordinator_hosts.py`). What must stay true:
- Nothing is opened before its placement is committed, so no epoch is ever used twice.
- Nothing is placed before its partition has a leader and there is a process to open it in: neither costs an epoch.
- A new controller gives those that are placed already a full lease before it replaces any.
- None is placed while the one before it may still answer from memory: it has ended for sure, or what it was granted is
  over (`coordinator_grants.py`).
- A coordinator that keeps ending is opened ever more slowly.
- One that was opened elsewhere, as its leader or the process beside it was away, comes back beside the leader: one at a
  time, while all serve, and only to a leader that stays. Its groups wait for a moment each time.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Collection, Iterator, Sequence
from random import Random
from typing import Any, Final

from raylog.actors.cluster.cluster_settings import allowed_assignors
from raylog.actors.cluster.coordinator_state import CoordinatorState
from raylog.actors.cluster.descriptions import CoordinatorDescription
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.placement.coordinator_placement import (
    away_from_leaders,
    coordinated_partitions,
    coordinator_reported,
    place_coordinator,
)
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.coordinator_grants import CoordinatorGrants
from raylog.actors.controller.coordinator_hosts import CoordinatorHosts, CoordinatorHostSession, CoordinatorLauncher
from raylog.actors.kernel.background import BackgroundTasks, SilenceWatch, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.metadata_log.writer import MetadataWriter
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.coordinator_messages import (
    CoordinatorHeartbeat,
    CoordinatorRefused,
    CoordinatorsHeard,
    CoordinatorSign,
    OpenCoordinator,
    StopCoordinator,
)
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import COORDINATED_TOPICS, OFFSETS_TOPIC
from raylog.errors import CoordinatorNotStarted, RaylogError, StaleCoordinator, StreamError

_LOOK_SECONDS: Final = 5.0
_ORDER_SECONDS: Final = 5.0
_UP_SECONDS: Final = 5.0  # from the order to the first heartbeat
_ADOPTED_SECONDS: Final = 3.0  # for one that an earlier controller placed, and perhaps did not come to open
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 10.0
_RETURN_LOOK_SECONDS: Final = 1.0
_RETURN_SECONDS: Final = 15.0  # a leader that came back from a lost host leads its partitions before that

_log = logging.getLogger(__name__)


class _Watched:
    """One placement of one coordinator, as its process shows it."""

    __slots__ = ("broker_id", "epoch", "is_up", "lost", "run")

    def __init__(self, placed: CoordinatorState) -> None:
        self.broker_id = placed.broker_id
        self.epoch = placed.epoch
        self.run = ""  # of the process that it is in, once that has told of it
        self.is_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why

    @property
    def lives(self) -> bool:
        """Return whether it lives, by its last sign of life."""
        return self.is_up.done() and not self.lost.done()

    async def came_up(self, timeout: float) -> bool:
        """Return whether it has shown a sign of life within that time, and was not lost before."""
        either: list[asyncio.Future[Any]] = [self.is_up, self.lost]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return self.is_up.done()

    def is_lost(self, why: str) -> None:
        """Count on it no more. From now on its heartbeats are refused."""
        if not self.lost.done():
            self.lost.set_result(why)


class CoordinatorSupervisor:
    """The coordinators that should run, and those that do.

    Call `begin` once the state is recovered, then tell it of changes, heartbeats and processes that ended."""

    def __init__(
        self,
        changes: ClusterChanges,
        writer: MetadataWriter,
        launcher: CoordinatorLauncher,
        tasks: BackgroundTasks,
        timers: Timers,
        random: Random,
        cluster_id: str,
    ) -> None:
        self._changes = changes
        self._writer = writer
        self._tasks = tasks
        self._random = random
        self._loop = asyncio.get_running_loop()
        self._watched: dict[PartitionId, _Watched] = {}
        self._grants = CoordinatorGrants()
        self._kept: dict[PartitionId, None] = {}
        self._trouble: dict[PartitionId, tuple[int, str]] = {}  # attempts that failed in a row, and why the last did
        self._leases: SilenceWatch[PartitionId] = SilenceWatch(timers, lambda key: self._lost(key, "it was silent"))
        self.hosts = CoordinatorHosts(changes, launcher, tasks, timers, random, cluster_id, self._host_lost)
        self._is_stopped = False

    def begin(self, coordinated: Collection[str]) -> None:
        """Act on the recovered state. `coordinated`: topics that there are or will soon be."""
        self._grants.begin(self._loop.time())
        if coordinated:
            self.hosts.want()
        for partition in coordinated_partitions(self._changes.state):
            placed = self._changes.state.coordinators.get(partition)
            if placed is not None:
                self._watch(placed)
            self._keep(partition)
        self._tasks.start(self._keep_beside_leaders())

    def stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True
        self._leases.close()
        self.hosts.stop()

    def committed(self, changes: Sequence[ReplicaChange]) -> None:
        for change in changes:
            if change.topic in COORDINATED_TOPICS and change.after:
                self._keep(change.partition)

    async def heartbeat(self, beat: CoordinatorHeartbeat, stream: Stream) -> CoordinatorsHeard:
        """Return those that are not placed there, or no longer, and for how long the others may answer from memory.

        What was reported of those is recorded later: the process says nothing while it waits for this, and all of its
        coordinators would pass for silent. One whose record is lost with this controller reports itself to the next.
        """
        session = self.hosts.heard(stream)
        if session is None:
            return CoordinatorsHeard(tuple(CoordinatorRefused(*each[:3]) for each in beat.coordinators), 0)
        records: list[Message] = []
        taken: list[PartitionId] = []
        refused = []
        for sign in beat.coordinators:
            try:
                records += self._heard(sign, session)
                taken.append((sign.topic_id, sign.partition))
            except StaleCoordinator as error:
                _log.info("A coordinator of broker %d is to end: %s", session.hello.broker_id, error)
                refused.append(CoordinatorRefused(*sign[:3]))
        self._look_for_missing(beat, session)
        if records:
            self._changes.submit(records)
        granted_ms = self._grants.grant(taken, self._writer.obeyed_at(), self._loop.time())
        self._writer.ask_whether_obeyed()  # for the next heartbeat: this process is not to wait
        return CoordinatorsHeard(tuple(refused), granted_ms)

    def _heard(self, sign: CoordinatorSign, session: CoordinatorHostSession) -> list[Message]:
        """Return the records of one coordinator's sign of life. StaleCoordinator: it is not to live."""
        key = sign.topic_id, sign.partition
        hello = session.hello
        records = coordinator_reported(self._changes.state, sign, hello.endpoints, hello.pid)
        watched = self._watched.get(key)
        if watched is None or watched.epoch != sign.epoch or watched.lost.done():
            # Another one is about to be placed: it may count neither on a lease nor on a grant.
            raise StaleCoordinator(self._name(key), sign.partition, sign.epoch, sign.epoch)
        watched.run = hello.run
        if not watched.is_up.done():
            watched.is_up.set_result(None)
            self._leases.watch(key)
        self._leases.heard(key)
        if records:
            _log.info("The coordinator of %s serves under epoch %d.", self._name(key), sign.epoch)
            self._trouble.pop(key, None)
        return records

    def _look_for_missing(self, beat: CoordinatorHeartbeat, session: CoordinatorHostSession) -> None:
        """Note which coordinators have ended in this process, which says why, or is not the one that held them."""
        for ended in beat.ended:
            watched = self._watched.get((ended.topic_id, ended.partition))
            if watched is not None and watched.epoch == ended.epoch:
                self._lost((ended.topic_id, ended.partition), ended.reason, has_ended=True)
        there = {sign[:3] for sign in beat.coordinators}
        for key, watched in self._on(session.hello.broker_id):
            if watched.lives and (*key, watched.epoch) not in there:
                is_same = watched.run == session.hello.run  # else another process may still live, and hold it
                self._lost(key, "its process does not have it any more", has_ended=is_same)

    def _on(self, broker_id: int) -> Iterator[tuple[PartitionId, _Watched]]:
        return ((key, each) for key, each in list(self._watched.items()) if each.broker_id == broker_id)

    def _host_lost(self, broker_id: int, why: str, ended_run: str) -> None:
        for key, watched in self._on(broker_id):
            self._lost(key, why, has_ended=bool(ended_run) and watched.run == ended_run)

    def settings_changed(self) -> None:
        """Settings of the cluster: coordinators of groups begin anew with them, which takes a moment."""
        for key, watched in list(self._watched.items()):
            topic = self._changes.state.topics.get(key[0])
            if topic is not None and topic.name == OFFSETS_TOPIC and watched.is_up.done():
                self._lost(key, "the cluster's settings have changed")

    def describe(self, coordinated: Collection[str]) -> tuple[CoordinatorDescription, ...]:
        """All that there should be, and why those do not serve that do not. `coordinated`: as in `begin`."""
        state = self._changes.state
        coming = [topic for topic in coordinated if not state.has_topic(topic)]
        return (
            *(CoordinatorDescription(topic, 0, -1, -1, False, 0, "its topic is being created") for topic in coming),
            *(self._describe(key) for key in coordinated_partitions(state)),
        )

    def _describe(self, key: PartitionId) -> CoordinatorDescription:
        state = self._changes.state
        topic, placed = state.topics[key[0]].name, state.coordinators.get(key)
        attempts, reason = self._trouble.get(key, (0, ""))
        watched = self._watched.get(key)
        if placed is not None and watched is not None and watched.lives and placed.is_serving:
            return CoordinatorDescription(topic, key[1], placed.broker_id, placed.epoch, True, 0, "")
        if state.partitions[key].leader == NO_LEADER:
            reason = "its partition has no leader"
        elif not self.hosts.running():
            attempts, reason = self.hosts.trouble()
        broker, epoch = (-1, -1) if placed is None else (placed.broker_id, placed.epoch)
        return CoordinatorDescription(topic, key[1], broker, epoch, False, attempts, reason or "it is being started")

    # --- one coordinator ------------------------------------------------------------------------------------------

    def _keep(self, key: PartitionId) -> None:
        if key not in self._kept and not self._is_stopped:
            self._kept[key] = None
            self.hosts.want()
            self._tasks.start(self._keep_running(key))

    async def _keep_running(self, key: PartitionId) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        placed = self._changes.state.coordinators.get(key)
        if placed is not None:
            await self._until_lost(placed, _ADOPTED_SECONDS)
        while self._is_wanted(key):
            await self._until_possible(key)
            begun = self._loop.time()
            try:
                why = await self._run_once(key)
            except RaylogError as error:
                why = error.describe()
                attempt = backoff.failures + 1
                _log.warning("The coordinator of %s does not run, attempt %d: %s", self._name(key), attempt, why)
            self._trouble[key] = backoff.failures + 1, why.rstrip(".")
            if self._loop.time() - begun > _STEADY_SECONDS:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next())
        del self._kept[key]
        self._trouble.pop(key, None)

    async def _until_possible(self, key: PartitionId) -> None:
        """Wait for a leader, without which a coordinator can claim nothing, and for a process to open it in."""
        while not self._is_possible(key):
            if self._is_led_or_unwanted(key):
                await self.hosts.until(lambda: self._is_possible(key), _LOOK_SECONDS / 5)
            else:
                await self._changes.until(lambda: self._is_led_or_unwanted(key), _LOOK_SECONDS)

    def _is_led_or_unwanted(self, key: PartitionId) -> bool:
        return not self._is_wanted(key) or self._changes.state.partitions[key].leader != NO_LEADER

    def _is_possible(self, key: PartitionId) -> bool:
        """A process that is only just being started beside the leader is waited for; where it failed, others do."""
        if not self._is_wanted(key):
            return True
        leader = self._changes.state.partitions[key].leader
        return leader != NO_LEADER and bool(self.hosts.running()) and not self.hosts.is_starting(leader)

    async def _run_once(self, key: PartitionId) -> str:
        """Place it, have it opened, and wait until it is lost. Return why it was."""
        if not self._is_wanted(key):
            return ""
        records = place_coordinator(self._changes.state, self._changes.live, key, self.hosts.running())
        await asyncio.shield(self._changes.submit(records))
        if not self._is_wanted(key):
            return ""
        placed = self._changes.state.coordinators[key]
        watched = self._watch(placed)
        order = self._order(placed)
        try:
            await self.hosts.ask(placed.broker_id, order, _ORDER_SECONDS)
        except StreamError as error:
            watched.is_lost(error.describe().rstrip("."))
        came_up = await self._until_lost(placed, _UP_SECONDS)
        if not came_up:
            raise CoordinatorNotStarted(order.topic, order.partition, watched.lost.result())
        return watched.lost.result()

    def _watch(self, placed: CoordinatorState) -> _Watched:
        watched = self._watched[placed.id] = _Watched(placed)
        if placed.is_serving:
            watched.is_up.set_result(None)
            self._leases.watch(placed.id)
        else:
            self._leases.forget(placed.id)
        return watched

    async def _until_lost(self, placed: CoordinatorState, until_up: float) -> bool:
        """Wait until it is lost and answers nobody from memory any more. Return whether it was up before."""
        watched = self._watched[placed.id]
        came_up = await watched.came_up(until_up)
        if came_up:
            await asyncio.wait([watched.lost])
        watched.is_lost("it was not up in time")
        over: asyncio.Future[None] = self._loop.create_future()
        self._tasks.start(self._give_up(placed, over))
        left = self._grants.seconds_left(placed.id, self._loop.time())
        if left:
            await asyncio.wait([over], timeout=left)
        return came_up

    async def _keep_beside_leaders(self) -> None:
        """Move each coordinator to the broker that has led its partition for a while, one after the other."""
        since: dict[tuple[PartitionId, int], float] = {}
        while not self._is_stopped:
            await asyncio.sleep(_RETURN_LOOK_SECONDS)
            now = self._loop.time()
            away = away_from_leaders(self._changes.state, self._changes.live, self.hosts.running())
            since = {each: since.get(each, now) for each in sorted(away.items())}
            due = [each for each, began in since.items() if now - began >= _RETURN_SECONDS]
            if due and all(map(self._lives, self._changes.state.coordinators)):
                self._move(*due[0])

    def _lives(self, key: PartitionId) -> bool:
        return key in self._watched and self._watched[key].lives

    def _move(self, key: PartitionId, broker_id: int) -> None:
        watched = self._watched[key]
        _log.info("The coordinator of %s moves to broker %d, which leads its partition.", self._name(key), broker_id)
        watched.is_lost(f"broker {broker_id} leads its partition")

    def _lost(self, key: PartitionId, why: str, *, has_ended: bool = False) -> None:
        """Give it up. `has_ended`: for sure, so that its successor need not wait."""
        watched = self._watched[key]
        if self._is_stopped:
            return
        if has_ended:
            self._grants.has_ended(key)
        if not watched.lost.done():
            _log.warning("The coordinator of %s under epoch %d is lost: %s.", self._name(key), watched.epoch, why)
            watched.is_lost(why)

    async def _give_up(self, placed: CoordinatorState, over: asyncio.Future[None]) -> None:
        """Have it ended. `over` is done once its process has said so.

        One that still lives ends when its next append or heartbeat is refused; this only speeds it up.
        """
        run = self.hosts.run_of(placed.broker_id)
        try:
            await self.hosts.ask(placed.broker_id, StopCoordinator(*placed.id, placed.epoch), _ORDER_SECONDS)
        except StreamError as error:
            _log.debug("The coordinator of %s is not told to end: %s", self._name(placed.id), error.describe())
            return
        if run == self._watched[placed.id].run and not over.done():
            over.set_result(None)

    def _is_wanted(self, key: PartitionId) -> bool:
        return not self._is_stopped and key in self._changes.state.partitions

    def _name(self, key: PartitionId) -> str:
        topic = self._changes.state.topics.get(key[0])
        return f"{key[0].hex() if topic is None else topic.name}-{key[1]}"

    def _order(self, placed: CoordinatorState) -> OpenCoordinator:
        """UnknownBroker: it was removed meanwhile."""
        state = self._changes.state
        return OpenCoordinator(
            topic=state.topics[placed.topic_id].name,
            topic_id=placed.topic_id,
            partition=placed.partition,
            producer_id=placed.producer_id,
            epoch=placed.epoch,
            retired_id=placed.retired_id,
            term=placed.term,
            brokers=self.hosts.endpoints(placed.broker_id),
            assignors=allowed_assignors(state),
        )

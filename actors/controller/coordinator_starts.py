"""Keeps a coordinator running for each partition of a coordinated topic (rule 25). Part of the controller.

    missing ──placed (a record: epoch + 1)──► starting ──heartbeats──► running ──silent, ended──► missing
       ▲                                          └── not up in time, not started ──► pause ──┘

What must stay true:
- Nothing is started before its placement is committed, so no epoch is ever used twice.
- A new controller gives those that are placed already a full lease before it replaces any.
- A coordinator that keeps dying is started ever more slowly.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence
from random import Random
from typing import Any, Final, Protocol

from raylog.actors.cluster.cluster_settings import allowed_assignors
from raylog.actors.cluster.coordinator_state import CoordinatorState
from raylog.actors.cluster.descriptions import CoordinatorDescription
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.placement.coordinator_placement import (
    coordinated_partitions,
    coordinator_reported,
    place_coordinator,
)
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.kernel.background import BackgroundTasks, SilenceWatch, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.coordinator_messages import CoordinatorHeartbeat, StopCoordinator
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.names import COORDINATED_TOPICS, OFFSETS_TOPIC
from raylog.errors import CoordinatorNotReady, CoordinatorNotStarted, RaylogError, StreamError

_LOOK_SECONDS: Final = 5.0
_LAUNCH_SECONDS: Final = 15.0
_UP_SECONDS: Final = 20.0  # from the launch to the first heartbeat
_ADOPTED_SECONDS: Final = 3.0  # for one that an earlier controller placed, and perhaps did not come to start
_FIRST_PAUSE: Final = 0.1
_LONGEST_PAUSE: Final = 5.0
_STEADY_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


class _Watched:
    """One placement of one coordinator, as its process shows itself."""

    __slots__ = ("epoch", "is_up", "lost", "stream")

    def __init__(self, epoch: int) -> None:
        self.epoch = epoch
        self.stream: Stream | None = None  # of its heartbeats
        self.is_up: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.lost: asyncio.Future[str] = asyncio.get_running_loop().create_future()  # why

    @property
    def lives(self) -> bool:
        """Whether it lives, by its last sign of life."""
        return self.is_up.done() and not self.lost.done()

    async def came_up(self, timeout: float) -> bool:
        """Whether it has sent a sign of life within that time, and was not lost before."""
        either: list[asyncio.Future[Any]] = [self.is_up, self.lost]
        await asyncio.wait(either, timeout=timeout, return_when=asyncio.FIRST_COMPLETED)
        return self.is_up.done()

    async def end(self, timeout: float) -> None:
        """Let its process end, and wait for that."""
        stream = self.stream
        if stream is None or stream.closed.done():
            return
        try:
            await stream.request(StopCoordinator(), timeout=timeout)
            await asyncio.wait([stream.closed], timeout=timeout)
        except StreamError as error:
            _log.info("A coordinator was told to end: %s", error.describe())


class CoordinatorSupervisor:
    """The coordinators that should run, and those that do.

    Call `begin` once the state is recovered, then tell it of changes, heartbeats and processes that ended."""

    def __init__(
        self,
        changes: ClusterChanges,
        launcher: CoordinatorLauncher,
        tasks: BackgroundTasks,
        timers: Timers,
        random: Random,
        cluster_id: str,
    ) -> None:
        self._changes = changes
        self._launcher = launcher
        self._tasks = tasks
        self._random = random
        self._cluster_id = cluster_id
        self._loop = asyncio.get_running_loop()
        self._watched: dict[PartitionId, _Watched] = {}
        self._kept: dict[PartitionId, None] = {}
        self._trouble: dict[PartitionId, tuple[int, str]] = {}  # attempts that failed in a row, and why the last did
        self._leases: SilenceWatch[PartitionId] = SilenceWatch(timers, lambda key: self._lost(key, "it was silent"))
        self._is_stopped = False

    def begin(self) -> None:
        for partition in coordinated_partitions(self._changes.state):
            self._keep(partition)

    def stop(self) -> None:
        """Start nothing any more."""
        self._is_stopped = True
        self._leases.close()

    async def end_all(self, timeout: float) -> None:
        """The clean stop of the cluster, after `stop`: let all processes end that send heartbeats."""
        await asyncio.gather(*(watched.end(timeout) for watched in self._watched.values()))

    def committed(self, changes: Sequence[ReplicaChange]) -> None:
        for change in changes:
            if change.topic in COORDINATED_TOPICS and change.after:
                self._keep(change.partition)

    async def heartbeat(self, beat: CoordinatorHeartbeat, stream: Stream) -> None:
        """Done: it is the one that was placed last, and what it reported is durable.

        StaleCoordinator: another one was. CoordinatorNotReady: another one will be.
        """
        records = coordinator_reported(self._changes.state, beat)
        key = beat.topic_id, beat.partition
        watched = self._watched.get(key)
        if watched is not None and watched.epoch == beat.epoch:
            watched.stream = stream
            if watched.lost.done():  # another one is about to be placed: it may not count on a lease that is over
                raise CoordinatorNotReady(self._changes.state.topics[beat.topic_id].name, beat.partition)
            if not watched.is_up.done():
                watched.is_up.set_result(None)
                self._leases.watch(key)
            self._leases.heard(key)
        if records:
            _log.info("The coordinator of %s serves under epoch %d.", self._name(key), beat.epoch)
            self._trouble.pop(key, None)
            await asyncio.shield(self._changes.submit(records))

    def settings_changed(self) -> None:
        """Settings of the cluster: coordinators of groups begin anew with them, which takes a moment."""
        for key, watched in list(self._watched.items()):
            topic = self._changes.state.topics.get(key[0])
            if topic is not None and topic.name == OFFSETS_TOPIC and watched.is_up.done():
                self._lost(key, "the cluster's settings have changed")

    def describe(self) -> tuple[CoordinatorDescription, ...]:
        """All that there should be, and why those do not serve that do not."""
        return tuple(self._describe(key) for key in coordinated_partitions(self._changes.state))

    def _describe(self, key: PartitionId) -> CoordinatorDescription:
        state = self._changes.state
        topic, placed = state.topics[key[0]].name, state.coordinators.get(key)
        attempts, reason = self._trouble.get(key, (0, ""))
        watched = self._watched.get(key)
        if placed is not None and watched is not None and watched.lives and placed.is_serving:
            return CoordinatorDescription(topic, key[1], placed.broker_id, placed.epoch, True, 0, "")
        if state.partitions[key].leader == NO_LEADER:
            reason = "its partition has no leader"
        broker, epoch = (-1, -1) if placed is None else (placed.broker_id, placed.epoch)
        return CoordinatorDescription(topic, key[1], broker, epoch, False, attempts, reason or "it is being started")

    def process_ended(self, spec: CoordinatorSpec) -> None:
        """Take note that a process has ended. The shell notices it earlier than a lease does."""
        key = spec.topic_id, spec.partition
        watched = self._watched.get(key)
        if watched is not None and watched.epoch == spec.epoch:
            self._lost(key, "its process has ended")

    # --- one coordinator ------------------------------------------------------------------------------------------

    def _keep(self, key: PartitionId) -> None:
        if key not in self._kept and not self._is_stopped:
            self._kept[key] = None
            self._tasks.start(self._keep_running(key))

    async def _keep_running(self, key: PartitionId) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._random)
        placed = self._changes.state.coordinators.get(key)
        if placed is not None:
            await self._until_lost(self._watch(key, placed))
        while self._is_wanted(key):
            await self._until_led(key)
            begun = self._loop.time()
            try:
                await self._run_once(key)
            except RaylogError as error:
                attempt = backoff.failures + 1
                _log.warning("The coordinator of %s does not run, attempt %d: %s", self._name(key), attempt, error)
                self._trouble[key] = attempt, error.describe().rstrip(".")
            if self._loop.time() - begun > _STEADY_SECONDS:
                backoff.reset()
            else:
                await asyncio.sleep(backoff.next())
        del self._kept[key]
        self._trouble.pop(key, None)

    async def _until_led(self, key: PartitionId) -> None:
        """Wait for a leader: without one a coordinator can claim nothing, and only delays the replicas' processes."""
        while self._is_wanted(key) and self._changes.state.partitions[key].leader == NO_LEADER:
            await self._changes.until(lambda: self._is_led_or_unwanted(key), _LOOK_SECONDS)

    def _is_led_or_unwanted(self, key: PartitionId) -> bool:
        return not self._is_wanted(key) or self._changes.state.partitions[key].leader != NO_LEADER

    async def _run_once(self, key: PartitionId) -> None:
        """Place it, start it, and wait until it is lost."""
        records = place_coordinator(self._changes.state, self._changes.live, key)
        await asyncio.shield(self._changes.submit(records))
        if not self._is_wanted(key):
            return
        placed = self._changes.state.coordinators[key]
        watched = self._watch(key, placed)
        spec = self._spec(placed)
        try:
            await asyncio.wait_for(self._launcher.start(spec), _LAUNCH_SECONDS)
        except asyncio.TimeoutError:
            self._tasks.start(self._give_up(spec))
            raise CoordinatorNotStarted(spec.topic, spec.partition, "it was not started in time") from None
        came_up = await watched.came_up(_UP_SECONDS)
        if came_up:
            await asyncio.wait([watched.lost])
        self._tasks.start(self._give_up(spec))
        if not came_up:
            raise CoordinatorNotStarted(spec.topic, spec.partition, "it was not up in time")

    def _watch(self, key: PartitionId, placed: CoordinatorState) -> _Watched:
        watched = self._watched[key] = _Watched(placed.epoch)
        if placed.is_serving:
            watched.is_up.set_result(None)
            self._leases.watch(key)
        else:
            self._leases.forget(key)
        return watched

    async def _until_lost(self, watched: _Watched) -> None:
        if not await watched.came_up(_ADOPTED_SECONDS):
            return
        await asyncio.wait([watched.lost])

    def _lost(self, key: PartitionId, why: str) -> None:
        watched = self._watched[key]
        if not watched.lost.done() and not self._is_stopped:
            _log.warning("The coordinator of %s under epoch %d is lost: %s.", self._name(key), watched.epoch, why)
            watched.lost.set_result(why)

    async def _give_up(self, spec: CoordinatorSpec) -> None:
        """A process that still lives ends when its next append or heartbeat is refused; this only speeds it up."""
        try:
            await asyncio.wait_for(self._launcher.stop(spec), _LAUNCH_SECONDS)
        except (RaylogError, asyncio.TimeoutError) as error:
            _log.info("The %s may still live, and will find itself replaced: %r", spec, error)

    def _is_wanted(self, key: PartitionId) -> bool:
        return not self._is_stopped and key in self._changes.state.partitions

    def _name(self, key: PartitionId) -> str:
        topic = self._changes.state.topics.get(key[0])
        return f"{key[0].hex() if topic is None else topic.name}-{key[1]}"

    def _spec(self, placed: CoordinatorState) -> CoordinatorSpec:
        """UnknownBroker: it was removed meanwhile."""
        state = self._changes.state
        beside = state.broker(placed.broker_id)
        others = [each for each in state.brokers.values() if each.id != beside.id and not each.fenced]
        return CoordinatorSpec(
            cluster_id=self._cluster_id,
            topic=state.topics[placed.topic_id].name,
            topic_id=placed.topic_id,
            partition=placed.partition,
            broker_id=beside.id,
            node_id=beside.node_id,
            producer_id=placed.producer_id,
            epoch=placed.epoch,
            retired_id=placed.retired_id,
            term=placed.term,
            assignors=allowed_assignors(state),
            brokers=(beside.endpoints[0], *(each.endpoints[-1] for each in others)),
        )


class CoordinatorLauncher(Protocol):
    """Whether the processes live, they tell the controller themselves."""

    async def start(self, spec: CoordinatorSpec) -> None:
        """Returns when the process was asked to start. CoordinatorNotStarted: it was not, and will not be."""

    async def stop(self, spec: CoordinatorSpec) -> None:
        """End a process that is not wanted any more, or never start it. Do nothing where there is none."""

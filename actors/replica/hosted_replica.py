"""One replica in its host: opens its log, says hello to its broker, and does what the broker passes on.

    OPENING   recovery of the log                        ends: damage and refusals are told to the broker
    SERVING   with a broker, or looking for one again    it is stopped · the log fails · a later incarnation: over
    OVER      the log is closed, its lock is free

What must stay true:
- The broker hears of this replica before anybody else relies on it.
- It is over only after its log is closed, or has gone offline; nothing of it works on the files from then on.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Any

from raylog.actors.housekeeping.calls import HousekeeperCalls
from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import (
    ALL_PARTITIONS,
    HIGH_WATERMARK,
    IS_LEADER,
    LOG_END_OFFSET,
    LOG_SIZE_BYTES,
    LOG_START_OFFSET,
    Reading,
    ReadingGroup,
)
from raylog.actors.kernel.stream_interface import Answer, Handler
from raylog.actors.protocol.control_messages import Assign, ProposeIsr, ReplicaMarks, StandDown
from raylog.actors.protocol.host_messages import ReplicaFailed, ReplicaHello
from raylog.actors.protocol.replica_spec import ReplicaSpec
from raylog.actors.protocol.replication_messages import SuspectBatch
from raylog.actors.replica.broker_line import BrokerLine
from raylog.actors.replica.damage_care import DamageCare
from raylog.actors.replica.hosted_log import HostedLog, PartitionName, ReplicaCalls
from raylog.actors.replica.leader_streams import LeaderStreams
from raylog.actors.replica.parked_appends import TransactionJoins
from raylog.actors.replica.reads import LeaderReads
from raylog.actors.replica.replica import Replica
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.actors.replica.sweep import HostSweep
from raylog.actors.replica.upkeep import LogUpkeep
from raylog.errors import EligibleLeadersNotAvailable, LogDamaged, LogOffline, RaylogError, StreamError
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.log.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class HostedReplica:
    """`run` returns when the replica is over; whoever runs it sets `over` then."""

    def __init__(
        self,
        env: Environment,
        spec: ReplicaSpec,
        timers: Timers,
        clock: Callable[[], float],
        line: BrokerLine,
        joins: TransactionJoins,
        streams: LeaderStreams,
        sweep: HostSweep[HostedReplica],
    ) -> None:
        loop = asyncio.get_running_loop()
        self.spec = spec
        self.over: asyncio.Future[None] = loop.create_future()
        self._env = env
        self._timers = timers
        self._line = line
        self._joins = joins
        self._streams = streams
        self._sweep = sweep
        self._counters = ReplicaCounters(clock)
        self._metric_tags: tuple[str, str] | None = None  # under which its metrics were read last
        self._stopped: asyncio.Future[str] = loop.create_future()
        self._is_kept = True
        self._hosted: HostedLog | None = None
        self._replica: Replica | None = None
        self._upkeep: LogUpkeep | None = None

    async def run(self, is_open: Callable[[], None], openings: asyncio.Semaphore) -> str:
        """Live as this replica until it is over; return why it is. `is_open` is called once it can be asked.

        `openings` lets the replicas of a host open their logs.
        """
        try:
            async with openings:
                log = await self._env.off_loop(self._open)
        except RaylogError as error:
            self._tell_failure(error)
            return str(error)
        _log.info("%s: opened [%d, %d).", self.spec, log.log_start_offset, log.log_end_offset)
        name = PartitionName(self.spec.topic, self.spec.topic_id, self.spec.partition)
        me = (self.spec.broker_id, self.spec.incarnation)
        calls = ReplicaCalls(self._propose, self._joins.add)
        hosted = HostedLog(log, name, me, self.spec.node_id, self._env, self._timers, self._counters, calls)
        self._hosted = hosted
        self._care = DamageCare(hosted, self._stand_down)
        hosted.room.stays_full = lambda: self._stays_full(hosted)
        self._replica = Replica(hosted, self._care, self._streams)
        self._upkeep = LogUpkeep(hosted, HousekeeperCalls(self._env, self._line.ask), self._sweep)
        hosted.changed = partial(self._sweep.changed, self)
        self._sweep.add(self)
        if not self._stopped.done():
            is_open()
        ending = await self._until_over(hosted)
        self._sweep.remove(self)
        self._replica.end()
        if hosted.failed.done():
            self._tell_failure(hosted.failed.result())
        await hosted.close(is_kept=self._is_kept)
        return ending

    def stop(self, reason: str, *, is_kept: bool = True) -> None:
        """End cleanly. `is_kept`: its directory; one that is about to be removed is not synced before."""
        self._is_kept = self._is_kept and is_kept
        if not self._stopped.done():
            self._stopped.set_result(reason)

    @property
    def is_open(self) -> bool:
        """Whether its log is open, and it is not about to end."""
        hosted = self._hosted
        return hosted is not None and not (self._stopped.done() or hosted.failed.done())

    @property
    def max_message_bytes(self) -> int:
        """The largest size of a batch; 0 before its log is open."""
        return 0 if self._hosted is None else self._hosted.log.config.max_message_bytes

    def when_settings_change(self, call: Callable[[], None]) -> None:
        """Call this after its topic's settings have changed here. Once it is open."""
        assert self._hosted is not None
        self._hosted.settings_changed = call

    # --- being asked ----------------------------------------------------------------------------------------------

    @property
    def handle(self) -> Handler:
        """The handler of what is asked of it, once it is open."""
        assert self._replica is not None
        return self._replica.handle

    @property
    def reads(self) -> LeaderReads | None:
        """The reads of its log while it leads."""
        return None if self._replica is None else self._replica.reads

    def assign(self, assigned: Assign) -> None:
        """Obey the controller. Before its log is open it has not said hello, and nothing is meant for it."""
        if self._replica is not None:
            self._replica.assign(assigned)

    def suspect(self, found: SuspectBatch) -> Answer | Awaitable[Answer]:
        return None if self._replica is None else self._care.suspect(found.offset)

    def hello(self) -> ReplicaHello:
        assert self._hosted is not None
        spec, log = self.spec, self._hosted.log
        return ReplicaHello(
            spec.topic_id,
            spec.partition,
            spec.incarnation,
            self._hosted.last_epoch,
            log.log_end_offset,
            log.unproven,
            log.marks.created_as,
        )

    def marks(self) -> ReplicaMarks:
        assert self._replica is not None
        return self._replica.marks(self.spec.room)

    def look(self) -> float | None:
        """Look after its log and its followers. Return the seconds to the next look; None: once it has changed."""
        hosted = self._hosted
        if hosted is None or self._upkeep is None or self._replica is None or not self.is_open:
            return None
        try:
            waits = self._upkeep.look(), self._replica.look()
        except LogOffline:
            hosted.check_offline()
            return None
        except Exception as error:  # noqa: BLE001 (this replica ends, as after any error of its tasks)
            hosted.crashed(error)
            return None
        return min((each for each in waits if each is not None), default=None)

    def readings(self) -> ReadingGroup | None:
        """Return its metrics; None before its log is open, or after that has gone offline."""
        hosted = self._hosted
        if hosted is None or hosted.log.offline_because is not None:
            return None
        log, counters = hosted.log, self._counters
        tags = self.spec.topic, str(self.spec.partition) if log.config.metrics_per_partition else ALL_PARTITIONS
        if self._metric_tags not in (None, tags):  # what was counted has been told under the others
            counters.begin_anew()
        self._metric_tags = tags
        gauges = (
            Reading(LOG_SIZE_BYTES, tags, log.size_bytes),
            Reading(LOG_START_OFFSET, tags, log.log_start_offset),
            Reading(LOG_END_OFFSET, tags, log.log_end_offset),
            Reading(HIGH_WATERMARK, tags, log.high_watermark),
            Reading(IS_LEADER, tags, hosted.is_leading),
        )
        key = *tags, self.spec.partition, self.spec.incarnation
        return ReadingGroup(key, counters.state, gauges, partial(counters.readings, tags))

    def _open(self) -> PartitionLog:
        spec = self.spec
        identity = PartitionIdentity(spec.cluster_id, spec.topic, spec.topic_id.hex(), spec.partition)
        return PartitionLog.open(
            spec.directory,
            identity,
            dict(spec.settings),
            now_ms=self._env.wall_ms(),
            disk=self._env.disk,
            incarnation=spec.incarnation,
            is_named=True,  # by its broker
        )

    # --- asking ---------------------------------------------------------------------------------------------------

    def _stays_full(self, hosted: HostedLog) -> None:
        if hosted.is_leading:
            _log.warning("%s: its disk stays full, so another one is to lead.", self.spec)
            hosted.start(self._hand_over())

    async def _hand_over(self) -> None:
        try:
            await self._stand_down(False, "its disk stays full")
        except (EligibleLeadersNotAvailable, StreamError) as error:
            _log.warning("%s: it leads on with a full disk: %s", self.spec, error)

    async def _stand_down(self, is_damaged: bool, reason: str) -> None:
        spec = self.spec
        asked = StandDown(spec.topic_id, spec.partition, spec.broker_id, spec.incarnation, is_damaged, reason)
        await self._line.ask(asked)

    async def _propose(self, proposal: ProposeIsr) -> None:
        """Carry a proposal to the broker. The leader tries again, also where there is none just now."""
        await self._line.ask(proposal)

    def _tell_failure(self, error: RaylogError) -> None:
        spec = self.spec
        _log.error("%s: it ends: %s", spec, error)
        failure = ReplicaFailed(
            spec.topic_id, spec.partition, spec.incarnation,
            type(error).__name__, str(error), isinstance(error, LogDamaged),
        )  # fmt: skip
        self._line.tell_failure(failure)

    async def _until_over(self, hosted: HostedLog) -> str:
        either: list[asyncio.Future[Any]] = [self._stopped, hosted.failed]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if self._stopped.done():
            return self._stopped.result()
        return str(hosted.failed.result())

"""The replicas of one broker: which run, what the controller is still to hear of them, and what they are told.

    says hello ──► running ──► lost: its host was lost, it said that it failed, it was ended,
                                     or a later incarnation said hello

What must stay true:
- One incarnation at most counts for a partition, the highest. One that was lost is ended and never counts again: so
  what the controller has been told stays true (rule 26).
- One that is lost before its hello is reported too: the controller waits for it.
- A report is repeated over each new stream until a heartbeat that carried it has been answered.
- During a clean stop nobody is lost.
- Only the process that is registered hears its assignment; one that is not yet, waits; one that has been replaced ends.
- One Assign at most is unanswered for each replica, and each is made from the newest committed state. So however fast
  the state changes, a slow replica has one message to read, and that is the right one.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from raylog.actors.broker.replica_hosts import HostSession, ReplicaHosts
from raylog.actors.cluster.assignments import assignment_of
from raylog.actors.cluster.mark_changes import MarkChanges
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.placement.hosts import HostLimits
from raylog.actors.kernel.background import BackgroundTasks, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.control_messages import ReplicaLoss, ReplicaReport
from raylog.actors.protocol.host_messages import SHARED, HostHeartbeat, ReplicaFailed, ReplicaHello
from raylog.errors import InvalidRequest, ReplicaNotFree, StaleIncarnation, StreamError

_ANSWER_SECONDS: Final = 2.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0

_log = logging.getLogger(__name__)

_Replica: TypeAlias = tuple[bytes, int, int]  # topic id, partition, incarnation


class ReplicaSession:
    """A replica that runs in a host."""

    __slots__ = ("hello", "host", "is_dismissed")

    def __init__(self, hello: ReplicaHello, host: HostSession) -> None:
        self.hello = hello
        self.host = host
        self.is_dismissed = False

    @property
    def stream(self) -> Stream:
        """The stream to its host. What goes over it names the partition."""
        return self.host.stream

    @property
    def id(self) -> PartitionId:
        return self.hello.topic_id, self.hello.partition

    @property
    def replica(self) -> _Replica:
        return self.hello.topic_id, self.hello.partition, self.hello.incarnation

    @property
    def incarnation(self) -> int:
        return self.hello.incarnation

    def report(self) -> ReplicaReport:
        hello, host = self.hello, self.host.hello
        return ReplicaReport(
            *self.replica,
            hello.last_epoch,
            hello.log_end_offset,
            hello.unproven,
            host.endpoints,
            host.pid,
            hello.created_as,
        )


class LocalReplicas:
    """`limits` says how many hosts there may be. `on_change` is called when there is something new to report."""

    def __init__(
        self,
        env: Environment,
        timers: Timers,
        tasks: BackgroundTasks,
        broker_id: int,
        limits: Callable[[], HostLimits],
        on_change: Callable[[], None],
    ) -> None:
        self.hosts = ReplicaHosts(env, timers, tasks, limits, self._host_lost, on_change)
        self.marks = MarkChanges()
        self._tasks = tasks
        self._broker_id = broker_id
        self._on_change = on_change
        self._running: dict[PartitionId, ReplicaSession] = {}
        self._ended: dict[PartitionId, int] = {}  # the highest incarnation that was lost
        self._started: dict[_Replica, ReplicaReport] = {}
        self._lost: dict[_Replica, ReplicaLoss] = {}
        self._is_stopping = False

    # --- who runs -------------------------------------------------------------------------------------------------

    def get(self, partition: PartitionId) -> ReplicaSession | None:
        return self._running.get(partition)

    def speaking(self, stream: Stream, partition: PartitionId) -> ReplicaSession:
        """The replica of this partition, that asks over this stream. InvalidRequest: it has not said hello there."""
        session = self._running.get(partition)
        if session is None or session.stream is not stream:
            raise InvalidRequest("A replica asks for itself, after its hello.")
        return session

    def all(self) -> list[ReplicaSession]:
        return list(self._running.values())

    def hello(self, hello: ReplicaHello, stream: Stream) -> ReplicaSession:
        """A replica presents itself. StaleIncarnation: its time is over, and it is ended.

        ReplicaNotFree: this broker is about to end, and nothing may hold its directory after it.
        """
        partition = hello.topic_id, hello.partition
        host = self.hosts.of_stream(stream)
        if host is None:
            raise InvalidRequest("A replica says hello after its host.")
        if self._is_stopping:
            raise ReplicaNotFree(hello.topic_id.hex(), hello.partition, "its broker is about to end")
        host.replicas[partition] = hello.incarnation
        before = self._running.get(partition)
        newest = max(self._ended.get(partition, -1), -1 if before is None else before.incarnation - 1)
        if hello.incarnation <= newest:
            self._tasks.start(self.hosts.end_replica(host, partition, hello.incarnation))
            present = newest if before is None else before.incarnation
            raise StaleIncarnation(hello.topic_id.hex(), hello.partition, self._broker_id, hello.incarnation, present)
        if before is not None and before.incarnation < hello.incarnation:
            self._lose(before, "a later incarnation has said hello")
            self._tasks.start(self.hosts.end_replica(before.host, partition, before.incarnation))
        session = ReplicaSession(hello, host)
        self._running[partition] = session
        self.marks.gone(partition)
        self._started[session.replica] = session.report()
        self._on_change()
        return session

    def heartbeat(self, beat: HostHeartbeat, stream: Stream) -> None:
        host = self.hosts.heard(stream)
        if host is None:
            return
        grown = 0
        for marks in beat.marks:
            session = self._running.get((marks.topic_id, marks.partition))
            if session is not None and session.incarnation == marks.incarnation:
                grown += self.marks.changed(marks)
        if grown:
            host.written.add(grown, asyncio.get_running_loop().time())

    def failed(self, failure: ReplicaFailed, stream: Stream) -> None:
        """Take note that a replica says it is over. One that could not open its log has not said hello."""
        partition = failure.topic_id, failure.partition
        _log.error(
            "The replica %s failed: %s: %s",
            _name(*partition, failure.incarnation), failure.error, failure.text,
        )  # fmt: skip
        host = self.hosts.of_stream(stream)
        if host is None or self._is_stopping:
            return
        why = f"{failure.error}: {failure.text}"
        session = self._running.get(partition)
        if session is not None and session.incarnation == failure.incarnation:
            self._lose(session, why, is_damaged=failure.is_damaged)
        elif host.replicas.get(partition) == failure.incarnation:
            self._never_came(partition, failure.incarnation, why, is_damaged=failure.is_damaged)
        self._tasks.start(self.hosts.end_replica(host, partition, failure.incarnation))

    # --- ending them ----------------------------------------------------------------------------------------------

    def kill(self, session: ReplicaSession, why: str) -> None:
        """End it at once: with its host, where that is its own; a shared one has to let go of it soon."""
        if session.host.room != SHARED:
            self.hosts.kill(session.host, why)
        elif self._running.get(session.id) is session:
            self._lose(session, why)
            self._tasks.start(self.hosts.end_replica(session.host, session.id, session.incarnation))

    def dismiss(self, session: ReplicaSession, *, is_kept: bool) -> None:
        """Let it stop, beside everything else. `is_kept`: its directory, which else is about to be removed."""
        if not session.is_dismissed:
            session.is_dismissed = True
            self._tasks.start(self.stop(session, is_kept=is_kept))

    async def stop(self, session: ReplicaSession, *, is_kept: bool) -> None:
        """Let it close its log and end; its host is killed if that takes long."""
        session.is_dismissed = True
        await self.hosts.end_replica(session.host, session.id, session.incarnation, is_kept=is_kept)
        if self._running.get(session.id) is session and not self._is_stopping:
            self._lose(session, "it was stopped")

    async def make_way(self, partition: PartitionId, why: str) -> None:
        """Done when no host has a replica of it, open or not yet."""
        self.hosts.cancel(partition)
        session = self._running.get(partition)
        if session is not None:
            self.kill(session, why)
        while (host := self.hosts.holding(partition)) is not None:
            await self.hosts.end_replica(host, partition, host.replicas[partition])

    async def stop_all(self, seconds: float) -> None:
        """The clean stop of this broker."""
        self._is_stopping = True
        await self.hosts.stop_all(seconds)

    def forget(self, partition: PartitionId) -> None:
        """Forget a replica whose topic is gone. One of it that still turns up is dismissed for that reason."""
        if partition not in self._running:
            self._ended.pop(partition, None)

    # --- reports --------------------------------------------------------------------------------------------------

    def running(self) -> tuple[ReplicaReport, ...]:
        return tuple(session.report() for session in self._running.values())

    @property
    def has_news(self) -> bool:
        return bool(self._started or self._lost)

    def started(self) -> tuple[ReplicaReport, ...]:
        return tuple(self._started.values())

    def lost(self) -> tuple[ReplicaLoss, ...]:
        return tuple(self._lost.values())

    def reported(self, started: Collection[ReplicaReport], lost: Collection[ReplicaLoss]) -> None:
        """The controller knows of these."""
        for report in started:
            replica = report.topic_id, report.partition, report.incarnation
            if self._started.get(replica) == report:
                del self._started[replica]
        for loss in lost:
            self._lost.pop((loss.topic_id, loss.partition, loss.incarnation), None)

    # --- how they end ---------------------------------------------------------------------------------------------

    def _host_lost(self, host: HostSession, why: str) -> None:
        for partition, incarnation in host.replicas.items():
            session = self._running.get(partition)
            if session is not None and session.host.incarnation == host.incarnation:
                self._lose(session, "it was stopped" if session.is_dismissed else why)
            elif self._ended.get(partition, -1) < incarnation:
                self._never_came(partition, incarnation, why)

    def _never_came(self, partition: PartitionId, incarnation: int, why: str, *, is_damaged: bool = False) -> None:
        """Report the loss of one that has ended, perhaps before its hello."""
        self._ended[partition] = max(self._ended.get(partition, -1), incarnation)
        replica = (*partition, incarnation)
        self._lost[replica] = ReplicaLoss(*partition, incarnation, why, is_damaged)
        self._on_change()

    def _lose(self, session: ReplicaSession, why: str, *, is_damaged: bool = False) -> None:
        del self._running[session.id]
        self.marks.gone(session.id)
        self._started.pop(session.replica, None)
        self._never_came(session.id, session.incarnation, why, is_damaged=is_damaged)


def _name(topic_id: bytes, partition: int, incarnation: int) -> str:
    return f"{topic_id.hex()}-{partition} (incarnation {incarnation:#x})"


class AssignmentDelivery:
    def __init__(
        self, env: Environment, fold: MetadataFold, replicas: LocalReplicas, tasks: BackgroundTasks, broker_id: int
    ) -> None:
        self._env = env
        self._fold = fold
        self._replicas = replicas
        self._tasks = tasks
        self._broker_id = broker_id
        self._telling: dict[ReplicaSession, bool] = {}  # those told just now: whether they have to be told again

    def changed(self, partitions: Iterable[PartitionId]) -> None:
        """The committed state of these has changed, or one of their replicas has said hello."""
        for partition in partitions:
            session = self._replicas.get(partition)
            if session is not None:
                self._changed(session)

    def changed_all(self) -> None:
        for session in self._replicas.all():
            self._changed(session)

    def _changed(self, session: ReplicaSession) -> None:
        registered = self._fold.state.incarnation(*session.id, self._broker_id)
        if registered > session.incarnation:
            self._replicas.dismiss(session, is_kept=True)
        elif registered == session.incarnation:
            is_being_told = session in self._telling
            self._telling[session] = True
            if not is_being_told:
                self._tasks.start(self._tell(session))

    async def _tell(self, session: ReplicaSession) -> None:
        backoff = Backoff(_FIRST_PAUSE, _LONGEST_PAUSE, self._env.random)
        while self._telling[session] and self._replicas.get(session.id) is session:
            self._telling[session] = False
            if self._fold.state.partitions.get(session.id) is None:  # its topic is gone, and soon it is told to stop
                break
            fold = self._fold
            assign = assignment_of(fold.state, *session.id, self._broker_id, fold.version, fold.epoch, fold.shares)
            try:
                await session.stream.request(
                    assign, topic_id=session.id[0], partition=session.id[1], timeout=_ANSWER_SECONDS
                )
                backoff.reset()
            except StreamError as error:
                _log.warning("%s-%d was not told its assignment: %s", assign.topic, assign.partition, error)
                self._telling[session] = True
                await asyncio.sleep(backoff.next())
        del self._telling[session]

"""The replica processes of one broker: which run, what the controller is still to hear of them, and what they are told.

    says hello ──► running ──► lost: its stream ended, it was silent too long, it said that it failed,
                                     or a later incarnation said hello

What must stay true:
- One process at most counts for a partition, that of the highest incarnation. A process that was lost is killed and
  never counts again: so what the controller has been told stays true (rule 26).
- A report is repeated until a heartbeat that carried it has been answered.
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

from raylog.actors.cluster.assignments import assignment_of
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.kernel.background import SILENCE_SECONDS, BackgroundTasks, SilenceWatch, Timers
from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.control_messages import (
    ReplicaFailed,
    ReplicaHeartbeat,
    ReplicaHello,
    ReplicaLoss,
    ReplicaMarks,
    ReplicaReport,
    StopReplica,
)
from raylog.errors import ReplicaNotFree, StaleIncarnation, StreamError

_END_SECONDS: Final = 2.0  # for a process that has been told to end
_ANSWER_SECONDS: Final = 2.0
_FIRST_PAUSE: Final = 0.05
_LONGEST_PAUSE: Final = 1.0

_log = logging.getLogger(__name__)

_Process: TypeAlias = tuple[bytes, int, int]  # topic id, partition, incarnation


class ReplicaSession:
    """A replica process that runs."""

    __slots__ = ("hello", "is_dismissed", "marks", "stream")

    def __init__(self, hello: ReplicaHello, stream: Stream) -> None:
        self.hello = hello
        self.stream = stream
        self.marks: ReplicaHeartbeat | None = None
        self.is_dismissed = False

    @property
    def id(self) -> PartitionId:
        return self.hello.topic_id, self.hello.partition

    @property
    def process(self) -> _Process:
        return self.hello.topic_id, self.hello.partition, self.hello.incarnation

    @property
    def incarnation(self) -> int:
        return self.hello.incarnation

    def report(self) -> ReplicaReport:
        hello = self.hello
        return ReplicaReport(
            *self.process, hello.last_epoch, hello.log_end_offset, hello.unproven, hello.endpoints, hello.pid
        )

    def current_marks(self) -> ReplicaMarks | None:
        marks = self.marks
        if marks is None:
            return None
        return ReplicaMarks(
            *self.process,
            marks.role, marks.log_start_offset, marks.high_watermark, marks.log_end_offset, marks.size_bytes,
        )  # fmt: skip


class LocalReplicas:
    """`on_change` is called when there is something new to report."""

    def __init__(
        self,
        env: Environment,
        timers: Timers,
        tasks: BackgroundTasks,
        broker_id: int,
        on_change: Callable[[], None],
    ) -> None:
        self._env = env
        self._timers = timers
        self._tasks = tasks
        self._broker_id = broker_id
        self._on_change = on_change
        self._running: dict[PartitionId, ReplicaSession] = {}
        self._by_stream: dict[Stream, ReplicaSession] = {}
        self._ended: dict[PartitionId, int] = {}  # the highest incarnation that was lost
        self._started: dict[_Process, ReplicaReport] = {}
        self._lost: dict[_Process, ReplicaLoss] = {}
        self._watch: SilenceWatch[_Process] = SilenceWatch(timers, self._silent)
        self._is_stopping = False

    # --- who runs -------------------------------------------------------------------------------------------------

    @property
    def have_full_disk(self) -> bool:
        """Whether one of them has just been refused room for an append."""
        return any(each.marks is not None and each.marks.has_full_disk for each in self._running.values())

    def get(self, partition: PartitionId) -> ReplicaSession | None:
        return self._running.get(partition)

    def all(self) -> list[ReplicaSession]:
        return list(self._running.values())

    def of_stream(self, stream: Stream) -> ReplicaSession | None:
        return self._by_stream.get(stream)

    def hello(self, hello: ReplicaHello, stream: Stream) -> ReplicaSession:
        """A process presents itself. StaleIncarnation: its time is over, and it is killed if it does not end.

        ReplicaNotFree: this broker is about to end, and nothing may hold its directory after it.
        """
        partition = hello.topic_id, hello.partition
        if self._is_stopping:
            self._env.kill(hello.pid)
            raise ReplicaNotFree(hello.topic_id.hex(), hello.partition, "its broker is about to end")
        before = self._running.get(partition)
        newest = max(self._ended.get(partition, -1), -1 if before is None else before.incarnation - 1)
        if hello.incarnation <= newest:
            self._kill_later(hello.pid, stream)
            present = newest if before is None else before.incarnation
            raise StaleIncarnation(hello.topic_id.hex(), hello.partition, self._broker_id, hello.incarnation, present)
        if before is not None:
            self._by_stream.pop(before.stream, None)
            if before.incarnation < hello.incarnation:
                self._replaced(before)
        session = ReplicaSession(hello, stream)
        self._running[partition] = self._by_stream[stream] = session
        self._watch.watch(session.process)
        self._started[session.process] = session.report()
        stream.closed.add_done_callback(lambda _: self._stream_ended(session))
        self._on_change()
        return session

    def heartbeat(self, marks: ReplicaHeartbeat, stream: Stream) -> None:
        session = self._by_stream.get(stream)
        if session is not None:
            session.marks = marks
            self._watch.heard(session.process)

    def failed(self, failure: ReplicaFailed, stream: Stream) -> None:
        """Take note that a process says it is about to end. One that could not open its log has not said hello."""
        session = self._by_stream.get(stream)
        name = "that has not said hello" if session is None else _name(session)
        _log.error("The replica %s failed: %s: %s", name, failure.error, failure.text)
        if session is not None and not self._is_stopping:
            self._lose(session, f"{failure.error}: {failure.text}", failure.damaged)
            self._kill_later(session.hello.pid, stream)

    # --- ending them ----------------------------------------------------------------------------------------------

    def kill(self, session: ReplicaSession, why: str) -> None:
        """Kill the process of a replica at once."""
        self._env.kill(session.hello.pid)
        if self._running.get(session.id) is session:
            self._lose(session, why, damaged=False)

    def dismiss(self, session: ReplicaSession) -> None:
        """Let it stop, beside everything else."""
        if not session.is_dismissed:
            session.is_dismissed = True
            self._tasks.start(self.stop(session))

    async def stop(self, session: ReplicaSession, *, delete: bool = False, seconds: float = _END_SECONDS) -> None:
        """Let it close its log and end; kill it if it takes longer."""
        session.is_dismissed = True
        deadline = asyncio.get_running_loop().time() + seconds
        try:
            await session.stream.request(StopReplica(delete), timeout=seconds)
        except StreamError as error:
            _log.info("The replica %s was told to stop: %s", _name(session), error.describe())
        rest = deadline - asyncio.get_running_loop().time()
        if not session.stream.closed.done() and rest > 0:
            await asyncio.wait([session.stream.closed], timeout=rest)
        if not session.stream.closed.done():
            _log.warning("The replica %s did not end within %.1f s and is killed.", _name(session), seconds)
            self._env.kill(session.hello.pid)
        if self._running.get(session.id) is session and not self._is_stopping:
            self._lose(session, "it was stopped", damaged=False)

    async def stop_all(self, seconds: float) -> None:
        """The clean stop of this broker."""
        self._is_stopping = True
        self._watch.close()
        if self._running:
            stops = [self.stop(session, seconds=seconds) for session in self._running.values()]
            await asyncio.gather(*stops)

    def forget(self, partition: PartitionId) -> None:
        """Forget a replica whose topic is gone. A process of it that still turns up is dismissed for that reason."""
        if partition not in self._running:
            self._ended.pop(partition, None)

    # --- reports --------------------------------------------------------------------------------------------------

    def running(self) -> tuple[ReplicaReport, ...]:
        return tuple(session.report() for session in self._running.values())

    def marks(self) -> tuple[ReplicaMarks, ...]:
        found = (session.current_marks() for session in self._running.values())
        return tuple(marks for marks in found if marks is not None)

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
            process = report.topic_id, report.partition, report.incarnation
            if self._started.get(process) == report:
                del self._started[process]
        for loss in lost:
            self._lost.pop((loss.topic_id, loss.partition, loss.incarnation), None)

    # --- how they end ---------------------------------------------------------------------------------------------

    def _stream_ended(self, session: ReplicaSession) -> None:
        self._by_stream.pop(session.stream, None)
        if self._running.get(session.id) is session and not self._is_stopping:
            self.kill(session, "it was stopped" if session.is_dismissed else "its stream ended")

    def _silent(self, process: _Process) -> None:
        session = self._running.get(process[:2])
        if session is not None and session.process == process:
            _log.warning("The replica %s was silent for %.1f s and is killed.", _name(session), SILENCE_SECONDS)
            self.kill(session, f"it was silent for {SILENCE_SECONDS} s")

    def _replaced(self, session: ReplicaSession) -> None:
        self._lose(session, "a later incarnation has said hello", damaged=False)
        self.dismiss(session)

    def _lose(self, session: ReplicaSession, why: str, damaged: bool) -> None:
        del self._running[session.id]
        self._by_stream.pop(session.stream, None)
        self._watch.forget(session.process)
        self._ended[session.id] = session.incarnation
        self._started.pop(session.process, None)
        self._lost[session.process] = ReplicaLoss(*session.process, why, damaged)
        self._on_change()

    def _kill_later(self, pid: int, stream: Stream) -> None:
        def kill() -> None:
            if not stream.closed.done():
                self._env.kill(pid)

        self._timers.after(_END_SECONDS * 1000, kill)


def _name(session: ReplicaSession) -> str:
    return f"{session.hello.topic_id.hex()}-{session.hello.partition} (incarnation {session.incarnation:#x})"


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
            self._replicas.dismiss(session)
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

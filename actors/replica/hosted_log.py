"""The log of one replica with all that both of its roles use: its name, its clock, and how far its log counts.

What must stay true: with `flush.policy=fsync` nothing counts that has not been synced, neither here nor in what a
follower says of itself (rule 2). A log that has gone offline is told of once, and nothing is tried on it again.
The lock of its directory goes last: nothing that belongs to this replica still works on the files then, neither a task
nor a thread. The next incarnation may open them in the very same process (rules 26, 35).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.control_messages import ProposeIsr, ReplicaId
from raylog.actors.protocol.transaction_messages import AddPartition
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.actors.replica.rules.full_disk import FullDisk
from raylog.config import MIB
from raylog.errors import DiskError, DiskFailed, LogDamaged, LogOffline, RaylogError, ReplicaCrashed
from raylog.storage.log.flushing import Flush
from raylog.storage.log.job import Job, StepJob
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import FetchedBatches, Isolation, read_slice, take_slice

MAX_READ_BYTES: Final = 32 * MIB  # one batch alone may be larger
_RETRY_SECONDS: Final = 1.0  # after a flush that could not even begin: no file handle to be had
_READ_TRIES: Final = 5
_T = TypeVar("_T")
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class PartitionName:
    """A partition, as messages, errors and people know it."""

    topic: str
    topic_id: bytes
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class ReplicaCalls(NamedTuple):
    """Calls of a replica to others. Each returns once what it asks for is durable."""

    propose: Callable[[ProposeIsr], Awaitable[None]]  # an ISR, to the controller
    join: Callable[[AddPartition], Awaitable[None]]  # a transaction, by way of its coordinator


class HostedLog:
    """A log and its surroundings, of one replica."""

    def __init__(
        self,
        log: PartitionLog,
        name: PartitionName,
        me: ReplicaId,
        node_id: str,
        env: Environment,
        timers: Timers,
        counters: ReplicaCounters,
        calls: ReplicaCalls,
    ) -> None:
        self.log = log
        self.name = name
        self.me = me
        self.node_id = node_id
        self.is_leading = False
        self.settings_changed: Callable[[], None] = _nothing  # set by its host, too
        self.changed: Callable[[], None] = _nothing  # set by its host, and called when marks, role or settings may move
        self.pull_session = 0  # of all epochs: what was pushed for an earlier one is told apart by it
        self.env = env
        self.timers = timers
        self.counters = counters
        self.calls = calls
        self.failed: asyncio.Future[RaylogError] = asyncio.get_running_loop().create_future()
        self.opening = asyncio.Lock()  # held by what unpacks a large batch: one at a time bounds the memory (rule 34)
        self._loop = asyncio.get_running_loop()
        self.room = FullDisk(self._loop.time)
        self._waiting: list[tuple[int, asyncio.Future[None]]] = []
        self.when_start_moves: Callable[[], None] = _nothing  # set by a leader: retention has moved the log start
        self._tasks: set[asyncio.Task[None]] = set()
        self._last_tasks: set[asyncio.Task[None]] = set()
        self._works: set[asyncio.Future[Any]] = set()  # beside the loop
        self._flushing: asyncio.Task[None] | None = None

    def now_ms(self) -> int:
        """The time in milliseconds, monotonic."""
        return int(self._loop.time() * 1000)

    def check_offline(self) -> None:
        """Fail, if the log has gone offline. To be called after the log has raised."""
        reason = self.log.offline_because
        if reason is not None:
            self.fail(reason)

    def fail(self, reason: RaylogError) -> None:
        """End this replica. The first reason counts."""
        if not self.failed.done():
            self.failed.set_result(reason)

    def start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run a part of the replica beside the others. If it fails in a way nobody foresaw, the replica ends."""
        task = self._loop.create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._over)
        return task

    def start_last(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        """Run, as `start` does, what ends a part of the replica: `close` waits for it, and cancels all others."""
        task = self.start(work)
        self._tasks.discard(task)
        self._last_tasks.add(task)
        return task

    def off_loop(self, work: Callable[[], _T]) -> Awaitable[_T]:
        """Do slow work on the files beside the loop. `close` waits for it, also where nobody else does any more."""
        return asyncio.shield(self._begin(work))

    def _begin(self, work: Callable[[], _T]) -> asyncio.Future[_T]:
        doing = asyncio.ensure_future(self.env.off_loop(work))
        self._works.add(doing)
        doing.add_done_callback(self._ended)
        return doing

    def _ended(self, doing: asyncio.Future[Any]) -> None:
        self._works.discard(doing)
        if not doing.cancelled():
            doing.exception()  # whoever waited may have been cancelled, and then nobody else asks for it

    def _over(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._last_tasks.discard(task)
        error = None if task.cancelled() else task.exception()
        if error is not None:
            self.crashed(error)

    def crashed(self, error: BaseException) -> None:
        """End this replica because of an error that nobody foresaw."""
        _log.error("%s: broker %d gives up this replica.", self.name, self.me[0], exc_info=error)
        self.fail(error if isinstance(error, RaylogError) else ReplicaCrashed(repr(error)))

    # --- slow work ---

    def beside(self, work: Callable[[], _T]) -> Awaitable[_T]:
        """Do `work` on this replica's files off the event loop, with what its failure means for the log.

        A failed write or sync is final wherever it was done, also if nobody waits for it any more (rule 2). Damage is
        for `DamageCare` to look at. Damage that was met while the log was cut is none: it was the cut that was seen.
        """
        doing = self._begin(work)
        doing.add_done_callback(partial(self._heed_failure, self.log.shape))
        return asyncio.shield(doing)

    def _heed_failure(self, shape: tuple[str, int], doing: asyncio.Future[Any]) -> None:
        error = None if doing.cancelled() else doing.exception()
        if isinstance(error, DiskFailed):
            self.log.go_offline(error)
        elif isinstance(error, LogDamaged) and self.log.shape == shape:
            self.log.when_damaged(error)
        if error is not None:
            self.check_offline()

    async def carry_out(self, job: Job[_T]) -> _T:
        """Do a job of this log, its work off the event loop."""
        if job.has_work:
            try:
                await self.beside(job.work)
            except Exception:
                job.abandon()
                raise
        return job.apply()

    async def carry_out_all(self, job: StepJob | None) -> None:
        """Do a job of several steps, its work off the event loop."""
        while job is not None:
            job = await self.carry_out(job)

    async def truncate(self, offset: int) -> int:
        """Cut the log; returns its end. Only the caller appends, and it does not meanwhile."""
        return await self._cut(self.log.plan_truncation(offset, self.env.wall_ms()))

    async def restart_at(self, offset: int) -> None:
        """Throw the log away, and go on empty from `offset`. Only the caller appends, and it does not meanwhile."""
        await self._cut(self.log.plan_restart(offset))

    async def _cut(self, job: StepJob) -> int:
        """Cut the log in memory, and then its files. A caller that is cancelled before gives the cut up; from then on
        it is finished without him.
        """
        await self.carry_out_all(job)
        self.changed()
        if self.log.cut is not None:
            await asyncio.wait([self.start_last(self._cut_files(self.log.cut))])
        if self.log.offline_because is not None:
            raise LogOffline(f"{self.name} was cut in memory only: {self.log.offline_because}")
        return self.log.log_end_offset

    async def _cut_files(self, cut: StepJob) -> None:
        try:
            await self.carry_out_all(cut)
        except RaylogError as error:
            _log.error("%s: broker %d could not cut its files: %s", self.name, self.me[0], error)
            self.check_offline()
        self.changed()

    async def begin_at(self, offset: int) -> None:
        """Let the log begin at `offset`, durably, with the waiting for the disk off the event loop."""
        while self.log.log_start_offset < offset:
            await self.carry_out(self.log.plan_log_start(offset))
        self.changed()

    # --- reading ---

    def is_cold(self, offset: int) -> bool:
        """Whether a read from here may have to wait for the disk: it is not in the segment that is being written."""
        return offset < self.log.segments.active.base_offset

    def read(self, offset: int, max_bytes: int, isolation: Isolation) -> FetchedBatches:
        """Read as `log.read` does, no more than one answer may hold (rule 31)."""
        return self.log.read(offset, min(max_bytes, MAX_READ_BYTES), isolation)

    async def know_aborted(self, offset: int) -> None:
        """Read what is known of aborted transactions from `offset` on, so that a look-up need not."""
        for _ in range(_READ_TRIES):  # while compaction replaces segments
            reading = self.log.plan_aborted(offset, self.env.wall_ms())
            if not reading.has_work:
                return
            await self.carry_out(reading)

    async def read_cold(
        self, offset: int, max_bytes: int, isolation: Isolation, check: Callable[[], None]
    ) -> FetchedBatches:
        """Read as `read` does, with the waiting for the disk off the event loop, so that no append waits too.

        `check` raises where the reader may not be answered any more: the log may have been cut or thrown away
        meanwhile (rule 28).
        """
        try:
            read = await self._read_beside(offset, min(max_bytes, MAX_READ_BYTES), isolation)
        except RaylogError:
            check()
            raise
        check()
        return read

    async def _read_beside(self, offset: int, max_bytes: int, isolation: Isolation) -> FetchedBatches:
        piece = self.log.slice(offset, max_bytes, isolation)
        if piece is not None:
            data = await self.beside(partial(read_slice, self.env.disk, piece))
            read = None if data is None else take_slice(self.log, piece, data)
            if read is not None:
                return read
        # Compaction or retention was quicker, or nothing is visible, or the file is damaged: the log itself knows.
        return self.log.read(offset, max_bytes, isolation)

    @property
    def last_epoch(self) -> int:
        """The epoch of the last record, also where that has been deleted since.

        By (last epoch, log end) the controller finds the longest log (rule 7).
        """
        return self.log.epochs.span_at(self.log.log_end_offset - 1)[0]

    # --- flushing ---

    @property
    def counted_end(self) -> int:
        """The end of what counts as written (rule 2)."""
        log = self.log
        end = log.segments.active.next_offset
        return min(end, log.recovery_point) if log.config.flush_policy == "fsync" else end

    def appended(self, wall_ms: int) -> None:
        """Take note that something was appended at this time."""
        self.changed()
        if self.log.flush_due(wall_ms):
            self._flush_soon()

    def flush_if_due(self) -> None:
        """Begin a flush, if what was appended asks for one and none is under way."""
        if self.log.flush_due(self.env.wall_ms()):
            self._flush_soon()

    def counted(self, offset: int) -> asyncio.Future[None] | None:
        """A future for when all below `offset` counts; None: it does. Cancelled if the log goes offline."""
        if self.counted_end >= offset:
            return None
        future: asyncio.Future[None] = self._loop.create_future()
        self._waiting.append((offset, future))
        self._flush_soon()  # also what an earlier process appended, and nobody asked to flush
        return future

    def _flush_soon(self) -> None:
        if self._flushing is None:
            self._flushing = self.start(self._flush())

    async def _flush(self) -> None:
        """Flush again and again, as long as a flush is due. All that was appended during one goes into the next."""
        try:
            while self.log.offline_because is None and (self._waiting or self.log.flush_due(self.env.wall_ms())):
                await self._flush_once()
        finally:
            self._flushing = None
            if self.log.offline_because is not None:
                self._let_go_of_waiting()

    async def _flush_once(self) -> None:
        flush: Flush | None = None
        try:
            flush = self.log.plan_flush()
            await self.carry_out(flush)
        except DiskError as error:
            if flush is not None:
                self.log.go_offline(error)  # a sync that failed is final, whatever the reason (rule 2)
            self.check_offline()
            if self.log.offline_because is None:
                _log.warning("%s: a flush has to wait: %s", self.name, error)
                await asyncio.sleep(_RETRY_SECONDS)
            return
        self._release_waiting()
        self.changed()

    def _release_waiting(self) -> None:
        counted = self.counted_end
        still = []
        for offset, future in self._waiting:
            if offset > counted and offset <= self.log.log_end_offset:
                still.append((offset, future))
            elif not future.done():  # counted, or truncated away: the one who waits finds out which
                future.set_result(None)
        self._waiting = still

    def _let_go_of_waiting(self) -> None:
        for _, future in self._waiting:
            future.cancel()
        self._waiting.clear()
        self.check_offline()

    async def close(self, *, is_kept: bool = True) -> None:
        """End all work on the log, then close it, which syncs the rest. It waits for as long as the disk takes.

        Whoever needs the directory sooner kills the process. What is not kept is not synced.
        """
        if self._flushing is not None:
            await asyncio.wait([self._flushing])
        for task in self._tasks:
            task.cancel()
        while ends := [*self._tasks, *self._last_tasks, *self._works]:
            await asyncio.wait(ends)
        try:
            await self.env.off_loop(self.log.close if is_kept else self.log.abandon)
        except RaylogError as error:  # the next opening finds a log that was not closed cleanly, and checks it
            _log.error("%s: broker %d could not close its log cleanly: %s", self.name, self.me[0], error)


def _nothing() -> None:
    """Tell nobody."""

"""Sends what a producer has accumulated: the event loop's side of a producer.

    accumulator ──told──► drain ──► PartitionSender.pump ──► ClusterLink.ask ──► the leader
    link.on_change ──► every pump: a new leader, or one at last
    tick ──► expire: what is too late fails

What must stay true:
- Everything that the accumulator has taken gets an outcome, if only when the sender is closed or meets an error
  that nobody expected: then all fails with it, and nothing more is taken.
- There is no timer and no request while there is nothing to send.
- Open batches are sent to a process of leaders only while few requests to it are under way. The others grow until it is
  their turn, in the order in which they came. Else a thousand partitions would send a record or two at a time, and each
  request costs as much as a thousand records. Full batches, and what somebody waits for, wait for no turn.

It runs on one event loop, without threads and Ray, in the simulator as well.

`ProducerMetrics` are counts of its work, made per batch and never per record, so that counting costs nothing. Names are
those of Kafka's producer metrics. Everything is counted on the event loop and may be read from any thread.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any, Final

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.wait_notices import WaitNotices
from raylog.actors.link.cluster_link import ClusterLink, PartitionLeader
from raylog.actors.protocol.endpoint import Endpoint
from raylog.api.producer.buffer.record_accumulator import BufferPool, RecordAccumulator
from raylog.api.producer.rules.producer_batch import ProducerBatch
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.api.producer.rules.producer_transaction import ProducerTransaction
from raylog.api.producer.sending.partition_sender import PartitionSender
from raylog.errors import ClusterUnreachable, PeerNotAdmitted, ProducerClosed, RaylogError
from raylog.storage.format.compression import codec_named

_TICK_SECONDS: Final = 0.25
_REFRESH_SECONDS: Final = 5.0
_MOST_IN_FLIGHT: Final = 5  # batches at one process, as Kafka has requests at a broker; with more, open ones grow
_log = logging.getLogger(__name__)


class ProducerMetrics:
    def __init__(self, pool: BufferPool) -> None:
        self._pool = pool
        self._in_flight = 0
        self._records_sent = 0
        self._records_failed = 0
        self._batches = 0
        self._retries = 0
        self._bytes = 0
        self._records_requested = 0
        self._requests_answered = 0
        self._seconds = 0.0
        self._longest_seconds = 0.0
        self._queued_seconds = 0.0

    def sent(self, batch: ProducerBatch, size: int, now: float, is_retry: bool) -> None:
        """A request was sent."""
        self._batches += 1
        self._retries += is_retry
        self._bytes += size
        self._records_requested += batch.count
        self._queued_seconds += max(0.0, now - batch.opened_at)

    def acknowledged(self, count: int, seconds: float) -> None:
        self._records_sent += count
        self._requests_answered += 1
        self._seconds += seconds
        self._longest_seconds = max(self._longest_seconds, seconds)

    def resolved(self, batch: ProducerBatch) -> None:
        if batch.outcome is not None and batch.outcome.error is not None:
            parts = [count for _, count, outcome in batch.parts if outcome.error is not None]
            self._records_failed += sum(parts) if parts else batch.count

    def read(self) -> dict[str, float]:
        """The figures as they are now."""
        requests = max(1, self._batches)
        return {
            "record-send-total": self._records_sent,
            "record-error-total": self._records_failed,
            "record-retry-total": self._retries,
            "request-total": self._batches,
            "byte-total": self._bytes,
            "batch-size-avg": self._bytes / requests,
            "records-per-request-avg": self._records_requested / requests,
            "record-queue-time-avg": 1000 * self._queued_seconds / requests,
            "request-latency-avg": 1000 * self._seconds / max(1, self._requests_answered),
            "request-latency-max": 1000 * self._longest_seconds,
            "buffer-total-bytes": self._pool.limit,
            "buffer-available-bytes": self._pool.free,
            "waiting-threads": self._pool.waiting,
        }


class LeaderTurns:
    """The requests to one process of leaders, and the partitions that wait until there are fewer."""

    def __init__(self) -> None:
        self._in_flight = 0
        self._waiting: dict[PartitionSender, None] = {}  # the next is first

    @property
    def is_idle(self) -> bool:
        return not self._in_flight and not self._waiting

    def has_turn(self, partition: PartitionSender) -> bool:
        """Return whether an open batch may go now. If not, the partition is pumped when it may."""
        if self._in_flight < _MOST_IN_FLIGHT:
            return True
        self._waiting.setdefault(partition)
        return False

    def began(self) -> None:
        """Take note that a request is under way."""
        self._in_flight += 1

    def ended(self) -> None:
        """Take note that a request is over, and let others have their turn."""
        self._in_flight -= 1
        while self._waiting and self._in_flight < _MOST_IN_FLIGHT:
            partition = next(iter(self._waiting))
            del self._waiting[partition]
            partition.pump()


class Sender:
    """Made on its loop."""

    def __init__(
        self, link: ClusterLink, accumulator: RecordAccumulator, options: ProducerOptions, metrics: ProducerMetrics
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.link = link
        self.accumulator = accumulator
        self.options = options
        self.metrics = metrics
        self.codec = codec_named(options.compression_type or "none").number
        name = options.transactional_id
        self.transaction = None if name is None else ProducerTransaction(name)
        self.is_closed = False
        self._partitions: dict[tuple[str, int], PartitionSender] = {}
        self._turns: dict[tuple[Endpoint, ...], LeaderTurns] = {}
        self._tasks = BackgroundTasks(self.broke)
        self._unsubscribe = link.on_change(self._pump_all)
        self._tick: asyncio.TimerHandle | None = None
        self._tick_seconds = min(_TICK_SECONDS, options.delivery_timeout_ms / 4000)
        self._is_refreshing = False
        self._notices = WaitNotices(self.loop.time)

    def drain(self) -> None:
        """Look at the queues that have something new."""
        told = self.accumulator.told
        while told:
            queue = told.popleft()
            if self.is_closed:
                continue
            name = (queue.topic, queue.partition)
            found = self._partitions.get(name)
            if found is None:
                found = self._partitions[name] = PartitionSender(self, queue)
            found.pump()
        if self.is_closed:
            self._fail_all(ProducerClosed())
        elif self._tick is None and self.accumulator.unresolved:
            self._tick = self.loop.call_later(self._tick_seconds, self._look_at_clock)

    def start(self, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(work)

    def turns_at(self, leader: PartitionLeader) -> LeaderTurns:
        """Return the turns at the process of this leader. One that does not answer holds up no partition of others."""
        return self._turns.setdefault(leader.endpoints, LeaderTurns())

    async def producer_id(self) -> int:
        return await self.link.producer_id(self.options.request_timeout_ms / 1000)

    def resolved(self, batch: ProducerBatch) -> None:
        self.metrics.resolved(batch)
        if self.transaction is not None and batch in self.accumulator.unresolved:
            assert batch.outcome is not None
            error = batch.outcome.error
            if error is not None:
                self.transaction_failed(error)
        self.accumulator.let_go(batch)

    def transaction_failed(self, error: RaylogError) -> None:
        """Note that a part of the transaction will not be done. What is held of it is refused as the partitions look at
        it.
        """
        assert self.transaction is not None
        if self.transaction.failed(error):
            self.loop.call_soon(self._pump_all)

    def refuse_unsent(self) -> bool:
        """Fail what is held of an aborted transaction. Returns False where a thread is adding something just now; call
        it again.
        """
        assert self.transaction is not None
        error = self.transaction.refusal()
        left = [each for each in self._every_partition() if not each.refuse_all(error)]
        return not left

    def refresh_soon(self) -> None:
        """Metadata may be out of date."""
        if not self._is_refreshing:
            self._is_refreshing = True
            self.start(self._refresh())

    async def _refresh(self) -> None:
        try:
            await self.link.refresh(_REFRESH_SECONDS)
        except (ClusterUnreachable, PeerNotAdmitted) as error:
            _log.debug("No newer metadata: %s", error)  # every batch says at its end what kept it
        finally:
            self._is_refreshing = False

    def _pump_all(self) -> None:
        for each in list(self._partitions.values()):
            each.pump()

    def _look_at_clock(self) -> None:
        self._tick = None
        now = self.loop.time()
        for each in list(self._partitions.values()):
            if not each.is_idle:
                each.expire(now)
                each.pump()
        self._turns = {leader: turns for leader, turns in self._turns.items() if not turns.is_idle}
        self._tell_what_waits()
        if self.accumulator.unresolved and not self.is_closed:
            self._tick = self.loop.call_later(self._tick_seconds, self._look_at_clock)

    def _tell_what_waits(self) -> None:
        waiting = {
            f"{topic}-{number} to take records": why
            for (topic, number), each in self._partitions.items()
            if (why := each.why_it_waits())
        }
        self._notices.only(waiting)
        self._notices.tell_if_due()

    # --- the end --------------------------------------------------------------------------------------------------

    async def close(self) -> None:
        """End the sender: what is not resolved by now fails."""
        if not self.is_closed:
            self._end(ProducerClosed("it was closed before this record was delivered"))
        await self._tasks.close()

    def broke(self, error: BaseException) -> None:
        """End the sender after an error that nobody foresaw."""
        _log.critical("A producer has to end: %r", error, exc_info=error)
        reason = f"it met an error that nobody expected, {type(error).__name__}: {error}"
        self._end(ProducerClosed(reason))

    def _end(self, error: RaylogError) -> None:
        self.is_closed = True
        self._unsubscribe()
        if self._tick is not None:
            self._tick.cancel()
        self._fail_all(error)

    def _fail_all(self, error: RaylogError) -> None:
        for each in self._every_partition():
            each.fail_all(error)

    def _every_partition(self) -> list[PartitionSender]:
        for queue in self.accumulator.queues():
            name = (queue.topic, queue.partition)
            if name not in self._partitions:
                self._partitions[name] = PartitionSender(self, queue)
        return list(self._partitions.values())

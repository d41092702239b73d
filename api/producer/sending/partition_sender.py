"""One partition's way from its queue to its leader: when to send, to whom, and what to do after a failure.

`Delivery` decides what goes next under which sequence; here are the requests, the pauses and the time.

    pump    everything that may go now goes. It is called when there is something new, when an answer has come, when a
            pause is over and when metadata has changed; calling it once too often does no harm.

What must stay true:
- An open batch is left to grow while an earlier one is under way, `linger_ms` is not over, or it is being filled fast
  (`producer_batch.py`), unless somebody waits for room in the buffer, or flushes.
- After a failure there is a pause, which a change of the leader ends. Metadata is asked for, so that there is one.
- A batch whose time is over fails, wherever it is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import NO_ANSWER, reason_of
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.replication_messages import Append, Appended, AppendTransactional
from raylog.actors.protocol.transaction_messages import TransactionPartition
from raylog.api.producer.buffer.record_accumulator import TELL_ALL, TELL_NOTHING, TELL_SEALED, PartitionQueue
from raylog.api.producer.rules.delivery import BatchPart, Delivery
from raylog.api.producer.rules.producer_batch import SHORTEST_SECONDS, BatchGrowth, Outcome, ProducerBatch, Writer
from raylog.api.producer.rules.producer_transaction import ProducerTransaction
from raylog.config import BATCHES_AS_PRODUCED, KIB
from raylog.errors import DeliveryTimedOut, RaylogError, StreamNotOpen
from raylog.storage.format.batch_codec import BatchForm

if TYPE_CHECKING:
    from raylog.api.producer.sending.sender import Sender

_OFF_LOOP_BYTES: Final = 64 * KIB  # to compress fewer takes less time than to change threads
_GATE_RETRY_SECONDS: Final = 0.002
_FIRST_SEQUENCE: Final = 0
_NOT_DONE: Final = Outcome()  # of a batch under acks=0: nobody knows its offset


class PartitionSender:
    def __init__(self, sender: Sender, queue: PartitionQueue) -> None:
        options = sender.options
        self.queue = queue
        self._transaction = sender.transaction
        self._transaction_number = 0  # of the one that `delivery` is at
        self.delivery = Delivery(
            options.max_in_flight, options.is_idempotent, is_transactional=self._transaction is not None
        )
        self._sender = sender
        self._loop = sender.loop
        self._link = sender.link
        self._options = options
        first, longest = options.retry_backoff_ms / 1000, options.retry_backoff_max_ms / 1000
        self._backoff = Backoff(first, longest, sender.link.env.random)
        self._failures = 0
        self._last_error: RaylogError | None = None
        self._failed_leader: PartitionLeader | None = None
        self._pause: asyncio.TimerHandle | None = None
        self._linger: asyncio.TimerHandle | None = None
        self._lingering: ProducerBatch | None = None  # the batch whose timer that is
        self._growth = BatchGrowth(options.batch_size)
        self._hurry = partial(sender.accumulator.tell, queue)
        self._is_busy = False  # a batch is being compressed, an id or a stream is being got: nothing overtakes it
        self._has_answered = True  # the leader has, since `why_it_waits` was called last

    @property
    def is_idle(self) -> bool:
        return not self.delivery and not self.queue.sealed and self.queue.batch is None

    def why_it_waits(self) -> str:
        """Return why the queue waits, for people, once a tick. Empty: it does not wait, or its leader has answered
        since the last tick.
        """
        has_answered, self._has_answered = self._has_answered or not self.delivery.in_flight, False
        if self._last_error is not None and not self.is_idle:
            return reason_of(self._last_error)
        return "" if has_answered else NO_ANSWER

    # --- sending --------------------------------------------------------------------------------------------------

    def pump(self) -> None:
        """Send what may go now."""
        if self._is_busy or self._sender.is_closed:
            return
        try:
            self._send_all()
            before, self.queue.quiet = self.queue.quiet, self._wanted_news()
            if self.queue.quiet < before:
                self._send_all()  # what was added just before that, and not told of
        except Exception as error:  # noqa: BLE001  nobody expected it: what is held must not wait for ever
            self._sender.broke(error)

    def _send_all(self) -> None:
        while self._transaction is None or self._takes_part(self._transaction):
            leader = self._link.leader(self.queue.topic, self.queue.partition)
            if self._pause is not None and not self._is_over(leader):
                return
            if leader is None or not leader.endpoints:
                if not self.is_idle:
                    self._wait_for_leader(leader)
                return
            key = (leader.topic_id, leader.epoch)
            if not self.delivery.ready(key):
                return
            part = self.delivery.next_again()
            if part is None and not self._is_batch_ready(leader):
                return
            if self.delivery.writer is None:
                if not self.delivery.in_flight:
                    self._begin(self._get_identity())
                return
            if part is None:
                part = self.delivery.add(self._sender.accumulator.take(self.queue))
            if not self._send(part, leader):
                return

    def _takes_part(self, transaction: ProducerTransaction) -> bool:
        """Whether what is held may be sent now. It is refused where the transaction is not open."""
        if not transaction.is_sending:
            if not self.refuse_all(transaction.refusal()):
                self._loop.call_later(_GATE_RETRY_SECONDS, self.pump)
            return False
        if self._transaction_number != transaction.number:
            if self.delivery:
                return False  # something of the one before is not answered yet
            assert transaction.writer is not None
            self.delivery.identify(transaction.writer)
            self._transaction_number = transaction.number
        return True

    def _wanted_news(self) -> int:
        if self._is_busy or self._pause is not None or self.delivery.in_flight == self._options.max_in_flight:
            return TELL_NOTHING
        return TELL_SEALED if self.delivery.in_flight else TELL_ALL

    def _is_batch_ready(self, leader: PartitionLeader) -> bool:
        """Whether a sealed batch is there, once the open one is sealed that should not wait any longer."""
        queue = self.queue
        if queue.sealed:
            return True
        wants_flush = queue.wants_flush
        if wants_flush:
            queue.wants_flush = False  # before it is looked what there is: a flush from here on finds something new
        batch = queue.batch
        if batch is None:
            return False
        is_wanted = wants_flush or self._sender.accumulator.pool.waiting
        if not is_wanted and (self.delivery.in_flight or self._is_to_grow(batch)):
            return False
        if not (is_wanted or batch.is_awaited or self._sender.turns_at(leader).has_turn(self)):
            return False
        if not self._sender.accumulator.seal_open(queue):
            queue.wants_flush = queue.wants_flush or wants_flush
            self._loop.call_later(_GATE_RETRY_SECONDS, self.pump)
            return False
        return bool(queue.sealed)

    def _is_to_grow(self, batch: ProducerBatch) -> bool:
        """Whether the open batch waits for more records; then a timer runs, and who waits for the batch is heard."""
        queue, now = self.queue, self._sender.accumulator.now()
        left = batch.opened_at + self._options.linger_ms / 1000 - now
        if left <= 0:
            batch.held_by = self._hurry
            if batch.is_awaited:
                return False
            if self._linger is not None and self._lingering is batch:
                return True
            left = self._growth.seconds_to_wait(batch.opened_at, len(queue.records) // 2, queue.open_bytes(), now)
        if left > 0 and (self._linger is None or self._lingering is not batch):
            self._end_linger()
            self._lingering = batch
            self._linger = self._loop.call_later(max(left, SHORTEST_SECONDS), self._lingered)
        return left > 0

    def _lingered(self) -> None:
        self._linger = None
        self.pump()

    def _end_linger(self) -> None:
        if self._linger is not None:
            self._linger.cancel()
            self._linger = None

    def _send(self, part: BatchPart, leader: PartitionLeader) -> bool:
        """Whether the next one may follow at once."""
        is_new = part.encoded is None
        if is_new and self._sender.codec and part.batch.size > _OFF_LOOP_BYTES:
            self._begin(self._compress(part))
            return False
        try:
            payload = self.delivery.payload(part, self._form())
        except RaylogError as error:  # a header or a timestamp that no batch can hold
            self._drop(part, error)
            return True
        if self._options.acks == 0:
            return self._say(part, payload, leader)
        self.delivery.start(part)
        if self._transaction is not None:
            self._transaction.has_sent = True
            if part.sequence == _FIRST_SEQUENCE:  # the others of this turn say so before the first of them is sent
                self._transaction.begins_in(self._place(leader))
        self._sender.metrics.sent(part.batch, len(payload), self._loop.time(), part.attempts > 1)
        self._sender.turns_at(leader).began()
        self._sender.start(self._deliver(part, payload, leader))
        return True

    def _form(self) -> BatchForm:
        """Return the form for batches that are encoded now, by what is known of the topic."""
        view = self._link.topic(self.queue.topic)
        return BatchForm.of(self._sender.codec, BATCHES_AS_PRODUCED if view is None else view.batch_format)

    async def _compress(self, part: BatchPart) -> None:
        try:
            await self._link.env.off_loop(partial(self._encode, part, self._form()))
        except RaylogError as error:
            self._drop(part, error)

    def _encode(self, part: BatchPart, form: BatchForm) -> None:
        """Encode a part on another thread. Its time may be over before that: then there is nothing left to encode."""
        if part.batch.outcome is None:
            self.delivery.payload(part, form)

    def _drop(self, part: BatchPart, error: RaylogError) -> None:
        self.delivery.abandon(part, error)
        self._settle(part.batch)

    async def _deliver(self, part: BatchPart, payload: bytearray, leader: PartitionLeader) -> None:
        began = self._loop.time()
        patience = self._options.request_timeout_ms / 1000
        left = max(0.001, min(patience, part.batch.deadline - began))
        message: Append | AppendTransactional
        if self._transaction is None:
            message = Append(leader.epoch, self._options.acks, round(left * 1000))
        else:
            name, is_first = self._transaction.transactional_id, part.sequence == _FIRST_SEQUENCE
            together = self._transaction.begins_with(self._place(leader)) if is_first else ()
            message = AppendTransactional(leader.epoch, self._options.acks, round(left * 1000), name, together)
        try:
            response = await self._link.ask(leader, message, payload, expect=Appended, timeout=left)
        except RaylogError as error:
            self._failed(part, error, leader)
        else:
            self._delivered(part, response.message, leader, self._loop.time() - began)
        self._sender.turns_at(leader).ended()
        self.pump()

    def _delivered(self, part: BatchPart, answer: Appended, leader: PartitionLeader, seconds: float) -> None:
        self._failures = 0
        self._last_error = None
        self._has_answered = True
        outcome = Outcome(answer.base_offset, answer.append_time_ms, answer.log_start_offset)
        self._sender.metrics.acknowledged(part.count, seconds)
        if self._transaction is not None and part.sequence == _FIRST_SEQUENCE:
            self._transaction.has_begun_in(self._place(leader))
        self.delivery.delivered(part, (leader.topic_id, leader.epoch), outcome)
        self._settle(part.batch)

    def _place(self, leader: PartitionLeader) -> TransactionPartition:
        return self.queue.topic, leader.topic_id, self.queue.partition

    def _say(self, part: BatchPart, payload: bytearray, leader: PartitionLeader) -> bool:
        """acks=0: once it is handed to the stream it counts as delivered."""
        self.delivery.start(part)
        try:
            self._link.say(leader, Append(leader.epoch, 0, 0), payload)
        except RaylogError as error:
            self._failed(part, error, leader)
            if isinstance(error, StreamNotOpen):
                self._begin(self._connect(leader))
            return False
        self._sender.metrics.sent(part.batch, len(payload), self._loop.time(), part.attempts > 1)
        self._sender.metrics.acknowledged(part.count, 0.0)
        self.delivery.delivered(part, (leader.topic_id, leader.epoch), _NOT_DONE)
        self._settle(part.batch)
        return True

    async def _connect(self, leader: PartitionLeader) -> None:
        try:
            await self._link.connect(leader, self._options.request_timeout_ms / 1000)
        except RaylogError as error:
            self._last_error = error
        else:
            self._end_pause()

    # --- identity, and all else that has to be waited for ---------------------------------------------------------

    async def _get_identity(self) -> None:
        try:
            self.delivery.identify(Writer(await self._sender.producer_id()))
        except RaylogError as error:
            self._fail(error, None)

    def _begin(self, work: Coroutine[Any, Any, None]) -> None:
        """Nothing is sent until this is done."""
        self._is_busy = True
        self._sender.start(self._until_done(work))

    async def _until_done(self, work: Coroutine[Any, Any, None]) -> None:
        try:
            await work
        finally:
            self._is_busy = False
        self.pump()

    # --- failures -------------------------------------------------------------------------------------------------

    def _failed(self, part: BatchPart, error: RaylogError, leader: PartitionLeader) -> None:
        self.delivery.failed(part, error)
        self._settle(part.batch)
        self._fail(error, leader)

    def _fail(self, error: RaylogError, leader: PartitionLeader | None) -> None:
        """Pause, and hear what is new meanwhile."""
        self._last_error = error
        self._failed_leader = leader
        if self._pause is None:
            self._failures += 1
            self._pause = self._loop.call_later(self._backoff.after(self._failures), self._end_pause)
            self._sender.refresh_soon()

    def _wait_for_leader(self, leader: PartitionLeader | None) -> None:
        if self._pause is None:
            self._fail(_NoLeader(f"{self.queue.topic}-{self.queue.partition}"), leader)

    def _is_over(self, leader: PartitionLeader | None) -> bool:
        """Whether the pause has no reason any more: somebody else leads."""
        if leader is None or not leader.endpoints:
            return False
        failed = self._failed_leader
        if failed is None:
            is_newer = isinstance(self._last_error, _NoLeader)
        else:
            is_newer = (leader.topic_id, leader.epoch) != (failed.topic_id, failed.epoch)
        if is_newer and self._pause is not None:
            self._pause.cancel()
            self._pause = None
        return is_newer

    def _end_pause(self) -> None:
        if self._pause is not None:
            self._pause.cancel()
            self._pause = None
        self.pump()

    # --- time, and the end ----------------------------------------------------------------------------------------

    def expire(self, now: float) -> None:
        """Fail what is too late."""
        for part in self.delivery.expired(now):
            may_be_written = part.is_in_flight or part.is_doubtful
            self._drop(part, self._timed_out(may_be_written))
        queue = self.queue
        batch = queue.batch
        if batch is not None and batch.deadline <= now:
            self._sender.accumulator.seal_open(queue)
        while queue.sealed and queue.sealed[0].deadline <= now:
            batch = self._sender.accumulator.take(queue)
            batch.resolve(Outcome(error=self._timed_out(False)))
            self._settle(batch)

    def _timed_out(self, may_be_written: bool) -> DeliveryTimedOut:
        reason = "no answer yet" if self._last_error is None else f"{type(self._last_error).__name__}: "
        if self._last_error is not None:
            reason += self._last_error.describe().rstrip(".")
        return DeliveryTimedOut(
            self.queue.topic, self.queue.partition, self._options.delivery_timeout_ms, may_be_written, reason
        )

    def _settle(self, batch: ProducerBatch) -> None:
        if batch.outcome is not None:
            self._sender.resolved(batch)

    def refuse_all(self, error: RaylogError) -> bool:
        """Fail all that is held. Returns False where a thread is adding something just now, which is still there."""
        for part in self.delivery.unresolved():
            self._drop(part, error)
        is_sealed = self._sender.accumulator.seal_open(self.queue)
        while self.queue.sealed:
            batch = self._sender.accumulator.take(self.queue)
            batch.resolve(Outcome(error=error))
            self._settle(batch)
        return is_sealed

    def fail_all(self, error: RaylogError) -> None:
        self.refuse_all(error)
        for timer in (self._pause, self._linger):
            if timer is not None:
                timer.cancel()


class _NoLeader(RaylogError):
    """Raised where nobody is known to lead a partition."""

    def describe(self) -> str:
        return f"{super().describe()} has no leader"

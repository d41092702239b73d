"""A replica while it leads: appends, followers, the high watermark, and the ISR it proposes. `reads` answers readers.

What must stay true:
- The epoch is on disk before the first append (rule 8). All appends go through `append`, one after the other (rule 28).
- An append to an internal topic is from its coordinator, or is refused (rule 25, `coordinator_records.py`).
- A batch that has to be unpacked before it is appended is unpacked off the loop (rule 34, `parked_appends.py`).
- acks=all is answered when the high watermark has passed the batch and the recorded ISR is large enough (rule 2).
- An append that waits for that is answered exactly once: then, when its time is over, when the in-sync replicas have
  become too few, or when this replica no longer leads. The last three leave the outcome open: the batch is in the log,
  and its producer repeats it under the same sequence (rule 18). How many bytes wait has a bound, over all streams
  (rule 31).
- Once `end` was called nothing is appended, answered or proposed any more.
"""

from __future__ import annotations

import asyncio
import heapq
import logging
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from math import inf
from typing import Final

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response
from raylog.actors.link.delete_records import check_deletable
from raylog.actors.protocol.control_messages import NO_LEADER, ProposeIsr, ReplicaId
from raylog.actors.protocol.coordinator_records import check_claimed
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import is_internal
from raylog.actors.protocol.replication_messages import (
    Append,
    Appended,
    AppendTransactional,
    DeleteRecords,
    Pull,
    RecordsDeleted,
    StopFollowing,
    WriteMarker,
)
from raylog.actors.replica.hosted_log import HostedLog, PartitionName
from raylog.actors.replica.parked_appends import LeaderTransactions, PayloadChecks
from raylog.actors.replica.pushes import FollowerPushes
from raylog.actors.replica.reads import LeaderReads
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.actors.replica.rules.replication import Leadership, RecordedPartition, check_epoch
from raylog.config import MIB
from raylog.errors import (
    AppendTimedOut,
    DeletionTimedOut,
    DiskFull,
    IneligibleReplica,
    InternalTopic,
    InvalidRequest,
    LeadershipLost,
    NotEnoughReplicas,
    NotEnoughReplicasAfterAppend,
    NotLeader,
    OffsetNotAvailable,
    RaylogError,
    RemoteFailed,
    StaleIncarnation,
    TooManyBytesInFlight,
)
from raylog.storage.format.record_batch import BatchHeader, Bytes, is_transactional

ACKS_ALL: Final = -1
MAX_WAITING_BYTES: Final = 256 * MIB  # of appends under acks=all
_ACKS: Final = (ACKS_ALL, 0, 1)
_FEW_READERS: Final = 4
_MIN_FILE_BYTES: Final = 64 * 1024  # less is sent: that is quicker than opening a file
_MAX_TIMEOUT_MS: Final = 10 * 60 * 1000
_TELL_AGAIN_SECONDS: Final = 0.02
_LOOK_AT_ISR_SECONDS: Final = 0.5  # one that does not answer may have left it meanwhile
_PROPOSAL_RETRY_SECONDS: Final = 0.2
_PROPOSAL_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)



class _WaitingAppend:
    __slots__ = ("answer", "began", "deadline_ms", "end_offset", "number", "owed", "size", "timeout_ms")

    def __init__(
        self, end_offset: int, number: int, size: int, answer: Message, began: float, now_ms: float, timeout_ms: int
    ) -> None:
        self.end_offset = end_offset
        self.number = number
        self.size = size
        self.answer = answer
        self.began = began
        self.owed = LaterAnswer()
        self.timeout_ms = timeout_ms
        self.deadline_ms = now_ms + timeout_ms

    def __lt__(self, other: _WaitingAppend) -> bool:
        return (self.end_offset, self.number) < (other.end_offset, other.number)


class AppendWaits:
    """Appends that wait, in order of their end; a duplicate may wait for an earlier end than the newest.

    One timer, set for the earliest time-out, serves all: nearly every append is over long before its own.
    """

    def __init__(self, name: PartitionName, timers: Timers, counters: ReplicaCounters) -> None:
        self._name = name
        self._timers = timers
        self._counters = counters
        self._loop = asyncio.get_running_loop()
        self._heap: list[_WaitingAppend] = []
        self._numbers = 0
        self._bytes = 0
        self._timer: TimerHandle | None = None
        self._timer_at_ms = inf

    def __len__(self) -> int:
        return sum(not waiting.owed.done() for waiting in self._heap)

    def check_room(self, size: int) -> None:
        """Refuse, before it is written, what would have to wait behind too much."""
        if self._bytes + size > MAX_WAITING_BYTES and self._heap:
            raise TooManyBytesInFlight(size, self._bytes, MAX_WAITING_BYTES)

    def wait(self, end_offset: int, size: int, answer: Message, timeout_ms: int, began: float) -> LaterAnswer:
        """Let an append wait. `began`: when its turn came, by the clock of the counters."""
        self._numbers += 1
        self._bytes += size
        now_ms = self._loop.time() * 1000
        waiting = _WaitingAppend(end_offset, self._numbers, size, answer, began, now_ms, timeout_ms)
        heapq.heappush(self._heap, waiting)
        if waiting.deadline_ms < self._timer_at_ms:
            self._look_at(waiting.deadline_ms, timeout_ms)
        return waiting.owed

    def broken_invariants(self, high_watermark: int) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        if self._heap and self._heap[0].end_offset <= high_watermark:
            yield f"an append up to {self._heap[0].end_offset} waits, and the high watermark is {high_watermark}"
        if self._bytes < 0 or (not self._heap and self._bytes):
            yield f"{self._bytes} bytes are counted as waiting, of {len(self._heap)} appends"

    def release(self, high_watermark: int) -> None:
        """Answer all that the high watermark has passed."""
        heap, counters = self._heap, self._counters
        while heap and heap[0].end_offset <= high_watermark:
            waiting = heapq.heappop(heap)
            self._bytes -= waiting.size
            if not waiting.owed.done():
                waiting.owed.give(Response(waiting.answer))
                counters.appends.add(counters.clock() - waiting.began)

    def fail_all(self, error: RaylogError) -> None:
        waiting_ones, self._heap = self._heap, []
        self._bytes = 0
        for waiting in waiting_ones:
            if not waiting.owed.done():
                waiting.owed.fail(error)

    def _look_at(self, deadline_ms: float, delay_ms: float) -> None:
        if self._timer is not None:
            self._timers.cancel(self._timer)
        self._timer_at_ms = deadline_ms
        self._timer = self._timers.after(delay_ms, self._look_for_late)

    def _look_for_late(self) -> None:
        """Answer appends that are late. They stay in the heap until the high watermark gets there or the role ends."""
        self._timer, self._timer_at_ms = None, inf
        now_ms = self._loop.time() * 1000
        still = [waiting for waiting in self._heap if not waiting.owed.done()]
        for waiting in still:
            if waiting.deadline_ms <= now_ms:
                waiting.owed.fail(AppendTimedOut(self._name.topic, self._name.partition, waiting.timeout_ms))
        next_ms = min((waiting.deadline_ms for waiting in still if waiting.deadline_ms > now_ms), default=inf)
        if next_ms < self._timer_at_ms:
            self._look_at(next_ms, next_ms - now_ms)


class LeaderRole:
    """The leader's part of a replica. `deposed(epoch)` is called when a follower knows of a newer leader."""

    def __init__(self, hosted: HostedLog, recorded: RecordedPartition, deposed: Callable[[int], None]) -> None:
        self.epoch = recorded.leader_epoch
        self._hosted = hosted
        self._log = hosted.log
        self._is_internal = is_internal(hosted.name.topic)
        self._marks = hosted.log.marks
        self._log.begin_epoch(self.epoch)
        self._leadership = Leadership(hosted.me, recorded, self._log.log_end_offset, hosted.now_ms())
        self._counters = hosted.counters
        self._appends = AppendWaits(hosted.name, hosted.timers, hosted.counters)
        self._transactions = LeaderTransactions(hosted)
        self._payloads = PayloadChecks(hosted, self._check_leading)
        self.reads = LeaderReads(hosted, self.epoch, self._leadership.epoch_start, self._check_leading)
        self._followers = FollowerPushes(
            hosted, self.epoch, self._follower_holds, self._leadership.follower_left, deposed
        )
        self._proposing: asyncio.Task[None] | None = None
        self._ended = False
        self._count_own_end(hosted.env.wall_ms())
        self._advance()
        _log.info(
            "%s: broker %d leads in epoch %d from offset %d on.",
            hosted.name, hosted.me[0], self.epoch, self._log.log_end_offset,
        )

    # --- appending ---

    def append(self, request: Request, message: Append) -> Answer | Awaitable[Answer]:
        if is_transactional(request.payload):
            raise InvalidRequest("A batch of a transaction comes with its transactional id, in AppendTransactional.")
        if self._is_internal:
            if not request.stream.is_internal:  # not even a batch that looks like a claim (rules 25, 33)
                raise InternalTopic(self._hosted.name.topic)
            check_claimed(self._hosted.name.topic, request.payload, self._log.producers)
        if self._log.config.is_compacted or self._payloads.parked:
            self._check_append(request, message)
            return self._payloads.append(request, partial(self._append, request, message))
        return self._append(request, message)

    def append_transactional(self, request: Request, message: AppendTransactional) -> Answer | Awaitable[Answer]:
        """Append, once the partition belongs to the batch's transaction (rule 20)."""
        if self._is_internal:
            raise InternalTopic(self._hosted.name.topic)
        self._check_append(request, message)
        if self._log.config.is_compacted or self._payloads.parked:
            return self._payloads.append(request, partial(self._append_in_transaction, request, message))
        return self._append_in_transaction(request, message)

    def _append_in_transaction(
        self, request: Request, message: AppendTransactional, checked: BatchHeader | None = None
    ) -> Answer | LaterAnswer:
        append = partial(self._append, request, message, checked)
        return self._transactions.append(request.payload, message, append)

    def write_marker(self, message: WriteMarker) -> Answer | Awaitable[Answer]:
        """Write a marker. The answer waits until the marker is replicated, even if it was written before (rule 21)."""
        began = self._counters.clock()
        if self._leadership.is_under_min_isr:
            raise NotEnoughReplicas(*self._isr_shortage())
        now_ms = self._hosted.env.wall_ms()
        batch = self._transactions.marker(message, now_ms)
        if batch is not None:
            appended = self._log.append_as_leader(batch, self.epoch, now_ms, control=True)
            self._took_in(batch, appended.first_offset, now_ms)
        end = self._log.log_end_offset
        if end <= self._marks.high_watermark:
            return Response(Done())
        return self._appends.wait(end, 0, Done(), min(message.timeout_ms, _MAX_TIMEOUT_MS), began)

    def open_transactions(self) -> Answer:
        return Response(self._transactions.still_open())

    def _append(
        self, request: Request, message: Append | AppendTransactional, checked: BatchHeader | None = None
    ) -> Answer | LaterAnswer:
        counters, payload = self._counters, request.payload
        began = counters.clock()
        self._check_append(request, message)
        now_ms = self._hosted.env.wall_ms()
        try:
            appended = self._log.append_as_leader(payload, self.epoch, now_ms, checked)
        except DiskFull:
            self._hosted.room.refused()
            self._hosted.changed()
            raise
        if self._hosted.room.was_refused:
            self._hosted.room.took()
        end = appended.last_offset + 1
        if not appended.is_duplicate:
            counters.bytes_in += len(payload)
            counters.records_in += end - appended.first_offset
            self._took_in(payload, appended.first_offset, now_ms)
        answer = Appended(appended.first_offset, appended.append_time_ms, self._marks.log_start_offset)
        if message.acks != ACKS_ALL or end <= self._marks.high_watermark:
            counters.appends.add(counters.clock() - began)
            return Response(answer)
        return self._appends.wait(end, len(payload), answer, message.timeout_ms, began)

    def _check_append(self, request: Request, message: Append | AppendTransactional) -> None:
        if self._ended:
            self._check_leading()
        check_epoch(message.leader_epoch, self.epoch)
        if message.acks not in _ACKS or not 0 <= message.timeout_ms <= _MAX_TIMEOUT_MS:
            raise InvalidRequest(f"acks {message.acks} with a time-out of {message.timeout_ms} ms cannot be.")
        if message.acks == ACKS_ALL:
            if self._leadership.is_under_min_isr:
                raise NotEnoughReplicas(*self._isr_shortage())
            self._appends.check_room(len(request.payload))

    def _check_leading(self) -> None:
        """Raise NotLeader after the end of this leadership. To be called after each await (rule 28)."""
        if self._ended:
            raise NotLeader(self._hosted.name.topic, self._hosted.name.partition, NO_LEADER, self.epoch)

    def _took_in(self, batch: Bytes, first_offset: int, wall_ms: int) -> None:
        """Push to the followers what was just appended, and count it."""
        self._leadership.appends(first_offset, self._hosted.now_ms())
        self._followers.appended(batch, first_offset, self._log.log_end_offset)
        self._count_own_end(wall_ms)
        self._advance()

    def _isr_shortage(self) -> tuple[str, int, int, int]:
        name, recorded = self._hosted.name, self._leadership.recorded
        return name.topic, name.partition, len(recorded.isr), recorded.min_insync

    def _count_own_end(self, wall_ms: int) -> None:
        """Count the leader's own log: with `flush.policy=fsync` once it is synced, else at once."""
        self._hosted.appended(wall_ms)
        counted = self._hosted.counted(self._log.log_end_offset)
        if counted is not None:
            counted.add_done_callback(lambda _: self._advance())

    # --- the high watermark ---

    def _follower_holds(self, follower: ReplicaId, log_end_offset: int, log_start_offset: int) -> None:
        if self._ended:
            return
        leadership = self._leadership
        leadership.follower_holds(
            follower, log_end_offset, self._log.log_end_offset, self._hosted.now_ms(), log_start_offset
        )
        if log_end_offset > self._marks.high_watermark:
            self._advance()
        if follower not in leadership.recorded.isr:
            self._consider_isr()

    def _advance(self) -> None:
        if self._ended or self._log.offline_because is not None:
            return
        before = self._marks.high_watermark
        high_watermark = self._leadership.high_watermark(before, self._hosted.counted_end)
        if high_watermark > before:
            self._log.advance_high_watermark(high_watermark)
            self._hosted.changed()
            self._tell_waiting(high_watermark)
            self._followers.marks_moved()

    def _tell_waiting(self, high_watermark: int) -> None:
        """Answer readers and producers. The first frame of a turn of the loop is sent at once, others at its end.

        So a few readers come first: through a gateway they share a stream with the producer, and hear of a record a
        sixth earlier. Many would keep its producer waiting.
        """
        if self.reads.waiting <= _FEW_READERS:
            self.reads.wake()
            self._appends.release(high_watermark)
        else:
            self._appends.release(high_watermark)
            self.reads.wake()

    # --- followers and the ISR ---

    def pull(self, request: Request, message: Pull) -> Answer | Awaitable[Answer]:
        incarnation = dict(self._leadership.recorded.incarnations).get(message.broker_id)
        return self._followers.pull(request, message, incarnation)

    def stop_following(self, request: Request, message: StopFollowing) -> None:
        """A follower leaves, over a stream that goes on."""
        self._followers.stop(request.stream, message)

    def record(self, recorded: RecordedPartition) -> None:
        """Take over a newer state of this leadership, which the controller has recorded."""
        self._leadership.record(recorded, self._hosted.now_ms())
        if self._proposing is not None and self._leadership.proposed is None:
            self._proposing.cancel()  # its outcome is recorded
        # A flush policy that has just become fsync has what is there synced first.
        self._count_own_end(self._hosted.env.wall_ms())
        self._advance()
        if recorded.is_under_min_isr:
            self._appends.fail_all(NotEnoughReplicasAfterAppend(*self._isr_shortage()))
        self._consider_isr()

    def look(self) -> float | None:
        """Look for members of the ISR that lag. Return the seconds to the next look; None: all hold what there is."""
        self._consider_isr()
        is_behind = not self._ended and self._leadership.is_behind(self._log.log_end_offset)
        return self._log.config.replica_lag_time_max_ms / 2000 if is_behind else None

    def _consider_isr(self) -> None:
        if self._ended or self._proposing is not None:
            return
        end, now_ms = self._log.log_end_offset, self._hosted.now_ms()
        isr = self._leadership.next_proposal(
            self._log.high_watermark, end, now_ms, self._log.config.replica_lag_time_max_ms, self._log.log_start_offset
        )
        if isr is not None:
            recorded = self._leadership.recorded
            _log.info("%s: proposes the ISR %s instead of %s.", self._hosted.name, isr, recorded.isr)
            self._leadership.propose(isr)
            self._proposing = self._hosted.start(self._carry_proposal(recorded, isr))
            self._proposing.add_done_callback(self._proposal_over)

    def _proposal_over(self, _: asyncio.Task[None]) -> None:
        self._proposing = None
        self._consider_isr()

    async def _carry_proposal(self, recorded: RecordedPartition, isr: tuple[ReplicaId, ...]) -> None:
        """Propose until the outcome is known: recorded, as an assignment tells, or refused for certain (rule 4)."""
        name = self._hosted.name
        proposal = ProposeIsr(
            name.topic_id, name.partition, self._hosted.me[0], self.epoch, recorded.partition_epoch, isr
        )
        while self._is_proposed(recorded, isr):
            refused: object = None
            try:
                await asyncio.wait_for(self._hosted.calls.propose(proposal), _PROPOSAL_SECONDS)
            except (RaylogError, asyncio.TimeoutError) as error:
                refused = error.error if isinstance(error, RemoteFailed) else None
            if isinstance(refused, IneligibleReplica | StaleIncarnation) and self._is_proposed(recorded, isr):
                _log.info("%s: the ISR %s is refused: %s", name, isr, refused)
                self._leadership.proposal_refused()
                self._advance()
            await asyncio.sleep(_PROPOSAL_RETRY_SECONDS * (1 + self._hosted.env.random.random()))

    def _is_proposed(self, recorded: RecordedPartition, isr: tuple[ReplicaId, ...]) -> bool:
        same = self._leadership.recorded.partition_epoch == recorded.partition_epoch
        return not self._ended and same and self._leadership.proposed == isr

    # --- deleting ---

    async def delete_records(self, message: DeleteRecords) -> Answer:
        """Delete records. The answer waits until all that may lead next have deleted them too."""
        loop, name = asyncio.get_running_loop(), self._hosted.name
        check_deletable(name.topic, self._log.config)
        timeout_ms = min(message.timeout_ms, _MAX_TIMEOUT_MS)
        deadline = loop.time() + timeout_ms / 1000
        before = self._log.high_watermark if message.before_offset == -1 else message.before_offset
        if self._log.high_watermark < min(before, self._leadership.epoch_start):  # it may be there all the same
            raise OffsetNotAvailable(name.topic, name.partition)
        await self._hosted.begin_at(before)
        if self._ended:
            raise LeadershipLost(name.topic, name.partition, self.epoch)
        start = self._log.log_start_offset
        while untold := self._leadership.may_bring_back(start):
            left = deadline - loop.time()
            if left <= 0:
                raise DeletionTimedOut(name.topic, name.partition, start, timeout_ms)
            await self._followers.tell_log_start(untold, min(left, _LOOK_AT_ISR_SECONDS))
            if self._ended:
                raise LeadershipLost(name.topic, name.partition, self.epoch)
            await asyncio.sleep(min(left, _TELL_AGAIN_SECONDS))
        return Response(RecordsDeleted(start))

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file, or of those that it uses. The log is online."""
        if self._ended:
            if len(self._appends) or self.reads.waiting:
                yield f"{len(self._appends)} appends and {self.reads.waiting} fetches wait at a replica that led"
            return
        if not self._leadership.recorded.leader_epoch == self.epoch == self._log.epochs.latest:
            recorded, written = self._leadership.recorded.leader_epoch, self._log.epochs.latest
            yield f"it leads in epoch {self.epoch}; recorded is {recorded}, written down is {written}"
        yield from self._leadership.broken_invariants()
        yield from self._appends.broken_invariants(self._marks.high_watermark)

    def may_stand_at(self, high_watermark: int) -> bool:
        """Whether the high watermark may have moved there just now (rule 3)."""
        return self._leadership.is_covered(high_watermark, self._hosted.counted_end)

    # --- ending ---

    def end(self, leader: int, leader_epoch: int) -> None:
        """End this leadership. The outcome of waiting appends stays open; their producers repeat them elsewhere."""
        self._ended = True
        if self._proposing is not None:
            self._proposing.cancel()
        self._followers.end()
        name = self._hosted.name
        lost = LeadershipLost(name.topic, name.partition, leader_epoch)
        self._appends.fail_all(lost)
        self._transactions.end(lost)
        self.reads.end(NotLeader(name.topic, name.partition, leader, leader_epoch))

"""A producer's transactions on the event loop: what their coordinators are asked, and when.

    init     InitProducer ──► identity                       the former holder of the transactional id is fenced
    offsets  AddGroup ──► StageOffsets                       the group's coordinator keeps them until the end
    commit   flush, and all is delivered ──► EndTransaction ──► the next identity
    abort    nothing more is sent, what is held fails ──► EndTransaction ──► the next identity

What must stay true:
- A commit is asked for when every record that was taken is acknowledged and all offsets are staged, and only then.
- Each call ends within its time, and may be made again: the coordinator answers a request that comes twice as it did
  the first time (rule 21).
- Whatever may have been sent of a transaction, even without an answer, its end is asked of the coordinator. So the
  next transaction has another epoch, and nothing late can join it (rule 20). Where nothing was sent, nothing is asked.

What must stay true of offsets:
- A group is on its transaction's list before anything is staged with it (rule 21).
- What was given is staged before the transaction is committed, also where the call that gave it ran out of time.
- Requests are numbered, so that one that arrives late or again does not undo what came after it.
- Nothing beyond the end of a log is staged: a reader that went on there would pass over records that are still to come.
- A consumer that is no member any more stages nothing: the records are another member's to process (rules 23 and 24).

It runs without threads and Ray, in the simulator as well.
"""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Mapping
from typing import Final, NamedTuple, TypeAlias, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC, coordinator_hash
from raylog.actors.protocol.replication_messages import LATEST
from raylog.actors.protocol.transaction_messages import (
    AddGroup,
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
)
from raylog.api.connection.coordinator_calls import ask_coordinator
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.leader_requests import look_up
from raylog.api.connection.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from raylog.api.producer.rules.producer_batch import ProducerBatch, Writer
from raylog.api.producer.rules.producer_transaction import Phase, ProducerTransaction
from raylog.api.producer.sending.sender import Sender
from raylog.errors import (
    AdminError,
    GroupError,
    InvalidTransactionState,
    OffsetBeyondEnd,
    OffsetsRefused,
    ProducerError,
    ProducerFenced,
    RaylogError,
    StaleTransaction,
    TransactionPending,
    TransactionTimedOut,
    UnknownMember,
    UnknownTransactionalId,
)
from raylog.groups.records.messages import NO_EPOCH, OffsetsCommitted, OffsetToCommit, StageOffsets, portions
from raylog.groups.records.refusals import error_of
from raylog.groups.records.settings import check_group_id

_GATE_RETRY_SECONDS: Final = 0.002
_NO_IDENTITY: Final = -1

_log = logging.getLogger(__name__)

_Answer = TypeVar("_Answer", bound=Message)
Offsets: TypeAlias = (
    "Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]"
)


class TransactionCall:
    """One call of a program, from now on. What is not known when its time is over is TransactionPending."""

    def __init__(self, link: ClusterLink, transactional_id: str, call: str, seconds: float) -> None:
        self._loop = asyncio.get_running_loop()
        self._link = link
        self._transactional_id = transactional_id
        self._call = call
        self._seconds = seconds
        self._until = self._loop.time() + seconds

    @property
    def left(self) -> float:
        return max(0.0, self._until - self._loop.time())

    def pending(self, reason: str) -> TransactionPending:
        return TransactionPending(self._transactional_id, self._call, round(self._seconds * 1000), reason)

    def pending_by(self, error: RaylogError) -> TransactionPending:
        return self.pending(f"{type(error).__name__}: {error.describe().rstrip('.')}")

    async def ask(self, message: Message, expected: type[_Answer]) -> _Answer:
        """Ask the transaction's coordinator. TransactionPending, and errors of producers that time does not heal."""
        hashed = coordinator_hash(self._transactional_id)
        try:
            return await ask_coordinator(self._link, TRANSACTIONS_TOPIC, hashed, message, expected, self.left)
        except RaylogError as error:
            if isinstance(error, ProducerError) and not error.retriable:
                raise
            raise self.pending_by(error) from error


class GivenOffsets(NamedTuple):
    offsets: dict[TopicPartition, OffsetAndMetadata]
    group: GroupMetadata

    @classmethod
    def checked(cls, offsets: Offsets, group: object) -> GivenOffsets:
        """Raise TypeError, InvalidGroupId: this can be nobody's offsets."""
        if not isinstance(group, GroupMetadata):
            raise TypeError(f"group_metadata is what consumer.group_metadata() returns, and not {group!r}.")
        check_group_id(group.group_id)
        return cls({TopicPartition(*each): _offset(at) for each, at in offsets.items()}, group)


class TransactionOffsets:
    """The offsets of one producer's transactions. Made on its loop."""

    def __init__(self, link: ClusterLink, transaction: ProducerTransaction) -> None:
        self._link = link
        self._transaction = transaction
        self._given: deque[GivenOffsets] = deque()
        self._groups: set[str] = set()  # that are on the transaction's list
        self._sequence = 0
        self._ends: dict[TopicPartition, int] = {}  # logs reach this far, and perhaps further

    def begin(self) -> None:
        """Another transaction."""
        self._given.clear()
        self._groups.clear()
        self._sequence = 0

    def __bool__(self) -> bool:
        """Whether something is still to be staged."""
        return bool(self._given)

    def give(self, given: GivenOffsets) -> None:
        self._given.append(given)

    async def stage_all(self, writer: Writer, call: TransactionCall) -> None:
        """All that was given. OffsetsRefused, StaleTransaction, TransactionPending, and what `call.ask` raises."""
        while self._given:
            given = self._given[0]
            await self._add(given.group.group_id, writer, call)
            try:
                await self._stage(given, writer, call)
            except RaylogError as error:
                raise self._failure(given.group, error, call) from error
            self._given.popleft()

    def _failure(self, group: GroupMetadata, error: RaylogError, call: TransactionCall) -> RaylogError:
        """Return what the program is told: which errors abort its transaction, and after which it may try again."""
        if isinstance(error, StaleTransaction):
            return error
        if isinstance(error, AdminError) or (isinstance(error, GroupError) and not error.retriable):
            return OffsetsRefused(self._transaction.transactional_id, group.group_id, error.describe().rstrip("."))
        return call.pending_by(error)

    async def _add(self, group: str, writer: Writer, call: TransactionCall) -> None:
        if group not in self._groups:
            await call.ask(AddGroup(self._transaction.transactional_id, writer.producer_id, writer.epoch, group), Done)
            self._groups.add(group)

    async def _stage(self, given: GivenOffsets, writer: Writer, call: TransactionCall) -> None:
        group = given.group
        if not group.member_id and group.member_epoch != NO_EPOCH:
            raise UnknownMember(group.group_id, "", group.member_epoch, -1, "it is not a member just now")
        await self._check_ends(given, call)
        entries = [await self._entry(each, at, call) for each, at in sorted(given.offsets.items())]
        for portion in portions(entries):
            self._sequence += 1
            request = StageOffsets(
                group.group_id, group.member_id, group.member_epoch,
                writer.producer_id, writer.epoch, self._sequence, portion,
            )  # fmt: skip
            answer = await GroupCalls(self._link, group.group_id).ask_until(request, OffsetsCommitted, call.left)
            for refusal in answer.refused:
                raise error_of(refusal)

    async def _check_ends(self, given: GivenOffsets, call: TransactionCall) -> None:
        """Raise OffsetBeyondEnd. A log that is known to reach far enough is not asked again: ends do not go back."""
        beyond = [each for each, at in given.offsets.items() if at.offset > self._ends.get(each, 0)]
        if not beyond:
            return
        ends = await look_up(self._link, dict.fromkeys(sorted(beyond), LATEST), False, call.left)
        for partition, found in ends.items():
            self._ends[partition] = found.offset
            if given.offsets[partition].offset > found.offset:
                asked = given.offsets[partition].offset
                raise OffsetBeyondEnd(given.group.group_id, str(partition), asked, found.offset)

    async def _entry(self, partition: TopicPartition, at: OffsetAndMetadata, call: TransactionCall) -> OffsetToCommit:
        view = self._link.topic(partition.topic) or await self._link.find_topic(partition.topic, call.left)
        return view.topic_id, partition.partition, at.offset, at.leader_epoch, at.metadata


def _offset(at: object) -> OffsetAndMetadata:
    if isinstance(at, OffsetAndMetadata):
        return at
    if type(at) is not int:
        raise TypeError(f"An offset is an int or an OffsetAndMetadata, and not {at!r}.")
    return OffsetAndMetadata(at)


class TransactionRequests:
    """The transactions of one sender, whose options have a transactional id. Made on its loop."""

    def __init__(self, sender: Sender) -> None:
        assert sender.transaction is not None
        self.transaction: ProducerTransaction = sender.transaction
        self._sender = sender
        self._name = self.transaction.transactional_id
        self._offsets = TransactionOffsets(sender.link, self.transaction)
        self._turn = asyncio.Lock()  # one call after the other, also after one that was interrupted

    def _called(self, name: str, seconds: float) -> TransactionCall:
        return TransactionCall(self._sender.link, self._name, name, seconds)

    async def init(self, seconds: float) -> None:
        """Raises ProducerError, TransactionPending."""
        call = self._called("init_transactions", seconds)
        async with self._turn:
            self.transaction.check_uninitialised()
            timeout_ms = self._sender.options.transaction_timeout_ms
            asked = InitProducer(self._name, timeout_ms, _NO_IDENTITY, _NO_IDENTITY)
            answer = await call.ask(asked, ProducerInitialised)
            self.transaction.initialised(Writer(answer.producer_id, answer.epoch, True))

    async def begin(self) -> None:
        """Raises InvalidTransactionState, or why the one before is not over."""
        async with self._turn:
            self.transaction.begin()
            self._offsets.begin()

    async def send_offsets(self, given: GivenOffsets, seconds: float) -> None:
        """Raises OffsetsRefused, TransactionAborted: abort it. TransactionPending: again, or commit, which does it as
        well.
        """
        call = self._called("send_offsets_to_transaction", seconds)
        async with self._turn:
            self.transaction.check_taking()
            if given.offsets:
                self._offsets.give(given)
                await self._stage(call)

    async def commit(self, seconds: float) -> None:
        """Raises TransactionAborted, TransactionTimedOut: abort it. ProducerFenced. TransactionPending: commit again.
        """
        call = self._called("commit_transaction", seconds)
        async with self._turn:
            self.transaction.commit()
            if self.transaction.phase is Phase.FLUSHING:
                await self._deliver_all(call)
                await self._stage(call)
                self.transaction.flushed()
            await self._end(call, commits=True)

    async def abort(self, seconds: float) -> None:
        """Raises ProducerFenced. TransactionPending: abort again."""
        call = self._called("abort_transaction", seconds)
        async with self._turn:
            self.transaction.abort()
            while not self._sender.refuse_unsent():
                if not call.left:
                    raise call.pending("another thread is sending")
                await asyncio.sleep(_GATE_RETRY_SECONDS)
            await self._end(call, commits=False)

    async def give_up(self, seconds: float) -> None:
        """The producer is closed: what is open is aborted, here or by its coordinator when its time is over."""
        if not self.transaction.can_abort:
            return
        try:
            await self.abort(seconds)
        except RaylogError as error:
            _log.warning("A producer is closed, and its open transaction is not known to be aborted: %s", error)

    async def _deliver_all(self, call: TransactionCall) -> None:
        waiting = [_resolved(batch) for batch in self._sender.accumulator.flush()]
        self._sender.drain()
        if waiting and (await asyncio.wait(waiting, timeout=call.left))[1]:
            raise call.pending("not all of its records are delivered")

    async def _stage(self, call: TransactionCall) -> None:
        """Stage the offsets that were given."""
        if not self._offsets:
            return
        writer = self.transaction.writer
        assert writer is not None
        self.transaction.has_sent = True
        try:
            await self._offsets.stage_all(writer, call)
        except TransactionPending:
            raise
        except RaylogError as error:
            self._sender.transaction_failed(error)
            if error.abortable:
                raise
            raise self.transaction.refusal() from error

    async def _end(self, call: TransactionCall, *, commits: bool) -> None:
        transaction = self.transaction
        writer = transaction.writer
        assert writer is not None
        if transaction.has_sent:
            asked = EndTransaction(self._name, writer.producer_id, writer.epoch, commits)
            try:
                answer = await call.ask(asked, TransactionEnded)
            except TransactionTimedOut as error:
                transaction.ended_by_coordinator(error)
                raise
            except (InvalidTransactionState, ProducerFenced, UnknownTransactionalId) as error:
                transaction.doomed(error)
                raise
            writer = Writer(answer.producer_id, answer.epoch, True)
        transaction.ended(writer)


def _resolved(batch: ProducerBatch) -> asyncio.Future[None]:
    done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def tell() -> None:
        if not done.done():
            done.set_result(None)

    batch.listen(tell)
    return done

"""Offsets that a transaction commits together with its records: from the program to the group's coordinator.

    given ──AddGroup──► the transaction's coordinator, then ──StageOffsets──► the group's coordinator

What must stay true:
- A group is on its transaction's list before anything is staged with it (rule 21).
- What was given is staged before the transaction is committed, also where the call that gave it ran out of time.
- Requests are numbered, so that one that arrives late or again does not undo what came after it.
- Nothing beyond the end of a log is staged: whoever went on there would pass over records that are still to come.
- A former member stages nothing: the records are somebody else's to process (rules 23 and 24).

It runs without threads and Ray, in the simulator as well.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping
from typing import NamedTuple, TypeAlias

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.replication_messages import LATEST
from raylog.actors.protocol.transaction_messages import AddGroup
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.offset_lookup import look_up
from raylog.api.connection.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from raylog.api.producer.rules.producer_batch import Writer
from raylog.api.producer.rules.producer_transaction import ProducerTransaction
from raylog.api.producer.sending.transaction_call import TransactionCall
from raylog.errors import (
    AdminError,
    GroupError,
    OffsetBeyondEnd,
    OffsetsRefused,
    RaylogError,
    StaleTransaction,
    UnknownMember,
)
from raylog.groups.records.messages import NO_EPOCH, OffsetsCommitted, OffsetToCommit, StageOffsets, portions
from raylog.groups.records.refusals import error_of
from raylog.groups.records.settings import check_group_id

Offsets: TypeAlias = (
    "Mapping[TopicPartition, int | OffsetAndMetadata] | Mapping[tuple[str, int], int | OffsetAndMetadata]"
)


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

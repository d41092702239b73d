"""Looking at transactions and ending them from outside, over a link. For `cluster_transactions.py`.

    list, describe, abort    the coordinators, each of its own transactional ids
    find hanging             leaders, group coordinators: what is open, what is staged?
                             ──► coordinators: whose is it? ──► leaders, group coordinators: is it still?

What must stay true:
- Looking makes nothing: where nobody has used transactions yet, their topic is not made for it.
- A transaction hangs where its partition has it open and no coordinator has it as open or being ended with that
  partition; offsets hang where no coordinator has the transaction that staged them as open with a group of that
  group coordinator. Leaders and group coordinators are asked before and after the coordinators of transactions: what
  ended in between does not count. An identity that is over never comes back, so what hangs once hangs for good, and
  may be ended where it is.
- A process that does not answer hides nothing that others know; what could not be asked is told.
- An abort names the transaction that was seen open; asked twice, it ends no later one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Iterable
from typing import Final, NamedTuple, TypeAlias, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.hanging_transactions import Hanging
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC, coordinator_hash, group_hash
from raylog.actors.protocol.replication_messages import ListOpenTransactions, OpenTransactions
from raylog.actors.protocol.transaction_messages import (
    AbortTransaction,
    DescribeTransaction,
    ListTransactions,
    TransactionRecord,
    TransactionsListed,
)
from raylog.actors.transactions.rules.transaction import Phase, identity_in_use
from raylog.api.admin.rules.transaction_descriptions import (
    HangingTransaction,
    HangingTransactions,
    TransactionDescription,
    TransactionListing,
)
from raylog.api.connection.coordinator_calls import ask_coordinator
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.leader_requests import ask_until_answered
from raylog.api.connection.records import TopicPartition
from raylog.errors import InvalidTransactionState, RaylogError, UnknownTopic, UnknownTransactionalId
from raylog.groups.records.messages import ListStaged, StagedListed

_Answer = TypeVar("_Answer", bound=Message)
_ASK_SECONDS: Final = 5.0
_NO_TIME: Final = -1
_NO_OFFSET: Final = -1
_PHASES: Final = 3  # of looking for what hangs: before, whose it is, and after; none takes the time of the others
_Key: TypeAlias = tuple[TopicPartition, int, int, int]
EndHanging: TypeAlias = Callable[[Hanging, float], Awaitable[None]]
_Look: TypeAlias = Callable[[TopicPartition, float], Awaitable[list[HangingTransaction]]]


class _Identity(NamedTuple):
    producer_id: int
    epoch: int


class TransactionAdministration:
    """Made on the link's loop, for one call. `end_hanging` lets a process of the cluster end one (rule 33)."""

    def __init__(self, link: ClusterLink, timeout: float, end_hanging: EndHanging) -> None:
        self._link = link
        self._end_hanging = end_hanging
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout

    # --- looking --------------------------------------------------------------------------------------------------

    async def list_transactions(self) -> tuple[TransactionListing, ...]:
        """Return the transactions of all coordinators."""
        return tuple(sorted(await self._listings(), key=lambda each: each.transactional_id))

    async def describe(self, transactional_id: str) -> TransactionDescription:
        """Raises UnknownTransactionalId."""
        record = await self._record(transactional_id)
        producer_id, epoch = identity_in_use(record)
        partitions = sorted(TopicPartition(topic, number) for topic, _, number in record.partitions)
        return TransactionDescription(
            record.transactional_id, Phase(record.phase).words, producer_id, epoch, record.timeout_ms,
            record.begun_ms if record.phase == Phase.ONGOING else None, record.changed_ms,
            tuple(partitions), tuple(sorted(record.groups)),
        )  # fmt: skip

    async def _listings(self) -> list[TransactionListing]:
        view = await self._coordinators()
        if view is None:
            return []
        answers = await asyncio.gather(
            *(self._ask(number, ListTransactions(), TransactionsListed) for number in range(len(view.partitions)))
        )
        return [
            TransactionListing(name, Phase(phase).words, producer_id, epoch, None if begun == _NO_TIME else begun)
            for answer in answers
            for name, producer_id, epoch, phase, begun in answer.transactions
        ]

    async def _record(self, transactional_id: str) -> TransactionRecord:
        if await self._coordinators() is None:
            raise UnknownTransactionalId(transactional_id)
        hashed = coordinator_hash(transactional_id)
        return await self._ask(hashed, DescribeTransaction(transactional_id), TransactionRecord)

    async def _coordinators(self) -> TopicView | None:
        try:
            return await self._link.find_topic(TRANSACTIONS_TOPIC, self._left())
        except UnknownTopic:
            return None

    # --- ending ---------------------------------------------------------------------------------------------------

    async def abort(self, transactional_id: str) -> None:
        """Raises UnknownTransactionalId; InvalidTransactionState: none is open."""
        record = await self._record(transactional_id)
        if record.phase != Phase.ONGOING:
            state = Phase(record.phase).words
            raise InvalidTransactionState(f"{transactional_id!r} has no open transaction: its state is {state}.")
        message = AbortTransaction(transactional_id, record.producer_id, record.epoch)
        await self._ask(coordinator_hash(transactional_id), message, Done)

    async def abort_hanging(self, hanging: HangingTransaction) -> None:
        """A marker at its partition alone, or a word to that group coordinator. InvalidTransactionState: it does not
        hang there."""
        found = await self._search([hanging.partition])
        if _key(hanging) not in map(_key, found):
            if hanging.partition in found.unasked:
                raise found.unasked[hanging.partition]
            raise InvalidTransactionState(f"{hanging} does not hang (any more).")
        topic, number = hanging.partition
        end = Hanging(
            topic, number, hanging.producer_id, hanging.epoch, hanging.coordinator_epoch, bool(hanging.groups)
        )
        await self._end_hanging(end, self._left())

    # --- hanging ones ---------------------------------------------------------------------------------------------

    async def find_hanging(self, topics: Collection[str] | None) -> HangingTransactions:
        """Find hanging transactions in these topics; None: in all. UnknownTopic, and what transaction coordinators do
        not answer with.
        """
        return await self._search(await self._partitions(topics))

    async def _search(self, partitions: Iterable[TopicPartition]) -> HangingTransactions:
        before, unasked = await self._open_in(partitions)
        if not before:
            return HangingTransactions((), unasked)
        orphans = set(map(_key, await self._without_coordinator(before)))
        after, unasked_again = await self._open_in({partition for partition, *_ in orphans})
        found = sorted((each for each in after if _key(each) in orphans), key=_key)
        return HangingTransactions(found, unasked | unasked_again)

    async def _partitions(self, topics: Collection[str] | None) -> list[TopicPartition]:
        if topics is None:
            views: Iterable[TopicView] = await self._link.list_topics(self._left())
        else:
            views = [await self._link.find_topic(topic, self._left()) for topic in topics]
        return [TopicPartition(view.name, number) for view in views for number in range(len(view.partitions))]

    async def _open_in(
        self, partitions: Iterable[TopicPartition]
    ) -> tuple[list[HangingTransaction], dict[TopicPartition, RaylogError]]:
        """Return the transactions that are open in these partitions, and the partitions that did not answer soon: one
        without a leader must not hide the others.
        """
        found: list[HangingTransaction] = []
        unasked: dict[TopicPartition, RaylogError] = {}
        seconds = min(_ASK_SECONDS, self._left() / _PHASES)

        async def ask(partition: TopicPartition, look: _Look) -> None:
            try:
                found.extend(await look(partition, seconds))
            except UnknownTopic:
                return  # deleted meanwhile, with all that was open there
            except RaylogError as error:
                unasked[partition] = error

        looks: list[tuple[TopicPartition, _Look]] = []
        for each in partitions:
            looks.append((each, self._open_at))
            if each.topic == OFFSETS_TOPIC:
                looks.append((each, self._staged_at))
        await asyncio.gather(*(ask(*each) for each in looks))
        return found, unasked

    async def _open_at(self, partition: TopicPartition, seconds: float) -> list[HangingTransaction]:
        answer = await self._ask_leader(partition, ListOpenTransactions(), OpenTransactions, seconds)
        return [HangingTransaction(partition, *each) for each in answer.transactions]

    async def _staged_at(self, partition: TopicPartition, seconds: float) -> list[HangingTransaction]:
        answer = await self._ask_group_coordinator(partition, ListStaged(), StagedListed, seconds)
        return [
            HangingTransaction(partition, producer_id, epoch, _NO_OFFSET, staged_ms, coordinator_epoch, groups)
            for producer_id, epoch, coordinator_epoch, staged_ms, groups in answer.transactions
        ]

    async def _without_coordinator(self, found: Iterable[HangingTransaction]) -> list[HangingTransaction]:
        living = {
            _Identity(each.producer_id, each.epoch): each.transactional_id
            for each in await self._listings()
            if each.state in ("Ongoing", "PrepareCommit", "PrepareAbort")
        }
        orphans = []
        for each in found:
            name = living.get(_Identity(each.producer_id, each.epoch))
            if name is None or not await self._has(name, each):
                orphans.append(each)
        return orphans

    async def _has(self, transactional_id: str, found: HangingTransaction) -> bool:
        """Whether a coordinator has it, or had it: one that has ended meanwhile is seen by asking the leader again."""
        record = await self._record(transactional_id)
        if identity_in_use(record) != (found.producer_id, found.epoch):
            return True
        if found.groups:
            count = len((await self._link.find_topic(OFFSETS_TOPIC, self._left())).partitions)
            return any(group_hash(group) % count == found.partition.partition for group in record.groups)
        view = await self._link.find_topic(found.partition.topic, self._left())
        return (view.name, view.topic_id, found.partition.partition) in record.partitions

    # --- how ------------------------------------------------------------------------------------------------------

    def _left(self) -> float:
        return max(0.0, self._deadline - self._loop.time())

    async def _ask(self, hashed: int, message: Message, expected: type[_Answer]) -> _Answer:
        return await ask_coordinator(self._link, TRANSACTIONS_TOPIC, hashed, message, expected, self._left())

    async def _ask_group_coordinator(
        self, partition: TopicPartition, message: Message, expected: type[_Answer], seconds: float
    ) -> _Answer:
        return await GroupCalls(self._link, "", partition.partition).ask_until(message, expected, seconds)

    async def _ask_leader(
        self, partition: TopicPartition, message: Message, expected: type[_Answer], seconds: float
    ) -> _Answer:
        async def ask(leader: PartitionLeader, timeout: float) -> _Answer:
            told = await self._link.ask(leader, message, expect=expected, timeout=min(timeout, _ASK_SECONDS))
            return told.message

        return await ask_until_answered(self._link, partition, ask, seconds)


def _key(hanging: HangingTransaction) -> _Key:
    """Return what stays the same however often the transaction is looked at."""
    return hanging.partition, hanging.first_offset, hanging.producer_id, hanging.epoch

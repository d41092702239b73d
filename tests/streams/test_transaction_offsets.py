"""Offsets within a transaction: a real producer and real consumers, with the real coordinators of both.

The cluster between them is make-believe: it has no leaders that take records.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import CoordinatorAddress, PartitionLeader
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC
from raylog.actors.protocol.transaction_messages import AddGroup, EndTransaction
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.records import GroupMetadata, OffsetAndMetadata, TopicPartition
from raylog.api.consumer.consumer import Consumer, core_of
from raylog.api.producer import producer_core
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.producer import Producer
from raylog.errors import (
    CoordinatorNotReady,
    InvalidGroupId,
    InvalidTransactionState,
    OffsetsRefused,
    ProducerFenced,
    RaylogError,
    RequestTimedOut,
    TransactionAborted,
    TransactionPending,
    UnstableOffset,
)
from raylog.groups.records.messages import RemoveMembers, StageOffsets
from raylog.storage.format.record_batch import Bytes
from tests.streams.group_link import GroupLink
from tests.streams.test_group_consumer import P0, P1, Cluster, cluster, poll_until
from tests.unit.actors.transaction_stand_ins import HandLog

__all__ = ["cluster"]

_PLACE = CoordinatorAddress(TRANSACTIONS_TOPIC, b"", 0, -1, 1, (), "")


class TransactionLink:
    """Lets a `GroupLink` find a transaction coordinator too. `errors` are raised first, each once."""

    def __init__(self, link: GroupLink) -> None:
        self.asked: list[Message] = []
        self.errors: dict[type[Message], list[RaylogError]] = {}
        self._ids = 1000
        spec, log = SimpleNamespace(term=1, partition=0), HandLog()
        self._core = TransactionCoordinator(link.env, cast(Any, spec), cast(Any, log), cast(Any, link))
        self._find, self._ask = link.find_coordinator, link.ask
        patched = cast(Any, link)
        patched.find_coordinator, patched.ask, patched.producer_id = self.find, self.ask, self.producer_id

    async def find(self, topic: str, hashed: int, timeout: float) -> CoordinatorAddress:
        return _PLACE if topic == TRANSACTIONS_TOPIC else await self._find(topic, hashed, timeout)

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[Any], timeout: float
    ) -> Response:
        self.asked.append(message)
        for error in self.errors.get(type(message), [])[:1]:
            self.errors[type(message)].remove(error)
            raise error
        if leader is not _PLACE:
            return await self._ask(leader, message, payload, expect=expect, timeout=timeout)
        answer = self._core.handle(cast(Any, SimpleNamespace(message=message)))
        try:
            return cast(Any, await asyncio.wait_for(answer, timeout)) or Response(Done())
        except asyncio.TimeoutError:
            raise RequestTimedOut("the coordinator", round(1000 * timeout)) from None

    async def producer_id(self, _timeout: float) -> int:
        self._ids += 1
        return self._ids


@pytest.fixture
def transactions(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> TransactionLink:
    async def acquire(_runtime: ClientRuntime, _address: object) -> GroupLink:
        return cluster.link

    monkeypatch.setattr(producer_core, "link_address", lambda *_: None)
    monkeypatch.setattr(ClientRuntime, "acquire_link", acquire)
    found: TransactionLink = cluster.do(lambda: TransactionLink(cluster.link))
    return found


@pytest.fixture
def producer(transactions: TransactionLink) -> Iterator[Producer]:
    with Producer(transactional_id="mover", max_block_ms=10_000) as made:
        made.init_transactions()
        yield made


def member(cluster: Cluster, **settings: Any) -> Consumer:
    """A member that has read ten records of each partition, and committed nothing."""
    cluster.fill(10)
    one = cluster.consumer("t", enable_auto_commit=False, **settings)
    poll_until(lambda: len(one.assignment()) == 4, one)
    return one


def until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + 10.0
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.02)


def lose_place(consumer: Consumer) -> None:
    """Lose the place in the group by not polling for too long."""
    until(lambda: not consumer.group_metadata().member_id)


def test_offsets_count_with_the_transaction_or_not_at_all(cluster: Cluster, producer: Producer) -> None:
    one = member(cluster)
    one.commit({P0: 1})
    for commits, known in ((False, 1), (True, 8)):
        producer.begin_transaction()
        producer.send_offsets_to_transaction({P0: 5}, one.group_metadata())
        given: dict[TopicPartition, int | OffsetAndMetadata] = {P0: OffsetAndMetadata(8, "a note"), P1: 3}
        producer.send_offsets_to_transaction(given, one.group_metadata())
        with pytest.raises(UnstableOffset) as raised:
            one.committed(P0, timeout_ms=1500)
        assert raised.value.retriable
        if commits:
            producer.commit_transaction()
        else:
            producer.abort_transaction()
        assert one.committed(P0) == known
    assert one.committed(P0, metadata=True) == OffsetAndMetadata(8, "a note")
    assert one.committed(P1) == 3


def test_a_block_commits_both_or_neither(cluster: Cluster, producer: Producer) -> None:
    one = member(cluster)
    with producer.transaction():
        producer.send_offsets_to_transaction({("t", 0): 4}, one.group_metadata())
        producer.send_offsets_to_transaction({}, one.group_metadata())

    def fail() -> None:
        with producer.transaction():
            producer.send_offsets_to_transaction({P0: 9}, one.group_metadata())
            raise KeyError

    with pytest.raises(KeyError):
        fail()
    assert one.committed(P0) == 4


def test_who_is_no_member_any_more_commits_nothing(cluster: Cluster, producer: Producer) -> None:
    one = member(cluster, max_poll_interval_ms=400)
    before = one.group_metadata()
    lose_place(one)
    for who in (before, one.group_metadata()):
        with pytest.raises(OffsetsRefused) as raised, producer.transaction():
            producer.send_offsets_to_transaction({P0: 10}, who)
        assert raised.value.abortable
    assert one.committed(P0) is None
    poll_until(lambda: bool(one.group_metadata().member_id), one)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 10}, one.group_metadata())
    assert one.committed(P0) == 10


def test_a_place_that_was_lost_and_taken_again_meanwhile_gives_no_right_to_records_of_before(
    cluster: Cluster, producer: Producer
) -> None:
    one = member(cluster)
    membership = core_of(one).group.client.membership  # type: ignore[union-attr]
    assert membership is not None
    before = membership.member.member_id
    cluster.runtime.run(cluster.link._coordinator.handle(RemoveMembers("g", (), (), "for the test")), 5.0)
    until(lambda: membership.member.member_id != before and bool(membership.member.holds))
    with pytest.raises(OffsetsRefused), producer.transaction():
        producer.send_offsets_to_transaction({P0: 10}, one.group_metadata())
    poll_until(lambda: bool(one.group_metadata().member_id), one)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 10}, one.group_metadata())


def test_whoever_was_told_its_partitions_commits_while_there_are_no_members(
    cluster: Cluster, producer: Producer
) -> None:
    cluster.fill(10)
    alone = cluster.consumer(enable_auto_commit=False)
    alone.assign([P0])
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 7}, alone.group_metadata())
    assert alone.committed(P0) == 7
    one = cluster.consumer("t")
    poll_until(lambda: len(one.assignment()) == 4, one)
    with pytest.raises(OffsetsRefused, match="has 1 members"), producer.transaction():
        producer.send_offsets_to_transaction({P0: 8}, alone.group_metadata())


def test_a_wrong_partition_aborts_it(cluster: Cluster, producer: Producer) -> None:
    one = member(cluster)
    for wrong in (("t", 99), ("nowhere", 0)):
        with pytest.raises(OffsetsRefused) as raised, producer.transaction():
            producer.send_offsets_to_transaction({P0: 3, wrong: 1}, one.group_metadata())
        assert raised.value.__cause__ is not None
    assert one.committed(P0) is None


def test_an_offset_beyond_the_end_aborts_it(cluster: Cluster, producer: Producer) -> None:
    one = member(cluster)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 10, P1: 10}, one.group_metadata())
    with pytest.raises(OffsetsRefused, match="offset 12 of t-0, whose log ends at 10"), producer.transaction():
        producer.send_offsets_to_transaction({P1: 10, P0: 12}, one.group_metadata())
    assert one.committed(P0) == 10
    cluster.fill(5)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 12}, one.group_metadata())
    assert one.committed(P0) == 12


def test_coordinators_are_asked_until_they_answer(
    cluster: Cluster, producer: Producer, transactions: TransactionLink
) -> None:
    one = member(cluster)
    transactions.errors[AddGroup] = [CoordinatorNotReady(TRANSACTIONS_TOPIC, 0)]
    transactions.errors[StageOffsets] = [CoordinatorNotReady("__consumer_offsets", 0)]
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 5}, one.group_metadata())
        cluster.do(cluster.link.replace_coordinator)
    assert one.committed(P0) == 5
    assert [type(each) for each in transactions.asked if type(each) in (AddGroup, StageOffsets, EndTransaction)] == [
        AddGroup, AddGroup, StageOffsets, StageOffsets, EndTransaction,
    ]  # fmt: skip


def test_what_was_not_staged_in_time_is_staged_by_the_commit(
    cluster: Cluster, producer: Producer, transactions: TransactionLink
) -> None:
    one = member(cluster)
    producer.begin_transaction()
    for kind, offset in ((AddGroup, 5), (StageOffsets, 6)):
        transactions.errors[kind] = [CoordinatorNotReady("t", 0)]
        with pytest.raises(TransactionPending) as raised:
            producer.send_offsets_to_transaction({P0: offset}, one.group_metadata(), timeout=0.005)
        assert raised.value.retriable
    producer.commit_transaction()
    assert one.committed(P0) == 6


def test_an_abort_without_an_answer_to_the_offsets_is_asked_for(
    cluster: Cluster, producer: Producer, transactions: TransactionLink
) -> None:
    one = member(cluster)
    producer.begin_transaction()
    transactions.errors[AddGroup] = [CoordinatorNotReady("t", 0)]
    with pytest.raises(TransactionPending):
        producer.send_offsets_to_transaction({P0: 5}, one.group_metadata(), timeout=0.005)
    producer.abort_transaction()
    assert [each.commits for each in transactions.asked if isinstance(each, EndTransaction)] == [False]


def test_a_fenced_producer_finds_out_by_aborting(
    cluster: Cluster, producer: Producer, transactions: TransactionLink
) -> None:
    one = member(cluster)
    producer.begin_transaction()
    with Producer(transactional_id="mover") as second:
        second.init_transactions()
        with pytest.raises(TransactionAborted) as raised:
            producer.send_offsets_to_transaction({P0: 5}, one.group_metadata())
        assert raised.value.abortable
        with pytest.raises(ProducerFenced) as fenced:
            producer.abort_transaction()
        assert fenced.value.fatal


def test_out_of_order_and_of_the_wrong_type(cluster: Cluster, producer: Producer) -> None:
    cluster.fill(1)
    who = GroupMetadata("g", "", -1)
    with pytest.raises(InvalidTransactionState) as raised:
        producer.send_offsets_to_transaction({P0: 1}, who)
    assert raised.value.fatal
    producer.begin_transaction()
    wrong: Any
    for wrong in ("g", None, ("g", "", -1)):
        with pytest.raises(TypeError, match="group_metadata"):
            producer.send_offsets_to_transaction({P0: 1}, wrong)
    for wrong in ("1", None, True):
        with pytest.raises(TypeError, match="offset"):
            producer.send_offsets_to_transaction({P0: wrong}, who)
    with pytest.raises(InvalidGroupId):
        producer.send_offsets_to_transaction({P0: 1}, GroupMetadata("", "", -1))
    producer.commit_transaction()


def test_coroutines_have_the_same(cluster: Cluster, transactions: TransactionLink) -> None:
    one = member(cluster)

    async def main() -> None:
        async with AsyncProducer(transactional_id="mover") as producer:
            await producer.init_transactions()
            async with producer.transaction():
                await producer.send_offsets_to_transaction({P0: 4}, one.group_metadata())

    asyncio.run(main())
    assert one.committed(P0) == 4

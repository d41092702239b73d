"""Transactions seen and ended from outside, with the real coordinators behind a make-believe cluster."""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from dataclasses import replace
from functools import partial
from typing import Any, TypeVar, cast

import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.hanging_transactions import end_over
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.protocol.replication_messages import ListOpenTransactions, OpenTransactions, WriteMarker
from raylog.actors.protocol.transaction_messages import AddPartition
from raylog.api.admin.rules.transaction_descriptions import HangingTransaction
from raylog.api.admin.transaction_administration import TransactionAdministration
from raylog.api.connection.records import TopicPartition
from raylog.api.producer.producer import Producer
from raylog.errors import (
    InvalidTransactionState,
    NotLeader,
    ProducerFenced,
    TransactionPending,
    UnknownTopic,
    UnknownTransactionalId,
    UnstableOffset,
)
from raylog.groups.records.messages import OffsetsCommitted, StageOffsets
from raylog.storage.format.record_batch import Bytes
from tests.streams.test_group_consumer import P0, Cluster, cluster
from tests.streams.test_transaction_offsets import TransactionLink, member, producer, transactions

__all__ = ["cluster", "producer", "transactions"]

_T = TypeVar("_T")


def administer(
    cluster: Cluster, call: Callable[[TransactionAdministration], Coroutine[Any, Any, _T]], timeout: float = 5.0
) -> _T:
    async def ask() -> _T:
        link = cluster.link.as_link
        return await call(TransactionAdministration(link, timeout, partial(end_over, link)))

    return cluster.runtime.run(ask(), 10.0)


class Leaders:
    """Open transactions by partition, and the markers that were written. `before` is called with each question."""

    def __init__(self, link: Any) -> None:
        self.open: dict[TopicPartition, list[tuple[int, int, int, int, int]]] = {}
        self.markers: list[tuple[int, WriteMarker]] = []
        self.before: Callable[[], None] = lambda: None
        self.leaderless: set[TopicPartition] = set()
        self._ask = link.ask
        link.ask = self.ask

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[Any], timeout: float
    ) -> Response:
        if isinstance(message, ListOpenTransactions):
            partition = TopicPartition(leader.topic, leader.partition)
            if partition in self.leaderless:
                raise NotLeader(*partition, -1, -1)
            found = tuple(self.open.get(partition, ()))
            self.before()
            return Response(OpenTransactions(found))
        if isinstance(message, WriteMarker):
            self.markers.append((leader.partition, message))
            return Response(Done())
        return cast(Response, await self._ask(leader, message, payload, expect=expect, timeout=timeout))


@pytest.fixture
def leaders(cluster: Cluster, transactions: TransactionLink) -> Leaders:
    cluster.do(lambda: cluster.link.add_topic(TRANSACTIONS_TOPIC, 1))
    cluster.do(lambda: cluster.link.add_topic(OFFSETS_TOPIC, 1))
    return cast(Leaders, cluster.do(lambda: Leaders(cluster.link)))


def test_looking_makes_no_topic_where_nobody_has_used_transactions(
    cluster: Cluster, transactions: TransactionLink
) -> None:
    assert administer(cluster, lambda admin: admin.list_transactions()) == ()
    for call in ("describe", "abort"):
        with pytest.raises(UnknownTransactionalId):
            administer(cluster, lambda admin, call=call: getattr(admin, call)("mover"))  # type: ignore[misc]
    assert not transactions.asked


def test_a_transaction_is_listed_and_described(cluster: Cluster, leaders: Leaders, producer: Producer) -> None:
    one = member(cluster)
    (listed,) = administer(cluster, lambda admin: admin.list_transactions())
    assert (listed.transactional_id, listed.state, listed.epoch, listed.began_ms) == ("mover", "Empty", 0, None)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 3}, one.group_metadata())
    add(cluster, listed.producer_id)
    told = administer(cluster, lambda admin: admin.describe("mover"))
    assert (told.state, told.producer_id, told.epoch) == ("Ongoing", listed.producer_id, 0)
    assert (told.groups, told.partitions, told.timeout_ms) == (("g",), (P0,), 60_000)
    assert told.began_ms is not None
    (listed,) = administer(cluster, lambda admin: admin.list_transactions())
    assert (listed.state, listed.began_ms) == ("Ongoing", told.began_ms)
    with pytest.raises(TransactionPending):  # nobody takes a marker here
        producer.commit_transaction(0.05)
    (listed,) = administer(cluster, lambda admin: admin.list_transactions())
    assert (listed.state, listed.epoch, listed.began_ms) == ("PrepareCommit", 0, None)
    assert administer(cluster, lambda admin: admin.describe("mover")).partitions == (P0,)
    with pytest.raises(UnknownTransactionalId):
        administer(cluster, lambda admin: admin.describe("nobody"))


def add(cluster: Cluster, producer_id: int, epoch: int = 0) -> None:
    """Let the transaction have a partition, as its leader asks for."""
    topic_id = cluster.link.topic("t").topic_id  # type: ignore[union-attr]
    cluster.runtime.run(ask(cluster, AddPartition("mover", producer_id, epoch, "t", topic_id, 0)), 5.0)


async def ask(cluster: Cluster, message: Message) -> Message:
    place = await cluster.link.find_coordinator(TRANSACTIONS_TOPIC, 0, 1.0)
    return (await cluster.link.ask(place, message, expect=Done, timeout=2.0)).message


def test_an_operator_ends_what_is_open_and_its_producer_is_fenced(
    cluster: Cluster, leaders: Leaders, producer: Producer
) -> None:
    one = member(cluster)
    with pytest.raises(InvalidTransactionState, match="Empty"):
        administer(cluster, lambda admin: admin.abort("mover"))
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 3}, one.group_metadata())
    administer(cluster, lambda admin: admin.abort("mover"))
    assert one.committed(P0) is None
    with pytest.raises(ProducerFenced) as raised:
        producer.commit_transaction()
    assert raised.value.fatal


def test_what_its_coordinator_has_open_does_not_hang(cluster: Cluster, leaders: Leaders, producer: Producer) -> None:
    (listed,) = administer(cluster, lambda admin: admin.list_transactions())
    producer.begin_transaction()
    add(cluster, listed.producer_id)
    leaders.open[P0] = [(listed.producer_id, 0, 5, 100, -1)]
    assert administer(cluster, lambda admin: admin.find_hanging(None)) == ()
    other = TopicPartition("t", 1)  # in which it has begun without being on the list
    leaders.open[other] = [(listed.producer_id, 0, 9, 100, -1)]
    found = administer(cluster, lambda admin: admin.find_hanging(["t"]))
    assert found == (HangingTransaction(other, listed.producer_id, 0, 9, 100, -1),)


def test_what_ends_while_it_is_looked_at_does_not_hang(
    cluster: Cluster, leaders: Leaders, producer: Producer
) -> None:
    one = member(cluster)
    with producer.transaction():
        producer.send_offsets_to_transaction({P0: 3}, one.group_metadata())
    (listed,) = administer(cluster, lambda admin: admin.list_transactions())
    assert (listed.state, listed.epoch) == ("CompleteCommit", 1)
    leaders.open[P0] = [(listed.producer_id, 0, 5, 100, -1)]
    assert len(administer(cluster, lambda admin: admin.find_hanging(None))) == 1
    leaders.before = leaders.open.clear
    assert administer(cluster, lambda admin: admin.find_hanging(None)) == ()


def test_what_hangs_is_found_and_ended_where_it_is(cluster: Cluster, leaders: Leaders) -> None:
    leaders.open[P0] = [(77, 4, 5, 100, 2), (78, 0, 9, 100, -1)]
    found = administer(cluster, lambda admin: admin.find_hanging(None))
    assert [(each.producer_id, each.first_offset) for each in found] == [(77, 5), (78, 9)]
    leaders.open[P0][0] = (77, 4, 5, 170, 2)  # it has written more since: the same
    administer(cluster, lambda admin: admin.abort_hanging(found[0]))
    ((partition, marker),) = leaders.markers
    assert (partition, marker.producer_epoch, marker.coordinator_epoch, marker.commits) == (0, 5, 2, False)
    leaders.open.clear()
    with pytest.raises(InvalidTransactionState, match="does not hang"):
        administer(cluster, lambda admin: admin.abort_hanging(found[1]))
    with pytest.raises(UnknownTopic):
        administer(cluster, lambda admin: admin.find_hanging(["nowhere"]))


def test_a_partition_without_a_leader_does_not_hide_what_hangs_in_others(cluster: Cluster, leaders: Leaders) -> None:
    leaderless = TopicPartition("t", 1)
    leaders.leaderless = {leaderless}
    leaders.open[P0] = [(77, 4, 5, 100, 2)]
    found = administer(cluster, lambda admin: admin.find_hanging(None), timeout=0.6)
    assert [each.partition for each in found] == [P0]
    assert set(found.unasked) == {leaderless}
    assert isinstance(found.unasked[leaderless], NotLeader)
    administer(cluster, lambda admin: admin.abort_hanging(found[0]), timeout=0.6)
    assert len(leaders.markers) == 1
    hidden = replace(found[0], partition=leaderless)
    with pytest.raises(NotLeader):  # whether it hangs is not known
        administer(cluster, lambda admin: admin.abort_hanging(hidden), timeout=0.6)
    leaders.open.clear()
    assert administer(cluster, lambda admin: admin.find_hanging(["t"]), timeout=0.6).unasked.keys() == {leaderless}


def stage(cluster: Cluster, producer_id: int, epoch: int, group: str) -> None:
    """Stage offsets as a program that asks no transaction coordinator first, or whose coordinator has forgotten it."""
    topic_id = cluster.link.topic("t").topic_id  # type: ignore[union-attr]
    message = StageOffsets(group, "", -1, producer_id, epoch, 1, ((topic_id, 0, 5, -1, ""),))

    async def ask() -> None:
        place = await cluster.link.find_coordinator(OFFSETS_TOPIC, 0, 1.0)
        await cluster.link.ask(place, message, expect=OffsetsCommitted, timeout=2.0)

    cluster.runtime.run(ask(), 5.0)


def test_staged_offsets_that_nobody_will_decide_are_found_and_dropped(cluster: Cluster, leaders: Leaders) -> None:
    stage(cluster, 77, 3, "orphans")
    stage(cluster, 77, 3, "others")
    assert administer(cluster, lambda admin: admin.find_hanging(["t"])) == ()
    (found,) = administer(cluster, lambda admin: admin.find_hanging(None))
    assert found == HangingTransaction(
        TopicPartition(OFFSETS_TOPIC, 0), 77, 3, -1, found.last_write_ms, -1, ("orphans", "others")
    )
    reader = cluster.consumer(group_id="orphans")
    with pytest.raises(UnstableOffset):
        reader.committed(P0, timeout_ms=300)
    administer(cluster, lambda admin: admin.abort_hanging(found))
    assert reader.committed(P0) is None
    assert administer(cluster, lambda admin: admin.find_hanging(None)) == ()
    with pytest.raises(InvalidTransactionState, match="does not hang"):
        administer(cluster, lambda admin: admin.abort_hanging(found))
    assert not leaders.markers


def test_offsets_of_an_open_transaction_do_not_hang(cluster: Cluster, leaders: Leaders, producer: Producer) -> None:
    one = member(cluster)
    producer.begin_transaction()
    producer.send_offsets_to_transaction({P0: 3}, one.group_metadata())
    assert administer(cluster, lambda admin: admin.find_hanging(None)) == ()
    producer.commit_transaction()
    assert one.committed(P0) is not None

"""Markers go to every partition of their transaction, however late somebody hears of it, but to none that is gone."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any, cast

import pytest

from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.transaction_messages import AddPartition, InitProducer, TransactionRecord
from raylog.actors.transactions.coordinator import TransactionMarkers
from raylog.actors.transactions.rules.transaction import Phase, add_partition, init_producer
from raylog.api.connection.group_calls import GroupCalls
from raylog.errors import ClusterUnreachable, StaleTransaction
from raylog.groups.records.messages import GroupsListed, ListGroups
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import HandLink, OneProcess

OLD, NEW = b"o" * 16, b"n" * 16


class Markers:
    def __init__(self, world: World) -> None:
        self.one = OneProcess(world)
        self.link = HandLink()
        self.markers = self.one.make(lambda: TransactionMarkers(cast(Any, self.link), 0))
        self.writing = self.one.begin(self.markers.write_all(prepared(NEW, 2)))

    @property
    def written(self) -> list[tuple[bytes, int]]:
        return [(leader.topic_id, leader.partition) for leader, _ in self.link.asked]


@pytest.fixture
def markers() -> Iterator[Markers]:
    with World(5) as world:
        yield Markers(world)


def test_a_group_coordinator_that_has_a_later_word_needs_none(markers: Markers) -> None:
    markers.link.view = view(NEW, 3)
    markers.link.refusal = StaleTransaction(7, 0, 1, "Epoch")
    with_group = replace(prepared(NEW, 2), partitions=(), groups=("g",))
    markers.one.do(markers.markers.write_all(with_group), 1.0)


@pytest.mark.parametrize("group", ["g", "a\x1fb", "\x1f"])
def test_a_group_s_coordinator_is_the_one_that_its_clients_ask(markers: Markers, group: str) -> None:
    markers.link.view = view(NEW, 3)
    markers.link.refusal = StaleTransaction(7, 0, 1, "Epoch")
    client = markers.one.make(lambda: GroupCalls(cast(Any, markers.link), group))
    with pytest.raises(StaleTransaction):
        markers.one.do(client.ask(ListGroups(), GroupsListed, 1.0), 1.0)
    with_group = replace(prepared(NEW, 2), partitions=(), groups=(group,))
    markers.one.do(markers.markers.write_all(with_group), 1.0)
    of_client, of_markers = markers.link.hashes[-2:]
    assert of_client == of_markers


def prepared(topic_id: bytes, partition: int) -> TransactionRecord:
    known = init_producer(None, InitProducer("mover", 1000, -1, -1), 0, 7).record
    opened = add_partition(known, AddPartition("mover", 7, 0, "t", topic_id, partition), 0)
    assert opened is not None
    return replace(opened, phase=int(Phase.PREPARE_COMMIT), marker_id=7, marker_epoch=1)


def view(topic_id: bytes, partitions: int) -> TopicView:
    places = (Endpoint.parse("tcp:h:1"),)
    return TopicView(
        "t", topic_id, tuple(PartitionLeader("t", topic_id, each, 1, 0, places, "n") for each in range(partitions))
    )


@pytest.mark.parametrize("known", [view(OLD, 3), view(NEW, 2)], ids=["another topic had its name", "fewer partitions"])
def test_what_the_link_does_not_know_yet_is_asked_for(markers: Markers, known: TopicView) -> None:
    markers.link.view = known
    markers.one.world.run_for(3.0)
    assert not markers.writing.done()
    markers.link.newer = view(NEW, 3)
    markers.one.until(markers.writing.done, 5.0)
    assert markers.written == [(NEW, 2)]


@pytest.mark.parametrize("known", [view(OLD, 3), None], ids=["another topic has its name", "nobody has"])
def test_what_the_controller_calls_deleted_needs_none_at_once(markers: Markers, known: TopicView | None) -> None:
    markers.link.view, markers.link.deleted = known, {NEW}
    markers.one.until(markers.writing.done, 0.1)
    assert not markers.written


@pytest.mark.parametrize("known", [view(OLD, 3), None], ids=["another topic has its name", "nobody has"])
def test_what_brokers_do_not_know_is_not_gone_however_long_that_lasts(
    markers: Markers, known: TopicView | None
) -> None:
    markers.link.view = known
    markers.one.world.run_for(60.0)
    assert not markers.writing.done()


def test_while_nobody_answers_nothing_is_gone(markers: Markers) -> None:
    markers.link.view = view(NEW, 3)
    markers.link.refusal = ClusterUnreachable("b", 10, "silence")
    markers.one.world.run_for(30.0)
    markers.link.view, markers.link.newer = None, view(NEW, 3)
    markers.link.refusal = None
    markers.one.until(markers.writing.done, 5.0)
    assert markers.written == [(NEW, 2)]

"""Who is started first, when many replicas are missing at once."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest

from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.start_order import Rank, StartOrder, rank
from raylog.actors.protocol.names import OFFSETS_TOPIC
from tests.simulator.world.world import World
from tests.unit.actors.small_cluster import SmallCluster
from tests.unit.actors.transaction_stand_ins import OneProcess


def order_of(cluster: SmallCluster) -> list[tuple[str, int]]:
    """Of all that are missing, one after the other: partition and broker."""
    state, lives = cluster.state, set(cluster.running)
    missing = [ReplicaKey(*each.id, broker) for each in state.partitions.values() for broker in each.replicas]
    missing = [key for key in missing if key not in lives]
    started = []
    while missing:
        first = min(missing, key=lambda key: rank(state, lives.__contains__, key))
        missing.remove(first)
        lives.add(first)
        started.append((f"{state.topics[first[0]].name}-{first[1]}", first[2]))
    return started


def lose_all(cluster: SmallCluster) -> None:
    for topic_id, number, broker in list(cluster.running):
        cluster.lose_replica(cluster.state.topics[topic_id].name, broker, number)


def test_what_acknowledgements_need_comes_before_what_only_makes_safer() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], [2, 3, 1], settings={"min.insync.replicas": 2})
    lose_all(cluster)
    partitions = [partition for partition, _ in order_of(cluster)]
    assert partitions == ["t-0", "t-1", "t-0", "t-1", "t-0", "t-1"]


def test_users_topics_come_before_raylog_s_own() -> None:
    cluster = SmallCluster()
    cluster.create(OFFSETS_TOPIC, [1, 2, 3], internal=True)
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    lose_all(cluster)
    partitions = [partition for partition, _ in order_of(cluster)]
    internal = f"{OFFSETS_TOPIC}-0"
    assert partitions[:3] == ["t-0", "t-0", internal]
    assert sorted(partitions[3:]) == sorted(["t-0", internal, internal])


def test_who_cannot_lead_comes_last() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 1)  # out of the ISR, for the others live on
    lose_all(cluster)
    assert order_of(cluster)[-1] == ("t-0", 1)


def test_where_the_members_are_too_few_others_are_wanted_after_one_of_them() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    lose_all(cluster)
    partition = cluster.partition("t")
    assert partition.isr == (3,)  # lost last
    assert set(partition.elr) == {2}
    assert [broker for _, broker in order_of(cluster)] in ([2, 3, 1], [3, 2, 1])
    cluster.apply(partition.change_to(replace(partition, elr=()), "a test"))
    assert rank(cluster.state, lambda _: False, ReplicaKey(*partition.id, 3)) < rank(
        cluster.state, lambda _: False, ReplicaKey(*partition.id, 1)
    )
    one_lives = {ReplicaKey(*partition.id, 3)}.__contains__
    assert not rank(cluster.state, one_lives, ReplicaKey(*partition.id, 1)).is_spare
    two_live = {ReplicaKey(*partition.id, 3), ReplicaKey(*partition.id, 2)}.__contains__
    assert rank(cluster.state, two_live, ReplicaKey(*partition.id, 1)).is_spare


def test_one_that_is_not_wanted_any_more_is_not_in_the_way_for_long() -> None:
    assert rank(SmallCluster().state, lambda _: False, ReplicaKey(b"gone", 0, 1)) == Rank(False, False, 0)


class Starts:
    def __init__(self, world: World, slots: int) -> None:
        self.one = OneProcess(world)
        self.begun: list[ReplicaKey] = []
        self.ends: dict[ReplicaKey, asyncio.Event] = {}
        self.rank: Callable[[ReplicaKey], Rank] = lambda key: Rank(key.partition > 0, False, key.partition)
        self.order: StartOrder = self.one.make(lambda: StartOrder(self._rank, lambda _: slots))

    def _rank(self, key: ReplicaKey) -> Rank:
        return self.rank(key)

    def ask(self, partition: int, broker: int = 1, *, gather: bool = False) -> asyncio.Task[None]:
        return self.one.begin(self._start(ReplicaKey(b"t", partition, broker), gather))

    async def _start(self, key: ReplicaKey, gather: bool) -> None:
        self.ends[key] = asyncio.Event()
        async with self.order.turn(key, f"node-{key.broker_id}", gather=gather):
            self.begun.append(key)
            await self.ends[key].wait()

    def end(self, partition: int, broker: int = 1) -> None:
        self.one.make(self.ends[ReplicaKey(b"t", partition, broker)].set)

    def settle(self) -> None:
        self.one.world.run_for(0.6)

    @property
    def partitions(self) -> list[int]:
        return [key.partition for key in self.begun]


@pytest.fixture
def world() -> Iterator[World]:
    with World(3) as world:
        yield world


def test_each_node_has_slots_of_its_own_and_the_most_wanted_waits_least(world: World) -> None:
    starts = Starts(world, 1)
    for partition in (5, 3, 4):
        starts.ask(partition)
    starts.ask(9, broker=2)
    starts.settle()
    assert starts.partitions == [5, 9]
    starts.end(5)
    starts.settle()
    starts.end(3)
    starts.settle()
    assert starts.partitions == [5, 9, 3, 4]
    assert starts.order.underway == {(b"t", 9, 2), (b"t", 4, 1)}


def test_losses_that_are_heard_of_one_by_one_are_gathered(world: World) -> None:
    starts = Starts(world, 1)
    for partition in (5, 3, 4):
        starts.ask(partition, gather=True)
    starts.settle()
    assert starts.partitions == [3]


def test_what_is_wanted_most_of_all_waits_for_nobody(world: World) -> None:
    starts = Starts(world, 2)
    starts.ask(5, gather=True)
    starts.ask(0, gather=True)
    starts.one.world.run_for(0.01)
    assert starts.partitions == [0]
    starts.ask(3, gather=True)
    starts.settle()
    assert starts.partitions == [0, 3]


def test_whoever_is_cancelled_leaves_its_slot_or_its_place(world: World) -> None:
    starts = Starts(world, 1)
    first, second = starts.ask(1), starts.ask(2)
    third = starts.ask(3)
    starts.settle()
    starts.one.make(second.cancel)
    starts.settle()
    starts.one.make(first.cancel)
    starts.settle()
    assert starts.partitions == [1, 3]
    starts.end(3)
    starts.one.until(third.done)
    assert starts.order.underway == set()


def test_of_very_many_the_most_wanted_comes_first_though_what_is_wanted_changes(world: World) -> None:
    starts, more_wanted = Starts(world, 1), {60: -2, 200: -1}
    starts.rank = lambda key: Rank(key.partition > 100 and key.partition not in more_wanted, False, key.partition)
    for partition in reversed(range(300)):
        starts.ask(partition)
    starts.settle()
    assert starts.partitions == [299]
    starts.end(299)
    starts.settle()
    assert starts.partitions[1:] == [0]
    starts.rank = lambda key: Rank(False, False, more_wanted.get(key.partition, 1_000 - key.partition))
    starts.ask(300)
    starts.one.make(starts.order.rank_anew)
    for _ in range(200):
        starts.end(starts.partitions[-1])
        starts.settle()
    assert len(set(starts.partitions)) == 202
    assert {60, 200, 300} < set(starts.partitions[:70])
    assert starts.partitions[70:] == sorted(starts.partitions[70:], reverse=True)

"""The fold of the metadata log: reading it, snapshots, records applied twice."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.placement.draining import drain_broker
from raylog.actors.cluster.placement.reassignment import reassign_partitions
from raylog.actors.cluster.producer_ids import BLOCK_SIZE, allocate_producer_ids
from raylog.actors.cluster.state import NOT_REGISTERED, ClusterState
from raylog.actors.cluster.topic_admin import delete_topic
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voters
from raylog.actors.protocol.metadata_records import ProducerIdBlock
from raylog.errors import InvalidConfig, UnknownBroker, UnknownPartition, UnknownTopic
from raylog.storage.directory.doubts import REBOOTED
from tests.unit.actors.small_cluster import SmallCluster, topic_id_of


def eventful() -> SmallCluster:
    """A bit of everything."""
    cluster = SmallCluster(5, racks=["a", "b", "a", "b", "a"])
    cluster.create("t", [1, 2, 3], [2, 3, 4], settings={"retention.ms": 7})
    cluster.create("gone", [1, 5])
    cluster.create("new", [3, 4], start=False)
    cluster.apply(delete_topic(cluster.state, "gone"))
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {("t", 0): [5, 2, 3]}, throttle=1000))
    cluster.apply(drain_broker(cluster.state, cluster.live, 4))
    cluster.lose_broker(3)
    cluster.start_replica("t", 2, log=(1, 5), unproven=REBOOTED)
    cluster.apply(allocate_producer_ids(cluster.state).records)
    return cluster


def test_a_snapshot_makes_an_equal_state() -> None:
    cluster = eventful()
    copy = cluster.copy_of_state()
    assert copy == cluster.state
    assert copy.to_records() == cluster.state.to_records()
    cluster.lose_broker(1)
    assert copy != cluster.state


def test_an_empty_state_has_a_snapshot_too() -> None:
    copy = ClusterState()
    for record in ClusterState().to_records():
        copy.apply(record, 0)
    assert copy == ClusterState()


def test_records_applied_again_change_nothing() -> None:
    cluster = eventful()
    before = cluster.copy_of_state()
    for record in cluster.state.to_records():
        cluster.state.apply(record, 10_000)
    assert cluster.state == before


def test_the_logs_own_records_change_nothing() -> None:
    state = ClusterState()
    state.apply(Voters(((1, "a"), (2, "b"))), 0)
    state.apply(ControllerStarted(3), 1)
    assert state == ClusterState()


def test_what_is_not_there() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1])
    with pytest.raises(UnknownTopic):
        cluster.state.topic("u")
    with pytest.raises(UnknownTopic):
        cluster.state.partition(b"u" * 16, 0)
    with pytest.raises(UnknownPartition, match="'t'"):
        cluster.state.partition(topic_id_of("t"), 1)
    with pytest.raises(UnknownBroker):
        cluster.state.broker(2)
    assert cluster.state.incarnation(topic_id_of("t"), 0, 2) == NOT_REGISTERED


def test_the_index_by_broker_follows_every_change() -> None:
    cluster = eventful()
    for broker in range(1, 6):
        expected = [
            partition.id
            for partition in sorted(cluster.state.partitions.values(), key=lambda each: each.id)
            if broker in partition.replicas
        ]
        assert [partition.id for partition in cluster.state.partitions_on(broker)] == expected
        assert cluster.state.replica_count(broker) == len(expected)


def test_the_minimum_follows_the_replicas_that_count() -> None:
    cluster = SmallCluster(5)
    cluster.create("t", [1, 2, 3])
    cluster.create("strict", [1, 2], settings={"min.insync.replicas": 2})
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {("t", 0): [1, 2, 3, 4, 5]}))
    assert cluster.state.min_insync(cluster.partition("t")) == 2
    assert cluster.state.min_insync(cluster.partition("strict")) == 2


def test_producer_ids_are_never_given_twice() -> None:
    state = ClusterState()
    given: list[int] = []
    for size in (BLOCK_SIZE, 1, 7, BLOCK_SIZE, 1_000_000):
        block = allocate_producer_ids(state, size)
        given += range(block.first, block.end)
        for record in block.records:
            assert isinstance(record, ProducerIdBlock)
            state.apply(record, 0)
    assert given == list(range(2 * BLOCK_SIZE + 1_000_008))
    for size in (0, -1, 1_000_001):
        with pytest.raises(InvalidConfig, match="size"):
            allocate_producer_ids(state, size)
    assert state.next_producer_id == len(given)


def test_a_partition_goes_through_its_record_unchanged() -> None:
    before = PartitionState(b"x" * 16, 3, (1, 2, 3), (1,), (3,), (3, 2), 1, 4, 9, (2,), ((3, 7, 4, 100),))
    assert PartitionState.of_record(before.to_record("why")) == before
    assert before.change_to(before, "nothing") == []
    assert before.removing == (1,)
    assert before.original == (1, 2)

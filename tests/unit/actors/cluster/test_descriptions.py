"""What people are shown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.cluster.descriptions import (
    FOLLOWER,
    LEADER,
    OFFLINE,
    Reports,
    describe_brokers,
    describe_cluster,
    describe_replicas,
    describe_topic,
)
from raylog.actors.cluster.placement.reassignment import reassign_partitions
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.protocol.control_messages import ReplicaMarks
from raylog.errors import UnknownTopic
from tests.unit.actors.small_cluster import SmallCluster, topic_id_of


def marks(cluster: SmallCluster, broker: int, role: str, log: tuple[int, int, int, int]) -> ReplicaMarks:
    key = ReplicaKey(topic_id_of("t"), 0, broker)
    return ReplicaMarks(topic_id_of("t"), 0, cluster.state.replicas[key].incarnation, role, *log, False, "own", 0)


@pytest.fixture
def cluster() -> SmallCluster:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3], settings={"retention.ms": 5})
    return cluster


@pytest.fixture
def reports(cluster: SmallCluster) -> Reports:
    of_brokers = {
        1: marks(cluster, 1, LEADER, (2, 8, 10, 1000)),
        2: marks(cluster, 2, FOLLOWER, (2, 7, 8, 900)),
    }
    by_key = {ReplicaKey(topic_id_of("t"), 0, broker): each for broker, each in of_brokers.items()}
    return Reports(by_key, {1: (30, 100)})


def test_a_topic(cluster: SmallCluster, reports: Reports) -> None:
    cluster.propose("t", 1, 2)
    topic = describe_topic(cluster.state, reports, "t")
    assert (topic.name, topic.replication_factor, topic.internal) == ("t", 3, False)
    assert topic.settings == (("retention.ms", "5"),)
    only = topic.partitions[0]
    assert (only.leader, only.leader_epoch, only.replicas, only.isr) == (1, 0, (1, 2, 3), (1, 2))
    assert (only.log_start_offset, only.high_watermark, only.log_end_offset) == (2, 8, 10)
    assert (only.is_under_replicated, only.is_under_min_isr, only.is_offline) == (True, False, False)
    with pytest.raises(UnknownTopic):
        describe_topic(cluster.state, reports, "u")
    assert repr(topic).splitlines() == [
        "<Topic 't': 1 partitions, 3 replicas, retention.ms=5",
        "  0: leader 1, replicas [1, 2, 3], in sync [1, 2], offsets 2 to 8>",
    ]


def test_a_topic_of_many_partitions_is_shown_on_one_screen(cluster: SmallCluster, reports: Reports) -> None:
    topic = describe_topic(cluster.state, reports, "t")
    shown = repr(replace(topic, partitions=topic.partitions * 100)).splitlines()
    assert (len(shown), shown[-1]) == (18, "  and 84 more>")
    assert max(map(len, shown)) <= 80


def test_a_topic_without_a_leader(cluster: SmallCluster, reports: Reports) -> None:
    cluster.lose_broker(1, 2, 3)
    only = describe_topic(cluster.state, reports, "t").partitions[0]
    assert only.is_offline
    assert (only.leader, only.high_watermark) == (-1, -1)


def test_replicas(cluster: SmallCluster, reports: Reports) -> None:
    cluster.lose_broker(3)
    first, second, third = describe_replicas(cluster.state, cluster.live, reports, "t")
    assert (first.broker, first.role, first.node_id, first.size_bytes, first.lag) == (1, LEADER, "node-1", 1000, 0)
    assert (second.role, second.in_sync, second.lag, second.pid) == (FOLLOWER, True, 2, 1002)
    assert (third.role, third.in_sync, third.log_end_offset, third.lag) == (OFFLINE, False, -1, -1)


def test_the_marks_of_a_former_process_count_no_more(cluster: SmallCluster, reports: Reports) -> None:
    cluster.start_replica("t", 2)
    assert describe_replicas(cluster.state, cluster.live, reports, "t")[1].log_end_offset == -1


def test_a_replica_that_never_ran(cluster: SmallCluster) -> None:
    cluster.create("new", [1], start=False)
    only = describe_replicas(cluster.state, cluster.live, Reports(), "new")[0]
    assert (only.role, only.pid, only.incarnation, only.lag) == (OFFLINE, -1, -1, -1)


def test_brokers(cluster: SmallCluster, reports: Reports) -> None:
    cluster.lose_broker(2)
    brokers = describe_brokers(cluster.state, cluster.live, reports)
    assert [each.broker for each in brokers] == [1, 2, 3, 4]
    assert [each.alive for each in brokers] == [True, False, True, True]
    assert [each.leaders for each in brokers] == [1, 0, 0, 0]
    assert [each.replicas for each in brokers] == [1, 1, 1, 0]
    assert (brokers[0].free_bytes, brokers[1].free_bytes) == (30, -1)


def test_the_cluster(cluster: SmallCluster, reports: Reports) -> None:
    cluster.create("alone", [4])
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {("t", 0): [1, 2, 4]}))
    cluster.lose_broker(2, 3)
    cluster.lose_replica("alone", 4)
    seen = describe_cluster(
        cluster.state, cluster.live, reports, metadata_version=7, controller_epoch=2, voters=(1, 2, 3)
    )
    assert (seen.topics, seen.partitions, seen.offline, seen.reassigning) == (2, 2, 1, 1)
    assert (seen.under_replicated, seen.under_min_isr) == (1, 1)
    assert (seen.metadata_version, seen.controller_epoch, seen.voters) == (7, 2, (1, 2, 3))
    only = describe_topic(cluster.state, reports, "t").partitions[0]
    assert (only.adding, only.removing, only.is_reassigning) == ((4,), (3,), True)

"""Topics are created, grow, and are deleted."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.cluster_settings import MAX_PARTITIONS
from raylog.actors.cluster.topic_admin import (
    NewTopic,
    create_partitions,
    create_topic,
    delete_topic,
    topic_data_removed,
)
from raylog.actors.protocol.metadata_records import PartitionChanged, TopicCreated, TopicRemoved
from raylog.errors import (
    BrokerNotAvailable,
    InvalidConfig,
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidTopicName,
    RaylogError,
    TopicExists,
    UnknownBroker,
    UnknownConfig,
    UnknownTopic,
)
from tests.unit.actors.small_cluster import SmallCluster, topic_id_of


def create(cluster: SmallCluster, topic: NewTopic, *, internal: bool = False) -> None:
    cluster.apply(create_topic(cluster.state, cluster.live, topic, topic_id_of(topic.name), internal=internal))


def test_defaults_are_one_partition_on_three_brokers_or_as_many_as_there_are() -> None:
    for brokers, expected in ((1, 1), (2, 2), (3, 3), (5, 3)):
        cluster = SmallCluster(brokers)
        create(cluster, NewTopic("t"))
        assert cluster.state.topic("t").partitions == 1
        assert len(cluster.partition("t").replicas) == expected
        assert cluster.state.min_insync(cluster.partition("t")) == max(1, expected - 1)


def test_a_topic_and_its_partitions_are_one_batch() -> None:
    cluster = SmallCluster()
    topic = NewTopic("t", partitions=2, settings={"retention.ms": "5", "cleanup.policy": "delete"})
    records = create_topic(cluster.state, cluster.live, topic, topic_id_of("t"))
    assert [type(record) for record in records] == [TopicCreated, PartitionChanged, PartitionChanged]
    cluster.apply(records)
    assert cluster.state.topic("t").settings == (("retention.ms", "5"),)


def test_an_explicit_assignment_is_taken_as_it_is() -> None:
    cluster = SmallCluster()
    create(cluster, NewTopic("t", assignment=[[3, 1], [2, 3]]))
    assert [cluster.partition("t", number).replicas for number in (0, 1)] == [(3, 1), (2, 3)]


@pytest.mark.parametrize(
    ("topic", "error"),
    [
        (NewTopic("a/b"), InvalidTopicName),
        (NewTopic("__transaction_state"), InvalidTopicName),
        (NewTopic("there.is"), TopicExists),
        (NewTopic("there_is"), InvalidTopicName),
        (NewTopic("t", partitions=0), InvalidPartitions),
        (NewTopic("t", partitions=MAX_PARTITIONS + 1), InvalidPartitions),
        (NewTopic("t", replication_factor=0), InvalidReplicationFactor),
        (NewTopic("t", replication_factor=4), InvalidReplicationFactor),
        (NewTopic("t", assignment=[]), InvalidPartitions),
        (NewTopic("t", assignment=[[]]), InvalidReplicaAssignment),
        (NewTopic("t", assignment=[[1, 1]]), InvalidReplicaAssignment),
        (NewTopic("t", assignment=[[1, 2], [1]]), InvalidReplicaAssignment),
        (NewTopic("t", assignment=[[1, 2]], replication_factor=1), InvalidReplicaAssignment),
        (NewTopic("t", assignment=[[1, 2]], partitions=2), InvalidPartitions),
        (NewTopic("t", assignment=[[9]]), UnknownBroker),
        (NewTopic("t", assignment=[[4]]), BrokerNotAvailable),
        (NewTopic("t", settings={"retention.m": 1}), UnknownConfig),
        (NewTopic("t", settings={"retention.ms": "soon"}), InvalidConfig),
    ],
)
def test_a_topic_that_cannot_be(topic: NewTopic, error: type[RaylogError]) -> None:
    cluster = SmallCluster(4)
    cluster.lose_broker(4)
    cluster.create("there.is", [1])
    with pytest.raises(error):
        create(cluster, topic)


def test_without_brokers_there_are_no_topics() -> None:
    cluster = SmallCluster(1)
    cluster.lose_broker(1)
    with pytest.raises(InvalidReplicationFactor):
        create(cluster, NewTopic("t"))


def test_raylogs_own_topics_are_made_and_deleted_by_raylog_only() -> None:
    cluster = SmallCluster(1)
    create(cluster, NewTopic("__consumer_offsets"), internal=True)
    assert cluster.state.topic("__consumer_offsets").is_internal
    with pytest.raises(InvalidTopicName):
        delete_topic(cluster.state, "__consumer_offsets")
    assert delete_topic(cluster.state, "__consumer_offsets", internal=True)


# --- growing ------------------------------------------------------------------------------------------------------


def test_new_partitions_have_as_many_replicas_as_the_first_and_spread_on() -> None:
    cluster = SmallCluster(4)
    create(cluster, NewTopic("t", partitions=2, replication_factor=2))
    cluster.apply(create_partitions(cluster.state, cluster.live, "t", 4))
    replicas = [partition.replicas for partition in cluster.state.partitions_of(topic_id_of("t"))]
    assert sorted(each[0] for each in replicas) == [1, 2, 3, 4]
    cluster.apply(create_partitions(cluster.state, cluster.live, "t", 5, [[4, 1]]))
    assert cluster.partition("t", 4).replicas == (4, 1)


def test_growth_that_cannot_be() -> None:
    cluster = SmallCluster(2)
    create(cluster, NewTopic("t", partitions=2, replication_factor=2))
    for total, assignment in ((2, None), (1, None), (MAX_PARTITIONS + 1, None), (4, [[1, 2]])):
        with pytest.raises(InvalidPartitions):
            create_partitions(cluster.state, cluster.live, "t", total, assignment)
    with pytest.raises(InvalidReplicaAssignment):
        create_partitions(cluster.state, cluster.live, "t", 3, [[1]])
    with pytest.raises(UnknownTopic):
        create_partitions(cluster.state, cluster.live, "u", 3)
    cluster.lose_broker(2)
    with pytest.raises(InvalidReplicationFactor):
        create_partitions(cluster.state, cluster.live, "t", 3)


# --- the end ------------------------------------------------------------------------------------------------------


def test_a_deleted_topic_is_gone_and_its_data_later() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    topic_id = topic_id_of("t")
    cluster.apply(delete_topic(cluster.state, "t"))
    assert not cluster.state.has_topic("t")
    assert cluster.state.replica_count(1) == 0
    assert cluster.state.deleted[topic_id].holders == ((0, 1), (0, 2))
    assert topic_data_removed(cluster.state, topic_id, {(0, 1)}) == []
    done = topic_data_removed(cluster.state, topic_id, {(0, 1), (0, 2)})
    assert [type(record) for record in done] == [TopicRemoved]
    cluster.apply(done)
    assert not cluster.state.deleted
    with pytest.raises(UnknownTopic):
        topic_data_removed(cluster.state, topic_id, set())
    with pytest.raises(UnknownTopic):
        delete_topic(cluster.state, "t")


def test_data_on_a_broker_that_will_not_come_back_is_waited_for_no_longer() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    cluster.apply(delete_topic(cluster.state, "t"))
    del cluster.state.brokers[2]
    assert topic_data_removed(cluster.state, topic_id_of("t"), {(0, 1)})


def test_the_name_is_free_at_once_under_another_id() -> None:
    cluster = SmallCluster()
    cluster.create("a.b", [1, 2])
    cluster.apply(delete_topic(cluster.state, "a.b"))
    create(cluster, NewTopic("a_b"))
    assert cluster.state.topic("a_b").id != topic_id_of("a.b")

"""A topic's settings change, and what follows for its partitions."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.placement.reassignment import change_replication_factor, reassign_partitions
from raylog.actors.cluster.topic_settings import alter_topic_settings, settings_of
from raylog.actors.protocol.metadata_records import PartitionChanged, TopicSettings
from raylog.config import ConfigValue, TopicConfig
from raylog.errors import InvalidConfig, UnknownConfig, UnknownTopic
from raylog.storage.directory.doubts import REBOOTED
from tests.unit.actors.small_cluster import SmallCluster


def alter(cluster: SmallCluster, changes: dict[str, ConfigValue | None]) -> list[type]:
    records = cluster.apply(alter_topic_settings(cluster.state, cluster.live, "t", changes))
    return [type(record) for record in records]


def test_settings_are_set_and_reset_one_by_one() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"retention.ms": 5})
    assert alter(cluster, {"segment.bytes": "1000"}) == [TopicSettings]
    assert cluster.state.topic("t").settings == (("retention.ms", "5"), ("segment.bytes", "1000"))
    alter(cluster, {"retention.ms": None})
    assert cluster.state.topic("t").settings == (("segment.bytes", "1000"),)
    assert alter(cluster, {"segment.bytes": 1000}) == []


def test_settings_that_cannot_be() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    with pytest.raises(UnknownConfig, match="Did you mean"):
        alter(cluster, {"retention.mss": None})
    with pytest.raises(InvalidConfig):
        alter(cluster, {"min.insync.replicas": -1})
    with pytest.raises(InvalidConfig):
        alter(cluster, {"unclean.leader.election.enable": "perhaps"})
    with pytest.raises(UnknownTopic):
        alter_topic_settings(cluster.state, cluster.live, "u", {})


def test_more_in_sync_than_there_are_replicas_is_refused_where_it_is_set() -> None:
    cluster = SmallCluster(4)
    with pytest.raises(InvalidConfig, match="no more than the 3 replicas of the topic"):
        cluster.create("u", [1, 2, 3], settings={"min.insync.replicas": 4})
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 3})
    with pytest.raises(InvalidConfig, match=r"'min.insync.replicas' cannot be 4: expected no more than the 3"):
        alter(cluster, {"min.insync.replicas": 4})
    with pytest.raises(InvalidConfig, match="no more than the 2 replicas"):
        change_replication_factor(cluster.state, cluster.live, "t", 2)
    with pytest.raises(InvalidConfig, match="no more than the 2 replicas"):
        reassign_partitions(cluster.state, cluster.live, {("t", 0): [1, 2]})
    assert change_replication_factor(cluster.state, cluster.live, "t", 4)
    assert reassign_partitions(cluster.state, cluster.live, {("t", 0): [2, 3, 4]})


def test_a_lower_minimum_clears_the_eligible_in_the_same_batch() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 3})
    cluster.lose_replica("t", 3)
    cluster.lose_replica("t", 2)
    assert cluster.partition("t").elr == (2, 3)
    assert alter(cluster, {"min.insync.replicas": 1}) == [TopicSettings, PartitionChanged]
    assert cluster.partition("t").elr == ()


def test_where_the_isr_is_too_small_for_the_lower_minimum_too_the_eligible_stay_until_it_is_not() -> None:
    """Nothing is acknowledged meanwhile, so they miss nothing."""
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 3})
    cluster.lose_replica("t", 3)
    cluster.lose_replica("t", 2)
    assert alter(cluster, {"min.insync.replicas": 2}) == [TopicSettings]
    assert cluster.partition("t").elr == (2, 3)
    cluster.start_replica("t", 2)
    assert cluster.propose("t", 1, 2).elr == ()


def test_the_default_minimum_may_be_lower_too() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 2)
    alter(cluster, {"min.insync.replicas": None})
    assert cluster.partition("t").elr == ()


def test_a_higher_minimum_leaves_the_eligible() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 3)
    cluster.lose_replica("t", 2)
    assert alter(cluster, {"min.insync.replicas": 3}) == [TopicSettings]
    assert cluster.partition("t").elr == (2,)


def test_while_all_that_is_left_is_doubtful_or_eligible_a_lower_minimum_leaves_them() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 2)
    cluster.lose_broker(1, 2)
    cluster.start_broker(1)
    cluster.start_replica("t", 1, log=(0, 3), unproven=REBOOTED)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((), (2,))
    alter(cluster, {"min.insync.replicas": 1})
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (-1, (2,))
    cluster.start_broker(2)
    cluster.return_replica("t", 2)
    assert (cluster.partition("t").leader, cluster.partition("t").elr) == (2, ())


def test_what_is_recorded_makes_the_same_configuration() -> None:
    values: dict[str, ConfigValue] = {"unclean.leader.election.enable": True, "min.cleanable.dirty.ratio": 0.25}
    config = TopicConfig.parse(values)
    assert settings_of(config) == (("min.cleanable.dirty.ratio", "0.25"), ("unclean.leader.election.enable", "true"))
    assert TopicConfig.parse(dict(settings_of(config))) == config

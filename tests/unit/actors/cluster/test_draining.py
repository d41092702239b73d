"""Draining a broker: leaders first, then the replicas."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.broker_membership import remove_broker
from raylog.actors.cluster.placement.draining import drain_broker, is_drained, undrain_broker
from raylog.actors.cluster.placement.reassignment import reassign_partitions
from raylog.actors.cluster.topic_admin import NewTopic, create_topic
from raylog.errors import BrokerInUse, UnknownBroker
from raylog.storage.directory.doubts import BLANK
from tests.unit.actors.small_cluster import SmallCluster, topic_id_of


def drain(cluster: SmallCluster, broker: int, *, force: bool = False) -> None:
    cluster.apply(drain_broker(cluster.state, cluster.live, broker, force=force))


def test_leaders_move_at_once_and_replicas_as_reassignments() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3], [2, 1, 3])
    drain(cluster, 1)
    first, second = cluster.partition("t", 0), cluster.partition("t", 1)
    assert (first.leader, first.leader_epoch, first.target) == (2, 1, (4, 2, 3))
    assert (second.leader, second.leader_epoch, second.target) == (2, 0, (2, 4, 3))
    assert not is_drained(cluster.state, 1)
    for number in (0, 1):
        cluster.start_replica("t", 4, number, unproven=BLANK)
        cluster.propose("t", 1, 2, 3, 4, number=number)
    assert is_drained(cluster.state, 1)
    cluster.lose_broker(1)
    cluster.apply(remove_broker(cluster.state, cluster.live, (), 1))


def test_it_is_refused_where_a_replica_has_nowhere_to_go() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2, 3])
    with pytest.raises(BrokerInUse, match="t-0"):
        drain(cluster, 1)
    drain(cluster, 1, force=True)
    after = cluster.partition("t")
    assert (after.replicas, after.leader) == ((2, 3), 2)


def test_even_by_force_the_only_copy_stays() -> None:
    cluster = SmallCluster(1)
    cluster.create("t", [1])
    with pytest.raises(BrokerInUse, match="only replica"):
        drain(cluster, 1, force=True)


def test_a_replica_goes_only_once_others_hold_all_it_has() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    cluster.lose_replica("t", 2)
    drain(cluster, 1, force=True)
    assert cluster.partition("t").leader == 1
    assert cluster.partition("t").removing == (1,)
    cluster.start_replica("t", 2)
    assert cluster.propose("t", 1, 2).removing == (1,)
    after = cluster.find_sound("t", 2)
    assert (after.replicas, after.leader) == ((2,), 2)


def test_a_replica_being_added_stays_while_only_it_holds_all() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1])
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {("t", 0): [2, 3]}))
    cluster.start_replica("t", 2, unproven=BLANK)
    cluster.propose("t", 1, 2)
    cluster.lose_broker(1)
    with pytest.raises(BrokerInUse, match="nobody holds all records"):
        drain(cluster, 2)


def test_a_draining_broker_gets_nothing_new_and_leads_only_alone() -> None:
    cluster = SmallCluster(3)
    drain(cluster, 3)
    topic = NewTopic("t", partitions=4)
    cluster.apply(create_topic(cluster.state, cluster.live, topic, topic_id_of("t")))
    assert cluster.state.replica_count(3) == 0
    assert drain_broker(cluster.state, cluster.live, 3) == []
    assert is_drained(cluster.state, 3)


def test_a_draining_broker_is_elected_last() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3])
    drain(cluster, 2)
    cluster.lose_broker(1)
    assert cluster.partition("t").leader == 3
    cluster.lose_broker(3)
    assert cluster.partition("t").leader == 2


def test_what_is_moving_already_is_left_to_it() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2])
    drain(cluster, 1)
    target = cluster.partition("t").target
    assert drain_broker(cluster.state, cluster.live, 1) == []
    assert cluster.partition("t").target == target


def test_a_partition_that_was_never_led_moves_at_once() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2], start=False)
    drain(cluster, 1)
    assert cluster.partition("t").replicas == (3, 2)


def test_it_may_stay_after_all() -> None:
    cluster = SmallCluster(2)
    drain(cluster, 2)
    cluster.start_broker(2, run="second")
    assert cluster.state.broker(2).draining
    cluster.apply(undrain_broker(cluster.state, 2))
    assert not cluster.state.broker(2).draining
    assert undrain_broker(cluster.state, 2) == []
    with pytest.raises(UnknownBroker):
        drain(cluster, 9)

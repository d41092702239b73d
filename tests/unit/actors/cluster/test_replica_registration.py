"""Replica processes come and go; none is counted on before it is recorded as what it is (rule 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.cluster.election.replica_registration import is_wanted, replica_lost, replica_registered
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_admin import delete_topic
from raylog.actors.protocol.control_messages import NO_LEADER, ReplicaLoss, ReplicaReport
from raylog.actors.protocol.metadata_records import PartitionChanged, ReplicaRegistered
from raylog.errors import IneligibleReplica, StaleIncarnation, UnknownPartition, UnknownTopic
from raylog.storage.directory.doubts import BLANK, REBOOTED
from tests.unit.actors.small_cluster import SmallCluster


def test_the_registration_comes_before_what_follows_from_it() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    records = cluster.start_replica("t", 2, log=(0, 3), unproven=REBOOTED)
    assert [type(record) for record in records] == [ReplicaRegistered, PartitionChanged]


def test_an_unproven_follower_leaves_the_isr_and_is_not_eligible() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.start_replica("t", 2, log=(0, 3), unproven=REBOOTED)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.elr, after.doubtful) == (1, (1,), (), ())


def test_an_unproven_leader_leads_no_more() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    cluster.start_replica("t", 1, log=(0, 3), unproven=REBOOTED)
    after = cluster.partition("t")
    assert (after.leader, after.isr, after.leader_epoch, after.doubtful) == (2, (2,), 1, ())


def test_an_eligible_replica_that_comes_back_blank_is_eligible_no_more() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 3})
    cluster.lose_replica("t", 3)
    assert cluster.partition("t").elr == (3,)
    cluster.start_replica("t", 3, unproven=BLANK)
    assert cluster.partition("t").elr == ()


def test_a_killed_follower_that_returned_unnoticed_has_to_join_again() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    cluster.start_replica("t", 2, log=(0, 3))
    assert cluster.partition("t").isr == (1,)
    assert cluster.propose("t", 1, 2).isr == (1, 2)


def test_a_killed_leader_that_returned_unnoticed_leads_only_under_a_new_epoch() -> None:
    cluster = SmallCluster()
    cluster.create("alone", [1])
    cluster.create("t", [1, 2])
    cluster.start_replica("alone", 1, log=(0, 3))
    cluster.start_replica("t", 1, log=(0, 3))
    alone, other = cluster.partition("alone"), cluster.partition("t")
    assert (alone.leader, alone.isr, alone.leader_epoch) == (1, (1,), 1)
    assert (other.leader, other.isr, other.leader_epoch) == (2, (2,), 1)


def test_the_same_process_again_changes_nothing() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    assert cluster.return_replica("t", 2) == []


def test_a_process_that_listens_elsewhere_now_is_recorded_and_stays_in_sync() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    known = cluster.state.replicas[ReplicaKey(cluster.partition("t").topic_id, 0, 2)]
    report = ReplicaReport(known.topic_id, 0, known.incarnation, 0, 0, BLANK, ("tcp:h:1",), known.pid, 0)
    cluster.apply(replica_registered(cluster.state, cluster.live, 2, report))
    assert cluster.state.replicas[ReplicaKey(known.topic_id, 0, 2)].endpoints == ("tcp:h:1",)
    assert cluster.partition("t").isr == (1, 2)


def test_who_has_been_in_sync_is_proven() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    key = ReplicaKey(cluster.partition("t").topic_id, 0, 2)
    assert cluster.state.replicas[key].unproven == ""
    cluster.start_replica("t", 2, unproven=REBOOTED)
    cluster.start_replica("t", 2)
    assert cluster.state.replicas[key].unproven == REBOOTED
    cluster.propose("t", 1, 2)
    assert cluster.state.replicas[key].unproven == ""


def test_a_leader_that_ended_before_it_knew_of_its_role_is_elected_again() -> None:
    """Its directory is blank still, and the very one that the controller counted on."""
    cluster = SmallCluster()
    cluster.create("t", [1])
    key = ReplicaKey(cluster.partition("t").topic_id, 0, 1)
    created_as = cluster.state.replicas[key].incarnation
    for _ in range(2):
        cluster.start_replica("t", 1, unproven=BLANK, created_as=created_as)
        partition = cluster.partition("t")
        assert (partition.leader, partition.isr) == (1, (1,))
        assert cluster.state.replicas[key].unproven == ""


def test_a_follower_that_lost_its_disk_stays_blank_through_restarts() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    key = ReplicaKey(cluster.partition("t").topic_id, 0, 2)
    cluster.start_replica("t", 2, unproven=BLANK)
    created_as = cluster.state.replicas[key].created_as
    cluster.start_replica("t", 2, unproven=BLANK, created_as=created_as)
    assert cluster.state.replicas[key].unproven == BLANK
    assert cluster.partition("t").isr == (1,)


def test_a_leader_that_comes_back_with_another_blank_directory_is_not_elected() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1])
    cluster.start_replica("t", 1, unproven=BLANK)
    assert cluster.partition("t").leader == NO_LEADER


def test_a_directory_of_an_earlier_raylog_is_not_known_again() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1])
    key = ReplicaKey(cluster.partition("t").topic_id, 0, 1)
    cluster.state.replicas[key] = replace(cluster.state.replicas[key], created_as=0)
    cluster.start_replica("t", 1, unproven=BLANK, created_as=0)
    assert cluster.partition("t").leader == NO_LEADER


def test_a_registration_that_cannot_be() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    topic_id = cluster.partition("t").topic_id
    old = cluster.report("t", 2)
    cluster.start_replica("t", 2)
    with pytest.raises(StaleIncarnation):
        replica_registered(cluster.state, cluster.live, 2, old)
    with pytest.raises(IneligibleReplica):
        replica_registered(cluster.state, cluster.live, 3, cluster.report("t", 3))
    with pytest.raises(UnknownPartition):
        replica_registered(cluster.state, cluster.live, 1, ReplicaReport(topic_id, 1, 99, 0, 0, "", (), 1, 0))
    cluster.apply(delete_topic(cluster.state, "t"))
    with pytest.raises(UnknownTopic):
        replica_registered(cluster.state, cluster.live, 1, ReplicaReport(topic_id, 0, 99, 0, 0, "", (), 1, 0))


# --- losses -------------------------------------------------------------------------------------------------------


def test_a_dead_follower_leaves_the_isr_at_once_and_stays_eligible_if_it_was_needed() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 3)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1, 2), ())
    cluster.lose_replica("t", 2)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), (2,))


def test_a_damaged_replica_is_not_eligible() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 2, damaged=True)
    assert (cluster.partition("t").isr, cluster.partition("t").elr) == ((1,), ())


def test_a_loss_that_is_told_twice_or_late_changes_nothing() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    topic_id = cluster.partition("t").topic_id
    incarnation = cluster.running[ReplicaKey(topic_id, 0, 2)]
    loss = ReplicaLoss(topic_id, 0, incarnation, "killed", False)
    cluster.lose_replica("t", 2)
    assert replica_lost(cluster.state, cluster.live, 2, loss) == []
    cluster.start_replica("t", 2)
    assert replica_lost(cluster.state, cluster.live, 2, loss) == []
    cluster.apply(delete_topic(cluster.state, "t"))
    assert replica_lost(cluster.state, cluster.live, 2, loss) == []


def test_the_last_member_stays_in_sync_when_it_dies() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    cluster.lose_replica("t", 2)
    cluster.lose_replica("t", 1)
    after = cluster.partition("t")
    assert (after.leader, after.isr) == (-1, (1,))


def test_what_a_broker_is_to_hold() -> None:
    cluster = SmallCluster()
    topic_id = cluster.create("t", [1, 2]).topic_id
    assert is_wanted(cluster.state, topic_id, 0, 1)
    assert not is_wanted(cluster.state, topic_id, 0, 3)
    assert not is_wanted(cluster.state, topic_id, 1, 1)
    assert not is_wanted(cluster.state, b"x" * 16, 0, 1)

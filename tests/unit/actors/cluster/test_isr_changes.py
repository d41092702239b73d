"""A leader proposes who is in sync (rules 4, 5); who leaves may stay eligible (rule 7)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.cluster.election.isr_changes import propose_isr
from raylog.actors.cluster.placement.draining import drain_broker
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.protocol.control_messages import ProposeIsr
from raylog.errors import (
    IneligibleReplica,
    NotLeader,
    RaylogError,
    StaleIncarnation,
    StaleLeaderEpoch,
    StalePartitionEpoch,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)
from tests.unit.actors.small_cluster import SmallCluster


def refusal(cluster: SmallCluster, proposal: ProposeIsr) -> type[RaylogError]:
    before = cluster.state.to_records()
    with pytest.raises(RaylogError) as raised:
        propose_isr(cluster.state, cluster.live, proposal)
    assert cluster.state.to_records() == before
    return raised.type


def test_members_leave_and_join() -> None:
    cluster = SmallCluster()
    before = cluster.create("t", [1, 2, 3])
    after = cluster.propose("t", 1, 2)
    assert (after.isr, after.partition_epoch, after.leader_epoch) == ((1, 2), before.partition_epoch + 1, 0)
    assert cluster.propose("t", 3, 1, 2).isr == (1, 2, 3)


def test_a_proposal_that_changes_nothing_is_no_record() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    assert propose_isr(cluster.state, cluster.live, cluster.proposal("t", [2, 1])) == []


def test_leavers_below_the_minimum_stay_eligible_until_there_are_enough_again() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3, 4], settings={"min.insync.replicas": 3})
    assert cluster.propose("t", 1, 2, 3).elr == ()
    assert cluster.propose("t", 1, 2).elr == (3,)
    assert cluster.propose("t", 1).elr == (2, 3)
    assert cluster.propose("t", 1, 4).elr == (2, 3)
    assert cluster.propose("t", 1, 3).elr == (2, 4)
    assert cluster.propose("t", 1, 2, 3).elr == ()


def test_only_the_present_epochs_count() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3])
    cluster.lose_broker(1)
    present = cluster.proposal("t", [2])
    assert refusal(cluster, replace(present, leader_epoch=0)) is StaleLeaderEpoch
    assert refusal(cluster, replace(present, leader_epoch=2)) is UnknownLeaderEpoch
    assert refusal(cluster, replace(present, partition_epoch=0)) is StalePartitionEpoch
    assert refusal(cluster, replace(present, leader=3)) is NotLeader
    assert refusal(cluster, replace(present, partition=1)) is UnknownPartition
    assert refusal(cluster, replace(present, topic_id=b"x" * 16)) is UnknownTopic
    assert propose_isr(cluster.state, cluster.live, present)


def test_nobody_speaks_for_a_partition_that_was_never_led() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], start=False)
    assert refusal(cluster, cluster.proposal("t", [])) is NotLeader


def test_a_member_is_the_process_that_is_registered() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    cluster.propose("t", 1)
    old = cluster.proposal("t", [1, 2])
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2)
    assert old.partition_epoch == cluster.partition("t").partition_epoch
    assert refusal(cluster, old) is StaleIncarnation
    assert cluster.propose("t", 1, 2).isr == (1, 2)


def test_members_have_to_be_replicas_that_are_alive() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2])
    present = cluster.proposal("t", [1, 2])
    assert refusal(cluster, replace(present, isr=(*present.isr, (3, -1)))) is IneligibleReplica
    assert refusal(cluster, cluster.proposal("t", [2])) is IneligibleReplica
    cluster.running.pop(ReplicaKey(cluster.partition("t").topic_id, 0, 2))
    assert refusal(cluster, replace(present, isr=present.isr)) is IneligibleReplica
    assert cluster.propose("t", 1).isr == (1,)
    cluster.return_replica("t", 2)
    cluster.live_brokers.discard(2)
    assert refusal(cluster, cluster.proposal("t", [1, 2])) is IneligibleReplica


def test_nobody_joins_on_a_draining_broker_but_members_there_stay() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3])
    cluster.apply(drain_broker(cluster.state, cluster.live, 3))
    assert cluster.propose("t", 1, 3).isr == (1, 3)
    cluster.propose("t", 1)
    assert refusal(cluster, cluster.proposal("t", [1, 3])) is IneligibleReplica

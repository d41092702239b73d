"""Moving replicas: started, replaced, cancelled, completed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from raylog.actors.cluster.election.leader_election import awaits_check
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.placement.reassignment import change_replication_factor, reassign_partitions
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    BrokerNotAvailable,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignment,
    RaylogError,
    UnknownBroker,
    UnknownPartition,
    UnknownTopic,
)
from raylog.storage.directory.doubts import BLANK
from tests.unit.actors.small_cluster import SmallCluster


def reassign(cluster: SmallCluster, target: Sequence[int] | None, number: int = 0) -> PartitionState:
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {("t", number): target}))
    return cluster.partition("t", number)


def test_the_new_replicas_follow_and_take_over_once_they_are_all_in_sync() -> None:
    cluster = SmallCluster(6)
    cluster.create("t", [1, 2, 3])
    started = reassign(cluster, [4, 5, 6])
    assert (started.replicas, started.adding, started.removing) == ((1, 2, 3, 4, 5, 6), (4, 5, 6), (1, 2, 3))
    assert (started.leader, started.isr) == (1, (1, 2, 3))
    assert cluster.state.min_insync(started) == 2
    for broker in (4, 5, 6):
        cluster.start_replica("t", broker, unproven=BLANK)
    assert cluster.propose("t", 1, 2, 3, 4, 5).is_reassigning
    done = cluster.propose("t", 1, 2, 3, 4, 5, 6)
    assert (done.replicas, done.adding, done.removing, done.isr) == ((4, 5, 6), (), (), (4, 5, 6))
    assert (done.leader, done.leader_epoch) == (4, 1)
    assert cluster.state.replica_count(1) == 0
    assert cluster.state.reassigning() == []


def test_a_leader_that_stays_goes_on_leading() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3])
    reassign(cluster, [4, 2, 1])
    cluster.start_replica("t", 4, unproven=BLANK)
    done = cluster.propose("t", 1, 2, 3, 4)
    assert (done.replicas, done.leader, done.leader_epoch) == ((4, 2, 1), 1, 0)


def test_cancelling_restores_the_replicas_in_their_order() -> None:
    cluster = SmallCluster(4)
    before = cluster.create("t", [1, 2, 3])
    reassign(cluster, [4, 3])
    cluster.start_replica("t", 4, unproven=BLANK)
    assert cluster.propose("t", 1, 2, 4).is_reassigning  # 3 of the target is not in sync, and 2 are not enough for it
    after = reassign(cluster, None)
    assert (after.replicas, after.isr, after.is_reassigning) == (before.replicas, (1, 2), False)
    assert 4 not in {key[2] for key in cluster.state.replicas}


def test_a_new_target_replaces_the_one_that_is_under_way() -> None:
    cluster = SmallCluster(5)
    cluster.create("t", [1, 2])
    reassign(cluster, [3, 4])
    after = reassign(cluster, [2, 5])
    assert (after.replicas, after.adding, after.removing) == ((1, 2, 5), (5,), (1,))


def test_fewer_replicas_complete_at_once_and_elect_where_the_leader_goes() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2, 3])
    after = reassign(cluster, [3, 2])
    assert (after.replicas, after.isr, after.leader, after.leader_epoch) == ((3, 2), (3, 2), 3, 1)


def test_fewer_replicas_wait_until_enough_of_them_are_in_sync() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2, 3], settings={"min.insync.replicas": 2})
    cluster.lose_replica("t", 2)
    assert reassign(cluster, [2, 3]).is_reassigning
    cluster.start_replica("t", 2)
    assert cluster.propose("t", 1, 2, 3).replicas == (2, 3)


def test_another_order_is_another_preferred_leader_and_nothing_moves() -> None:
    cluster = SmallCluster(3)
    before = cluster.create("t", [1, 2, 3])
    after = reassign(cluster, [3, 2, 1])
    assert (after.replicas, after.isr, after.leader) == ((3, 2, 1), (3, 2, 1), before.leader)
    assert reassign_partitions(cluster.state, cluster.live, {("t", 0): [3, 2, 1]}) == []


def test_a_partition_that_was_never_led_moves_at_once() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2], start=False)
    cluster.start_replica("t", 1, unproven=BLANK)
    after = reassign(cluster, [3, 4])
    assert (after.replicas, after.isr, after.is_reassigning, after.leader_epoch) == ((3, 4), (3, 4), False, -1)


def test_the_eligible_are_cleared_when_a_smaller_set_of_replicas_needs_fewer_in_sync() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2, 3])
    cluster.lose_replica("t", 3)
    cluster.lose_replica("t", 2)
    assert cluster.partition("t").elr == (2,)
    assert reassign(cluster, [1, 2]).is_reassigning  # one copy is less than was promised
    reassign(cluster, [1])
    after = cluster.find_sound("t", 1)
    assert (after.replicas, after.isr, after.elr) == ((1,), (1,), ())


def test_a_copy_that_is_to_be_the_only_one_is_read_whole_first() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2, 3])
    waiting = reassign(cluster, [2])
    assert (waiting.replicas, waiting.removing, awaits_check(waiting)) == ((1, 2, 3), (1, 3), (2,))
    assert cluster.propose("t", 1, 2).is_reassigning
    after = cluster.find_sound("t", 2)
    assert (after.replicas, after.isr, after.leader) == ((2,), (2,), 2)


def test_what_was_read_of_an_earlier_process_does_not_count() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    reassign(cluster, [2])
    cluster.sound[ReplicaKey(*cluster.partition("t").id, 2)] = cluster.state.incarnation(*cluster.partition("t").id, 2)
    cluster.lose_replica("t", 2)
    cluster.start_replica("t", 2)
    assert cluster.propose("t", 1, 2).is_reassigning
    assert cluster.find_sound("t", 2).replicas == (2,)


def test_a_copy_that_was_just_fetched_need_not_be_read_again() -> None:
    cluster = SmallCluster(2)
    cluster.create("t", [1])
    reassign(cluster, [2])
    cluster.start_replica("t", 2, unproven=BLANK)
    assert cluster.propose("t", 1, 2).replicas == (2,)


def test_a_cancelled_growth_keeps_the_added_copy_until_the_first_one_was_read() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1])
    reassign(cluster, [1, 2, 3])
    cluster.start_replica("t", 2, unproven=BLANK)
    cluster.propose("t", 1, 2)
    assert reassign(cluster, None).is_reassigning
    assert cluster.find_sound("t", 1).replicas == (1,)


def test_where_one_in_sync_is_enough_a_move_may_complete_with_one() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    reassign(cluster, [3, 2])
    cluster.start_replica("t", 3, unproven=BLANK)
    done = cluster.propose("t", 1, 3)
    assert (done.replicas, done.isr, done.leader) == ((3, 2), (3,), 3)


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ([], InvalidReplicaAssignment),
        ([1, 1], InvalidReplicaAssignment),
        ([1, 9], UnknownBroker),
        ([1, 4], BrokerNotAvailable),
        ([1, 5], BrokerNotAvailable),
        (None, NoReassignment),
    ],
)
def test_a_target_that_cannot_be(target: list[int] | None, error: type[RaylogError]) -> None:
    cluster = SmallCluster(5)
    cluster.create("t", [1, 2])
    cluster.lose_broker(4)
    cluster.live_brokers.discard(5)  # its lease is over, which is not recorded yet
    with pytest.raises(error):
        reassign(cluster, target)


def test_a_dead_replica_may_stay_one() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2])
    cluster.lose_broker(2)
    assert reassign(cluster, [1, 2, 3]).target == (1, 2, 3)


def test_unknown_partitions_and_all_or_nothing() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2])
    with pytest.raises(UnknownTopic):
        reassign_partitions(cluster.state, cluster.live, {("t", 0): [1, 3], ("u", 0): [1]})
    with pytest.raises(UnknownPartition):
        reassign_partitions(cluster.state, cluster.live, {("t", 1): [1, 3]})


def test_a_cancellation_never_leaves_only_dead_replicas() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2], settings={"min.insync.replicas": 1})
    reassign(cluster, [3, 4])
    cluster.start_replica("t", 3, unproven=BLANK)
    cluster.propose("t", 1, 3)
    cluster.lose_broker(1)
    assert cluster.partition("t").isr == (3,)
    with pytest.raises(InvalidReplicaAssignment):
        reassign(cluster, None)
    cluster.lose_broker(3)
    with pytest.raises(InvalidReplicaAssignment):
        reassign(cluster, None)


def test_the_throttle_is_a_record() -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2])
    target: dict[tuple[str, int], Sequence[int] | None] = {("t", 0): [1, 3]}
    cluster.apply(reassign_partitions(cluster.state, cluster.live, target, throttle=1000))
    assert cluster.state.reassignment_throttle == 1000
    assert reassign_partitions(cluster.state, cluster.live, {}, throttle=1000) == []
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {}, throttle=-1))
    assert cluster.state.reassignment_throttle == -1
    with pytest.raises(InvalidConfig):
        reassign_partitions(cluster.state, cluster.live, {}, throttle=0)


# --- replication factor -------------------------------------------------------------------------------------------


def change(cluster: SmallCluster, factor: int) -> list[Message]:
    return cluster.apply(change_replication_factor(cluster.state, cluster.live, "t", factor))


def test_more_replicas_go_to_other_racks_first() -> None:
    cluster = SmallCluster(4, racks=["a", "a", "b", "b"])
    cluster.create("t", [1], [3])
    change(cluster, 2)
    targets = [cluster.partition("t", number).target for number in (0, 1)]
    assert targets[0][0] == 1
    assert targets[0][1] in (3, 4)
    assert targets[1][1] in (1, 2)
    assert change(cluster, 2) == []


def test_fewer_replicas_never_take_the_leader_and_first_those_that_are_dead() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3, 4])
    cluster.lose_broker(2)
    change(cluster, 3)
    assert cluster.partition("t").replicas == (1, 3, 4)
    cluster.propose("t", 1, 4)
    change(cluster, 2)
    assert cluster.partition("t").replicas == (1, 4)
    change(cluster, 1)
    assert cluster.find_sound("t", 1).replicas == (1,)


def test_of_equals_the_one_in_a_crowded_rack_goes() -> None:
    cluster = SmallCluster(3, racks=["a", "b", "a"])
    cluster.create("t", [1, 2, 3])
    change(cluster, 2)
    assert cluster.partition("t").replicas == (1, 2)


@pytest.mark.parametrize("factor", [0, -1, 4])
def test_a_factor_that_cannot_be(factor: int) -> None:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2])
    with pytest.raises(InvalidReplicationFactor):
        change(cluster, factor)

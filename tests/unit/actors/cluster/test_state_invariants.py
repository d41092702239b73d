"""What the state of a cluster says of itself when something in it is broken, and what a change may not do."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, ReplicaKey
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.metadata_records import NEVER_LED
from tests.unit.actors.small_cluster import SmallCluster

SOUND = PartitionState(
    b"t" * 16, 0, (1, 2, 3), (1, 2), leader=1, leader_epoch=4, partition_epoch=9, elr=(), doubtful=((3, 30, 4, 7),)
)


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"replicas": (1, 2, 3, 3)}, "twice among the replicas"),
        ({"isr": (1, 4)}, "are not all among"),
        ({"elr": (2,)}, "share a member"),
        ({"isr": (1, 3)}, "share a member"),
        ({"adding": (2,), "target": (1, 3)}, "are not each in the next"),
        ({"isr": (), "leader": NO_LEADER, "doubtful": ()}, "the ISR is empty"),
        ({"leader": 3}, "3 leads"),
        ({"lost": ((3, "gone"),), "doubtful": ()}, "lost ((3, 'gone'),)"),
        ({"leader_epoch": NEVER_LED}, "leads in epoch -1"),
    ],
)
def test_a_broken_partition_says_what_is_broken(changes: dict[str, Any], said: str) -> None:
    assert list(SOUND.broken_invariants()) == []
    assert said in "; ".join(replace(SOUND, **changes).broken_invariants())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"isr": (1,)}, "the partition epoch was 9 and is 9"),
        ({"partition_epoch": 8}, "the partition epoch was 9 and is 8"),
        ({"partition_epoch": 10, "leader_epoch": 3}, "the leader epoch went back"),
        ({"partition_epoch": 10, "leader": 2}, "in epoch 4 the leader was 1 and is 2"),
        ({"partition_epoch": 10, "leader": NO_LEADER}, "in epoch 4 the leader was 1 and is -1"),
    ],
)
def test_a_change_that_may_not_be_says_why(changes: dict[str, Any], said: str) -> None:
    assert list(SOUND.broken_since(SOUND)) == []
    assert list(replace(SOUND, leader=2, leader_epoch=5, partition_epoch=10).broken_since(SOUND)) == []
    assert said in "; ".join(replace(SOUND, **changes).broken_since(SOUND))


def state_of_a_topic() -> ClusterState:
    cluster = SmallCluster(3)
    cluster.create("t", [1, 2], [2, 3])
    return cluster.state


def test_a_sound_state_has_nothing_to_say() -> None:
    assert list(state_of_a_topic().broken_invariants()) == []


def broken_partition(state: ClusterState) -> None:
    key = next(iter(state.partitions))
    state.partitions[key] = replace(state.partitions[key], leader=9)


def unnoted_isr(state: ClusterState) -> None:
    key = next(iter(state.partitions))
    state.partitions[key] = replace(state.partitions[key], may_have_acknowledged=False)


def index_by_broker(state: ClusterState) -> None:
    del state._by_broker[1]


def index_by_name(state: ClusterState) -> None:
    state._ids["other"] = b"o" * 16


def reassigning(state: ClusterState) -> None:
    state._reassigning.add(next(iter(state.partitions)))


def partitions_of_no_topic(state: ClusterState) -> None:
    topic_id, topic = next(iter(state.topics.items()))
    state.topics[topic_id] = replace(topic, partitions=1)


def replica_of_nothing(state: ClusterState) -> None:
    key, registered = next(iter(state.replicas.items()))
    state.replicas[ReplicaKey(key.topic_id, 7, key.broker_id)] = registered


def number_that_is_taken(state: ClusterState) -> None:
    state.next_broker_id = 2


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (broken_partition, "t-0: 9 leads"),
        (unnoted_isr, "t-0: its ISR (1, 2) is large enough for acks=all"),
        (index_by_broker, "the index by broker"),
        (index_by_name, "the index by name"),
        (reassigning, "listed as being reassigned"),
        (partitions_of_no_topic, "the topics count others"),
        (replica_of_nothing, "the partition has no replica there"),
        (number_that_is_taken, "the next broker is to be 2"),
    ],
)
def test_a_broken_state_says_what_is_broken(break_it: Callable[[ClusterState], None], said: str) -> None:
    state = state_of_a_topic()
    break_it(state)
    assert said in "; ".join(state.broken_invariants())

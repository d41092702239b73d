"""What a start waits for, and what it only tells."""

from __future__ import annotations

from raylog.actors.cluster.election.leaderless import prospects
from raylog.actors.cluster.state import ReplicaKey
from tests.unit.actors.small_cluster import SmallCluster


def of(cluster: SmallCluster) -> tuple[list[str], list[str]]:
    found = prospects(cluster.state, cluster.live)
    return found.expected, found.stuck


def test_what_is_led_by_a_living_replica_is_of_no_interest() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2, 3], [2, 3, 1])
    assert of(cluster) == ([], [])


def test_a_replica_that_is_still_to_start_on_a_broker_that_is_there_will_lead() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1])
    cluster.lose_replica("t", 1)
    assert of(cluster) == (["t-0"], [])
    cluster.start_replica("t", 1)
    assert of(cluster) == ([], [])


def test_a_new_partition_is_led_in_a_moment() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], start=False)
    assert of(cluster) == (["t-0"], [])


def test_who_is_believed_to_lead_as_an_earlier_process_does_not() -> None:
    cluster = SmallCluster()
    partition = cluster.create("t", [1, 2])
    cluster.running.pop(ReplicaKey(*partition.id, 1))
    assert of(cluster) == (["t-0"], [])


def test_a_partition_whose_last_members_are_away_is_waited_for_in_vain() -> None:
    cluster = SmallCluster()
    cluster.create("one", [3])
    cluster.create("two", [2, 3])
    cluster.lose_broker(3, 2)
    assert of(cluster)[0] == []
    assert of(cluster)[1][0] == "one-0 (what was acknowledged is on broker 3, whose replica does not run: start it)"
    assert of(cluster)[1][1].startswith("two-0 (what was acknowledged is on broker")


def test_where_anybody_may_lead_a_living_broker_is_enough() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], settings={"unclean.leader.election.enable": True})
    cluster.lose_broker(1)
    cluster.lose_broker(2)
    assert of(cluster)[0] == []
    cluster.start_broker(2, run="later")
    assert of(cluster) == (["t-0"], [])


def test_one_that_no_copy_may_lead_is_stuck() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], start=False)
    cluster.lose_broker(1)
    cluster.lose_broker(2)
    assert of(cluster) == ([], ["t-0 (none of its replicas has started yet)"])

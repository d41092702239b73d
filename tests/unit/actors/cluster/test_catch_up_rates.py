"""What a throttle leaves to each replica that catches up."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from raylog.actors.cluster.assignments import assignment_of, catch_up_rate, move_shares
from raylog.actors.cluster.election.isr_changes import propose_isr
from raylog.actors.cluster.metadata_fold import MetadataFold
from raylog.actors.cluster.placement.reassignment import reassign_partitions
from raylog.actors.cluster.state import ClusterState
from raylog.actors.protocol.messages import Message
from raylog.storage.directory.doubts import BLANK
from tests.unit.actors.small_cluster import SmallCluster, topic_id_of

THROTTLE_SETTING = "leader.replication.throttled.rate"
T = topic_id_of("t")


def move(cluster: SmallCluster, targets: dict[int, Sequence[int]], throttle: int | None = None) -> list[Message]:
    moves = {("t", number): target for number, target in targets.items()}
    return cluster.apply(reassign_partitions(cluster.state, cluster.live, moves, throttle))


def catch_up(cluster: SmallCluster, broker: int, number: int = 0, topic: str = "t") -> list[Message]:
    """It is there, and in sync."""
    records = cluster.start_replica(topic, broker, number, unproven=BLANK)
    proposal = cluster.proposal(topic, (*cluster.partition(topic, number).isr, broker), number)
    return records + cluster.apply(propose_isr(cluster.state, cluster.live, proposal))


def rate(state: ClusterState, broker: int, number: int = 0, topic: str = "t") -> int:
    return catch_up_rate(state, state.partition_named(topic, number), broker, move_shares(state))


def sums(cluster: SmallCluster) -> tuple[Counter[int], Counter[int]]:
    """Bytes a second by the broker that receives, and by the one that sends."""
    received: Counter[int] = Counter()
    sent: Counter[int] = Counter()
    for (topic_id, number, broker), share in move_shares(cluster.state).items():
        received[broker] += share
        sent[cluster.state.partitions[topic_id, number].leader] += share
    return received, sent


def test_no_broker_receives_more_for_all_moves_than_the_throttle() -> None:
    cluster = SmallCluster(7)
    cluster.create("t", *[[1 + number % 5, 1 + (number + 1) % 5] for number in range(10)])
    move(cluster, {number: [6, 7] for number in range(10)}, throttle=1_000_000)
    received, sent = sums(cluster)
    assert received == {6: 1_000_000, 7: 1_000_000}
    assert max(sent.values()) <= 1_000_000


def test_no_broker_sends_more_for_all_moves_than_the_throttle() -> None:
    cluster = SmallCluster(7)
    cluster.create("t", [1], [1])
    move(cluster, {0: [1, 2, 3, 4], 1: [1, 5, 6]}, throttle=1000)
    assert sums(cluster)[1] == {1: 1000}


def test_who_has_finished_leaves_its_share_to_the_rest() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2], [1, 2], [1, 2])
    move(cluster, {0: [1, 4], 1: [1, 4], 2: [1, 3]}, throttle=1200)
    assert [rate(cluster.state, 4, 0), rate(cluster.state, 4, 1), rate(cluster.state, 3, 2)] == [400, 400, 400]
    catch_up(cluster, 4, 0)
    assert [rate(cluster.state, 4, 0), rate(cluster.state, 4, 1), rate(cluster.state, 3, 2)] == [-1, 600, 600]
    cluster.lose_broker(3)
    assert rate(cluster.state, 4, 1) == 1200


def test_a_share_is_a_byte_at_least() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2], [1, 2])
    move(cluster, {0: [1, 4], 1: [1, 4]}, throttle=1)
    assert rate(cluster.state, 4, 0) == rate(cluster.state, 4, 1) == 1


def test_a_replica_that_was_there_before_the_move_is_not_throttled() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2])
    cluster.lose_broker(2)
    cluster.start_broker(2)
    assert cluster.partition("t").isr == (1,)
    move(cluster, {0: [1, 2, 3]}, throttle=1000)
    assert (rate(cluster.state, 2), rate(cluster.state, 3)) == (-1, 1000)


def test_the_throttle_of_a_topic_is_for_all_replicas_of_a_partition_together() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2, 3, 4], settings={THROTTLE_SETTING: 1000, "min.insync.replicas": 1})
    assert rate(cluster.state, 2) == 1000
    cluster.lose_broker(2, 3)
    assert (rate(cluster.state, 2), rate(cluster.state, 3)) == (500, 500)


def test_of_both_throttles_the_smaller_share_counts() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2], settings={THROTTLE_SETTING: 10})
    move(cluster, {0: [1, 3]}, throttle=1000)
    assert rate(cluster.state, 3) == 10
    cluster.apply(reassign_partitions(cluster.state, cluster.live, {}, throttle=4))
    assert rate(cluster.state, 3) == 4


def test_an_assignment_tells_the_share_and_leaves_the_settings_alone() -> None:
    cluster = SmallCluster(4)
    cluster.create("t", [1, 2], settings={"retention.ms": 5})
    move(cluster, {0: [1, 3]}, throttle=1000)
    shares = move_shares(cluster.state)
    told = {each: assignment_of(cluster.state, T, 0, each, 9, 2, shares) for each in (1, 2, 3)}
    assert {broker: each.catch_up_rate for broker, each in told.items()} == {1: -1, 2: -1, 3: 1000}
    assert {each.settings for each in told.values()} == {(("retention.ms", "5"),)}


def test_a_change_of_shares_is_told_to_the_partitions_that_have_them() -> None:
    cluster = SmallCluster(5)
    cluster.create("t", [1], [1], [2], [2])
    fold = MetadataFold()
    fold.replace(cluster.state.to_records(), 100, 2)

    def folded(records: list[Message]) -> set[int]:
        return {number for _, number in fold.apply(records, fold.version, 2)}

    assert folded(move(cluster, {0: [1, 4], 1: [1, 4], 2: [2, 5]})) == {0, 1, 2}
    assert folded(move(cluster, {}, throttle=1000)) == {0, 1, 2}
    assert fold.shares == move_shares(cluster.state)
    assert folded(move(cluster, {}, throttle=500)) == {0, 1, 2}
    assert folded(catch_up(cluster, 4, 0)) == {0, 1}
    assert fold.shares == {(T, 1, 4): 500, (T, 2, 5): 500}
    assert folded(catch_up(cluster, 4, 1)) == {1}
    assert folded(move(cluster, {}, throttle=-1)) == {2}
    assert fold.shares == {}

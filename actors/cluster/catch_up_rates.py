"""How fast a replica that is not in sync may catch up, so that those that are can work. Decides, and touches nothing.

    throttle of moves    bytes a second for each broker: no broker receives more for replicas that catch up for a move,
                         and none sends more for those. Each replica has its share of both, and the smaller one counts
    throttle of a topic  bytes a second for each partition: all of its replicas that are not in sync have equal shares

What must stay true: shares are whole bytes and at least one, and what all of them make together is no more than the
throttle, beyond that one byte each. They follow from the state alone, so every broker at one metadata version tells its
replicas shares that fit each other. A replica that is in sync has no share, and gives its own to the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping

from raylog.actors.cluster.partition import PartitionId, PartitionState
from raylog.actors.cluster.state import ClusterState, ReplicaKey
from raylog.config import NO_LIMIT


def move_shares(state: ClusterState) -> dict[ReplicaKey, int]:
    """Bytes a second for each replica that catches up for a move; none where moves are not throttled."""
    if state.reassignment_throttle == NO_LIMIT:
        return {}
    catching_up = [(partition, broker) for partition in state.reassigning() for broker in _added(state, partition)]
    received = Counter(broker for _, broker in catching_up)
    sent = Counter(partition.leader for partition, _ in catching_up)
    return {
        ReplicaKey(*partition.id, broker): _share(
            state.reassignment_throttle, max(received[broker], sent[partition.leader])
        )
        for partition, broker in catching_up
    }


def changed_shares(before: Mapping[ReplicaKey, int], after: Mapping[ReplicaKey, int]) -> Iterable[PartitionId]:
    """The partitions of which a replica has another share than before."""
    differing = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return dict.fromkeys((topic_id, partition) for topic_id, partition, _ in sorted(differing))


def catch_up_rate(
    state: ClusterState, partition: PartitionState, broker_id: int, shares: Mapping[ReplicaKey, int]
) -> int:
    """Bytes a second for this replica while it is not in sync, by both throttles; NO_LIMIT: as fast as it goes."""
    rates = []
    of_topic = state.config_of(partition).leader_replication_throttled_rate
    if of_topic != NO_LIMIT:
        rates.append(_share(of_topic, len(set(partition.replicas).difference(partition.isr))))
    of_moves = shares.get(ReplicaKey(*partition.id, broker_id))
    if of_moves is not None:
        rates.append(of_moves)
    return min(rates, default=NO_LIMIT)


def _added(state: ClusterState, partition: PartitionState) -> list[int]:
    """Those that the move has added and that are not in sync yet; a broker that is fenced receives nothing."""
    return [
        broker
        for broker in partition.adding
        if broker not in partition.isr and broker in state.brokers and not state.brokers[broker].fenced
    ]


def _share(rate: int, among: int) -> int:
    return max(1, rate // max(1, among))

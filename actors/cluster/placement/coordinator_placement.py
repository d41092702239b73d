"""The broker that a coordinator runs on, and its epoch (rule 25).

What must stay true: every placement has an epoch, under its producer id, that no other ever had, and a producer id is
never taken up again once another has followed it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Container

from raylog.actors.cluster.coordinator_state import LAST_EPOCH
from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.producer_ids import allocate_producer_ids
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.protocol.coordinator_messages import CoordinatorSign
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import NO_RETIRED_ID, CoordinatorPlaced, CoordinatorServing
from raylog.actors.protocol.names import COORDINATED_TOPICS
from raylog.errors import BrokerNotAvailable, StaleCoordinator


def coordinated_partitions(state: ClusterState) -> list[PartitionId]:
    """The partitions that have a coordinator, or should."""
    return [each for each in sorted(state.partitions) if state.topics[each[0]].name in COORDINATED_TOPICS]


def place_coordinator(
    state: ClusterState, live: Liveness, partition: PartitionId, hosts: Container[int]
) -> list[Message]:
    """The coordinator of this partition, once more: on another epoch, perhaps on another node. BrokerNotAvailable.

    `hosts`: the brokers beside which a process for coordinators runs.
    """
    broker_id = _site(state, live, partition, hosts)
    before = state.coordinators.get(partition)
    term = 0 if before is None else before.term + 1
    if before is not None and before.epoch < LAST_EPOCH:
        return [CoordinatorPlaced(*partition, broker_id, before.producer_id, before.epoch + 1, before.retired_id, term)]
    allocated = allocate_producer_ids(state, 1)
    retired = NO_RETIRED_ID if before is None else before.producer_id
    return [*allocated.records, CoordinatorPlaced(*partition, broker_id, allocated.first, 0, retired, term)]


def away_from_leaders(state: ClusterState, live: Liveness, hosts: Container[int]) -> dict[PartitionId, int]:
    """Return the coordinators that would be placed beside the leader of their partition now, and are not; with where.

    There each append of a coordinator stays on its machine.
    """
    if live.brokers.isdisjoint(state.brokers):  # this controller is cut off from all of them
        return {}
    return {
        partition: state.partitions[partition].leader
        for partition, placed in state.coordinators.items()
        if partition in state.partitions
        and placed.broker_id != state.partitions[partition].leader == _site(state, live, partition, hosts)
    }


def coordinator_reported(
    state: ClusterState, sign: CoordinatorSign, endpoints: tuple[str, ...], pid: int
) -> list[Message]:
    """The records of a report: none, or that it serves. StaleCoordinator: another one was placed since."""
    partition = sign.topic_id, sign.partition
    placed = state.coordinators.get(partition)
    if placed is None or placed.epoch != sign.epoch:
        name = state.topics[sign.topic_id].name if sign.topic_id in state.topics else sign.topic_id.hex()
        raise StaleCoordinator(name, sign.partition, sign.epoch, -1 if placed is None else placed.epoch)
    if not sign.is_serving or (placed.endpoints, placed.pid) == (endpoints, pid):
        return []
    return [CoordinatorServing(*partition, sign.epoch, endpoints, pid)]


def _site(state: ClusterState, live: Liveness, partition: PartitionId, hosts: Container[int]) -> int:
    """The broker of its partition's leader, where every append goes; else one with the fewest coordinators.

    Brokers whose process for coordinators does not run just now come last: another one serves sooner.
    """
    usable = [each for each in sorted(state.brokers) if state.is_usable(each, live)]
    usable = usable or [each for each in sorted(state.brokers) if each in live.brokers]
    if not usable:
        raise BrokerNotAvailable(-1, "no broker is alive to run a coordinator")
    usable = [each for each in usable if each in hosts] or usable
    leader = state.partitions[partition].leader
    if leader in usable:
        return leader
    coordinators = Counter(each.broker_id for each in state.coordinators.values() if each.id != partition)
    return min(usable, key=lambda each: (coordinators[each], each))

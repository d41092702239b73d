"""Moving replicas, as it is asked for: checked, for many partitions at once. The steps are in `leader_election.py`.

All or nothing: an error leaves every partition as it was.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from raylog.actors.cluster.election.isr_and_elr import facts_of
from raylog.actors.cluster.election.leader_election import keeps_somebody, retarget, settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.placement.placement import Load, Site, most_dispensable, place_another
from raylog.actors.cluster.placement.placement_inputs import load_of, sites_of, usable_sites
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.cluster.topic_settings import check_min_insync
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import PartitionChanged, ReassignmentThrottle
from raylog.config import NO_LIMIT
from raylog.errors import (
    BrokerNotAvailable,
    InvalidConfig,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    NoReassignment,
)


def reassign_partitions(
    state: ClusterState,
    live: Liveness,
    targets: Mapping[tuple[str, int], Sequence[int] | None],
    throttle: int | None = None,
) -> list[Message]:
    """New replicas by (topic, partition), the preferred leader first; None cancels.

    `throttle` in bytes a second (−1: none) holds from now on, also for what runs already; None leaves it as it is.
    UnknownTopic, UnknownPartition, UnknownBroker, BrokerNotAvailable, InvalidReplicaAssignment, NoReassignment,
    InvalidConfig.
    """
    records: list[Message] = [*_throttle(state, throttle)]
    for (name, number), target in targets.items():
        partition = state.partition_named(name, number)
        if target is None:
            if not partition.is_reassigning:
                raise NoReassignment(name, number)
            records += reassigned(state, live, partition, partition.original, "reassignment cancelled")
        else:
            check_replicas(state, live, name, number, target, present=partition.replicas)
            _check_fewer(state, partition, len(target))
            records += reassigned(state, live, partition, target, "reassigned")
    return records


def change_replication_factor(
    state: ClusterState, live: Liveness, topic: str, replication_factor: int
) -> list[Message]:
    """Replicas are added where placement would put them; those go whose absence matters least, never a leader.

    UnknownTopic, InvalidReplicationFactor, InvalidReplicaAssignment; InvalidConfig: min.insync.replicas asks for more.
    """
    if replication_factor < 1:
        raise InvalidReplicationFactor(replication_factor, len(usable_sites(state, live)))
    return _with_replicas(state, live, state.partitions_of(state.topic(topic).id), replication_factor)


def add_replicas(state: ClusterState, live: Liveness, topic: str, wanted: int) -> list[Message]:
    """Add replicas to the partitions that have fewer than `wanted`; the others keep theirs. UnknownTopic."""
    partitions = [each for each in state.partitions_of(state.topic(topic).id) if len(each.intended) < wanted]
    return _with_replicas(state, live, partitions, wanted)


def _with_replicas(
    state: ClusterState, live: Liveness, partitions: Iterable[PartitionState], replication_factor: int
) -> list[Message]:
    sites, load = usable_sites(state, live), load_of(state)
    records: list[Message] = []
    for partition in partitions:
        _check_fewer(state, partition, replication_factor)
        target = list(partition.intended)
        while len(target) > replication_factor:
            target.remove(_to_drop(state, live, partition, target, load))
        while len(target) < replication_factor:
            target.append(_to_add(sites, sites_of(state, target), load, replication_factor))
        if tuple(target) != partition.intended:
            cause = f"replication factor {replication_factor}"
            records += reassigned(state, live, partition, target, cause)
    return records


def _check_fewer(state: ClusterState, partition: PartitionState, replicas: int) -> None:
    """InvalidConfig: with so few of them `min.insync.replicas` can never be met."""
    if replicas < len(partition.intended):
        check_min_insync(state.config_of(partition), replicas)


def check_replicas(
    state: ClusterState, live: Liveness, topic: str, number: int, brokers: Sequence[int], present: Sequence[int] = ()
) -> None:
    """Whether a partition may have these replicas; `present` ones may stay, whatever has become of their brokers."""
    if not brokers:
        raise InvalidReplicaAssignment(topic, number, "no broker is named")
    if len(set(brokers)) != len(brokers):
        raise InvalidReplicaAssignment(topic, number, f"a broker is named twice in {list(brokers)}")
    for each in brokers:
        broker = state.broker(each)
        if each in present or state.is_usable(each, live):
            continue
        alive = each in live.brokers and not broker.fenced
        raise BrokerNotAvailable(each, "it is draining" if alive else "it is not running")


def reassigned(
    state: ClusterState, live: Liveness, before: PartitionState, target: Sequence[int], cause: str
) -> list[PartitionChanged]:
    """The record of a new target. InvalidReplicaAssignment where no replica that holds the records would be left."""
    after = retarget(before, target)
    if before.never_led:  # no broker that it was on holds anything
        return settle(before, after, facts_of(state, live, after), cause)
    facts = facts_of(state, live, before)
    if not keeps_somebody(before, after, facts):
        reason = f"only replicas that would go, of {list(before.last_members)}, hold all records now"
        raise InvalidReplicaAssignment(state.name_of(before), before.partition, reason)
    return settle(before, after, facts, cause)


def _throttle(state: ClusterState, rate: int | None) -> list[ReassignmentThrottle]:
    if rate is None or rate == state.reassignment_throttle:
        return []
    if rate != NO_LIMIT and rate < 1:
        raise InvalidConfig("throttle", rate, "bytes a second, or -1 for no limit")
    return [ReassignmentThrottle(rate)]


def _to_add(sites: Sequence[Site], present: Sequence[Site], load: Load, replication_factor: int) -> int:
    broker = place_another(sites, present, load)
    if broker is None:
        raise InvalidReplicationFactor(replication_factor, len(sites))
    return broker


def _to_drop(state: ClusterState, live: Liveness, partition: PartitionState, target: Sequence[int], load: Load) -> int:
    """First those that are of no use just now."""
    alive = facts_of(state, live, partition).alive
    candidates = [broker for broker in target if broker != partition.leader]
    useless = [broker for broker in candidates if broker not in alive]
    behind = [broker for broker in candidates if broker not in partition.isr]
    broker = most_dispensable(sites_of(state, target), useless or behind or candidates, load)
    load.replicas[broker] -= 1
    return broker

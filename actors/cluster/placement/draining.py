"""Draining a broker before its node is taken away.

    drain       leads only where no other can, gets no new replicas; all that it has are reassigned
    drained     holds no replica any more: its processes may be stopped and it may be removed
    undrain     it stays after all; what has been moved or is moving stays where it goes

The order of each partition's replicas is kept: a broker that takes a replica over takes its place too. So the preferred
leaders stay spread.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.cluster.election.isr_and_elr import facts_of
from raylog.actors.cluster.election.leader_election import hand_over, keeps_somebody, retarget, settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.placement.placement import Load, Site, place_another
from raylog.actors.cluster.placement.placement_inputs import load_of, sites_of, usable_sites
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import BrokerDraining, PartitionChanged
from raylog.actors.protocol.names import COORDINATED_TOPICS
from raylog.errors import BrokerInUse


def drain_broker(state: ClusterState, live: Liveness, broker_id: int, *, force: bool = False) -> list[Message]:
    """Lead elsewhere at once, and reassign the replicas. None where all of that has been done. UnknownBroker.

    BrokerInUse where a replica has nowhere to go; with `force` such a partition makes do with fewer replicas, as long
    as it keeps one that holds all records. Raylog's own topics have as many copies as there are brokers for, so they
    make do with fewer without that.
    """
    broker = state.broker(broker_id)
    records: list[Message] = [] if broker.draining else [BrokerDraining(broker_id, True)]
    sites = [site for site in usable_sites(state, live) if site.broker != broker_id]
    load = load_of(state)
    for partition in state.partitions_on(broker_id):
        if broker_id in partition.intended:
            target = _without(state, partition, broker_id, sites, load, force)
        else:
            target = partition.intended
        records += _moved(state, live, partition, broker_id, target)
    return records


def undrain_broker(state: ClusterState, broker_id: int) -> list[Message]:
    """Let a broker stay after all. UnknownBroker."""
    return [BrokerDraining(broker_id, False)] if state.broker(broker_id).draining else []


def is_drained(state: ClusterState, broker_id: int) -> bool:
    """UnknownBroker."""
    return state.broker(broker_id).draining and not state.replica_count(broker_id)


def _without(
    state: ClusterState, partition: PartitionState, broker_id: int, sites: Sequence[Site], load: Load, force: bool
) -> tuple[int, ...]:
    """The replicas with another broker in the place of this one."""
    intended = partition.intended
    others = [each for each in intended if each != broker_id]
    instead = place_another(sites, sites_of(state, others), load)
    name = f"{state.name_of(partition)}-{partition.partition}"
    if instead is not None:
        return tuple(instead if each == broker_id else each for each in intended)
    if not force and not (others and state.name_of(partition) in COORDINATED_TOPICS):
        raise BrokerInUse(broker_id, f"no other broker could take its replica of {name}")
    if not others:
        raise BrokerInUse(broker_id, f"it has the only replica of {name}, and no other broker could take it")
    return tuple(others)


def _moved(
    state: ClusterState, live: Liveness, before: PartitionState, broker_id: int, target: tuple[int, ...]
) -> list[PartitionChanged]:
    after = before if target == before.intended else retarget(before, target)
    facts = facts_of(state, live, after if before.never_led else before, leaving=broker_id)
    if not before.never_led and not keeps_somebody(before, after, facts):
        reason = f"without it nobody holds all records of {state.name_of(before)}-{before.partition}"
        raise BrokerInUse(broker_id, reason)
    if after.leader == broker_id:
        after = hand_over(after, facts).partition
    return settle(before, after, facts, f"broker {broker_id} drains")

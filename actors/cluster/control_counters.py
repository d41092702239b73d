"""Counts of what a controller has decided so far, and figures of its partitions, read from the state when asked."""

from __future__ import annotations

from collections.abc import Iterator

from raylog.actors.cluster.election.leaderless import is_offline
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.kernel.metrics import (
    BROKERS,
    BROKERS_ALIVE,
    ISR_EXPANDS,
    ISR_SHRINKS,
    LEADER_CHANGES,
    OFFLINE_PARTITIONS,
    PARTITIONS,
    UNDER_MIN_ISR_PARTITIONS,
    UNDER_REPLICATED_PARTITIONS,
    WAITING_PARTITIONS,
    Reading,
)
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.metadata_records import PartitionChanged


class ControlCounters:
    def __init__(self) -> None:
        self.isr_shrinks = 0
        self.isr_expands = 0
        self.leader_changes = 0

    def count(self, before: PartitionState, after: PartitionChanged) -> None:
        """Count what this record changes. A replica removed from the partition altogether is no shrink of the ISR."""
        left = set(before.isr) - set(after.isr)
        self.isr_shrinks += not left.isdisjoint(after.replicas)
        self.isr_expands += not set(after.isr) <= set(before.isr)
        self.leader_changes += after.leader not in (NO_LEADER, before.leader) and not before.never_led

    def readings(self) -> Iterator[Reading]:
        yield Reading(ISR_SHRINKS, (), self.isr_shrinks)
        yield Reading(ISR_EXPANDS, (), self.isr_expands)
        yield Reading(LEADER_CHANGES, (), self.leader_changes)


def cluster_readings(state: ClusterState, live: Liveness) -> Iterator[Reading]:
    """A walk over all partitions: some 1 µs each, every few seconds."""
    offline = waiting = under_replicated = under_minimum = 0
    for partition in state.partitions.values():
        offline += is_offline(state, partition)
        waiting += partition.waits_for_a_person
        under_replicated += len(partition.isr) < len(partition.replicas)
        under_minimum += len(partition.isr) < state.min_insync(partition)
    yield Reading(BROKERS, (), len(state.brokers))
    yield Reading(BROKERS_ALIVE, (), sum(broker in live.brokers for broker in state.brokers))
    yield Reading(PARTITIONS, (), len(state.partitions))
    yield Reading(OFFLINE_PARTITIONS, (), offline)
    yield Reading(WAITING_PARTITIONS, (), waiting)
    yield Reading(UNDER_REPLICATED_PARTITIONS, (), under_replicated)
    yield Reading(UNDER_MIN_ISR_PARTITIONS, (), under_minimum)

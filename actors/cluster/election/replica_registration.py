"""The records of replicas that come and go.

What must stay true (rule 7): before a decision counts on a process, it is recorded as what it is. So

- a process that has been replaced by a later one is refused (rule 26);
- one whose log is unproven leaves the ISR and the eligible, and so does one whose log is damaged;
- one that replaces another leaves the ISR until the leader has seen it, unless no other member is alive;
- a leader whose process was replaced leads no more: it may be elected again, under a new epoch.

An unproven log stays so through restarts of its process, until its replica is in an ISR (`ClusterState._note_proven`):
the replica itself forgets as soon as it sees itself registered.
"""

from __future__ import annotations

from dataclasses import replace

from raylog.actors.cluster.election.isr_and_elr import (
    PartitionFacts,
    facts_of,
    without_damaged,
    without_dead,
    without_unproven,
)
from raylog.actors.cluster.election.leader_election import settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import NOT_REGISTERED, ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.control_messages import ReplicaLoss, ReplicaReport
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import ReplicaRegistered
from raylog.errors import IneligibleReplica, StaleIncarnation
from raylog.storage.directory.doubts import BLANK, doubt_after_restart


def replica_registered(state: ClusterState, live: Liveness, broker_id: int, report: ReplicaReport) -> list[Message]:
    """A process runs: its registration, and what that means for its partition; nothing where both are known.

    The broker's epoch has been checked. `live` need not hold the process yet. UnknownTopic, UnknownPartition,
    IneligibleReplica (not a replica of it), StaleIncarnation (a later process has registered).
    """
    before = state.partition(report.topic_id, report.partition)
    arrival = _registration(state, before, broker_id, report)
    facts = facts_of(state, live, before, came=arrival)
    known = state.replicas.get(ReplicaKey(*before.id, broker_id))
    registration = [] if arrival == known else [arrival]
    after = before if broker_id not in facts.replaced else _after_restart(before, arrival, facts)
    # The registration comes first: by the partition's record a member of the ISR counts as proven.
    return [*registration, *settle(before, after, facts, f"replica on broker {broker_id} registered")]


def replica_lost(state: ClusterState, live: Liveness, broker_id: int, loss: ReplicaLoss) -> list[Message]:
    """A process has died: out of the ISR, and a new leader where it led; nothing where it is not the present one.

    `live` may hold the process still.
    """
    key = ReplicaKey(loss.topic_id, loss.partition, broker_id)
    if key.partition_id not in state.partitions or state.incarnation(*key) != loss.incarnation:
        return []
    before = state.partition(*key.partition_id)
    facts = facts_of(state, live, before, gone=broker_id)
    if loss.is_damaged:
        after = without_damaged(before, broker_id, facts, loss.why)
    else:
        after = without_dead(before, broker_id, facts)
    return [*settle(before, after, facts, f"replica on broker {broker_id} lost ({loss.why})")]


def is_wanted(state: ClusterState, topic_id: bytes, partition: int, broker_id: int) -> bool:
    """Whether this broker is to hold a replica of this partition. If not, and the state is committed, it can go."""
    known = state.partitions.get((topic_id, partition))
    return known is not None and broker_id in known.replicas


def _registration(
    state: ClusterState, partition: PartitionState, broker_id: int, report: ReplicaReport
) -> ReplicaRegistered:
    """The record, checked against the one that is there."""
    name = state.name_of(partition)
    if broker_id not in partition.replicas:
        raise IneligibleReplica(name, report.partition, broker_id, "it is not one of its replicas")
    known = state.replicas.get(ReplicaKey(*partition.id, broker_id))
    current = NOT_REGISTERED if known is None else known.incarnation
    if report.incarnation < current:
        raise StaleIncarnation(name, report.partition, broker_id, report.incarnation, current)
    if known is not None and report.incarnation == current:
        return replace(known, endpoints=report.endpoints, pid=report.pid)
    return ReplicaRegistered(
        topic_id=report.topic_id,
        partition=report.partition,
        broker_id=broker_id,
        incarnation=report.incarnation,
        endpoints=report.endpoints,
        pid=report.pid,
        last_epoch=report.last_epoch,
        log_end_offset=report.log_end_offset,
        unproven=report.unproven if known is None else _doubt_after_restart(report, known),
        created_as=report.created_as,
    )


def _doubt_after_restart(report: ReplicaReport, known: ReplicaRegistered) -> str:
    """A process that ended before it wrote down that it was registered has left a directory that is blank still.

    No record was in it, since nothing is written before that: it is as good as when the controller counted on it.
    """
    if report.unproven == BLANK and report.created_as == known.created_as != 0:
        return known.unproven
    return doubt_after_restart(report.unproven, known.unproven)


def _after_restart(before: PartitionState, arrival: ReplicaRegistered, facts: PartitionFacts) -> PartitionState:
    if arrival.unproven:
        return without_unproven(before, arrival, facts)
    return without_dead(before, arrival.broker_id, facts)

"""A leader proposes who is in sync, the controller records it (rules 4, 5).

The leader has seen that a member which joins holds everything (rule 5); here it is checked that the leader speaks of
the present state, that it is the leader, and that each member is the process that the controller knows under that
name and still counts on.
"""

from __future__ import annotations

from raylog.actors.cluster.election.isr_and_elr import PartitionFacts, facts_of, with_isr
from raylog.actors.cluster.election.leader_election import settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.protocol.control_messages import ProposeIsr, ReplicaId
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    IneligibleReplica,
    NotLeader,
    StaleIncarnation,
    StaleLeaderEpoch,
    StalePartitionEpoch,
    UnknownLeaderEpoch,
)


def propose_isr(state: ClusterState, live: Liveness, proposal: ProposeIsr) -> list[Message]:
    """The new ISR, and what follows: a reassignment may be complete by it. The broker's epoch has been checked.

    UnknownTopic, UnknownPartition, NotLeader, StaleLeaderEpoch, UnknownLeaderEpoch, StalePartitionEpoch,
    StaleIncarnation, IneligibleReplica.
    """
    before = state.partition(proposal.topic_id, proposal.partition)
    _check_leader(state, before, proposal)
    facts = facts_of(state, live, before)
    for member in proposal.isr:
        _check_member(state, before, facts, member)
    members = {broker for broker, _ in proposal.isr}
    if proposal.leader not in members:
        reason = "it is the leader, and cannot leave its own ISR"
        raise IneligibleReplica(state.name_of(before), before.partition, proposal.leader, reason)
    if members == set(before.isr):
        return []
    after = with_isr(before, members, facts.minimum(before))
    return [*settle(before, after, facts, "ISR proposed by the leader")]


def _check_leader(state: ClusterState, partition: PartitionState, proposal: ProposeIsr) -> None:
    """The compare of compare-and-set (rule 4)."""
    name, number = state.name_of(partition), partition.partition
    if proposal.leader_epoch < partition.leader_epoch:
        raise StaleLeaderEpoch(proposal.leader_epoch, partition.leader_epoch)
    if proposal.leader_epoch > partition.leader_epoch:
        raise UnknownLeaderEpoch(proposal.leader_epoch, partition.leader_epoch)
    if proposal.leader != partition.leader or partition.never_led:
        raise NotLeader(name, number, partition.leader, partition.leader_epoch)
    if proposal.partition_epoch != partition.partition_epoch:
        raise StalePartitionEpoch(name, number, proposal.partition_epoch, partition.partition_epoch)


def _check_member(state: ClusterState, partition: PartitionState, facts: PartitionFacts, member: ReplicaId) -> None:
    broker_id, incarnation = member
    name, number = state.name_of(partition), partition.partition
    if broker_id not in partition.replicas:
        raise IneligibleReplica(name, number, broker_id, "it is not one of its replicas")
    known = state.incarnation(*partition.id, broker_id)
    if incarnation != known:
        raise StaleIncarnation(name, number, broker_id, incarnation, known)
    if broker_id not in facts.alive:
        raise IneligibleReplica(name, number, broker_id, "its process or its broker is gone")
    if broker_id in facts.draining and broker_id not in partition.isr:
        raise IneligibleReplica(name, number, broker_id, "its broker is draining")

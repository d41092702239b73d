"""The choice of a person where the rules elect no leader, or another one (rule 7): a copy by the number of its broker.

    choose      this copy leads, whatever it lacks; where it surely lacks nothing the election is a clean one
    hold        no copy leads, nor will by a rule, while one that was set aside is put in its place
    let_go      it was not: all is as before, but for replicas that have come back as other processes meanwhile

What must stay true: nothing here is done without a person's word. What the chosen copy lacks is set aside by the
replicas that have it, since the epoch of the election is noted as unclean.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from raylog.actors.cluster.election.isr_and_elr import facts_of
from raylog.actors.cluster.election.leader_election import (
    BY_CHOICE,
    ELIGIBLE,
    FIRST,
    IN_SYNC,
    change_of,
    leader_is_well,
    led_by,
    settle,
)
from raylog.actors.cluster.partition import HELD, PartitionId, PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.messages import Message
from raylog.errors import BrokerNotAvailable, ElectionNotNeeded, NeverLed


def choose(state: ClusterState, live: Liveness, partition: PartitionId, broker: int) -> list[Message]:
    """Let this broker's copy lead. UnknownTopic, UnknownPartition, BrokerNotAvailable, ElectionNotNeeded."""
    before = state.partition(*partition)
    facts = facts_of(state, live, before)
    if broker not in before.replicas:
        raise BrokerNotAvailable(broker, "it holds no replica of this partition")
    if broker not in facts.alive:
        raise BrokerNotAvailable(broker, "its replica of this partition does not run")
    if before.leader == broker and leader_is_well(before, facts):
        raise ElectionNotNeeded(state.name_of(before), before.partition, broker)
    how = _how(before, broker)
    return [*change_of(before, led_by(before, broker, how, facts), facts, f"a person has chosen; {how}")]


def _how(partition: PartitionState, broker: int) -> str:
    if broker in partition.isr:
        return FIRST if partition.never_led else IN_SYNC
    return ELIGIBLE if broker in partition.elr else BY_CHOICE


def hold(state: ClusterState, partition: PartitionId) -> list[Message]:
    """Keep the partition without a leader until `choose` or `let_go`. NeverLed: nothing could have been set aside."""
    before = state.partition(*partition)
    if before.never_led:
        raise NeverLed(state.name_of(before), before.partition)
    given_up = dict(before.lost) | dict.fromkeys((*before.last_members, *before.doubtful_brokers), HELD)
    epoch = before.leader_epoch + (before.leader != NO_LEADER)
    after = replace(
        before, leader=NO_LEADER, leader_epoch=epoch, isr=(), elr=(), doubtful=(), lost=tuple(given_up.items())
    )
    return [*before.change_to(after, HELD)]


def incarnations_of(state: ClusterState, partition: PartitionState) -> dict[int, int]:
    """The processes that a hold is about."""
    return {broker: state.incarnation(*partition.id, broker) for broker in partition.replicas}


def let_go(
    state: ClusterState, live: Liveness, before: PartitionState, incarnations: Mapping[int, int]
) -> list[Message]:
    """Return to what was before the hold. Processes that have come since lead nothing and are in no ISR."""
    now = state.partition(*before.id)
    if not (now.waits_for_a_person and now.is_held):
        return []  # another decision came in between
    same = {broker for broker in now.replicas if state.incarnation(*now.id, broker) == incarnations.get(broker)}
    after = replace(
        now,
        isr=tuple(broker for broker in before.isr if broker in same),
        elr=tuple(broker for broker in before.elr if broker in same),
        doubtful=tuple(each for each in before.doubtful if each[0] in same),
    )
    regained = {*after.last_members, *after.doubtful_brokers}
    after = replace(after, lost=tuple(each for each in now.lost if each[0] not in regained))
    return [*settle(now, after, facts_of(state, live, now), "the copy was not restored")]

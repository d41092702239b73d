"""A leader asks to be relieved: its copy is damaged (rules 1, 14), or its disk stays full.

What must stay true: it is relieved only if another replica lives that may be elected: a member of the ISR, or for
damage an eligible leaver (rule 6). So of two damaged replicas that ask at the same time one stays, and none throws away
what no other has. An eligible leaver cannot always come into the ISR first: what it has yet to fetch may lie behind the
damage.
"""

from __future__ import annotations

from raylog.actors.cluster.election.isr_and_elr import facts_of, without_damaged
from raylog.actors.cluster.election.leader_election import hand_over, settle
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.protocol.control_messages import StandDown
from raylog.actors.protocol.messages import Message
from raylog.errors import EligibleLeadersNotAvailable, StaleIncarnation


def stand_down(state: ClusterState, live: Liveness, asked: StandDown) -> list[Message]:
    """The records; none where it has been relieved already. The broker's epoch has been checked.

    UnknownTopic, UnknownPartition, StaleIncarnation, EligibleLeadersNotAvailable.
    """
    before = state.partition(asked.topic_id, asked.partition)
    name, known = state.name_of(before), state.incarnation(*before.id, asked.broker)
    if asked.incarnation != known:
        raise StaleIncarnation(name, before.partition, asked.broker, asked.incarnation, known)
    cause = f"broker {asked.broker} stands down: {asked.reason}"
    decide = _leave if asked.is_damaged else _hand_over
    return decide(state, live, before, asked, cause)


def _leave(
    state: ClusterState, live: Liveness, before: PartitionState, asked: StandDown, cause: str
) -> list[Message]:
    facts = facts_of(state, live, before, gone=asked.broker)
    if before.never_led or not facts.alive.intersection(before.last_members):
        raise EligibleLeadersNotAvailable(state.name_of(before), before.partition)
    after = without_damaged(before, asked.broker, facts, asked.reason)
    return [*settle(before, after, facts, cause)]


def _hand_over(
    state: ClusterState, live: Liveness, before: PartitionState, asked: StandDown, cause: str
) -> list[Message]:
    if before.leader != asked.broker:
        return []
    facts = facts_of(state, live, before)
    after = hand_over(before, facts, live.full).partition
    if after.leader == before.leader:
        raise EligibleLeadersNotAvailable(state.name_of(before), before.partition)
    return [*settle(before, after, facts, cause)]

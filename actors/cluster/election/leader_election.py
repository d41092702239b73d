"""The choice of a partition's leader (rules 6, 7), and the end of every decision about a partition: `settle`.

The leader is looked for in this order, in each case in the order of the replicas, those on draining brokers last:

    1  the ISR                          clean: it holds all that was acknowledged
    2  the eligible leavers             clean too (`isr_and_elr.py`)
    3  where ISR and eligible are empty, a last member came back after a reboot of its machine, and such a one is
       alive: of all that are alive the one with the largest (last epoch, log end offset), once all replicas have
       come back and told how far they are, or have been waited for long enough                           in doubt
       (the same, but of all replicas, where none of its leaders ever had an ISR for acks=all             unused)
    4  where the topic allows it, or a person asks for it: whoever is alive and proven                     unclean
       (a person gets the rebooted with the largest log too, if there is nobody else)
    5  whom a person names (`persons_choice.py`)                                                            unclean

In 3 those that were not members count too: a log with a larger (last epoch, log end offset) holds all that a smaller
one holds of what was acknowledged, so it cannot be the worse choice. And one that has not come back may hold more than
those that have: after a power cut of all, who is a member by the record depends on who was heard of first. A replica
that went on has more than when it registered, so what it told since counts: its marks. A new controller has to hear
them first. One that registers just now has told, and so has a doubtful one: it has had nobody to fetch from since.

A replica that came back without its log is in none of 1 to 4, however much it has fetched since: next to it the copy of
one that was long away is worth more, and only a person can weigh them. So where nobody else is left, nobody leads. An
unused partition is the exception, as is one that was never led: there was nothing to lose (`may_have_acknowledged`).

The record of an election also takes the dead out of the ISR (rule 4). Elections in doubt and unclean ones may lose
acknowledged records: `may_have_lost_records` finds them, whoever writes them says so loudly, and their epoch stays
noted in the partition, so that nothing from before it is cut without being set aside.

A decision brings the partition before, and as it should be with its members changed. What follows from that is the same
for all decisions: `settle` completes a reassignment, elects, and makes one record. A reassignment moves a partition to
other replicas, step by step (KIP-455):

    started     replicas = original + adding; the added ones begin to follow
    replaced    a new target while one runs: what the old one was adding and the new one does not want is dropped
    cancelled   the same with the original replicas as the target
    completed   once all that are added are in sync: replicas = target; one that is to be left alone was read whole

What must stay true:
- The ISR never becomes empty by a step, and keeps a living replica if it had one.
- A reassignment completes only when those that remain in sync are as many as acks=all asks for, before it and after it,
  or all that there will be. So it leaves no acknowledged record with fewer copies than were promised.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import replace
from typing import Final, NamedTuple

from raylog.actors.cluster.election.isr_and_elr import PartitionFacts, facts_of, with_isr
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import PartitionChanged
from raylog.errors import (
    ElectionNotNeeded,
    EligibleLeadersNotAvailable,
    InvalidConfig,
    PreferredLeaderNotAvailable,
    RaylogError,
)

PREFERRED: Final = "preferred"
UNCLEAN: Final = "unclean"

# How a leader came to be, in the reasons of records.
FIRST: Final = "first leader"
IN_SYNC: Final = "elected from the ISR"
ELIGIBLE: Final = "elected from the eligible leavers"
UNUSED: Final = "elected by its log, the largest: nothing was ever acknowledged"
IN_DOUBT: Final = "ELECTED IN DOUBT: no proven log is left, acknowledged records may be lost"
UNCLEANLY: Final = "ELECTED UNCLEANLY: acknowledged records may be lost"
BY_CHOICE: Final = "ELECTED BY A PERSON'S CHOICE: acknowledged records may be lost"
NOBODY: Final = "nobody can lead"
_UNCLEAN: Final = (IN_DOUBT, UNCLEANLY, BY_CHOICE)


class Election(NamedTuple):
    partition: PartitionState
    how: str  # one of the above; empty: there was none


class Elections(NamedTuple):
    records: list[Message]
    refused: dict[tuple[str, int], RaylogError]


def may_have_lost_records(record: PartitionChanged) -> bool:
    return record.reason.endswith(_UNCLEAN)


# --- one partition ------------------------------------------------------------------------------------------------


def leader_is_well(partition: PartitionState, facts: PartitionFacts) -> bool:
    leader = partition.leader
    return leader in facts.alive and leader in partition.isr and leader not in facts.replaced


def elect_if_needed(
    partition: PartitionState, facts: PartitionFacts, *, waited: bool = False, unclean: bool = False
) -> Election:
    """The partition with a leader that is well; or without one, if none can be had.

    `waited`: do without replicas that have not registered, where a new partition or one in doubt would wait for them.
    `unclean`: a person wants a leader at any price.
    """
    if leader_is_well(partition, facts):
        return Election(partition, "")
    if partition.never_led:
        return _elect_first(partition, facts, waited)
    for candidates, how in (
        (_in_order(partition, partition.isr, facts), IN_SYNC),
        (_in_order(partition, partition.elr, facts), ELIGIBLE),
        (_unused(partition, facts, waited), UNUSED),
        (_in_doubt(partition, facts, waited), IN_DOUBT),
        (_unclean_candidates(partition, facts, forced=unclean), UNCLEANLY),
    ):
        if candidates:
            return Election(led_by(partition, candidates[0], how, facts), how)
    if partition.leader == NO_LEADER:
        return Election(partition, "")
    return Election(replace(partition, leader=NO_LEADER, leader_epoch=partition.leader_epoch + 1), NOBODY)


def hand_over(partition: PartitionState, facts: PartitionFacts, unfit: Collection[int] = ()) -> Election:
    """Led by another member of the ISR that is not `unfit`, nor draining; as it was, if there is none."""
    others = [broker for broker in partition.isr if broker != partition.leader and broker not in unfit]
    candidates = [each for each in _in_order(partition, others, facts) if each not in facts.draining]
    if not candidates:
        return Election(partition, "")
    return Election(led_by(partition, candidates[0], IN_SYNC, facts), IN_SYNC)


def _elect_first(partition: PartitionState, facts: PartitionFacts, waited: bool) -> Election:
    """Elect the first leader. Nothing was ever written, so blank replicas are as good as any (rule 7).

    All that are alive begin in sync."""
    candidates = _in_order(partition, partition.isr, facts)
    if not candidates or not (waited or facts.awaited <= facts.alive):
        return Election(partition, "")
    return Election(led_by(partition, candidates[0], FIRST, facts), FIRST)


def led_by(partition: PartitionState, leader: int, how: str, facts: PartitionFacts) -> PartitionState:
    stay = facts.alive.intersection(partition.isr) if how in (FIRST, IN_SYNC) else {leader}
    elected = with_isr(partition, stay, facts.minimum(partition))
    epoch = partition.leader_epoch + 1
    if how in (*_UNCLEAN, UNUSED):  # what this leader lacks is given up, so others are not ahead of it any more
        elected = replace(elected, elr=(), unclean_epoch=epoch)
    return replace(elected, leader=leader, leader_epoch=epoch, doubtful=(), lost=())


def _in_order(partition: PartitionState, brokers: Iterable[int], facts: PartitionFacts) -> list[int]:
    """The living among these, the most wanted first."""
    alive = facts.alive.intersection(brokers)
    return sorted(alive, key=lambda broker: (broker in facts.draining, partition.replicas.index(broker)))


def is_in_doubt(partition: PartitionState) -> bool:
    """Whether no replica is left that surely holds what was acknowledged, but one that may have lost its end only."""
    return not partition.last_members and bool(partition.doubtful)


def _in_doubt(partition: PartitionState, facts: PartitionFacts, waited: bool) -> list[int]:
    if not is_in_doubt(partition) or facts.alive.isdisjoint(partition.doubtful_brokers):
        return []
    electable = _electable(partition, facts)
    return _largest_logs(partition, facts, electable) if waited or _are_known(partition, facts, electable) else []


def _unused(partition: PartitionState, facts: PartitionFacts, waited: bool) -> list[int]:
    """The candidates where no member is left, and none has lost anything that was acknowledged: also blank ones.

    Records under acks=1 may be there. So the largest log is the best, and what others have is set aside.
    """
    candidates = set(partition.replicas)
    if not partition.is_unused or not (waited or _are_known(partition, facts, candidates)):
        return []
    return _largest_logs(partition, facts, candidates)


def awaits_others(partition: PartitionState) -> bool:
    """Whether the largest log is to lead, and those that are not there are waited for."""
    return is_in_doubt(partition) or partition.is_unused


def _are_known(partition: PartitionState, facts: PartitionFacts, candidates: Collection[int]) -> bool:
    """Whether all replicas are there, and it is known how far the logs of the candidates reach now."""
    told = facts.have_told | facts.replaced | facts.alive.intersection(partition.doubtful_brokers)
    return facts.alive.issuperset(partition.replicas) and told.issuperset(candidates)


def _electable(partition: PartitionState, facts: PartitionFacts) -> set[int]:
    return set(partition.replicas) - facts.unelectable


def _largest_logs(partition: PartitionState, facts: PartitionFacts, candidates: Iterable[int]) -> list[int]:
    def rank(broker: int) -> tuple[int, int, bool]:
        return (*facts.log_ends[broker], broker in partition.doubtful_brokers)

    return sorted(_in_order(partition, candidates, facts), key=rank, reverse=True)


def _unclean_candidates(partition: PartitionState, facts: PartitionFacts, *, forced: bool) -> list[int]:
    if not (forced or facts.config.unclean_leader_election_enable):
        return []
    proven = [b for b in _in_order(partition, partition.replicas, facts) if b not in facts.unproven]
    return proven or (_largest_logs(partition, facts, _electable(partition, facts)) if forced else [])


# --- on demand ----------------------------------------------------------------------------------------------------


def elect(
    state: ClusterState, live: Liveness, topic_id: bytes, partition: int, *, waited: bool = False
) -> list[Message]:
    """A leader for a partition that has none, if there can be one. UnknownTopic, UnknownPartition.

    A new partition waits for its replicas on all living brokers, unless the caller says that it has `waited` long
    enough.
    """
    before = state.partition(topic_id, partition)
    facts = facts_of(state, live, before)
    election = elect_if_needed(before, facts, waited=waited)
    return [*change_of(before, election.partition, facts, election.how)]


def elect_leaders(
    state: ClusterState, live: Liveness, kind: str, partitions: Iterable[tuple[str, int]] | None = None
) -> Elections:
    """PREFERRED: let the first replica lead. UNCLEAN: give a leader at any price to what has none.

    None: all partitions where that changes something. A refusal stops no other election: UnknownTopic,
    UnknownPartition, ElectionNotNeeded, PreferredLeaderNotAvailable, EligibleLeadersNotAvailable.
    """
    if kind not in (PREFERRED, UNCLEAN):
        raise InvalidConfig("election type", kind, f"{PREFERRED} or {UNCLEAN}")
    elections = Elections([], {})
    for name, number in _all_partitions(state) if partitions is None else partitions:
        try:
            before = state.partition_named(name, number)
            after = _elect_one(state, live, kind, name, before)
            cause, facts = f"{kind} election: {after.how}", facts_of(state, live, before)
            elections.records.extend(change_of(before, after.partition, facts, cause))
        except ElectionNotNeeded as error:
            if partitions is not None:
                elections.refused[name, number] = error
        except RaylogError as error:
            elections.refused[name, number] = error
    return elections


def _all_partitions(state: ClusterState) -> Iterator[tuple[str, int]]:
    for topic in state.topics.values():
        for number in range(topic.partitions):
            yield topic.name, number


def _elect_one(state: ClusterState, live: Liveness, kind: str, name: str, partition: PartitionState) -> Election:
    facts = facts_of(state, live, partition)
    preferred = partition.replicas[0]
    well = leader_is_well(partition, facts)
    if well and (kind == UNCLEAN or partition.leader == preferred):
        raise ElectionNotNeeded(name, partition.partition, partition.leader)
    if kind == UNCLEAN:
        election = elect_if_needed(partition, facts, waited=True, unclean=True)
        if election.partition.leader == NO_LEADER:
            raise EligibleLeadersNotAvailable(name, partition.partition)
        return election
    candidates = facts.alive.intersection(partition.isr) - facts.draining
    if partition.never_led or preferred not in candidates:
        raise PreferredLeaderNotAvailable(name, partition.partition, preferred)
    return Election(led_by(partition, preferred, IN_SYNC, facts), IN_SYNC)


def retarget(partition: PartitionState, target: Sequence[int]) -> PartitionState:
    """Send the partition on its way to `target`; its original replicas end a reassignment. See `keeps_somebody`."""
    wanted = tuple(target)
    if partition.never_led:  # nothing has to move
        return replace(partition, replicas=wanted, isr=wanted, adding=(), target=())
    original = partition.original
    adding = tuple(broker for broker in wanted if broker not in original)
    if set(wanted) == set(original) and (len(wanted) > 1 or len(partition.isr) == 1):
        return _within(replace(partition, adding=(), target=()), wanted)
    if set(wanted) == set(original):  # what was added may be needed yet: it goes as any other copy does
        return replace(partition, adding=(), target=wanted)
    return _within(replace(partition, adding=adding, target=wanted), original + adding)


def keeps_somebody(before: PartitionState, after: PartitionState, facts: PartitionFacts) -> bool:
    """Whether a new target leaves a replica that holds all that was acknowledged, and a living one if there was one."""
    if facts.alive.intersection(before.last_members):
        return not facts.alive.isdisjoint(after.last_members)
    return bool(after.last_members) or not before.last_members


def complete_if_possible(partition: PartitionState, facts: PartitionFacts) -> PartitionState:
    """End a reassignment, if all replicas that were added are in sync, and enough are."""
    if not partition.is_reassigning or not set(partition.adding) <= set(partition.isr):
        return partition
    target = partition.target
    remaining = [broker for broker in target if broker in partition.isr]
    minimum = facts.config.min_insync(len(target))
    enough = min(max(minimum, facts.minimum(partition)), len(target))
    if len(remaining) < enough or facts.alive.isdisjoint(remaining):
        return partition
    if not facts.sound.issuperset(awaits_check(partition)):
        return partition
    moved = _within(replace(partition, adding=(), target=()), target)
    return with_isr(moved, remaining, minimum)


def awaits_check(partition: PartitionState) -> tuple[int, ...]:
    """Return whose copy has to be read whole before a reassignment completes: the only one that will be left.

    A bit that has rotted there unnoticed is in no other copy. One that was just fetched has been read.
    """
    is_to_be_alone = len(partition.target) == 1
    return tuple(broker for broker in partition.target if is_to_be_alone and broker not in partition.adding)


def _within(partition: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """The partition with these replicas only, also in the ISR and in all other sets."""
    return replace(
        partition,
        replicas=replicas,
        isr=tuple(broker for broker in replicas if broker in partition.isr),
        elr=tuple(broker for broker in replicas if broker in partition.elr),
        doubtful=tuple(entry for entry in partition.doubtful if entry[0] in replicas),
    )


def settle(before: PartitionState, after: PartitionState, facts: PartitionFacts, cause: str) -> list[PartitionChanged]:
    """The record, or none where nothing changes."""
    completed = complete_if_possible(after, facts)
    election = elect_if_needed(completed, facts)
    reasons = [cause]
    if after.is_reassigning and not completed.is_reassigning:
        reasons.append("reassignment complete")
    if election.how:
        reasons.append(election.how)
    return change_of(before, election.partition, facts, "; ".join(reasons))


def change_of(
    before: PartitionState, after: PartitionState, facts: PartitionFacts, reason: str
) -> list[PartitionChanged]:
    """The record, which also notes that acks=all may be answered from now on; none where nothing changes."""
    is_enough = not after.never_led and len(after.isr) >= facts.minimum(after)
    noted = replace(after, may_have_acknowledged=after.may_have_acknowledged or is_enough)
    return before.change_to(noted, reason)

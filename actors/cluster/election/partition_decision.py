"""How every decision about a partition ends: complete a reassignment, elect, and write one record.

A decision brings the partition before, and as it should be with its members changed. What follows from that is the same
for all of them: `settle`. A reassignment moves a partition to other replicas, step by step (KIP-455):

    started     replicas = original + adding; the added ones begin to follow
    replaced    a new target while one runs: what the old one was adding and the new one does not want is dropped
    cancelled   the same with the original replicas as the target
    completed   once all that are added are in sync: replicas = target

What must stay true:
- The ISR never becomes empty by a step, and keeps somebody alive if it had somebody alive.
- A reassignment completes only when those that remain in sync are as many as acks=all asks for, before it and after it,
  or all that there will be. So it leaves no acknowledged record with fewer copies than were promised.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from raylog.actors.cluster.election.eligible_leavers import with_isr
from raylog.actors.cluster.election.leader_election import elect_if_needed
from raylog.actors.cluster.election.situation import Situation
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.protocol.metadata_records import PartitionChanged


def retarget(partition: PartitionState, target: Sequence[int]) -> PartitionState:
    """On its way to `target`; the original replicas as the target end a reassignment. See `keeps_somebody`."""
    wanted = tuple(target)
    if partition.never_led:  # nothing has to move
        return replace(partition, replicas=wanted, isr=wanted, adding=(), target=())
    original = partition.original
    adding = tuple(broker for broker in wanted if broker not in original)
    if set(wanted) == set(original):
        return _within(replace(partition, adding=(), target=()), wanted)
    return _within(replace(partition, adding=adding, target=wanted), original + adding)


def keeps_somebody(before: PartitionState, after: PartitionState, situation: Situation) -> bool:
    """Whether a new target leaves somebody who holds all that was acknowledged, alive if one was."""
    if situation.alive.intersection(before.last_members):
        return not situation.alive.isdisjoint(after.last_members)
    return bool(after.last_members) or not before.last_members


def complete_if_possible(partition: PartitionState, situation: Situation) -> PartitionState:
    """With the target as its replicas, if all that were added are in sync and enough are."""
    if not partition.is_reassigning or not set(partition.adding) <= set(partition.isr):
        return partition
    target = partition.target
    remaining = [broker for broker in target if broker in partition.isr]
    minimum = situation.config.min_insync(len(target))
    enough = min(max(minimum, situation.minimum(partition)), len(target))
    if len(remaining) < enough or situation.alive.isdisjoint(remaining):
        return partition
    moved = _within(replace(partition, adding=(), target=()), target)
    return with_isr(moved, remaining, minimum)


def _within(partition: PartitionState, replicas: tuple[int, ...]) -> PartitionState:
    """With these replicas, and without what the others were in."""
    return replace(
        partition,
        replicas=replicas,
        isr=tuple(broker for broker in replicas if broker in partition.isr),
        elr=tuple(broker for broker in replicas if broker in partition.elr),
        doubtful=tuple(entry for entry in partition.doubtful if entry[0] in replicas),
    )


def settle(before: PartitionState, after: PartitionState, situation: Situation, cause: str) -> list[PartitionChanged]:
    """The record, or none where nothing changes."""
    completed = complete_if_possible(after, situation)
    election = elect_if_needed(completed, situation)
    reasons = [cause]
    if after.is_reassigning and not completed.is_reassigning:
        reasons.append("reassignment complete")
    if election.how:
        reasons.append(election.how)
    return before.change_to(election.partition, "; ".join(reasons))

"""Steps from what a member owns to what it is to own (rule 23, in the manner of KIP-848). Decides, and changes nothing.

    owns more than its target  → revoking: it is told what to keep, and gets nothing new until it has let go
    lets go                    → the target's epoch, and all of its target that nobody owns; the rest as it becomes free

What must stay true:
- A partition is granted only if no member has it in `assigned` or `revoking`: its previous owner said that it gave it
  up, or is no member any more.
- It leaves `revoking` only when its owner's own words say that it is not owned.
- What a member owns and keeps never leaves `assigned`, so it is never paused.
"""

from __future__ import annotations

from collections.abc import Mapping

from raylog.groups.records.messages import PartitionId
from raylog.groups.records.records import CurrentValue, OwnedPartition
from raylog.groups.rules.group import Group, Member


def next_current(group: Group, member: Member, owned: frozenset[PartitionId], known_epoch: int) -> CurrentValue | None:
    """Return what the member has from now on, when it owns `owned` and knows of `known_epoch`; None: what it has."""
    if member.epoch > group.target_epoch:
        return None  # it is fresh: there is no target for it yet
    keeps = {partition: since for partition, since in member.assigned.items() if partition in member.target}
    leaves = {
        partition: since
        for partition, since in (*member.assigned.items(), *member.revoking.items())
        if partition not in keeps and still_holds(partition, owned)
    }
    epoch = member.epoch
    if not leaves:
        epoch = group.target_epoch
        for partition in member.target:
            if partition not in keeps and is_free(group, partition, member):
                keeps[partition] = epoch
    if (epoch, keeps, leaves) == (member.epoch, member.assigned, member.revoking):
        return None
    previous = known_epoch if epoch != member.epoch else member.previous_epoch
    return CurrentValue(epoch, previous, _as_record(keeps), _as_record(leaves))


def still_holds(partition: PartitionId, owned: frozenset[PartitionId]) -> bool:
    """Whether the member has not let go of it yet (rule 23)."""
    return partition in owned


def is_free(group: Group, partition: PartitionId, member: Member) -> bool:
    """Whether it may be granted to `member` (rule 23). What this member itself is giving up is free with that."""
    return group.owners.get(partition, member.member_id) == member.member_id


def _as_record(partitions: Mapping[PartitionId, int]) -> tuple[OwnedPartition, ...]:
    return tuple((topic_id, number, since) for (topic_id, number), since in sorted(partitions.items()))

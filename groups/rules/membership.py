"""Membership of a group: joining, staying, leaving, being removed. Decides, and changes nothing.

What must stay true:
- Every change of members or subscriptions raises the group's epoch, and with it asks for a new assignment; only a
  static member that returns as it was does not.
- A member that joins under an id that the group knows has lost the answer to its first attempt, or was fenced: it owns
  nothing, so what the group thought that it owns is free (rule 23), and what it is given again it has from a higher
  epoch on, so that a commit from before is refused (rule 24).
- If two processes have one `group_instance_id`, the later one has the place, with the partitions; the earlier one has
  no right to commit from then on.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.errors import FencedMember, GroupFull, InvalidMembership, StaleHeartbeat
from raylog.groups.records.messages import JOINING, GroupHeartbeat, Profile, each_of
from raylog.groups.records.records import (
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    Record,
    TargetKey,
    TargetValue,
)
from raylog.groups.rules.group import Group, Member


class Moment(NamedTuple):
    """`now_ms` never goes back and means something to this process only; `wall_ms` is the time of day."""

    now_ms: int
    wall_ms: int


class Change(NamedTuple):
    """`reason`: why the group needs a new assignment; empty: it does not. `replaced`: the static member's former id."""

    records: list[Record]
    reason: str = ""
    replaced: str = ""


def raised_epoch(group: Group, reason: str, *, members: int, at: Moment) -> Record:
    """The group's next epoch, when it will have so many members."""
    before = group.value
    empty_since = -1 if members else at.wall_ms
    value = GroupValue(
        before.epoch + 1,
        before.target_epoch,
        before.assignor,
        before.metadata_version,
        before.topics,
        empty_since,
        reason,
    )
    return GroupKey(group.group_id), value


def member_text(member_id: str, profile: Profile) -> str:
    """Return who a member is, for logs and reasons, as a person would look for it."""
    details = [each for each in (profile.instance_id, profile.client_id, profile.host) if each]
    return f"{member_id} ({', '.join(details)})" if details else member_id


# --- joining ------------------------------------------------------------------------------------------------------


def join(group: Group, request: GroupHeartbeat, max_members: int, at: Moment) -> Change:
    """Raises StaleHeartbeat, GroupFull, InvalidMembership."""
    assert request.profile is not None
    profile = Profile(*request.profile)
    known = group.members.get(request.member)
    if known is not None:
        check_sequence(group, known, request)
        _check_same_instance(group, known, profile)
    holder = group.members.get(group.by_instance.get(profile.instance_id, "")) if profile.instance_id else None
    if holder is not None and holder is not known:
        return _take_place(group, holder, request.member, profile, at)
    if known is None and len(group.members) >= max_members:
        raise GroupFull(group.group_id, len(group.members))
    who = member_text(request.member, profile)
    reason = f"{who} joined" if known is None else f"{who} joined again"
    count = len(group.members) + (known is None)
    records = [
        _member_record(group, request.member, profile, at),
        (CurrentKey(group.group_id, request.member), CurrentValue(group.epoch + 1, JOINING, (), ())),
        raised_epoch(group, reason, members=count, at=at),
    ]
    return Change(records, reason)


def _take_place(group: Group, holder: Member, member_id: str, profile: Profile, at: Moment) -> Change:
    """A static member is there again, under another id. What its former process has not given up is given up now."""
    assigned = tuple((*partition, epoch) for partition, epoch in holder.assigned.items())
    records = [
        *_tombstones(group, holder.member_id),
        _member_record(group, member_id, profile, at),
        (TargetKey(group.group_id, member_id), _target_value(holder)),
        (CurrentKey(group.group_id, member_id), CurrentValue(holder.epoch, JOINING, assigned, ())),
    ]
    if not asks_for_other_partitions(holder.profile, profile):
        return Change(records, replaced=holder.member_id)
    reason = f"{member_text(member_id, profile)} came back with another subscription"
    return Change([*records, raised_epoch(group, reason, members=len(group.members), at=at)], reason, holder.member_id)


def _target_value(member: Member) -> TargetValue:
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, number in sorted(member.target):
        by_topic.setdefault(topic_id, []).append(number)
    return TargetValue(tuple((topic_id, tuple(numbers)) for topic_id, numbers in by_topic.items()))


def _member_record(group: Group, member_id: str, profile: Profile, at: Moment) -> Record:
    return MemberKey(group.group_id, member_id), MemberValue(profile.fields(), at.wall_ms)


def asks_for_other_partitions(before: Profile, after: Profile) -> bool:
    return (before.topics, before.pattern, before.assignor, before.rack) != (
        after.topics,
        after.pattern,
        after.assignor,
        after.rack,
    )


# --- staying ------------------------------------------------------------------------------------------------------


def check_sequence(group: Group, member: Member, request: GroupHeartbeat) -> None:
    """Raise StaleHeartbeat: what it says of the owned partitions may not hold any more (rule 23)."""
    if request.sequence <= member.sequence:
        raise StaleHeartbeat(group.group_id, request.member, request.sequence, member.sequence)


def check_member(group: Group, member: Member, request: GroupHeartbeat, at: Moment) -> None:
    """Check that a heartbeat of a member fits what the group knows of it. StaleHeartbeat, FencedMember."""
    check_sequence(group, member, request)
    fits = request.epoch in (member.epoch, member.previous_epoch)
    if fits and request.owned != member.owned:
        owned = each_of(request.owned)
        fits = all(partition in member.assigned or partition in member.revoking for partition in owned)
    if not fits:
        since = -1 if member.epoch_since_ms < 0 else at.now_ms - member.epoch_since_ms
        raise FencedMember(group.group_id, request.member, request.epoch, member.epoch, since)


def update(group: Group, member: Member, request: GroupHeartbeat, at: Moment) -> Change:
    """A member says anew what it is. InvalidMembership."""
    if request.profile is None or request.profile == member.profile:
        return Change([])
    profile = Profile(*request.profile)
    _check_same_instance(group, member, profile)
    record: Record = (MemberKey(group.group_id, member.member_id), MemberValue(profile.fields(), member.joined_at_ms))
    if not asks_for_other_partitions(member.profile, profile):
        return Change([record])
    reason = f"{member_text(member.member_id, profile)} changed its subscription"
    return Change([record, raised_epoch(group, reason, members=len(group.members), at=at)], reason)


def _check_same_instance(group: Group, member: Member, profile: Profile) -> None:
    if profile.instance_id != member.profile.instance_id:
        reason = f"its group_instance_id was {member.profile.instance_id!r}, and now {profile.instance_id!r}"
        raise InvalidMembership(group.group_id, member.member_id, reason)


# --- going --------------------------------------------------------------------------------------------------------


def remove(group: Group, member: Member, why: str, at: Moment) -> Change:
    """Remove a member; its partitions are free."""
    reason = f"{member_text(member.member_id, member.profile)} {why}"
    count = len(group.members) - 1
    return Change([*_tombstones(group, member.member_id), raised_epoch(group, reason, members=count, at=at)], reason)


def _tombstones(group: Group, member_id: str) -> list[Record]:
    return [(key(group.group_id, member_id), None) for key in (CurrentKey, TargetKey, MemberKey)]

"""Requests of administrators to groups. Decides, and changes nothing."""

from __future__ import annotations

from typing import Final

from raylog.errors import GroupNotEmpty, UnknownGroup, UnknownMember, UnstableOffset
from raylog.groups.records.classic_messages import BothKindsListed, ClassicDescribed, ClassicKey, DescribeClassic
from raylog.groups.records.messages import (
    NO_EPOCH,
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    MemberDescription,
    Profile,
    Refusal,
    RemoveMembers,
    StagedListed,
    grouped,
)
from raylog.groups.records.offsets_log import Topics
from raylog.groups.records.records import GroupKey, OffsetKey, Record
from raylog.groups.records.refusals import partition_name, refusal_of
from raylog.groups.rules.classic_group import ClassicGroup
from raylog.groups.rules.classic_member import ClassicMember
from raylog.groups.rules.group import Group, GroupsState, Member
from raylog.groups.rules.membership import Moment
from raylog.groups.rules.pattern_topics import PatternTopics
from raylog.groups.rules.rebalance import knows_patterns, wanted_topics

MAX_REASON: int = 200
CONSUMER: Final = "consumer"  # the protocol type of Kafka's consumers


def existing(state: GroupsState, group_id: str) -> Group:
    """Raises UnknownGroup."""
    group = state.groups.get(group_id)
    if group is None:
        raise UnknownGroup(group_id)
    return group


def list_groups(state: GroupsState) -> GroupsListed:
    return GroupsListed(
        tuple((group.group_id, group.state, group.member_count) for _, group in sorted(state.groups.items()))
    )


def list_staged(state: GroupsState) -> StagedListed:
    found: dict[tuple[int, int], tuple[int, set[str]]] = {}
    for producer_id, places in state.staged_in.items():
        for group_id, partition in places:
            value = state.groups[group_id].staged[partition][producer_id]
            staged_ms, groups = found.get((producer_id, value.producer_epoch), (0, set()))
            found[producer_id, value.producer_epoch] = max(staged_ms, value.staged_at_ms), groups | {group_id}
    return StagedListed(
        tuple(
            (producer_id, epoch, _told_by(state, producer_id), staged_ms, tuple(sorted(groups)))
            for (producer_id, epoch), (staged_ms, groups) in sorted(found.items())
        )
    )


def _told_by(state: GroupsState, producer_id: int) -> int:
    """The epoch of the transaction coordinator that told of this producer's last end here."""
    ended = state.ended.get(producer_id)
    return NO_EPOCH if ended is None else ended.coordinator_epoch


def describe(state: GroupsState, request: DescribeGroup, at: Moment) -> GroupDescribed:
    group = existing(state, request.group)
    classic = group.classic if group.has_classic_members else None
    offsets = tuple(
        (*partition, value.offset, value.leader_epoch, value.metadata)
        for partition, value in sorted(group.offsets.items())
    )
    return GroupDescribed(
        group=group.group_id,
        state=group.state,
        epoch=group.epoch if classic is None else classic.generation,
        target_epoch=group.target_epoch if classic is None else classic.generation,
        assignor=group.value.assignor if classic is None else classic.protocol,
        reason=group.value.reason if classic is None else "",
        problem="" if group.problem is None else str(group.problem),
        members=tuple(_described(member, at) for _, member in sorted(group.members.items()))
        + (() if classic is None else _classic_members(classic, at)),
        offsets=offsets,
        staged=grouped(group.staged),
    )


def _described(member: Member, at: Moment) -> MemberDescription:
    return (
        member.member_id,
        member.epoch,
        member.profile.fields(),
        member.owned,
        grouped(member.revoking),
        grouped(member.target),
        -1 if member.heard_at_ms < 0 else at.now_ms - member.heard_at_ms,
    )


def _classic_members(group: ClassicGroup, at: Moment) -> tuple[MemberDescription, ...]:
    return tuple(_classic_described(group, each, at) for each in group.members.values())


def _classic_described(group: ClassicGroup, member: ClassicMember, at: Moment) -> MemberDescription:
    """A Kafka client as Python handles see it: what it reads is known to its group's leader only."""
    profile = Profile(
        member.instance, "", member.client_id, member.host, member.session_timeout_ms, member.rebalance_timeout_ms,
        group.protocol, (), "",
    )  # fmt: skip
    return (member.member_id, group.generation, profile.fields(), (), (), (), at.now_ms - member.heard_at_ms)


def list_both_kinds(state: GroupsState) -> BothKindsListed:
    return BothKindsListed(
        tuple(
            (group.group_id, group.state, _protocol_type(group), group.is_classic)
            for _, group in sorted(state.groups.items())
        )
    )


def _protocol_type(group: Group) -> str:
    return CONSUMER if group.classic is None else group.classic.protocol_type


def describe_classic(state: GroupsState, request: DescribeClassic) -> ClassicDescribed:
    """UnknownGroup: there is none, or it is of the other kind."""
    group = existing(state, request.group)
    if group.classic is None or not group.is_classic:
        raise UnknownGroup(request.group)
    classic = group.classic
    members = tuple(
        (each.member_id, each.instance, each.client_id, each.host, each.metadata(classic.protocol), each.assignment)
        for each in classic.members.values()
    )
    return ClassicDescribed(group.group_id, classic.state, classic.protocol_type, classic.protocol, members)


def delete_group(state: GroupsState, group_id: str, topics: Topics) -> list[Record]:
    """Raises UnknownGroup, GroupNotEmpty, UnstableOffset."""
    group = existing(state, group_id)
    if group.has_members:
        raise GroupNotEmpty(group_id, group.member_count, "deleting it")
    for partition, producers in group.staged.items():
        raise UnstableOffset(group_id, partition_name(partition, topics), min(producers))
    records: list[Record] = [(OffsetKey(group_id, *partition), None) for partition in group.offsets]
    return [*records, *own_records_gone(group)]


def own_records_gone(group: Group) -> list[Record]:
    """Return records after which nothing is known of a group but its offsets."""
    records: list[Record] = []
    if group.exists:
        records.append((GroupKey(group.group_id), None))
    if group.classic_value is not None:
        records.append((ClassicKey(group.group_id), None))
    return records


def delete_offsets(
    group: Group, partitions: frozenset[tuple[bytes, int]], topics: Topics, patterns: PatternTopics
) -> tuple[list[Record], list[Refusal]]:
    """Return records that delete offsets of topics that no member wants, but not what a transaction has staged."""
    wanted = {each.topic_id for each in wanted_topics(group, topics.by_name(), patterns).values()}
    if group.has_classic_members or not knows_patterns(group, patterns):  # it may be any
        wanted = {topic_id for topic_id, _ in partitions}
    records: list[Record] = []
    refused = []
    for partition in sorted(partitions):
        if partition[0] in wanted:
            error = GroupNotEmpty(group.group_id, group.member_count, "deleting an offset of a topic that they read")
            refused.append(refusal_of(partition, error))
        elif producers := group.staged.get(partition):
            name = partition_name(partition, topics)
            refused.append(refusal_of(partition, UnstableOffset(group.group_id, name, min(producers))))
        elif partition in group.offsets:
            records.append((OffsetKey(group.group_id, *partition), None))
    return records, refused


def members_to_remove(group: Group, request: RemoveMembers) -> list[Member]:
    """Raises UnknownMember: nobody is removed."""
    if not request.members and not request.instances:
        return list(group.members.values())
    found = {}
    for member_id in request.members:
        found[member_id] = group.members.get(member_id)
    for instance_id in request.instances:
        found[instance_id] = group.members.get(group.by_instance.get(instance_id, ""))
    for name, member in found.items():
        if member is None:
            raise UnknownMember(group.group_id, name, -1, -1, "no member has this id, and none this group_instance_id")
    return list({member.member_id: member for member in found.values() if member is not None}.values())

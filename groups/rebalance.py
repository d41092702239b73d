"""A group's new target: who is to own what, of the topics that there are. Decides, and changes nothing.

What must stay true: the targets come first and the group's `target_epoch` last, so whoever takes over in between finds
that the group still needs one, and makes it again.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from operator import itemgetter

from raylog.groups.assignors.assignment import Subscriber, TopicPartition, TopicShape
from raylog.groups.assignors.loading import DEFAULT_ASSIGNOR, assign
from raylog.groups.group_messages import PartitionId, Profile, grouped
from raylog.groups.group_records import GroupKey, GroupValue, Record, TargetKey, TargetValue
from raylog.groups.group_state import Group
from raylog.groups.offsets_log import KnownTopic, Racks, Topics
from raylog.groups.topic_patterns import matching


def subscribed(profile: Profile, topics: Mapping[str, KnownTopic]) -> frozenset[str]:
    """The topics that a member wants, of those that there are."""
    named = {name for name in profile.topics if name in topics}
    if profile.pattern:
        named |= matching(profile.pattern, topics)
    return frozenset(named)


def wanted_topics(group: Group, topics: Mapping[str, KnownTopic]) -> dict[str, KnownTopic]:
    """All that some member wants. Members with equal subscriptions are looked at once."""
    distinct = {(member.profile.topics, member.profile.pattern): member.profile for member in group.members.values()}
    names = {name for profile in distinct.values() for name in subscribed(profile, topics)}
    return {name: topics[name] for name in sorted(names)}


def topic_changes(group: Group, topics: Topics) -> str:
    """What has become of the topics since the group's targets were made, for people; empty: nothing.

    A coordinator that has heard less of the topics than the one before it decides nothing by that.
    """
    if not group.members or topics.version < group.value.metadata_version:
        return ""
    before = dict(group.value.topics)
    wanted = wanted_topics(group, topics.by_name())
    now = {each.topic_id: each for each in wanted.values()}
    changes = [
        f"topic {each.name} " + ("appeared" if topic_id not in before else f"has {each.partitions} partitions now")
        for topic_id, each in now.items()
        if before.get(topic_id) != each.partitions
    ]
    gone = len(before.keys() - now.keys())
    if gone:
        changes.append(f"{gone} of its topics {'is' if gone == 1 else 'are'} gone")
    knows_racks = group.racks is not None and not group.is_assigning
    if not changes and knows_racks and group.racks != racks_that_count(group, wanted):
        changes.append("replicas are in other racks")
    return ", ".join(changes)


def racks_that_count(group: Group, wanted: Mapping[str, KnownTopic]) -> Racks:
    """Where the replicas are, if any member says where it is itself."""
    if not any(member.profile.rack for member in group.members.values()):
        return ()
    return tuple(sorted(((each.topic_id, each.racks) for each in wanted.values()), key=itemgetter(0)))


def choose_assignor(group: Group) -> str:
    """What most members ask for; of several the present one, or the first by name."""
    votes = Counter(member.profile.assignor for member in group.members.values() if member.profile.assignor)
    if not votes:
        return DEFAULT_ASSIGNOR
    most = max(votes.values())
    first = sorted(name for name, count in votes.items() if count == most)
    return group.value.assignor if group.value.assignor in first else first[0]


def new_target(group: Group, topics: Topics) -> list[Record]:
    """UnknownAssignor, AssignorFailed: then the group stays as it is."""
    wanted = wanted_topics(group, topics.by_name())
    name = choose_assignor(group)
    shapes = {each.name: TopicShape(each.partitions, each.racks if any(each.racks) else ()) for each in wanted.values()}
    given = assign(name, _subscribers(group, wanted), shapes) if group.members else {}
    records: list[Record] = []
    for member_id, partitions in given.items():
        target = _as_ids(partitions, wanted)
        if target != group.members[member_id].target:
            records.append((TargetKey(group.group_id, member_id), TargetValue(grouped(target))))
    shape = tuple(sorted((each.topic_id, each.partitions) for each in wanted.values()))
    before = group.value
    version = max(topics.version, before.metadata_version)
    value = GroupValue(before.epoch, before.epoch, name, version, shape, before.empty_since_ms, before.reason)
    return [*records, (GroupKey(group.group_id), value)]


def _subscribers(group: Group, wanted: Mapping[str, KnownTopic]) -> list[Subscriber]:
    names = {each.topic_id: each.name for each in wanted.values()}
    subscriptions: dict[tuple[tuple[str, ...], str], frozenset[str]] = {}
    found = []
    for member in group.members.values():
        profile = member.profile
        key = (profile.topics, profile.pattern)
        if key not in subscriptions:
            subscriptions[key] = subscribed(profile, wanted)
        owned = frozenset((names[topic_id], number) for topic_id, number in member.target if topic_id in names)
        found.append(Subscriber(member.member_id, profile.instance_id, profile.rack, subscriptions[key], owned))
    return found


def _as_ids(partitions: frozenset[TopicPartition], wanted: Mapping[str, KnownTopic]) -> frozenset[PartitionId]:
    return frozenset((wanted[name].topic_id, number) for name, number in partitions)

"""A group's new target, and each member's way to it (rule 23, in the manner of KIP-848). Decides, and changes nothing.

    target_basis(group)            → what a new target is made from: taken at once, and costs next to nothing
    basis.plan()                   → what the assignor is to be asked; made beside the loop (rule 34), as names add up
    target_records(group, given)   → what it has answered, as records, if the group is still in that state
    next_current(group, member)    → what a member has from now on:

        owns more than its target  → revoking: it is told what to keep, and gets nothing new until it has let go
        lets go                    → the target's epoch, and all of its target that no member owns; the rest as it
                                     becomes free

What must stay true:
- The targets come first and the group's `target_epoch` last. So a coordinator that takes over in between finds that the
  group still needs one, and makes it again.
- A partition is granted only if no member has it in `assigned` or `revoking`: its previous owner said that it gave it
  up, or is no member any more.
- It leaves `revoking` only when its owner's own words say that it is not owned.
- What a member owns and keeps never leaves `assigned`, so it is never paused.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from itertools import chain
from operator import itemgetter
from typing import NamedTuple, TypeAlias

from raylog.groups.assignors.assignment import Subscriber, TopicPartition, TopicShape
from raylog.groups.assignors.calling import DEFAULT_ASSIGNOR, AssignorCall, Given
from raylog.groups.records.messages import PartitionId, Profile, grouped
from raylog.groups.records.offsets_log import KnownTopic, Racks, Topics
from raylog.groups.records.records import (
    CurrentValue,
    GroupKey,
    GroupValue,
    OwnedPartition,
    Record,
    TargetKey,
    TargetValue,
)
from raylog.groups.rules.group import Group, Member
from raylog.groups.rules.pattern_topics import PatternTopics


class _MemberBasis(NamedTuple):
    member_id: str
    profile: Profile
    target: frozenset[PartitionId]


@dataclass(frozen=True, slots=True)
class TargetBasis:
    """The state of a group from which a new target is made, and what was known of topics. None of it changes."""

    group_id: str
    epoch: int
    assignor: str
    members: tuple[_MemberBasis, ...]
    topics_version: int
    topics: Mapping[str, KnownTopic]
    means: Mapping[str, frozenset[str]]  # by pattern: the topics that match it

    def plan(self) -> TargetPlan:
        """Return what the assignor is to be asked."""
        subscriptions = self._subscriptions()
        names = sorted(frozenset[str]().union(*subscriptions.values()))
        wanted = {name: self.topics[name] for name in names}
        shapes = {
            each.name: TopicShape(each.partitions, each.racks if any(each.racks) else ()) for each in wanted.values()
        }
        subscribers = tuple(self._subscribers(wanted, subscriptions))
        members = frozenset(each.member_id for each in self.members)
        call = AssignorCall(self.assignor, subscribers, shapes)
        return TargetPlan(self.group_id, self.epoch, members, self.topics_version, wanted, call)

    def _subscriptions(self) -> dict[_Asked, frozenset[str]]:
        """Return by what members ask for, which many have in common, the topics that they want of those there are."""
        asked = {_asked(each.profile) for each in self.members}
        return {
            (named, pattern): subscribed(named, self.means.get(pattern, ()), self.topics) for named, pattern in asked
        }

    def _subscribers(
        self, wanted: Mapping[str, KnownTopic], subscriptions: Mapping[_Asked, frozenset[str]]
    ) -> Iterator[Subscriber]:
        names = {each.topic_id: each.name for each in wanted.values()}
        for member_id, profile, target in self.members:
            owned = frozenset((names[topic_id], number) for topic_id, number in target if topic_id in names)
            yield Subscriber(member_id, profile.instance_id, profile.rack, subscriptions[_asked(profile)], owned)


_Asked: TypeAlias = tuple[tuple[str, ...], str]  # topics, and a pattern


def _asked(profile: Profile) -> _Asked:
    return profile.topics, profile.pattern


@dataclass(frozen=True, slots=True)
class TargetPlan:
    """The plan by which a new target is made."""

    group_id: str
    epoch: int
    members: frozenset[str]
    topics_version: int
    wanted: Mapping[str, KnownTopic]
    call: AssignorCall

    def is_of(self, group: Group) -> bool:
        """Whether the group is still what the assignor was told; a static member may have another member id by now."""
        return group.epoch == self.epoch and group.members.keys() == self.members


def subscribed(named: Iterable[str], matched: Iterable[str], topics: Collection[str]) -> frozenset[str]:
    """Return what a member wants of the topics there are: those that it names, and those that match its pattern."""
    return frozenset(name for name in chain(named, matched) if name in topics)


def wanted_topics(group: Group, topics: Mapping[str, KnownTopic], patterns: PatternTopics) -> dict[str, KnownTopic]:
    """All that some member wants."""
    names = {name for name in group.named if name in topics}
    for pattern in group.patterns:
        names.update(name for name in patterns.means(pattern) if name in topics)
    return {name: topics[name] for name in sorted(names)}


def knows_patterns(group: Group, patterns: PatternTopics) -> bool:
    """Whether it can be told which topics its members want."""
    return all(map(patterns.knows, group.patterns))


def topic_changes(group: Group, topics: Topics, patterns: PatternTopics) -> str:
    """Return how the topics have changed since the group's targets were made, for people; empty: not at all.

    A coordinator that has heard less of the topics than the one before it decides nothing by that.
    """
    if not group.members or topics.version < group.value.metadata_version:
        return ""
    before = dict(group.value.topics)
    wanted = wanted_topics(group, topics.by_name(), patterns)
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
    """Return the replicas' racks, if any member says where it is itself."""
    if not any(member.profile.rack for member in group.members.values()):
        return ()
    return tuple(sorted(((each.topic_id, each.racks) for each in wanted.values()), key=itemgetter(0)))


def choose_assignor(group: Group) -> str:
    """Return what most members ask for; of several the present one, or the first by name."""
    votes = Counter(member.profile.assignor for member in group.members.values() if member.profile.assignor)
    if not votes:
        return DEFAULT_ASSIGNOR
    most = max(votes.values())
    first = sorted(name for name, count in votes.items() if count == most)
    return group.value.assignor if group.value.assignor in first else first[0]


def target_basis(group: Group, topics: Topics, patterns: PatternTopics) -> TargetBasis:
    """Return what a new target of this group is made from now."""
    return TargetBasis(
        group.group_id,
        group.epoch,
        choose_assignor(group),
        tuple(_MemberBasis(each.member_id, each.profile, each.target) for each in group.members.values()),
        topics.version,
        dict(topics.by_name()),
        {pattern: patterns.means(pattern) for pattern in group.patterns},
    )


def target_records(group: Group, plan: TargetPlan, given: Given) -> list[Record]:
    """Return the records of a target, for the very group that was planned for."""
    assert plan.is_of(group)
    records: list[Record] = []
    for member_id, partitions in given.items():
        target = _as_ids(partitions, plan.wanted)
        if target != group.members[member_id].target:
            records.append((TargetKey(group.group_id, member_id), TargetValue(grouped(target))))
    shape = tuple(sorted((each.topic_id, each.partitions) for each in plan.wanted.values()))
    before = group.value
    version = max(plan.topics_version, before.metadata_version)
    value = GroupValue(before.epoch, before.epoch, plan.call.name, version, shape, before.empty_since_ms, before.reason)
    return [*records, (GroupKey(group.group_id), value)]


def _as_ids(partitions: frozenset[TopicPartition], wanted: Mapping[str, KnownTopic]) -> frozenset[PartitionId]:
    return frozenset((wanted[name].topic_id, number) for name, number in partitions)


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

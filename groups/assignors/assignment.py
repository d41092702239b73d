"""Arguments and results of assignors, and the check of what a foreign one returns.

    def my_assignor(subscribers, topics):
        "Everything to the first member."
        first = min(subscribers, key=lambda each: each.member_id)
        everything = [(name, number) for name, topic in topics.items() for number in range(topic.partitions)]
        return {first.member_id: everything}

An assignor is a pure function: the same subscribers and topics, in whatever order, have to give the same assignment,
or a restarted coordinator would move partitions for no reason.

What must stay true of every assignment: each partition of a topic that somebody is subscribed to has exactly one
member, and that member is subscribed to the topic.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeAlias

from raylog.errors import AssignorFailed

TopicPartition: TypeAlias = tuple[str, int]
Assignment: TypeAlias = Mapping[str, Collection[TopicPartition]]  # by member id; who gets nothing may be left out

_SHOWN = 3


@dataclass(frozen=True, slots=True)
class Subscriber:
    """A member, as assignors see it. `owned`: what its group had meant it to have until now."""

    member_id: str
    instance_id: str = ""  # of a static member; else empty
    rack: str = ""
    topics: frozenset[str] = frozenset()
    owned: frozenset[TopicPartition] = frozenset()

    @property
    def place(self) -> tuple[str, str]:
        """The key that members are ordered by: a static one keeps its place when it returns under another member id."""
        return (self.instance_id or self.member_id, self.member_id)


@dataclass(frozen=True, slots=True)
class TopicShape:
    """The number of partitions of a topic, and the racks of their replicas, where those are known."""

    partitions: int
    racks: tuple[frozenset[str], ...] = ()


Assignor: TypeAlias = Callable[[Sequence[Subscriber], Mapping[str, TopicShape]], Assignment]


def subscribers_by_topic(
    subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]
) -> dict[str, tuple[Subscriber, ...]]:
    """Return the subscribers of each topic, in the members' order; topics that nobody wants are left out."""
    wanted: dict[str, list[Subscriber]] = {name: [] for name in sorted(topics)}
    for each in sorted(subscribers, key=lambda each: each.place):
        for name in each.topics:
            if name in wanted:
                wanted[name].append(each)
    return {name: tuple(those) for name, those in wanted.items() if those}


def check_assignment(
    name: str, result: object, subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]
) -> dict[str, frozenset[TopicPartition]]:
    """The result of the assignor `name`, as it has to be; AssignorFailed if it is not."""
    given = _by_member(name, result, subscribers)
    owner: dict[TopicPartition, str] = {}
    topics_of = {each.member_id: each.topics for each in subscribers}
    for member_id, partitions in given.items():
        for partition in partitions:
            if partition in owner:
                raise AssignorFailed(name, f"{_text(partition)} went to both {owner[partition]!r} and {member_id!r}")
            if partition[0] not in topics_of[member_id]:
                raise AssignorFailed(name, f"{_text(partition)} went to {member_id!r}, which did not ask for its topic")
            owner[partition] = member_id
    wanted = {
        (topic, number)
        for topic in frozenset().union(*topics_of.values()) & topics.keys()
        for number in range(topics[topic].partitions)
    }
    if left := sorted(wanted - owner.keys()):
        raise AssignorFailed(name, f"nobody got {', '.join(map(_text, left[:_SHOWN]))} ({len(left)} in all)")
    if made_up := sorted(owner.keys() - wanted):
        raise AssignorFailed(name, f"there is no {', '.join(map(_text, made_up[:_SHOWN]))}")
    return {each.member_id: given.get(each.member_id, frozenset()) for each in subscribers}


def _by_member(name: str, result: object, subscribers: Sequence[Subscriber]) -> dict[str, frozenset[TopicPartition]]:
    if not isinstance(result, Mapping):
        raise AssignorFailed(name, f"it returned a {type(result).__name__}, not a mapping of member ids to partitions")
    known = {each.member_id for each in subscribers}
    given = {}
    for member_id, partitions in result.items():
        if member_id not in known:
            raise AssignorFailed(name, f"it gave partitions to {member_id!r}, which is no member")
        listed = [_checked(name, each) for each in _listed(name, partitions)]
        given[member_id] = frozenset(listed)
        if len(given[member_id]) < len(listed):
            raise AssignorFailed(name, f"it gave {member_id!r} a partition twice")
    return given


def _listed(name: str, partitions: object) -> Collection[object]:
    if isinstance(partitions, Collection) and not isinstance(partitions, (str, bytes, Mapping)):
        return partitions
    raise AssignorFailed(name, f"it gave a member a {type(partitions).__name__}, not a collection of partitions")


def _checked(name: str, partition: object) -> TopicPartition:
    match partition:
        case (str(topic), int(number)) if not isinstance(number, bool) and isinstance(partition, tuple):
            return topic, number
    raise AssignorFailed(name, f"{partition!r:.100} is not a pair of topic and partition number")


def _text(partition: TopicPartition) -> str:
    return f"{partition[0]}-{partition[1]}"

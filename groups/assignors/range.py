"""`range`: of each topic every member gets a run of neighbouring partitions.

What must stay true:
- The members that want a topic get numbers of its partitions that differ by at most one; the first in their order get
  the larger.
- Topics with the same number of partitions and the same subscribers are assigned alike, so that a program that joins
  two topics by key has both sides in one member.
- Where racks are known, no fewer partitions are read within their rack than plain runs would give.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.groups.assignors.assignment import Assignment, Subscriber, TopicPartition, TopicShape, subscribers_by_topic


def range_assignor(subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> Assignment:
    given: dict[str, list[TopicPartition]] = {each.member_id: [] for each in subscribers}
    for names, wanting, count in _alike(subscribers, topics):
        owners = _owners(wanting, _racks([topics[name] for name in names], count), count)
        for name in names:
            for number, owner in enumerate(owners):
                given[wanting[owner].member_id].append((name, number))
    return given


def _alike(
    subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]
) -> list[tuple[list[str], tuple[Subscriber, ...], int]]:
    """The topics that are given out alike, with their subscribers and their number of partitions."""
    alike: dict[tuple[tuple[str, ...], int], tuple[list[str], tuple[Subscriber, ...]]] = {}
    for name, wanting in subscribers_by_topic(subscribers, topics).items():
        key = (tuple(each.member_id for each in wanting), topics[name].partitions)
        alike.setdefault(key, ([], wanting))[0].append(name)
    return [(names, wanting, count) for (_, count), (names, wanting) in alike.items()]


def _racks(shapes: Sequence[TopicShape], count: int) -> list[frozenset[str]]:
    """Return for each partition number the racks that have it of every one of these topics."""
    if any(len(shape.racks) != count for shape in shapes):
        return []
    return [frozenset.intersection(*(shape.racks[number] for shape in shapes)) for number in range(count)]


def _owners(wanting: Sequence[Subscriber], racks: Sequence[frozenset[str]], count: int) -> list[int]:
    """Return the place in `wanting` of each partition's owner, by partition number."""
    share, more = divmod(count, len(wanting))
    room = [share + (number < more) for number in range(len(wanting))]
    plain = [member for member, size in enumerate(room) for _ in range(size)]
    if not racks or not any(each.rack for each in wanting):
        return plain
    near = _by_rack(wanting, racks, room)
    return near if _local(wanting, racks, near) > _local(wanting, racks, plain) else plain


def _by_rack(wanting: Sequence[Subscriber], racks: Sequence[frozenset[str]], room: Sequence[int]) -> list[int]:
    """Give everybody first what is in their rack, as far as there is room; the rest goes where room is left."""
    left = list(room)
    owners: list[int] = [-1] * len(racks)
    # Partitions that few can read nearby are served first.
    can_read = [[number for number, each in enumerate(wanting) if each.rack in where] for where in racks]
    for partition in sorted(range(len(racks)), key=lambda number: (len(can_read[number]), number)):
        for member in can_read[partition]:
            if left[member]:
                owners[partition] = member
                left[member] -= 1
                break
    others = (member for member, size in enumerate(left) for _ in range(size))
    return [owner if owner >= 0 else next(others) for owner in owners]


def _local(wanting: Sequence[Subscriber], racks: Sequence[frozenset[str]], owners: Sequence[int]) -> int:
    return sum(wanting[owner].rack in racks[number] for number, owner in enumerate(owners))

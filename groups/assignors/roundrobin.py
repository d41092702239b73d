"""`roundrobin`: all partitions of all topics, dealt out in turn.

What must stay true: where all members want the same topics, their numbers of partitions differ by at most one. Where
they do not, a member is passed over for a topic that it did not ask for, and the numbers may differ by more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from raylog.groups.assignors.assignment import Assignment, Subscriber, TopicPartition, TopicShape


def roundrobin_assignor(subscribers: Sequence[Subscriber], topics: Mapping[str, TopicShape]) -> Assignment:
    ordered = sorted(subscribers, key=lambda each: each.place)
    given: dict[str, list[TopicPartition]] = {each.member_id: [] for each in ordered}
    turn = 0
    for name in sorted(topics):
        if not any(name in each.topics for each in ordered):
            continue
        for number in range(topics[name].partitions):
            while name not in ordered[turn].topics:
                turn = (turn + 1) % len(ordered)
            given[ordered[turn].member_id].append((name, number))
            turn = (turn + 1) % len(ordered)
    return given

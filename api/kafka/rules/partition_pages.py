"""A page of all partitions of some topics: DescribeTopicPartitions is answered in pages (KIP-966)."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final, NamedTuple

MOST_PARTITIONS: Final = 2_000  # of a page, as in Kafka


class Page(NamedTuple):
    """Topics of a page, each with the numbers of its partitions that are in it.

    `next` is the first (topic, partition) of the page after it; None: this one is the last.
    """

    topics: list[tuple[str, range]]
    next: tuple[str, int] | None


def page_of(names: Sequence[str], counts: Mapping[str, int], begin: tuple[str, int], limit: int) -> Page:
    """Return the page that begins at (topic, partition). `names` are in order; those without a count do not exist.

    A page has at least one partition, whatever the limit.
    """
    room = max(1, min(limit, MOST_PARTITIONS))
    topics: list[tuple[str, range]] = []
    for name in names:
        if name < begin[0]:
            continue
        first = begin[1] if name == begin[0] else 0
        count = counts.get(name, 0)
        if first < count and room == 0:
            return Page(topics, (name, first))
        chosen = range(first, min(count, first + room))
        topics.append((name, chosen))
        room -= len(chosen)
        if chosen.stop < count:
            return Page(topics, (name, max(chosen.stop, first)))
    return Page(topics, None)

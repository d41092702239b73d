"""Ranges of offsets: what one task reads, as text that fits into a row or a line.

What must stay true: splitting keeps every offset, exactly once, in order; a range names the topic's id, so that what
is read is never of another topic with the same name.
"""

from __future__ import annotations

import itertools
import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from raylog.api.connection.records import TopicPartition


@dataclass(frozen=True, slots=True)
class OffsetRange:
    """The offsets from `start` on, up to but not with `end`."""

    topic: str
    topic_id: bytes
    partition: int
    start: int
    end: int

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)

    @property
    def size(self) -> int:
        return self.end - self.start

    def to_line(self, **also: object) -> str:
        """`also`: what else whoever reads the line should know."""
        told = {
            "topic": self.topic,
            "id": self.topic_id.hex(),
            "partition": self.partition,
            "from": self.start,
            "to": self.end,
        }
        return json.dumps({**told, **also}, separators=(",", ":"))

    @staticmethod
    def of(told: Mapping[str, object]) -> OffsetRange:
        """Return the range that the JSON of `to_line` holds."""
        return OffsetRange(
            str(told["topic"]),
            bytes.fromhex(str(told["id"])),
            int(str(told["partition"])),
            int(str(told["from"])),
            int(str(told["to"])),
        )


def split(ranges: Iterable[OffsetRange], at_least: int | None) -> list[OffsetRange]:
    """Return at least so many ranges, if there are as many offsets, each range in parts by its share; None: as they
    are.
    """
    whole = [each for each in ranges if each.size > 0]
    total = sum(each.size for each in whole)
    if at_least is None or len(whole) >= at_least:
        return whole
    parts: list[OffsetRange] = []
    for each in whole:
        parts += _parts(each, -(-each.size * at_least // total))
    return parts


def _parts(whole: OffsetRange, count: int) -> Sequence[OffsetRange]:
    count = min(count, whole.size)
    edges = [whole.start + whole.size * number // count for number in range(count + 1)]
    return [replace(whole, start=low, end=high) for low, high in itertools.pairwise(edges)]


def limit(available: Mapping[TopicPartition, int], most: int | None) -> dict[TopicPartition, int]:
    """Return how much to take of each, `most` in all, each by its share; whatever has something gets something."""
    total = sum(available.values())
    if most is None or total <= most:
        return {place: count for place, count in available.items() if count > 0}
    taken: dict[TopicPartition, int] = {}
    left, of = most, total
    # From the least on: what a small one leaves by rounding is shared by those that come after it.
    for place, count in sorted(available.items(), key=lambda item: (item[1], item[0])):
        if count <= 0:
            continue
        share = min(count, left, max(1, left * count // of))
        if share > 0:
            taken[place] = share
        left -= share
        of -= count
    return taken

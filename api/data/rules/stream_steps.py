"""The next batch of a stream: what is there, how much of it, and whether to wait for more. Decides; touches nothing.

What must stay true: batches of one partition join on to each other; none holds more offsets than was allowed.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange, limit
from raylog.errors import RecordsLost


@dataclass(frozen=True)
class Cursor:
    """The next offset of each partition, of the topic with this id."""

    topic_ids: Mapping[TopicPartition, bytes]
    offsets: Mapping[TopicPartition, int]

    def joined_by(self, topic_ids: Mapping[TopicPartition, bytes], begins: Mapping[TopicPartition, int]) -> Cursor:
        """Return the same with partitions that are new, from their beginning. RecordsLost: a topic is another one."""
        for place, topic_id in topic_ids.items():
            if self.topic_ids.get(place, topic_id) != topic_id:
                raise RecordsLost(str(place), "its topic was deleted and made anew")
        fresh = {place: begins[place] for place in topic_ids.keys() - self.offsets.keys()}
        return Cursor({**self.topic_ids, **topic_ids}, {**self.offsets, **fresh})

    def lag(self, ends: Mapping[TopicPartition, int]) -> int:
        return lag(self.offsets, ends)

    def step(self, ends: Mapping[TopicPartition, int], most: int) -> tuple[list[OffsetRange], Cursor]:
        """Return the next ranges, `most` offsets in all, and where the stream is then."""
        taken = limit(_available(self.offsets, ends), most)
        ranges = [
            OffsetRange(*place[:1], self.topic_ids[place], place.partition, start, start + taken[place])
            for place, start in self.offsets.items()
            if place in taken
        ]
        return ranges, replace(self, offsets={**self.offsets, **{each.place: each.end for each in ranges}})


def lag(offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]) -> int:
    """Return how many offsets there are from these on."""
    return sum(_available(offsets, ends).values())


def _available(
    offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, int]:
    return {place: max(0, ends.get(place, 0) - offset) for place, offset in offsets.items()}


def is_due(lag: int, most: int, waited_seconds: float, wait_seconds: float) -> bool:
    """Whether a batch is full, or has waited long enough for what there is."""
    return lag >= most or (lag > 0 and waited_seconds >= wait_seconds)

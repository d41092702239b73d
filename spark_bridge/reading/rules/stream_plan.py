"""Next ranges of a stream: from where it is and what there is. Decides; touches nothing.

What must stay true:
- Ranges of one partition join on to each other, from step to step, for as long as it is the same topic.
- A step takes at most `maxOffsetsPerTrigger` records, and there is none while there is nothing to tell.
- What was lost is told in the step in which the position jumps, and only there: who reads the step again, reads that
  again, and who is to fail for it fails at the same place.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from raylog.actors.machine.actor_address import Address
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange, limit, split
from raylog.errors import CheckpointDamaged
from raylog.spark_bridge.reading.rules.read_options import ReadOptions

_VERSION: Final = 1


@dataclass(frozen=True, slots=True)
class Position:
    """The next offset to read, of the topic with this id."""

    topic_id: bytes
    offset: int


Cursor = Mapping[TopicPartition, Position]


@dataclass(frozen=True)
class Loss:
    """Records between two steps that are not there any more."""

    place: TopicPartition
    reason: str


@dataclass(frozen=True)
class Step:
    """The ranges that one micro-batch reads, and where the stream is then."""

    ranges: Sequence[OffsetRange]
    losses: Sequence[Loss]
    cursor: Cursor


def advance(
    cursor: Cursor,
    ends: Mapping[TopicPartition, Position],
    begins: Mapping[TopicPartition, int],
    options: ReadOptions,
    waited_ms: float,
) -> Step | None:
    """The next step; None: nothing is to be read now.

    `ends`: how far each partition that is there goes. `begins`: where those begin that the cursor does not know, or
    knows of another topic.
    """
    positions, losses = _meet(cursor, ends, begins)
    available = {place: ends[place].offset - positions[place].offset for place in positions}
    total = sum(available.values())
    if not losses:
        is_little = options.min_offsets is not None and total < options.min_offsets
        if total == 0 or (is_little and waited_ms < options.max_delay_ms):
            return None
    ranges = []
    for place, count in sorted(limit(available, options.max_offsets).items()):
        begin = positions[place]
        ranges.append(OffsetRange(*place[:1], begin.topic_id, place.partition, begin.offset, begin.offset + count))
        positions[place] = Position(begin.topic_id, begin.offset + count)
    return Step(split(ranges, options.min_partitions), losses, positions)


def unknown_places(cursor: Cursor, ends: Mapping[TopicPartition, Position]) -> list[TopicPartition]:
    """Return the partitions whose beginning has to be asked for."""
    return [each for each, end in ends.items() if each not in cursor or cursor[each].topic_id != end.topic_id]


def _meet(
    cursor: Cursor, ends: Mapping[TopicPartition, Position], begins: Mapping[TopicPartition, int]
) -> tuple[dict[TopicPartition, Position], list[Loss]]:
    """The positions among what is there, and what is missing of what was there."""
    losses = [Loss(place, "its topic was deleted") for place in sorted(cursor) if place not in ends]
    positions = {}
    for place, end in sorted(ends.items()):
        known = cursor.get(place)
        if known is None:
            positions[place] = Position(end.topic_id, min(begins[place], end.offset))
        elif known.topic_id != end.topic_id:
            losses.append(Loss(place, "its topic was deleted and made anew"))
            positions[place] = Position(end.topic_id, min(begins[place], end.offset))
        elif known.offset > end.offset:
            reason = f"it was read up to offset {known.offset}, and ends at {end.offset} now"
            losses.append(Loss(place, reason))
            positions[place] = end
        else:
            positions[place] = known
    return positions, losses


# --- descriptors ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Descriptor:
    """One step as a file of lines: a header, what was lost, and the ranges. A task is given any of its lines."""

    number: int  # they count up, from 0
    cluster_id: str
    reads: str  # what is subscribed to
    step: Step
    brokers: Mapping[int, Address] = field(default_factory=dict)  # where they are now: they move while a query runs
    failure: tuple[str, str] = ("", "")  # (run, reason): that run of the query is to fail

    def to_text(self) -> str:
        header = {
            "raylog": _VERSION,
            "number": self.number,
            "cluster": self.cluster_id,
            "reads": self.reads,
            "cursor": _cursor_told(self.step.cursor),
        }
        lines = [json.dumps(header, separators=(",", ":"))]
        lines += [json.dumps({"lost": str(each.place), "reason": each.reason}) for each in self.step.losses]
        brokers = {str(number): [each.node_id, *each.endpoints] for number, each in self.brokers.items()}
        lines += [each.to_line(brokers=brokers) for each in self.step.ranges]
        if self.failure[0]:
            lines.append(json.dumps({"failed": self.failure[1], "run": self.failure[0]}))
        return "".join(f"{line}\n" for line in lines)

    @staticmethod
    def parse(path: str, text: str) -> Descriptor:
        """Read the header; the lines of its tasks stay as they are. CheckpointDamaged."""
        try:
            told = json.loads(text.partition("\n")[0])
            version = told["raylog"]
            if version != _VERSION:
                raise CheckpointDamaged(path, f"it is of version {version}, and this is raylog for {_VERSION}")
            step = Step((), (), _cursor_of(told["cursor"]))
            return Descriptor(int(told["number"]), str(told["cluster"]), str(told["reads"]), step)
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise CheckpointDamaged(path, f"it does not begin as it should ({error!r})") from error


def brokers_of(told: Mapping[str, Sequence[str]]) -> dict[int, Address]:
    """Return the brokers that a line names."""
    return {int(number): Address(node_id, tuple(places)) for number, (node_id, *places) in told.items()}


def _cursor_told(cursor: Cursor) -> dict[str, dict[str, object]]:
    told: dict[str, dict[str, object]] = {}
    for place, position in sorted(cursor.items()):
        of_topic = told.setdefault(place.topic, {})
        of_topic[str(place.partition)] = [position.topic_id.hex(), position.offset]
    return told


def _cursor_of(told: Mapping[str, Mapping[str, Iterable[object]]]) -> Cursor:
    found = {}
    for topic, partitions in told.items():
        for number, (topic_id, offset) in partitions.items():
            found[TopicPartition(topic, int(number))] = Position(bytes.fromhex(str(topic_id)), int(str(offset)))
    return found

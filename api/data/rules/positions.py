"""Positions where a read begins and ends, as users give them, and the offsets that they mean.

    "earliest", "latest"              the ends of each log
    a number                          this offset, in every partition
    a datetime, Timestamp(ms)         the first record that is as new
    {"clicks": {0: 23, 1: "latest"}}  by partition; those that are left out: the whole log

What must stay true:
- A partition is read from where its user said, or the read is refused: what is named by partition and is not there is
  an error. A position for all partitions is brought within each log, but for records that were deleted.
- Offsets are fixed here, once; whatever is computed twice of a Dataset is of the same records.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime, timezone
from typing import Final, Literal, NamedTuple, TypeAlias

from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import InvalidConfig, InvalidRange, RecordsLost

_NAMED: Final = {"earliest": EARLIEST, "latest": LATEST}
_TAKES: Final = "'earliest', 'latest', an offset, a datetime, a Timestamp, or these by topic and partition"
_NOTHING: Final = -1  # what a leader answers where nothing is as new

_log = logging.getLogger(__name__)


class Timestamp(NamedTuple):
    """A time as Kafka has it: milliseconds since 1970, in UTC."""

    ms: int


Position: TypeAlias = Literal["earliest", "latest"] | int | datetime | Timestamp
PositionOrMap: TypeAlias = Position | Mapping[str, Mapping[int, Position]]
# For each partition the offset at a time, EARLIEST or LATEST; -1: nothing is as new as that time.
Ask: TypeAlias = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]


class _Place(NamedTuple):
    """An offset, or what a leader is asked for: a time, EARLIEST, LATEST."""

    number: int
    is_offset: bool


@dataclass(frozen=True)
class Positions:
    """The positions of one side of a read, checked."""

    everywhere: _Place
    by_partition: Mapping[TopicPartition, _Place]

    @classmethod
    def of_start(cls, given: object, *, refused: str = "latest") -> Positions:
        """InvalidConfig."""
        return cls._parse("start", given, refused, EARLIEST)

    @classmethod
    def of_end(cls, given: object) -> Positions:
        """InvalidConfig."""
        return cls._parse("end", given, "earliest", LATEST)

    @classmethod
    def _parse(cls, name: str, given: object, refused: str, rest: int) -> Positions:
        """`refused`: the end of the log that this side cannot be. `rest`: what partitions mean that are left out."""
        if not isinstance(given, Mapping):
            return cls(_place(name, given, refused), {})
        found = {}
        for topic, partitions in given.items():
            if not isinstance(topic, str) or not isinstance(partitions, Mapping):
                raise InvalidConfig(name, given, _TAKES)
            for number, position in partitions.items():
                if type(number) is not int or number < 0:
                    raise InvalidConfig(name, given, "whole numbers from 0 on as partitions")
                found[TopicPartition(topic, number)] = _place(name, position, refused)
        if not found:
            raise InvalidConfig(name, given, _TAKES)
        return cls(_Place(rest, is_offset=False), found)

    def of(self, partition: TopicPartition) -> _Place:
        return self.by_partition.get(partition, self.everywhere)


def _place(name: str, given: object, refused: str) -> _Place:
    if isinstance(given, str) and given in _NAMED and given != refused:
        return _Place(_NAMED[given], is_offset=False)
    if isinstance(given, Timestamp) and type(given.ms) is int and given.ms >= 0:
        return _Place(given.ms, is_offset=False)
    if isinstance(given, datetime):
        aware = given if given.tzinfo is not None else given.replace(tzinfo=timezone.utc)
        return _time_of(name, aware)
    if type(given) is int and given >= 0:
        return _Place(given, is_offset=True)
    raise InvalidConfig(name, given, _TAKES + (f"; not {refused!r}" if given == refused else ""))


def _time_of(name: str, time: datetime) -> _Place:
    ms = int(time.timestamp() * 1000)
    if ms < 0:
        raise InvalidConfig(name, time, "a time since 1970")
    return _Place(ms, is_offset=False)


@dataclass(frozen=True)
class Bounds:
    """The two sides of a read; `committed`: where a group goes on, which goes before `start`."""

    start: Positions
    end: Positions
    committed: Mapping[TopicPartition, int]
    fails_on_data_loss: bool = True

    def ranges(self, topic_ids: Mapping[TopicPartition, bytes], ask: Ask) -> list[OffsetRange]:
        """Return what is read of each partition. InvalidRange, RecordsLost."""
        self._check_names(topic_ids)
        first = ask(dict.fromkeys(topic_ids, EARLIEST))
        begins = _looked_up({each: self._start_of(each) for each in topic_ids}, ask)
        ends = _looked_up({each: self.end.of(each) for each in topic_ids}, ask)
        last = ask(dict.fromkeys(topic_ids, LATEST))
        found = []
        for place, topic_id in topic_ids.items():
            low = self._begin(place, begins[place], first[place], last[place])
            high = self._end(place, ends[place], low, last[place])
            found.append(OffsetRange(place.topic, topic_id, place.partition, low, high))
        return found

    def _start_of(self, place: TopicPartition) -> _Place:
        committed = self.committed.get(place)
        return self.start.of(place) if committed is None else _Place(committed, is_offset=True)

    def _begin(self, place: TopicPartition, wanted: int, first: int, last: int) -> int:
        if wanted == _NOTHING:
            return last
        if wanted < first:
            reason = f"offset {wanted} was deleted, the log begins at {first}"
            if self._start_of(place).is_offset and self.fails_on_data_loss:
                raise RecordsLost(str(place), reason)
            _log.warning("%s: %s; it is read from there.", place, reason)
        if wanted > last and place in self.start.by_partition and place not in self.committed:
            raise InvalidRange(f"{place} would begin at {wanted}, and ends at {last}")
        return min(max(wanted, first), max(first, last))

    def _end(self, place: TopicPartition, wanted: int, low: int, last: int) -> int:
        if wanted == _NOTHING:
            return max(low, last)
        is_named = place in self.end.by_partition
        if is_named and wanted > last:
            raise InvalidRange(f"{place} would be read up to {wanted}, and ends at {last}")
        if is_named and wanted < low and place in self.start.by_partition:
            raise InvalidRange(f"{place} would end at {wanted}, before it begins at {low}")
        return max(low, min(wanted, last))

    def _check_names(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        foreign = sorted({*self.start.by_partition, *self.end.by_partition} - set(topic_ids))
        if foreign:
            named = ", ".join(map(str, foreign))
            raise InvalidRange(f"positions are given for {named}, of which nothing is read")


def _looked_up(places: Mapping[TopicPartition, _Place], ask: Ask) -> dict[TopicPartition, int]:
    """The offset of each; -1: nothing is as new."""
    asked = ask({each: place.number for each, place in places.items() if not place.is_offset})
    return {each: place.number if place.is_offset else asked[each] for each, place in places.items()}

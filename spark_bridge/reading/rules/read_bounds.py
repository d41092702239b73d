"""Offsets where reading begins and ends, by the options. Decides; whoever can ask leaders is passed in.

What must stay true: offsets by partition name exactly the partitions that are read, as with Spark's Kafka source, so
that none is begun at a place that nobody meant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TypeAlias

from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import InvalidSparkOptions, SparkDataLoss
from raylog.spark_bridge.reading.rules.read_options import EARLIEST, LATEST, Bound, ByPartition, ReadOptions

# For each partition the offset at a time, EARLIEST or LATEST; -1: nothing is as new as that time.
Ask: TypeAlias = Callable[[Mapping[TopicPartition, int]], Mapping[TopicPartition, int]]
_NOTHING = -1


def starts(options: ReadOptions, places: Iterable[TopicPartition], ask: Ask) -> dict[TopicPartition, int]:
    """Return where each partition begins. InvalidSparkOptions."""
    found, unknown = _resolve(options.start, list(places), ask)
    if unknown and options.without_time == "error":
        named = ", ".join(map(str, unknown))
        raise InvalidSparkOptions(
            f"nothing in {named} is as new as the starting time; startingOffsetsByTimestampStrategy=latest begins at "
            "the end there"
        )
    return {**found, **_latest(unknown, ask)}


def ends(options: ReadOptions, places: Iterable[TopicPartition], ask: Ask) -> dict[TopicPartition, int]:
    """Return where each partition ends. InvalidSparkOptions."""
    found, unknown = _resolve(options.end, list(places), ask)
    return {**found, **_latest(unknown, ask)}


def ranges(options: ReadOptions, topic_ids: Mapping[TopicPartition, bytes], ask: Ask) -> list[OffsetRange]:
    """Return what a batch reads. SparkDataLoss, InvalidSparkOptions."""
    begin, end = starts(options, topic_ids, ask), ends(options, topic_ids, ask)
    first = ask(dict.fromkeys(topic_ids, EARLIEST))
    last = ask(dict.fromkeys(topic_ids, LATEST))
    found = []
    for place, topic_id in topic_ids.items():
        if options.start.offsets and options.end.offsets and begin[place] > end[place]:
            raise InvalidSparkOptions(f"{place} would end at {end[place]}, before it begins at {begin[place]}")
        # What was asked first may have been deleted, or be exceeded, by now.
        named = options.start.offsets is not None
        low = _within(begin[place], first[place], max(last[place], begin[place] if not named else 0), place, options)
        named = options.end.offsets is not None
        high = _within(end[place], low, last[place], place, options) if named else end[place]
        found.append(OffsetRange(*place[:1], topic_id, place.partition, low, max(low, high)))
    return found


def _within(offset: int, low: int, high: int, place: TopicPartition, options: ReadOptions) -> int:
    """Return the offset, or the nearest that is there where that is allowed."""
    if low <= offset <= high:
        return offset
    if options.fails_on_data_loss:
        raise SparkDataLoss(str(place), f"offset {offset} is not among {low} to {high}")
    return min(max(offset, low), high)


def _resolve(
    bound: Bound, places: list[TopicPartition], ask: Ask
) -> tuple[dict[TopicPartition, int], list[TopicPartition]]:
    """Offsets; and partitions that have nothing at that time."""
    if bound.everywhere is not None:
        return dict(ask(dict.fromkeys(places, bound.everywhere))), []
    if bound.offsets is not None:
        named = _of_all(bound.offsets, places)
        special = {place: offset for place, offset in named.items() if offset < 0}
        return {**named, **(ask(special) if special else {})}, []
    times = dict.fromkeys(places, bound.time or 0) if bound.times is None else _of_all(bound.times, places)
    found = ask(times)
    unknown = [place for place in places if found[place] == _NOTHING]
    return {place: found[place] for place in places if found[place] != _NOTHING}, unknown


def _of_all(given: ByPartition, places: list[TopicPartition]) -> dict[TopicPartition, int]:
    named = {TopicPartition(topic, each): value for topic, values in given.items() for each, value in values.items()}
    missing, foreign = sorted(set(places) - set(named)), sorted(set(named) - set(places))
    if missing or foreign:
        said = [f"{what}: {', '.join(map(str, each))}" for what, each in _both(missing, foreign) if each]
        raise InvalidSparkOptions("offsets or times by partition have to name all that are read; " + "; ".join(said))
    return named


def _both(missing: list[TopicPartition], foreign: list[TopicPartition]) -> list[tuple[str, list[TopicPartition]]]:
    return [("not named", missing), ("not there", foreign)]


def _latest(places: list[TopicPartition], ask: Ask) -> Mapping[TopicPartition, int]:
    return ask(dict.fromkeys(places, LATEST)) if places else {}

"""Planning a stream: ranges join on to each other, limits are kept, and what was lost is told once."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.machine.actor_address import Address
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import CheckpointDamaged
from raylog.spark_bridge.reading.rules.read_options import ReadOptions
from raylog.spark_bridge.reading.rules.stream_plan import (
    Cursor,
    Descriptor,
    Loss,
    Position,
    Step,
    advance,
    brokers_of,
    unknown_places,
)

ONE, OTHER = b"1" * 16, b"2" * 16
FIRST, SECOND = TopicPartition("clicks", 0), TopicPartition("clicks", 1)


def options(**given: object) -> ReadOptions:
    return ReadOptions.of_stream({"subscribe": "clicks", **given})


def at(**offsets: int) -> Cursor:
    """Positions of partitions p0, p1, …"""
    return {TopicPartition("clicks", int(name[1:])): Position(ONE, offset) for name, offset in offsets.items()}


def test_nothing_new_is_no_step() -> None:
    assert advance(at(p0=5), at(p0=5), {}, options(), 0) is None


def test_what_is_new_is_read_and_no_more() -> None:
    step = advance(at(p0=5, p1=7), at(p0=9, p1=7), {}, options(), 0)
    assert step == Step([OffsetRange("clicks", ONE, 0, 5, 9)], [], at(p0=9, p1=7))


def test_a_new_partition_is_read_from_its_beginning() -> None:
    step = advance(at(p0=5), at(p0=5, p1=30), {SECOND: 10}, options(), 0)
    assert step is not None
    assert step.ranges == [OffsetRange("clicks", ONE, 1, 10, 30)]
    assert step.losses == []


def test_a_topic_that_was_made_anew_is_told_and_read_from_its_beginning() -> None:
    ends = {FIRST: Position(OTHER, 8)}
    assert unknown_places(at(p0=5), ends) == [FIRST]
    step = advance(at(p0=5), ends, {FIRST: 2}, options(), 0)
    assert step is not None
    assert step.ranges == [OffsetRange("clicks", OTHER, 0, 2, 8)]
    assert step.losses == [Loss(FIRST, "its topic was deleted and made anew")]
    assert advance(step.cursor, ends, {}, options(), 0) is None


def test_a_topic_that_was_deleted_is_told_once() -> None:
    step = advance(at(p0=5), {}, {}, options(), 0)
    assert step == Step([], [Loss(FIRST, "its topic was deleted")], {})
    assert advance(step.cursor, {}, {}, options(), 0) is None


def test_a_log_that_became_shorter_is_told() -> None:
    step = advance(at(p0=50), at(p0=20), {}, options(), 0)
    assert step is not None
    assert (step.ranges, step.cursor) == ([], at(p0=20))
    assert "read up to offset 50, and ends at 20" in step.losses[0].reason


def test_few_records_wait_for_more_but_not_for_ever() -> None:
    few = options(minOffsetsPerTrigger=10, maxTriggerDelay="5s")
    assert advance(at(p0=0), at(p0=9), {}, few, 4_999) is None
    assert advance(at(p0=0), at(p0=9), {}, few, 5_000) is not None
    assert advance(at(p0=0), at(p0=10), {}, few, 0) is not None
    assert advance(at(p0=0), at(p0=0), {}, few, 9_999) is None


offsets = st.dictionaries(st.integers(0, 5), st.integers(0, 500), min_size=1, max_size=6)


@given(st.lists(offsets, min_size=1, max_size=10), st.none() | st.integers(1, 50), st.none() | st.integers(1, 12))
def test_from_step_to_step_each_offset_is_read_exactly_once(
    growth: list[dict[int, int]], most: int | None, tasks: int | None
) -> None:
    """The logs grow, partitions come, and a stream follows."""
    chosen = options(maxOffsetsPerTrigger=most, minPartitions=tasks)
    cursor: Cursor = {}
    ends: dict[TopicPartition, Position] = {}
    read: dict[int, list[int]] = {}
    for grown in growth:
        for number, count in grown.items():
            place = TopicPartition("clicks", number)
            before = ends[place].offset if place in ends else 0
            ends[place] = Position(ONE, before + count)
        begins = dict.fromkeys(unknown_places(cursor, ends), 0)
        while (step := advance(cursor, ends, begins, chosen, 0)) is not None:
            taken = sum(each.size for each in step.ranges)
            assert taken > 0
            assert most is None or taken <= most
            for each in step.ranges:
                read.setdefault(each.partition, []).extend(range(each.start, each.end))
            cursor, begins = step.cursor, {}
    assert {number: found for number, found in read.items() if found} == {
        place.partition: list(range(end.offset)) for place, end in ends.items() if end.offset
    }


def test_a_descriptor_comes_back_from_its_text() -> None:
    losses = [Loss(SECOND, "its topic was deleted")]
    step = Step([OffsetRange("clicks", ONE, 0, 5, 9)], losses, at(p0=9))
    brokers = {3: Address("node", ("unix:/a", "tcp:b:1"))}
    text = Descriptor(7, "cluster", "subscribe=clicks", step, brokers, ("run", "why")).to_text()
    header, lost, piece, failed = map(json.loads, text.splitlines())
    assert OffsetRange.of(piece) == step.ranges[0]
    assert brokers_of(piece["brokers"]) == brokers
    assert lost == {"lost": "clicks-1", "reason": "its topic was deleted"}
    assert failed == {"failed": "why", "run": "run"}
    assert header["raylog"] == 1
    found = Descriptor.parse("file", text)
    assert (found.number, found.cluster_id, found.reads) == (7, "cluster", "subscribe=clicks")
    assert found.step.cursor == step.cursor


@pytest.mark.parametrize("text", ["", "{}", "[]", "nothing", '{"raylog": 2}', '{"raylog":1,"number":"x"}'])
def test_what_is_no_descriptor_is_refused(text: str) -> None:
    with pytest.raises(CheckpointDamaged):
        Descriptor.parse("file", text)

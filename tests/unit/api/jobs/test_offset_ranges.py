"""Splitting and limiting what is read: nothing twice, nothing left out."""

from __future__ import annotations

import itertools
import json

from hypothesis import given
from hypothesis import strategies as st

from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange, limit, split

ID = bytes(range(16))
sizes = st.lists(st.integers(0, 10_000), max_size=8)


def ranges_of(numbers: list[int]) -> list[OffsetRange]:
    return [OffsetRange("t", ID, number, 7 * number, 7 * number + size) for number, size in enumerate(numbers)]


@given(sizes, st.none() | st.integers(1, 40))
def test_parts_are_the_whole_in_order(numbers: list[int], at_least: int | None) -> None:
    whole = ranges_of(numbers)
    parts = split(whole, at_least)
    for each in whole:
        own = [part for part in parts if part.partition == each.partition]
        if each.size == 0:
            assert own == []
            continue
        assert (own[0].start, own[-1].end) == (each.start, each.end)
        assert all(one.end == two.start for one, two in itertools.pairwise(own))
        assert all(part.size > 0 for part in own)
    if at_least is not None:
        assert len(parts) >= min(at_least, sum(numbers))


def test_without_a_wish_each_partition_is_one() -> None:
    assert split(ranges_of([10, 0, 3]), None) == [each for each in ranges_of([10, 0, 3]) if each.size]


@given(sizes, st.none() | st.integers(1, 20_000))
def test_a_limit_is_kept_and_used_up(numbers: list[int], most: int | None) -> None:
    available = {TopicPartition("t", number): size for number, size in enumerate(numbers)}
    taken = limit(available, most)
    assert all(0 < count <= available[place] for place, count in taken.items())
    assert sum(taken.values()) == min(sum(numbers), sum(numbers) if most is None else most)


@given(st.lists(st.integers(1, 10_000), min_size=1, max_size=8), st.integers(8, 20_000))
def test_whoever_has_something_gets_something(numbers: list[int], most: int) -> None:
    available = {TopicPartition("t", number): size for number, size in enumerate(numbers)}
    assert limit(available, most).keys() == available.keys()


def test_a_large_partition_does_not_starve_a_small_one() -> None:
    small, large = TopicPartition("t", 0), TopicPartition("t", 1)
    assert limit({small: 100, large: 1_000_000}, 1000) == {small: 1, large: 999}


@given(st.text(min_size=1), st.binary(min_size=16, max_size=16), st.integers(0, 2**31), st.integers(0, 2**63 - 1))
def test_a_range_comes_back_from_its_line(topic: str, topic_id: bytes, partition: int, start: int) -> None:
    before = OffsetRange(topic, topic_id, partition, start, start + 5)
    line = before.to_line()
    assert "\n" not in line
    assert OffsetRange.of(json.loads(line)) == before

"""Batches of a stream: they join on to each other, and none is too large."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.stream_steps import Cursor, is_due
from raylog.errors import RecordsLost

ID, OTHER = b"1" * 16, b"2" * 16
PLACES = [TopicPartition("t", number) for number in range(4)]
growths = st.lists(st.tuples(st.lists(st.integers(0, 300), min_size=4, max_size=4), st.integers(1, 500)), max_size=12)


def cursor(*offsets: int) -> Cursor:
    return Cursor(dict.fromkeys(PLACES, ID), dict(zip(PLACES, offsets, strict=True)))


@given(growths)
def test_batches_hold_each_offset_once_and_are_not_too_large(steps: list[tuple[list[int], int]]) -> None:
    now, ends = cursor(3, 0, 7, 0), dict(zip(PLACES, (3, 0, 7, 0), strict=True))
    for growth, most in steps:
        ends = {place: ends[place] + more for place, more in zip(PLACES, growth, strict=True)}
        before, lag = now, now.lag(ends)
        ranges, now = before.step(ends, most)
        assert sum(each.size for each in ranges) == min(lag, most)
        assert all(each.start == before.offsets[each.place] for each in ranges)
        assert all(each.topic_id == ID and each.size > 0 and each.end <= ends[each.place] for each in ranges)
        assert now.offsets == {**before.offsets, **{each.place: each.end for each in ranges}}
        assert now.lag(ends) == lag - sum(each.size for each in ranges)


def test_partitions_join_from_their_beginning() -> None:
    later = TopicPartition("t", 4)
    joined = cursor(1, 2, 3, 4).joined_by({**dict.fromkeys(PLACES, ID), later: ID}, {later: 9})
    assert joined.offsets == {**cursor(1, 2, 3, 4).offsets, later: 9}
    assert joined.step({later: 11}, 10)[0][0].topic_id == ID


def test_a_topic_that_was_made_anew_ends_the_stream() -> None:
    with pytest.raises(RecordsLost, match="t-1 was lost: its topic was deleted and made anew"):
        cursor(0, 0, 0, 0).joined_by({PLACES[1]: OTHER}, {})


def test_an_end_that_went_back_is_nothing_to_read() -> None:
    now = cursor(10, 0, 0, 0)
    assert now.lag({PLACES[0]: 4}) == 0
    assert now.step({PLACES[0]: 4}, 10) == ([], now)


def test_a_batch_is_due_when_it_is_full_or_has_waited() -> None:
    assert is_due(100, 100, 0.0, 1.0)
    assert not is_due(99, 100, 0.9, 1.0)
    assert is_due(1, 100, 1.0, 1.0)
    assert not is_due(0, 100, 9.0, 1.0)

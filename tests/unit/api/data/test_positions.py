"""Where a read begins and ends, by what its user said and what leaders say."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.positions import Bounds, Positions, Timestamp
from raylog.errors import InvalidConfig, InvalidRange, RecordsLost
from tests.unit.api.jobs.log_leaders import LOGS, Leaders

ID = b"1" * 16
A, B = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
BEGAN = datetime(1970, 1, 1, 0, 0, 1, tzinfo=timezone.utc)


def spans(
    start: Any = "earliest",
    end: Any = "latest",
    committed: Mapping[TopicPartition, int] | None = None,
    strict: bool = True,
    logs: Mapping[TopicPartition, tuple[int, int]] = LOGS,
) -> list[tuple[int, int]]:
    sides = Positions.of_start(start), Positions.of_end(end)
    bounds = Bounds(*sides, committed or {}, strict)
    return [(each.start, each.end) for each in bounds.ranges(dict.fromkeys(logs, ID), Leaders(logs).ask)]


def test_all_there_is() -> None:
    assert spans() == [(10, 110), (0, 50)]


def test_an_offset_for_all_is_brought_within_each_log() -> None:
    assert spans(start=20, end=60) == [(20, 60), (20, 50)]
    assert spans(start=80) == [(80, 110), (50, 50)]


def test_by_partition_others_are_read_whole() -> None:
    assert spans(start={"clicks": {0: 20}}, end={"clicks": {1: 30}}) == [(20, 110), (0, 30)]
    assert spans(start={"clicks": {0: "earliest", 1: Timestamp(1040)}}) == [(10, 110), (40, 50)]


def test_times() -> None:
    assert spans(start=BEGAN + timedelta(milliseconds=40), end=Timestamp(1045)) == [(40, 45), (40, 45)]
    assert spans(start=Timestamp(1060)) == [(60, 110), (50, 50)]
    assert spans(end=datetime(1970, 1, 1, 0, 0, 1, 60_000)) == [(10, 60), (0, 50)], "without a zone it is UTC"  # noqa: DTZ001
    east = timezone(timedelta(hours=2))
    assert spans(start=datetime(1970, 1, 1, 2, 0, 1, 40_000, east)) == [(40, 110), (40, 50)]


def test_a_group_goes_on_where_it_has_committed() -> None:
    assert spans(committed={A: 90}) == [(90, 110), (0, 50)]
    assert spans(start=20, committed={A: 90}) == [(90, 110), (20, 50)]
    assert spans(committed={A: 200}) == [(110, 110), (0, 50)], "beyond what is visible: nothing is left to read"


@pytest.mark.parametrize(("start", "committed"), [(5, {}), ({"clicks": {0: 5}}, {}), ("earliest", {A: 5})])
def test_deleted_records_are_told(start: Any, committed: dict[TopicPartition, int]) -> None:
    with pytest.raises(RecordsLost, match="Data of clicks-0 was lost: offset 5 was deleted, the log begins at 10"):
        spans(start=start, committed=committed)
    assert spans(start=start, committed=committed, strict=False)[0] == (10, 110)


@pytest.mark.parametrize(
    ("said", "reason"),
    [
        ({"start": {"clicks": {0: 500}}}, "clicks-0 would begin at 500, and ends at 110"),
        ({"end": {"clicks": {0: 500}}}, "clicks-0 would be read up to 500, and ends at 110"),
        ({"start": {"clicks": {0: 30}}, "end": {"clicks": {0: 20}}}, "would end at 20, before it begins at 30"),
        ({"start": {"clicks": {7: 0}}}, "clicks-7, of which nothing is read"),
        ({"end": {"views": {0: 1}}}, "views-0, of which nothing is read"),
    ],
)
def test_what_cannot_be_is_refused(said: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidRange, match=reason):
        spans(**said)


@pytest.mark.parametrize(
    "given",
    ["latest", "soon", -1, 1.5, True, None, {}, {"clicks": 3}, {"clicks": {"0": 3}}, {"clicks": {0: "latest"}},
     {"clicks": {-1: 3}}, {0: {0: 1}}, Timestamp(-1), datetime(1960, 1, 1, tzinfo=timezone.utc), {"clicks": {}}],
)  # fmt: skip
def test_what_is_no_position_is_refused(given: Any) -> None:
    with pytest.raises(InvalidConfig, match="start"):
        Positions.of_start(given)


logs = st.tuples(st.integers(0, 50), st.integers(0, 50)).map(lambda pair: (pair[0], pair[0] + pair[1]))
positions = st.integers(0, 120) | st.integers(900, 1150).map(Timestamp)


@given(
    st.lists(logs, min_size=1, max_size=4),
    positions | st.just("earliest"),
    positions | st.just("latest"),
    st.dictionaries(st.integers(0, 3), st.integers(0, 120)),
)
def test_what_is_read_is_there_and_is_what_was_asked_for(
    sizes: list[tuple[int, int]], start: Any, end: Any, commits: dict[int, int]
) -> None:
    held = {TopicPartition("t", number): log for number, log in enumerate(sizes)}
    committed = {TopicPartition("t", number): offset for number, offset in commits.items()}
    found = spans(start, end, committed, strict=False, logs=held)
    for (place, (first, last)), (low, high) in zip(held.items(), found, strict=True):
        assert first <= low <= high <= last
        begin = committed.get(place, start)
        if isinstance(begin, int):
            assert low == min(max(begin, first), last)
        if isinstance(begin, Timestamp):
            assert all(1000 + offset < begin.ms for offset in range(first, low))
        if isinstance(end, Timestamp):
            assert all(1000 + offset < end.ms for offset in range(low, high))
        elif isinstance(end, int):
            assert high == max(low, min(end, last))
        else:
            assert high == last

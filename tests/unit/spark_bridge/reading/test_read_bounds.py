"""Where reading begins and ends, by what leaders say."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import InvalidSparkOptions, SparkDataLoss
from raylog.spark_bridge.reading.rules.read_bounds import ranges, starts
from raylog.spark_bridge.reading.rules.read_options import ReadOptions
from tests.unit.api.jobs.log_leaders import LOGS, Leaders

ID = b"1" * 16
PLACES = dict.fromkeys(LOGS, ID)


def spans(**given: Any) -> list[tuple[int, int]]:
    options = ReadOptions.of_batch({"subscribe": "clicks", **given})
    return [(each.start, each.end) for each in ranges(options, PLACES, Leaders().ask)]


def test_all_there_is() -> None:
    assert spans() == [(10, 110), (0, 50)]
    options = ReadOptions.of_batch({"subscribe": "clicks"})
    assert ranges(options, PLACES, Leaders().ask)[0] == OffsetRange("clicks", ID, 0, 10, 110)


def test_offsets_by_partition() -> None:
    given = {"startingOffsets": {"clicks": {"0": 20, "1": -2}}, "endingOffsets": {"clicks": {"0": 30, "1": -1}}}
    assert spans(**given) == [(20, 30), (0, 50)]


def test_times() -> None:
    assert spans(startingTimestamp=1040, endingTimestamp=1045) == [(40, 45), (40, 45)]
    assert spans(endingTimestamp=1060) == [(10, 60), (0, 50)]
    by_partition = {"startingOffsetsByTimestamp": {"clicks": {"0": 1050, "1": 1001}}}
    assert spans(**by_partition) == [(50, 110), (1, 50)]


def test_a_starting_time_after_the_last_record() -> None:
    with pytest.raises(InvalidSparkOptions, match="nothing in clicks-1 is as new"):
        spans(startingTimestamp=1060)
    assert spans(startingTimestamp=1060, startingOffsetsByTimestampStrategy="latest") == [(60, 110), (50, 50)]


@pytest.mark.parametrize(
    ("given", "named", "lenient"),
    [
        ({"startingOffsets": {"clicks": {"0": 5, "1": 0}}}, "offset 5 is not among 10 to 110", [(10, 110), (0, 50)]),
        ({"startingOffsets": {"clicks": {"0": 500, "1": 0}}}, "500 is not among 10 to 110", [(110, 110), (0, 50)]),
        ({"endingOffsets": {"clicks": {"0": 500, "1": 9}}}, "500 is not among 10 to 110", [(10, 110), (0, 9)]),
    ],
)
def test_offsets_that_are_not_there(given: dict[str, Any], named: str, lenient: list[tuple[int, int]]) -> None:
    with pytest.raises(SparkDataLoss, match=named):
        spans(**given)
    assert spans(failOnDataLoss=False, **given) == lenient


def test_all_partitions_have_to_be_named() -> None:
    with pytest.raises(InvalidSparkOptions, match="not named: clicks-1; not there: clicks-7"):
        spans(startingOffsets={"clicks": {"0": 20, "7": 1}})
    stream = ReadOptions.of_stream({"subscribe": "clicks", "startingOffsets": {"clicks": {"0": 20}}})
    with pytest.raises(InvalidSparkOptions, match="not named: clicks-1"):
        starts(stream, PLACES, Leaders().ask)


def test_an_end_before_the_beginning_is_refused() -> None:
    given = {"startingOffsets": {"clicks": {"0": 30, "1": 0}}, "endingOffsets": {"clicks": {"0": 20, "1": 0}}}
    with pytest.raises(InvalidSparkOptions, match="would end at 20, before it begins at 30"):
        spans(**given)

"""Where reading begins and ends."""

from __future__ import annotations

import pytest

from raylog.api.cli.arguments.argument_types import moment, numbers
from raylog.api.cli.records.read_range import Place, ReadRange, Span, parse_range, spans
from raylog.api.connection.records import TopicPartition
from tests.unit.api.cli.fake_cluster import FakeCluster, FakeConsumer

NOW = 1_800_000_000_000
NOON = 1_769_860_800_000  # 2026-01-31T12:00:00Z


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("start", ReadRange(Place("start"))),
        ("end", ReadRange(Place("end"))),
        ("42", ReadRange(Place("at", 42))),
        ("+3", ReadRange(Place("after", 3))),
        ("-3", ReadRange(Place("before", 3))),
        ("5:9", ReadRange(Place("at", 5), Place("at", 9))),
        (":-2", ReadRange(Place("start"), Place("before", 2))),
        ("+1:", ReadRange(Place("after", 1), Place("end"))),
        ("@2026-01-31T12:00:00Z", ReadRange(Place("time", NOON))),
        ("@2026-01-31T12:00:00+00:00", ReadRange(Place("time", NOON))),
        ("@2026-01-31T12:00", ReadRange(Place("time", NOON))),
        ("@2026-01-31T12:00:00Z:end", ReadRange(Place("time", NOON), Place("end"))),
        ("@-1h:@-30m", ReadRange(Place("time", NOW - 3_600_000), Place("time", NOW - 1_800_000))),
        ("@1769860800:", ReadRange(Place("time", NOON), Place("end"))),
    ],
)
def test_ranges_are_understood(text: str, expected: ReadRange) -> None:
    assert parse_range(text, NOW) == expected


@pytest.mark.parametrize("text", ["begin", "@", "@noon", "5:x", "+", "1:2:3"])
def test_others_are_not(text: str) -> None:
    with pytest.raises(ValueError, match="is no "):
        parse_range(text, NOW)


@pytest.mark.parametrize(
    ("text", "follow", "expected"),
    [
        ("start", True, Span(2, None)),
        ("start", False, Span(2, 10)),
        ("end", True, Span(10, None)),
        ("0", True, Span(2, None)),
        ("7", True, Span(7, None, 7)),
        ("99", True, Span(10, None, 99)),
        ("99:120", True, Span(10, 120, 99)),
        ("5:120", False, Span(5, 10, 5)),
        ("+3:-1", True, Span(5, 9)),
        ("-100", False, Span(2, 10)),
        ("@1.005", True, None),
    ],
)
def test_places_become_offsets_within_the_log(text: str, follow: bool, expected: Span | None) -> None:
    cluster = FakeCluster()
    cluster.fill("clicks", 1, 10)
    cluster.starts[TopicPartition("clicks", 0)] = 2
    chosen = ReadRange(Place("time", 1004)) if expected is None else parse_range(text, NOW)
    found = spans(chosen, [TopicPartition("clicks", 0)], FakeConsumer(cluster, {}), follow=follow)
    assert found == {TopicPartition("clicks", 0): expected or Span(4, None)}


@pytest.mark.parametrize("text", ["5:3", "+5:+3", "-3:-5", "@-1h:@-2h"])
def test_a_range_that_can_never_hold_anything_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match="ends before it begins"):
        parse_range(text, NOW)
    parse_range("5:5", NOW)


def test_what_lies_before_a_named_offset_is_not_meant() -> None:
    assert [offset for offset in range(95, 105) if Span(90, 102, 99).holds(offset)] == [99, 100, 101]
    assert Span(0, None).holds(0)


def test_moments_and_numbers() -> None:
    assert moment("1769860800", NOW) == moment("1769860800000", NOW) == moment("2026-01-31T13:00:00+01:00", NOW) == NOON
    assert moment("-90s", NOW) == NOW - 90_000
    assert numbers("5-7,0,2,6") == [0, 2, 5, 6, 7]

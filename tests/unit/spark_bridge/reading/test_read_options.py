"""The options of Spark's Kafka source: taken as it takes them, and refused where they say nothing."""

from __future__ import annotations

from typing import Any

import pytest

from raylog.api.jobs.rules.subscription import Subscription
from raylog.errors import InvalidConfig, InvalidSparkOptions, UnknownSparkOption
from raylog.spark_bridge.reading.rules.read_options import EARLIEST, LATEST, Bound, ReadOptions


def batch(**given: Any) -> ReadOptions:
    return ReadOptions.of_batch({"subscribe": "clicks", **given})


def stream(**given: Any) -> ReadOptions:
    return ReadOptions.of_stream({"subscribe": "clicks", **given})


def test_defaults_are_those_of_sparks_kafka_source() -> None:
    assert (batch().start, batch().end) == (Bound(everywhere=EARLIEST), Bound(everywhere=LATEST))
    assert stream().start == Bound(everywhere=LATEST)
    assert stream().max_delay_ms == 15 * 60 * 1000
    options = batch()
    assert options.fails_on_data_loss
    assert not options.reads_committed
    assert not options.includes_headers
    assert options.min_partitions is None


def test_values_may_be_text_as_sparks_are() -> None:
    options = stream(
        startingOffsets='{"clicks": {"0": 23, "1": -2}}',
        failOnDataLoss="false",
        includeHeaders="TRUE",
        minPartitions="4",
        maxOffsetsPerTrigger="1000",
        minOffsetsPerTrigger=10,
        maxTriggerDelay="2m",
        isolationLevel="read_committed",
    )
    assert options.start == Bound(offsets={"clicks": {0: 23, 1: -2}})
    assert (options.min_partitions, options.max_offsets, options.min_offsets) == (4, 1000, 10)
    assert options.max_delay_ms == 120_000
    assert (options.fails_on_data_loss, options.includes_headers, options.reads_committed) == (False, True, True)


@pytest.mark.parametrize(
    ("text", "ms"),
    [("500ms", 500), ("3", 3), ("2s", 2000), ("15m", 900_000), ("1 hour", 3_600_000), ("5 minutes", 300_000)],
)
def test_durations(text: str, ms: int) -> None:
    assert stream(minOffsetsPerTrigger=1, maxTriggerDelay=text).max_delay_ms == ms


def test_names_are_known_in_any_case_and_by_kafkas() -> None:
    assert batch(**{"kafka.isolation.level": "read_committed", "STARTINGOFFSETS": "Earliest"}).reads_committed
    assert stream(**{"kafka.group.id": "billing"}).group_id == "billing"


@pytest.mark.parametrize(
    ("given", "subscription"),
    [
        ({"subscribe": "b, a"}, Subscription(topics=("a", "b"))),
        ({"subscribe": ["a"]}, Subscription(topics=("a",))),
        ({"subscribePattern": "a.*"}, Subscription(pattern="a.*")),
        ({"assign": '{"a": [1, 0]}'}, Subscription(partitions={"a": (0, 1)})),
    ],
)
def test_what_is_read(given: dict[str, Any], subscription: Subscription) -> None:
    assert ReadOptions.of_batch(given).subscription == subscription


def test_a_subscription_is_described_the_same_way_each_time() -> None:
    one, two = (ReadOptions.of_stream({"subscribe": topics}).subscription for topics in ("b,a", ["a", "b"]))
    assert one.describe() == two.describe() == "subscribe=a,b"


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "none was given"),
        ({"subscribe": "a", "assign": {"a": [0]}}, "subscribe and assign were given"),
        ({"subscribe": "a", "startingOffsets": "latest"}, "cannot start at the latest"),
        ({"subscribe": "a", "startingOffsets": {"a": {"0": -1}}}, "cannot start at the latest"),
        ({"subscribe": "a", "endingOffsets": "earliest"}, "cannot end at the earliest"),
        ({"subscribe": "a", "startingOffsets": "earliest", "startingTimestamp": 5}, "say the same thing in two ways"),
        ({"subscribe": "a", "startingOffsets": {"b": {"0": 1}}}, "which are not read"),
        ({"subscribe": "a", "startingOffsetsByTimestampStrategy": "latest"}, "without a starting time"),
        ({"subscribe": "a", "isolationLevel": "read_committed", "kafka.isolation.level": "read_committed"}, "twice"),
    ],
)
def test_what_cannot_be_together_is_refused(given: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidSparkOptions, match=reason):
        ReadOptions.of_batch(given)


def test_limits_of_a_trigger_have_to_fit() -> None:
    with pytest.raises(InvalidSparkOptions, match="is more than maxOffsetsPerTrigger"):
        stream(minOffsetsPerTrigger=10, maxOffsetsPerTrigger=5)
    with pytest.raises(InvalidSparkOptions, match="without minOffsetsPerTrigger"):
        stream(maxTriggerDelay="1s")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("subscribe", ""),
        ("subscribe", []),
        ("subscribePattern", "("),
        ("assign", '{"a": 0}'),
        ("assign", "a"),
        ("startingOffsets", "newest"),
        ("startingOffsets", '{"clicks": {"0": -3}}'),
        ("startingOffsets", '{"clicks": {"zero": 3}}'),
        ("startingOffsets", "{"),
        ("startingTimestamp", "-1"),
        ("minPartitions", 0),
        ("minPartitions", True),
        ("failOnDataLoss", "yes"),
        ("isolationLevel", "committed"),
    ],
)
def test_values_that_mean_nothing_are_refused(name: str, value: object) -> None:
    given = {"subscribe": "clicks", name: value} if name[:3] not in ("sub", "ass") else {name: value}
    with pytest.raises(InvalidConfig, match=name):
        ReadOptions.of_batch(given)


def test_unknown_options_are_refused_with_those_there_are() -> None:
    with pytest.raises(UnknownSparkOption, match=r"'startingOffset'. There are: .*startingOffsets"):
        batch(startingOffset="earliest")
    with pytest.raises(UnknownSparkOption, match="of the other kind of reading"):
        batch(maxOffsetsPerTrigger=5)
    with pytest.raises(UnknownSparkOption, match="of the other kind of reading"):
        stream(endingOffsets="latest")

"""What cores count, what of it is told to Ray, and that docs and dashboard speak of metrics that exist."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.cluster.control_counters import ControlCounters, cluster_readings
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.kernel.metrics import (
    ALL_PARTITIONS,
    APPEND_SECONDS,
    BOUNDS,
    BROKERS_ALIVE,
    BYTES_IN,
    BYTES_OUT,
    FETCH_SECONDS,
    IS_LEADER,
    ISR_EXPANDS,
    ISR_SHRINKS,
    LEADER_CHANGES,
    LOG_END_OFFSET,
    METRICS,
    OFFLINE_PARTITIONS,
    RECORDS_IN,
    RECORDS_OUT,
    UNDER_MIN_ISR_PARTITIONS,
    UNDER_REPLICATED_PARTITIONS,
    LatencyCounts,
    Metric,
    MetricChanges,
    MetricKind,
    Reading,
    ReadingGroup,
)
from raylog.actors.protocol.metadata_records import PartitionChanged
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio
from tests.unit.actors.small_cluster import SmallCluster

_ROOT = Path(__file__).parents[4]
_DASHBOARD = _ROOT / "docs" / "grafana" / "raylog.json"
_PAGE = _ROOT / "docs" / "metrics.md"


def by_metric(readings: Iterable[Reading]) -> dict[Metric, float]:
    """Of readings that name each metric once, but for buckets: there the last one."""
    return {reading.metric: reading.value for reading in readings}


# --- counting ---


def test_latencies_are_counted_by_upper_bound_and_cumulatively() -> None:
    counts = LatencyCounts()
    for seconds in (0.00005, 0.0001, 0.0002, 3.0, 99.0):
        counts.add(seconds)
    readings = list(counts.readings(APPEND_SECONDS, ("t", "0")))
    buckets = {each.tags[-1]: each.value for each in readings if each.metric is APPEND_SECONDS.bucket}
    assert len(buckets) == len(BOUNDS) + 1
    assert (buckets["0.0001"], buckets["0.00025"], buckets["2.5"], buckets["5.0"], buckets["+Inf"]) == (2, 3, 3, 4, 5)
    assert by_metric(readings)[APPEND_SECONDS.count] == 5
    assert by_metric(readings)[APPEND_SECONDS.total] == pytest.approx(102.00035)


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(1) as world:
        yield Trio(world)


def readings_of(trio: Trio, broker_id: int) -> dict[Metric, float]:
    replica = trio.members[broker_id].replica
    assert replica is not None
    read = replica.readings()
    assert read is not None
    return by_metric((*read.gauges, *read.counters()))


def test_a_leader_counts_what_comes_in_and_goes_out(trio: Trio) -> None:
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    for values in ((b"a", b"b"), (b"c",)):
        trio.offset_of(trio.append(1, *values, sequence=0 if len(values) == 2 else 2))
    trio.offset_of(trio.append(1, b"a", b"b", sequence=0))  # it came twice, and counts once
    given = trio.answer(trio.fetch(1, 0)).payload
    trio.answer(trio.fetch(1, 3, max_wait_ms=100))  # there is nothing, and a fetch that waited is no latency

    leader = readings_of(trio, 1)
    assert leader[RECORDS_IN] == leader[RECORDS_OUT] == leader[LOG_END_OFFSET] == 3
    assert leader[BYTES_IN] == leader[BYTES_OUT] == len(given)
    assert leader[APPEND_SECONDS.count] == 3
    assert leader[APPEND_SECONDS.total] > 0
    assert leader[FETCH_SECONDS.count] == 1
    assert leader[IS_LEADER] == 1
    follower = readings_of(trio, 2)
    assert (follower[RECORDS_IN], follower[LOG_END_OFFSET], follower[IS_LEADER]) == (0, 3, 0)


def changed(before: PartitionState, **changes: Any) -> PartitionChanged:
    fields = {name: getattr(before, name) for name in PartitionState.__dataclass_fields__}
    return PartitionState(**{**fields, **changes}).to_record("a test")


def test_a_controller_counts_who_leaves_and_joins_and_leads() -> None:
    counters = ControlCounters()
    before = PartitionState(b"t" * 16, 0, replicas=(1, 2, 3), isr=(1, 2), leader=1, leader_epoch=3)
    counters.count(before, changed(before, isr=(1,)))
    counters.count(before, changed(before, isr=(1, 2, 3)))
    counters.count(before, changed(before, isr=(2,), leader=2, leader_epoch=4))
    counters.count(before, changed(before, leader=-1, leader_epoch=4))
    counters.count(before, changed(before, isr=(1,), replicas=(1, 3)))  # 2 was reassigned away
    counted = by_metric(counters.readings())
    assert (counted[ISR_SHRINKS], counted[ISR_EXPANDS], counted[LEADER_CHANGES]) == (2, 1, 1)


def test_the_state_of_all_partitions_is_summed_up() -> None:
    cluster = SmallCluster()
    cluster.create("whole", [1, 2, 3])
    cluster.create("lame", [1, 2, 3])
    cluster.propose("lame", 1)
    read = by_metric(cluster_readings(cluster.state, cluster.live))
    assert (read[UNDER_REPLICATED_PARTITIONS], read[UNDER_MIN_ISR_PARTITIONS], read[OFFLINE_PARTITIONS]) == (1, 1, 0)
    assert read[BROKERS_ALIVE] == 3


# --- telling ---


def test_counters_are_told_as_what_was_added_also_when_they_begin_anew() -> None:
    changes = MetricChanges()

    def told(value: float) -> list[float]:
        return [each.value for each in changes.since_last([Reading(BYTES_IN, ("t", "0"), value)])]

    assert [told(value) for value in (0, 10, 10, 25, 5, 5)] == [[], [10], [], [15], [5], []]


class Part:
    """A part of a core, with one counter and one gauge."""

    def __init__(self, key: str = "") -> None:
        self.bytes_in = 0
        self.times_read = 0
        self._key = key

    def group(self) -> ReadingGroup:
        return ReadingGroup(self._key, (self.bytes_in,), (Reading(LOG_END_OFFSET, ("t", "0"), 7),), self._counters)

    def _counters(self) -> list[Reading]:
        self.times_read += 1
        return [Reading(BYTES_IN, ("t", "0"), self.bytes_in)]


def read_of(changes: MetricChanges, *parts: Part) -> list[Reading]:
    changes.begin_reading()
    return [each for part in parts for each in changes.to_read(part.group())]


def test_counters_of_a_part_are_read_only_when_they_have_moved() -> None:
    changes, part = MetricChanges(), Part()
    gauge = Reading(LOG_END_OFFSET, ("t", "0"), 7)
    for _ in range(3):
        assert changes.since_last(read_of(changes, part)) == [gauge]
    assert part.times_read == 1
    part.bytes_in = 10
    assert changes.since_last(read_of(changes, part)) == [gauge, Reading(BYTES_IN, ("t", "0"), 10)]
    assert changes.since_last(read_of(changes, part)) == [gauge]
    assert part.times_read == 2


def test_what_was_read_and_never_told_is_read_again() -> None:
    """The shell gives up a reading that takes too long."""
    changes, part = MetricChanges(), Part()
    part.bytes_in = 10
    read_of(changes, part)
    assert Reading(BYTES_IN, ("t", "0"), 10) in changes.since_last(read_of(changes, part))


def test_a_part_that_comes_back_with_lower_counters_has_begun_anew() -> None:
    changes, part = MetricChanges(), Part()
    part.bytes_in = 10
    changes.since_last(read_of(changes, part))
    assert changes.since_last(read_of(changes)) == [Reading(LOG_END_OFFSET, ("t", "0"), 0)]
    part.bytes_in = 3
    assert Reading(BYTES_IN, ("t", "0"), 3) in changes.since_last(read_of(changes, part))


def test_parts_under_the_same_tags_are_summed_up() -> None:
    changes, one, two = MetricChanges(), Part("one"), Part("two")

    def told(*parts: Part) -> list[float]:
        return [each.value for each in changes.since_last(read_of(changes, *parts))]

    one.bytes_in, two.bytes_in = 10, 5
    assert told(one, two) == [14, 15]
    two.bytes_in = 8
    assert told(one, two) == [14, 3]
    assert told(two) == [7]
    two.bytes_in = 9
    assert told(two, Part("three")) == [14, 1]


def test_a_replica_tells_its_partition_only_where_its_topic_asks_for_that(trio: Trio) -> None:
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    replica = trio.members[1].replica
    assert replica is not None

    def told() -> tuple[set[tuple[str, ...]], float]:
        read = replica.readings()
        assert read is not None
        records = next(each.value for each in read.counters() if each.metric is RECORDS_IN)
        return {each.tags for each in read.gauges}, records

    trio.offset_of(trio.append(1, b"a", b"b"))
    assert told() == told() == ({("topic", ALL_PARTITIONS)}, 2)
    trio.settings = {"metrics.per.partition": "true"}
    trio.tell_settings()
    trio.world.run_for(1.0)
    assert told() == ({("topic", "0")}, 0)  # the two were told with all partitions
    trio.offset_of(trio.append(1, b"c", sequence=2))
    assert told() == ({("topic", "0")}, 1)


def test_a_gauge_that_is_not_read_any_more_becomes_zero_once() -> None:
    changes = MetricChanges()
    reading = Reading(LOG_END_OFFSET, ("t", "0"), 7)
    assert changes.since_last([reading]) == [reading]
    assert changes.since_last([reading]) == [reading]
    assert changes.since_last([]) == [Reading(LOG_END_OFFSET, ("t", "0"), 0)]
    assert changes.since_last([]) == []


# --- docs and dashboard ---


def exported(metric: Metric) -> str:
    """As Ray's endpoint names it."""
    return f"ray_{metric.name}" + ("_total" if metric.kind is MetricKind.COUNTER else "")


def expressions(part: object) -> Iterator[str]:
    if isinstance(part, dict):
        for name, value in part.items():
            if name in ("expr", "query", "definition") and isinstance(value, str):
                yield value
            else:
                yield from expressions(value)
    elif isinstance(part, list):
        for each in part:
            yield from expressions(each)


def test_the_dashboard_shows_metrics_that_exist_by_tags_that_they_have() -> None:
    dashboard = json.loads(_DASHBOARD.read_text())
    known = {exported(metric): metric for metric in METRICS.values()}
    texts = [text for text in expressions(dashboard) if "raylog" in text]
    assert len(texts) > 15
    shown = set()
    for text in texts:
        names = re.findall(r"\b(ray_raylog_\w+)", text)
        assert names, text
        shown |= set(names)
        for name in names:
            assert name in known, f"{name} is defined nowhere"
            for tags in re.findall(r"by \(([^)]*)\)", text):
                assert set(tags.replace(" ", "").split(",")) <= set(known[name].tags), text
    untold = {name for name in known if name not in shown and not name.endswith(("_sum_total", "_count_total"))}
    assert untold <= {"ray_raylog_log_start_offset", "ray_raylog_high_watermark", "ray_raylog_is_leader"}


def test_the_page_lists_every_metric_with_its_type_and_tags() -> None:
    tables = re.findall(r"Tags: (`.+`)\n\n((?:\|.*\n)+)", _PAGE.read_text())
    found = [(tags, re.findall(r"^\| `(raylog_\w+)` \| (\w+) \| ", table, re.MULTILINE)) for tags, table in tables]
    rows = [(name, kind, tags) for tags, named in found for name, kind in named]
    listed = {name: (kind, tuple(tags.replace("`", "").split(", "))) for name, kind, tags in rows}
    assert listed == {name: (metric.kind.value, metric.tags) for name, metric in METRICS.items()}
    assert len(rows) == len(listed)

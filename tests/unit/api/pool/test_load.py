"""Lag, arrival and rates, from offsets and reports."""

from __future__ import annotations

import pytest

from raylog.api.connection.records import TopicPartition
from raylog.api.pool.rules.load import LagMeter, RateMeter, WorkDone

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


def test_lag_counts_from_what_is_committed_or_else_from_the_beginning() -> None:
    meter = LagMeter()
    meter.look({A: 5, B: 7}, {A: 15, B: 10}, {A: 12}, 0.0)
    assert (meter.lags, meter.lag, meter.partitions) == ({A: 3, B: 3}, 6, 2)
    assert meter.arrival == 0


def test_what_arrives_is_counted_over_the_last_seconds_also_on_new_partitions() -> None:
    meter = LagMeter()
    for second in range(31):
        ends = {A: second * 10 if second < 20 else 200 + (second - 20) * 30}
        meter.look({}, ends if second < 25 else {**ends, B: 0}, {}, float(second))
    assert meter.arrival == pytest.approx(30)


def test_offsets_that_nobody_commits_are_no_lag_once_all_is_read() -> None:
    meter = LagMeter()
    meter.look({}, {A: 10}, {A: 9}, 0.0)
    assert meter.lag == 1
    meter.read_up_to({A: 10})
    meter.look({}, {A: 10}, {A: 9}, 1.0)
    assert meter.lag == 0
    meter.look({}, {A: 12}, {A: 9}, 2.0)
    assert meter.lag == 2
    meter.look({}, {A: 3}, {A: 0}, 3.0)
    assert meter.lag == 3, "a topic that was made anew"


def test_a_rate_is_that_of_one_actor_that_has_enough_to_do() -> None:
    meter = RateMeter()
    assert meter.rate is None
    for second in range(1, 11):
        work = WorkDone(100 * second, float(second), 1)
        meter.hear({"a": work, "b": work}, second)
    assert meter.rate == pytest.approx(100)
    for second in range(11, 60):
        meter.hear({"a": WorkDone(1000 + 10 * (second - 10), float(second), 1)}, second)
    assert meter.rate == pytest.approx(10), "it forgets what was long ago"
    meter.forget()
    assert meter.rate is None


def test_records_that_take_long_bound_the_rate_before_the_first_is_done() -> None:
    meter = RateMeter()
    for second in range(1, 21):
        meter.hear({name: WorkDone(0, float(second), 1) for name in "abc"}, second)
    assert meter.rate == pytest.approx(1 / 20)


def test_an_idle_actor_says_nothing_and_what_is_known_stays() -> None:
    meter = RateMeter()
    for second in range(1, 400):
        meter.hear({"a": WorkDone(50 * min(second, 20), float(min(second, 20)), 0)}, second)
    assert meter.rate == pytest.approx(50)

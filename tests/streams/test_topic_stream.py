"""Batches of a stream as its program gets them: ahead by one, none skipped, each committed once."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.stream_steps import Cursor
from raylog.api.data.topic_stream import StreamOptions, TopicStream
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import ClusterUnreachable, ConsumerClosed, InvalidTransactionState

PLACE, ID = TopicPartition("t", 0), b"1" * 16


class Dataset:
    def __init__(self, plan: Plan, ranges: Sequence[OffsetRange]) -> None:
        self._plan = plan
        self._ranges = ranges

    def materialize(self) -> Dataset:
        if self._plan.errors:
            raise self._plan.errors.pop()
        self._plan.materialized.append(self._ranges[0].start)
        self._plan.news.release()
        return self


class Plan:
    """A topic of one partition, which ends at `end`."""

    def __init__(self, end: int) -> None:
        self.end = end
        self.errors: list[Exception] = []
        self.materialized: list[int] = []
        self.news = threading.Semaphore(0)
        self.lookups = 0
        self.cluster = SimpleNamespace(name="tests")
        self.questions = self

    def places(self) -> dict[TopicPartition, bytes]:
        return {PLACE: ID}

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        self.lookups += 1
        return dict.fromkeys(wanted, self.end)

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        """Return what its metrics ask for."""
        return dict.fromkeys(partitions, self.end)

    def find_again(self) -> None:
        """Do nothing."""

    def dataset(self, ranges: Sequence[OffsetRange]) -> Dataset:
        return Dataset(self, ranges)


def stream(plan: Plan, family: Any = None, idle: float | None = 0.1, prefetches: bool = True) -> TopicStream:
    options = StreamOptions("g", max_rows=10, wait_seconds=0.0, idle_seconds=idle, prefetches=prefetches)
    family = family or SimpleNamespace(last_batch=6, close=lambda: None)
    return TopicStream(cast("Any", plan), options, family, Cursor({PLACE: ID}, {PLACE: 0}))


def test_batches_join_on_and_end_when_nothing_comes() -> None:
    with stream(Plan(25)) as batches:
        found = list(batches)
    assert [(each.number, each.ranges[0].start, each.ranges[0].end, each.behind) for each in found] == [
        (7, 0, 10, 15), (8, 10, 20, 5), (9, 20, 25, 0),
    ]  # fmt: skip
    assert found[-1].offsets == {PLACE: 25}


def test_one_batch_is_read_ahead_and_no_more() -> None:
    plan = Plan(100)
    with stream(plan) as batches:
        next(batches)
        assert plan.news.acquire(timeout=5)
        assert plan.news.acquire(timeout=5)
        assert plan.materialized == [0, 10]
        assert not plan.news.acquire(timeout=0.3)
    lazy = Plan(100)
    with stream(lazy, prefetches=False) as batches:
        next(batches)
    assert lazy.materialized == []


def test_records_that_come_while_a_batch_is_worked_on_are_the_next_one() -> None:
    plan = Plan(10)
    with stream(plan) as batches:
        next(batches)
        assert batches._ahead is not None
        assert batches._ahead.result(5) is None
        plan.end = 12
        assert next(batches).offsets == {PLACE: 12}
        assert next(batches, None) is None


def test_a_batch_that_failed_is_the_next_one() -> None:
    plan = Plan(20)
    plan.errors.append(ClusterUnreachable("none", 1, "down"))
    with stream(plan) as batches:
        with pytest.raises(ClusterUnreachable):
            next(batches)
        assert [each.ranges[0].start for each in batches] == [0, 10]


def test_a_wait_that_was_interrupted_skips_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Plan(0)
    with stream(plan, idle=None) as batches:
        future = batches._planned()

        def interrupted(_timeout: float | None = None) -> Any:
            raise KeyboardInterrupt

        with monkeypatch.context() as patch:
            patch.setattr(batches, "_ahead", future)
            patch.setattr(future, "result", interrupted)
            with pytest.raises(KeyboardInterrupt):
                next(batches)
            assert batches._ahead is future
            patch.undo()
        batches._ahead = future
        plan.end = 5
        assert next(batches).offsets == {PLACE: 5}


def test_a_closed_stream_gives_nothing_and_waits_for_nobody() -> None:
    plan = Plan(0)
    batches = stream(plan, idle=None)
    batches._ahead = batches._planned()
    batches.close()
    batches.close()
    with pytest.raises(ConsumerClosed):
        next(batches)


def test_what_was_committed_is_not_committed_again() -> None:
    family = SimpleNamespace(last_batch=6, close=lambda: None)
    with stream(Plan(20), family) as batches:
        first, second = next(batches), next(batches)
        family.last_batch = second.number
        for each in (first, second):
            with pytest.raises(InvalidTransactionState, match="This batch, or a later one"):
                each.commit()

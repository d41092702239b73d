"""What a task makes of the lines of a descriptor."""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
import pytest

from raylog.actors.machine.actor_address import Address
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import SparkDataLoss, StreamFailed
from raylog.spark_bridge.reading.rules.stream_plan import Descriptor, Loss, Position, Step
from raylog.spark_bridge.reading.stream_read import _StreamExpansion

PLACE = TopicPartition("clicks", 0)
BROKERS = {0: Address("node", ("tcp:a:1",))}
PIECES = [OffsetRange("clicks", b"1" * 16, 0, 5, 9), OffsetRange("clicks", b"1" * 16, 0, 9, 12)]


@dataclass
class Reading:
    """Says what it is asked to read."""

    fails_on_data_loss: bool = True
    asked: list[tuple[Mapping[int, Address], OffsetRange]] = field(default_factory=list)
    brokers: Mapping[int, Address] = field(default_factory=dict)

    def told_of(self, brokers: Mapping[int, Address]) -> Reading:
        return Reading(self.fails_on_data_loss, self.asked, brokers)

    def rows(self, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
        self.asked.append((self.brokers, piece))
        yield pa.RecordBatch.from_pydict({"offset": list(range(piece.start, piece.end))})


def lines(losses: list[Loss], failure: tuple[str, str] = ("", "")) -> list[pa.RecordBatch]:
    step = Step(PIECES, losses, {PLACE: Position(b"1" * 16, 12)})
    text = Descriptor(3, "cluster", "subscribe=clicks", step, BROKERS, failure).to_text()
    return [pa.RecordBatch.from_pydict({"value": text.splitlines()})]


def expand(how: Reading, batches: list[pa.RecordBatch], run: str = "this") -> list[int]:
    rows = _StreamExpansion(cast("Any", how), run)(batches)
    return [offset for batch in rows for offset in batch.to_pydict()["offset"]]


def test_each_range_is_read_by_way_of_the_brokers_that_its_line_names() -> None:
    how = Reading()
    assert expand(how, lines([])) == list(range(5, 12))
    assert how.asked == [(BROKERS, piece) for piece in PIECES]


def test_a_loss_fails_the_task_or_is_passed_over() -> None:
    losses = [Loss(PLACE, "its topic was deleted and made anew")]
    with pytest.raises(SparkDataLoss, match="clicks-0 was lost: its topic was deleted"):
        expand(Reading(), lines(losses))
    assert expand(Reading(fails_on_data_loss=False), lines(losses)) == list(range(5, 12))


def test_a_failure_is_of_one_run() -> None:
    with pytest.raises(StreamFailed, match="the reason"):
        expand(Reading(), lines([], ("this", "the reason")))
    assert expand(Reading(), lines([], ("an earlier one", "the reason"))) == list(range(5, 12))


def test_what_a_task_is_sent_can_be_sent() -> None:
    sent = _StreamExpansion(cast("Any", Reading()), "run")
    assert pickle.loads(pickle.dumps(sent)) == sent

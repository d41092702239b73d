"""A task's rows on their way to topics, before a cluster in memory; and what its driver hears."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pyarrow as pa
import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import AppendTransactional
from raylog.actors.protocol.transaction_family_messages import FamilyJoined, JoinFamily
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.api.jobs import row_sending
from raylog.errors import FamilyFenced, NotEnoughReplicas, RaylogError, RowNotWritable, TransactionAborted
from raylog.spark_bridge.writing.task_writer import TaskReport, TaskWriter
from tests.unit.api.producer_cluster import TOPIC, FakeLink, fake_cluster


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeLink]:
    with fake_cluster(monkeypatch, 3) as made:
        append = made.ask
        monkeypatch.setattr(row_sending, "channel_to", lambda _access: None)

        async def find(_topic: str, _hashed: int, _timeout: float) -> PartitionLeader:
            return made.view.partitions[0]

        async def ask(
            leader: PartitionLeader, message: Message, payload: bytes = b"", *, expect: type[Any], timeout: float
        ) -> Response:
            if isinstance(message, AppendTransactional):
                return await append(leader, message, payload, expect=expect, timeout=timeout)  # type: ignore[arg-type]
            assert isinstance(message, JoinFamily)
            if message.epoch != 4:
                raise FamilyFenced(message.family, message.epoch, 4)
            return Response(FamilyJoined(f"{message.family}\x1f6", 70, 2))

        made.ask = ask  # type: ignore[method-assign]
        made.find_coordinator = find  # type: ignore[attr-defined]
        yield made


def rows(**columns: list[Any]) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict(columns)


def run(*batches: pa.RecordBatch, topic: str | None = None, epoch: int = 4, **options: Any) -> list[TaskReport]:
    writer = TaskWriter(None, FamilyTicket("job", epoch), topic, options)  # type: ignore[arg-type]
    return [TaskReport.of_row(row) for batch in writer.run(batches) for row in batch.to_pylist()]


def test_rows_go_where_their_columns_say_and_the_driver_hears_of_one_transaction(link: FakeLink) -> None:
    first = rows(topic=[TOPIC, TOPIC], value=[b"a", None], key=["k", None], partition=pa.array([2, 0], pa.int32()))
    second = rows(topic=[TOPIC], value=[b"c"], key=["k"], partition=pa.array([None], pa.int32()))
    assert run(first, second) == [TaskReport(FamilyWork(6, 70, 2), 3)]
    assert link.values(0) == [None]
    assert (b"k", b"a") in link.records(2)
    assert sorted(link.all_values(), key=repr) == [None, b"a", b"c"]
    assert all(batch.header.producer_id == 70 for each in link.batches for batch in each)


def test_a_task_without_rows_joins_nothing(link: FakeLink) -> None:
    link.ask = None  # type: ignore[assignment, method-assign]
    assert run() == []
    assert run(rows(value=pa.array([], pa.binary())), topic=TOPIC) == []


@pytest.mark.parametrize("topic", [None, ""])
def test_a_row_without_a_topic_is_told_and_not_tried_again(link: FakeLink, topic: str | None) -> None:
    with pytest.raises(RowNotWritable):
        run(rows(topic=pa.array([TOPIC, topic]), value=[b"a", b"b"]))


def test_a_fenced_task_tells_so(link: FakeLink) -> None:
    with pytest.raises(FamilyFenced):
        run(rows(value=[b"a"]), topic=TOPIC, epoch=3)


def test_rows_that_are_not_taken_fail_the_task(link: FakeLink) -> None:
    link.hold()
    with pytest.raises(RaylogError) as raised:
        run(rows(value=[b"a" * 60_000] * 20), topic=TOPIC, buffer_memory=1_048_576, max_block_ms=50)
    assert type(raised.value).__name__ == "BufferFull"


def test_what_is_not_delivered_fails_the_task(link: FakeLink) -> None:
    link.errors += [NotEnoughReplicas(TOPIC, 0, 1, 2)] * 1000
    with pytest.raises(TransactionAborted):
        run(rows(value=[b"a"]), topic=TOPIC, delivery_timeout_ms=300)

"""Rows of a task on their way to topics, by a producer of its own. Needs pyarrow.

What must stay true: a row goes to the topic and the partition that its columns name, or its task fails; `finish`
returns once every row was delivered.
"""

from __future__ import annotations

import itertools
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.api.jobs.channel import channel_to
from raylog.api.producer.bulk_send import BulkFuture
from raylog.api.producer.producer import Producer
from raylog.errors import (
    BatchTooLarge,
    FamilyFenced,
    InvalidBatch,
    RecordTooLarge,
    RowNotWritable,
    UnknownPartition,
    UnknownTopic,
)

_GRACE_SECONDS: Final = 30.0
# What no second attempt of a task mends.
FINAL: Final = (
    RowNotWritable,
    UnknownTopic,
    UnknownPartition,
    RecordTooLarge,
    BatchTooLarge,
    InvalidBatch,
    FamilyFenced,
    TypeError,
)


class RowSending:
    """The rows of one task on their way; `topic` None: it is a column."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        self.row_count = 0
        self._producer = producer
        self._topic = topic

    def send(self, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch])
        for topic, of_topic in self._by_topic(table):
            for partition, rows in _by_partition(of_topic):
                self._send(topic, partition, rows)
        self.row_count += batch.num_rows

    def _send(self, topic: str, partition: int | None, rows: pa.Table) -> BulkFuture:
        sent = self._producer.send_arrow(topic, rows, partition)
        failures = sent.failures()  # of what was not taken; what was, and fails, ends its transaction
        if failures:
            raise failures[0].error
        return sent

    def _by_topic(self, table: pa.Table) -> Iterator[tuple[str, pa.Table]]:
        if self._topic is not None:
            yield self._topic, table
            return
        column = table["topic"]
        if column.null_count:
            raise RowNotWritable("its topic is null, and there is no option 'topic'")
        for topic in pc.unique(column).to_pylist():
            if not topic:
                raise RowNotWritable("its topic is empty")
            yield topic, table.filter(pc.equal(column, topic)).drop_columns(["topic"])


class _PlainSending(RowSending):
    """The same without a transaction, which would end by what was not delivered."""

    def __init__(self, producer: Producer, topic: str | None) -> None:
        super().__init__(producer, topic)
        self._sent: deque[BulkFuture] = deque()

    def delivered(self) -> None:
        """Wait until every row is delivered. BulkSendFailed."""
        while self._sent:
            self._sent.popleft().result(delivery_seconds(self._producer))

    def _send(self, topic: str, partition: int | None, rows: pa.Table) -> BulkFuture:
        sent = super()._send(topic, partition, rows)
        self._sent.append(sent)
        while self._sent and self._sent[0].done():
            self._sent.popleft().result(0)
        return sent


def write_in_family(
    access: ClusterAccess,
    ticket: FamilyTicket,
    topic: str | None,
    options: Mapping[str, Any],
    batches: Iterable[pa.RecordBatch],
) -> tuple[FamilyWork, int] | None:
    """Deliver all rows in one open transaction; its work, and how many rows. None: there were none, and it has none."""
    rows = (batch for batch in batches if batch.num_rows)
    first = next(rows, None)
    if first is None:
        return None
    channel_to(access)  # which stays, so the next task of this worker finds it open
    with FamilyMember(ticket, cluster=access, **options) as member:
        sending = RowSending(member, topic)
        for batch in itertools.chain((first,), rows):
            sending.send(batch)
        return member.finish(delivery_seconds(member)), sending.row_count


def write_plainly(
    access: ClusterAccess, topic: str | None, options: Mapping[str, Any], batches: Iterable[pa.RecordBatch]
) -> int:
    """Deliver all rows, each as soon as it goes; how many they were. Another attempt writes them again."""
    channel_to(access)
    with Producer(cluster=access, **options) as producer:
        sending = _PlainSending(producer, topic)
        for batch in batches:
            sending.send(batch)
        sending.delivered()
    return sending.row_count


def delivery_seconds(producer: Producer) -> float:
    """Return the time by which every row is delivered, or has failed by its own time-out."""
    return producer.options.delivery_timeout_ms / 1000 + _GRACE_SECONDS


def _by_partition(table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    if "partition" not in table.column_names:
        yield None, table
        return
    column = table["partition"]
    rows = table.drop_columns(["partition"])
    for partition in pc.unique(column).to_pylist():
        chosen = pc.is_null(column) if partition is None else pc.equal(column, partition)
        yield partition, rows.filter(chosen)

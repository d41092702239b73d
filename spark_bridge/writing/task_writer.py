"""Writes of one task of a job: it runs in a Python worker of an executor, which has no Ray.

    batches of rows ──by topic and partition──► a member of the job's family ──all delivered──► one row to the driver

What must stay true:
- A task that returns has delivered every row it was given, in a transaction of its own that is still open. Its one
  row says which. The transaction of a task that fails, or of which nobody hears, is never among those that count.
- An error that no second attempt would mend is returned, not raised: so the driver has it whole, and at once.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.errors import (
    BatchTooLarge,
    FamilyFenced,
    InvalidBatch,
    RecordTooLarge,
    RowNotWritable,
    UnknownPartition,
    UnknownTopic,
)
from raylog.spark_bridge.cluster.channel import channel_to

SCHEMA: Final = "number int, producer_id long, epoch int, row_count long, error binary"
_GRACE_SECONDS: Final = 30.0
_ARROW: Final = pa.schema(
    [
        ("number", pa.int32()),
        ("producer_id", pa.int64()),
        ("epoch", pa.int32()),
        ("row_count", pa.int64()),
        ("error", pa.binary()),
    ]
)
_FINAL: Final = (
    RowNotWritable,
    UnknownTopic,
    UnknownPartition,
    RecordTooLarge,
    BatchTooLarge,
    InvalidBatch,
    FamilyFenced,
    TypeError,
)


class TaskReport(NamedTuple):
    """The report of a task to its driver; one that had no rows tells nothing."""

    work: FamilyWork
    row_count: int

    @classmethod
    def of_row(cls, row: Any) -> TaskReport:
        """Raises what the task could not do."""
        if row["error"] is not None:
            raise pickle.loads(bytes(row["error"]))
        return cls(FamilyWork(row["number"], row["producer_id"], row["epoch"]), row["row_count"])


@dataclass(frozen=True)
class TaskWriter:
    """Writes rows, for `mapInArrow`; `topic` None: it is a column."""

    access: ClusterAccess
    ticket: FamilyTicket
    topic: str | None
    options: Mapping[str, Any]

    def run(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        rows = (batch for batch in batches if batch.num_rows)
        first = next(rows, None)
        if first is None:
            return
        try:
            work, count = self._write(first, rows)
        except _FINAL as error:
            yield _report(error=error)
        else:
            yield _report(*work, count)

    def _write(self, first: pa.RecordBatch, others: Iterator[pa.RecordBatch]) -> tuple[FamilyWork, int]:
        channel_to(self.access)  # which stays, so the next task of this worker finds it open
        with FamilyMember(self.ticket, cluster=self.access, **self.options) as member:
            sending = _Sending(member, self.topic)
            sending.send(first)
            for batch in others:
                sending.send(batch)
            return sending.finish(), sending.row_count


class _Sending:
    """The rows of a task on their way."""

    def __init__(self, member: FamilyMember, topic: str | None) -> None:
        self.row_count = 0
        self._member = member
        self._topic = topic

    def send(self, batch: pa.RecordBatch) -> None:
        table = pa.Table.from_batches([batch])
        for topic, of_topic in self._by_topic(table):
            for partition, rows in _by_partition(of_topic):
                self._send(topic, partition, rows)
        self.row_count += batch.num_rows

    def finish(self) -> FamilyWork:
        """Finish: by then every row is delivered, or has failed by its own time-out."""
        return self._member.finish(self._member.options.delivery_timeout_ms / 1000 + _GRACE_SECONDS)

    def _send(self, topic: str, partition: int | None, rows: pa.Table) -> None:
        sent = self._member.send_arrow(topic, rows, partition)
        failures = sent.failures()  # of what was not taken; what was, and fails, ends its transaction
        if failures:
            raise failures[0].error

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


def _by_partition(table: pa.Table) -> Iterator[tuple[int | None, pa.Table]]:
    if "partition" not in table.column_names:
        yield None, table
        return
    column = table["partition"]
    rows = table.drop_columns(["partition"])
    for partition in pc.unique(column).to_pylist():
        chosen = pc.is_null(column) if partition is None else pc.equal(column, partition)
        yield partition, rows.filter(chosen)


def _report(
    number: int = -1, producer_id: int = -1, epoch: int = -1, row_count: int = 0, error: Exception | None = None
) -> pa.RecordBatch:
    values = (number, producer_id, epoch, row_count, None if error is None else pickle.dumps(error))
    return pa.RecordBatch.from_pydict(dict(zip(_ARROW.names, ([value] for value in values), strict=True)), _ARROW)

"""A topic as Ray Data's sink: each task delivers its rows in an open transaction and returns what its driver commits.

What must stay true: a task's result is the only word of what it wrote. Ray gives the driver one result for each task,
however often that was tried, so what other attempts have written never counts.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pyarrow as pa
from ray.data.block import BlockAccessor
from ray.data.datasource import Datasink

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.data.record_tables import record_table
from raylog.api.data.rules.record_columns import RecordColumns
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.api.jobs.row_sending import write_in_family, write_plainly


@dataclass(frozen=True)
class RowWriter:
    """The work of a task. It holds the clients' secret. `ticket` None: without a transaction."""

    access: ClusterAccess
    topic: str
    columns: RecordColumns
    options: Mapping[str, Any]
    ticket: FamilyTicket | None

    def write(self, blocks: Iterable[Any]) -> FamilyWork | None:
        """Raises DatasetNotWritable, RowNotWritable, and what a producer raises."""
        batches = self._batches(blocks)
        if self.ticket is None:
            write_plainly(self.access, self.topic, self.options, batches)
            return None
        written = write_in_family(self.access, self.ticket, self.topic, self.options, batches)
        return None if written is None else written[0]

    def _batches(self, blocks: Iterable[Any]) -> Iterator[pa.RecordBatch]:
        for block in blocks:
            rows = BlockAccessor.for_block(block).to_arrow()
            if rows.num_rows:
                yield from record_table(self.columns, rows).combine_chunks().to_batches()


class TopicDatasink(Datasink[FamilyWork | None]):
    """The rows of one write. `works` and `row_count` are there when it is over."""

    def __init__(self, writer: RowWriter) -> None:
        self.works: list[FamilyWork] = []
        self.row_count = 0
        self._writer = writer

    def get_name(self) -> str:
        return "Topic"

    # `on_write_start` is told the columns of what Ray has put into one task with the write, and not those of its rows.

    def write(self, blocks: Iterable[Any], ctx: Any) -> FamilyWork | None:  # noqa: ARG002
        return self._writer.write(blocks)

    def on_write_complete(self, write_result: Any) -> None:
        self.works = [FamilyWork(*each) for each in write_result.write_returns if each is not None]
        self.row_count = int(write_result.num_rows)

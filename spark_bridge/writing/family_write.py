"""One batch of rows, by many tasks, under one decision of this process, the driver.

    tasks ──write, each in a transaction of its own──► reports ──► family.commit(batch, exactly these)

What must stay true:
- Spark gives the driver one result for each part of the data, however often that was tried: so exactly the attempts
  whose results arrive here count.
- What fails leaves nothing that counts, and nothing that keeps readers waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition
from raylog.api.families.member_requests import FamilyWork
from raylog.api.families.transaction_family import TransactionFamily
from raylog.api.jobs.decisions import abort, commit, offsets_of_group
from raylog.errors import UnknownTopic
from raylog.spark_bridge.writing.rules.sink_columns import columns_of_records
from raylog.spark_bridge.writing.rules.sink_options import SinkOptions
from raylog.spark_bridge.writing.task_writer import SCHEMA, TaskReport, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ACCESS_SECONDS: Final = 30.0


@dataclass(frozen=True)
class GroupOffsets:
    """The offsets to be committed with the rows: from where a group goes on that has no members now."""

    group_id: str
    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Sink:
    """The place where rows go, checked."""

    cluster: Cluster
    options: SinkOptions

    @classmethod
    def parse(cls, topic: str | None, cluster: Cluster | str | None, given: Mapping[str, object]) -> Sink:
        """Raises UnknownSparkOption, InvalidConfig, UnknownTopic, and what `raylog.connect` raises."""
        from raylog.api.admin.formation import connect

        options = SinkOptions.parse(topic, given)
        if not isinstance(cluster, Cluster):
            cluster = connect() if cluster is None else connect(cluster)
        if topic is not None and topic not in cluster.list_topics(internal=True):
            raise UnknownTopic(topic)
        return cls(cluster, options)

    def family(self, name: str, keep_ms: int | None) -> TransactionFamily:
        return TransactionFamily(
            name,
            cluster=self.cluster,
            timeout_ms=self.options.of_tasks.timeout_ms,
            keep_ms=keep_ms,
            max_block_ms=self.options.of_tasks.max_block_ms,
        )

    def columns(self, frame: DataFrame) -> list[str]:
        """Raises FrameNotWritable."""
        types = [(field.name, field.dataType.simpleString()) for field in frame.schema.fields]
        return columns_of_records(types, self.options.topic)

    def write(
        self, frame: DataFrame, family: TransactionFamily, batch: int, offsets: GroupOffsets | None = None
    ) -> int:
        """Rows that were written. What a task or the commit raises; then nothing counts."""
        access: ClusterAccess = self.cluster.access(_ACCESS_SECONDS)
        writer = TaskWriter(access, family.ticket, self.options.topic, self.options.of_tasks.producer)
        try:
            rows = frame.select(*self.columns(frame)).mapInArrow(writer.run, SCHEMA).collect()
            reports = [TaskReport.of_row(row) for row in rows]
            works = [report.work for report in reports]
            if offsets is not None:
                works.append(self._staged(family, offsets))
        except BaseException:
            abort(family)
            raise
        commit(family, batch, works)
        return sum(report.row_count for report in reports)

    def _staged(self, family: TransactionFamily, offsets: GroupOffsets) -> FamilyWork:
        block_ms = self.options.of_tasks.max_block_ms
        return offsets_of_group(family, self.cluster, offsets.group_id, offsets.offsets, block_ms)

"""One batch of rows, by many tasks, under one decision of this process, the driver.

    tasks ──write, each in a transaction of its own──► reports ──► family.commit(batch, exactly these)

What must stay true:
- Spark gives the driver one result for each part of the data, however often that was tried: so exactly the attempts
  whose results arrive here count.
- What fails leaves nothing that counts, and nothing that keeps readers waiting.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import GroupMetadata, TopicPartition
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.member_requests import FamilyWork
from raylog.api.families.transaction_family import TransactionFamily
from raylog.errors import RaylogError, TransactionPending, UnknownTopic
from raylog.groups.records.messages import NO_EPOCH
from raylog.spark_bridge.writing.rules.sink_columns import columns_of_records
from raylog.spark_bridge.writing.rules.sink_options import SinkOptions
from raylog.spark_bridge.writing.task_writer import SCHEMA, TaskReport, TaskWriter

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ACCESS_SECONDS: Final = 30.0
_COMMITS: Final = 5  # how often the outcome of a decision is asked for, each time for `max_block_ms`

_log = logging.getLogger(__name__)


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
            timeout_ms=self.options.timeout_ms,
            keep_ms=keep_ms,
            max_block_ms=self.options.max_block_ms,
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
        writer = TaskWriter(access, family.ticket, self.options.topic, self.options.producer)
        try:
            rows = frame.select(*self.columns(frame)).mapInArrow(writer.run, SCHEMA).collect()
            reports = [TaskReport.of_row(row) for row in rows]
            works = [report.work for report in reports]
            if offsets is not None:
                works.append(self._with_offsets(family, offsets))
        except BaseException:
            _abort(family)
            raise
        _commit(family, batch, works)
        return sum(report.row_count for report in reports)

    def _with_offsets(self, family: TransactionFamily, offsets: GroupOffsets) -> FamilyWork:
        """A member that writes no rows, and so is one with those that do."""
        with FamilyMember(family.ticket, cluster=self.cluster, max_block_ms=self.options.max_block_ms) as member:
            member.send_offsets_to_transaction(offsets.offsets, GroupMetadata(offsets.group_id, "", NO_EPOCH))
            return member.finish()


def _commit(family: TransactionFamily, batch: int, works: list[FamilyWork]) -> None:
    for attempt in range(1, _COMMITS + 1):
        try:
            family.commit(batch, works)
            return
        except TransactionPending as error:
            if attempt == _COMMITS:
                raise
            _log.warning("The outcome of batch %d of %r is asked for again: %s", batch, family.name, error)
        except RaylogError as error:
            if error.abortable:
                _abort(family)
            raise


def _abort(family: TransactionFamily) -> None:
    """Another error is on its way, and the members' time ends them in any case."""
    try:
        family.abort()
    except RaylogError as error:
        _log.warning("What failed tasks have written stays open until its time is over: %s", error)

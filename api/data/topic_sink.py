"""A topic that Datasets are written to, by the tasks of Ray Data, under one decision of this process.

What must stay true: what fails leaves nothing that counts, and nothing that keeps readers waiting.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from raylog.actors.protocol.names import check_topic_name
from raylog.api.admin.cluster import Cluster
from raylog.api.data.own_errors import own_errors
from raylog.api.data.rules.record_columns import RecordColumns
from raylog.api.families.member_requests import FamilyTicket, FamilyWork
from raylog.api.families.transaction_family import TransactionFamily
from raylog.api.jobs.rules.task_options import OF_PRODUCERS, TaskOptions
from raylog.errors import InvalidConfig, UnknownConfig

if TYPE_CHECKING:
    import ray.data

_ACCESS_SECONDS = 30.0


@dataclass(frozen=True)
class TopicSink:
    """The place where rows go, checked."""

    cluster: Cluster
    topic: str
    columns: RecordColumns
    options: TaskOptions
    concurrency: int | None

    @classmethod
    def choose(
        cls, cluster: Cluster, topic: str, columns: RecordColumns, concurrency: int | None, given: Mapping[str, Any]
    ) -> TopicSink:
        """InvalidConfig, UnknownConfig, InvalidTopicName, UnknownTopic."""
        check_topic_name(topic)
        for name in given:
            if name not in OF_PRODUCERS:
                raise UnknownConfig(name, hint="Options of a write are " + ", ".join(OF_PRODUCERS))
        sink = cls(cluster, topic, columns, TaskOptions.parse(given), concurrency)
        cluster.describe_topic(topic)
        return sink

    def family(self, name: str, keep_ms: int | None) -> TransactionFamily:
        return TransactionFamily(
            name,
            cluster=self.cluster,
            timeout_ms=self.options.timeout_ms,
            keep_ms=keep_ms,
            max_block_ms=self.options.max_block_ms,
        )

    def write(self, dataset: ray.data.Dataset, ticket: FamilyTicket | None) -> tuple[list[FamilyWork], int]:
        """Let tasks write all rows; what they have delivered, and how many rows. What a task raises."""
        from raylog.api.data.topic_datasink import RowWriter, TopicDatasink

        access = self.cluster.access(_ACCESS_SECONDS)
        datasink = TopicDatasink(RowWriter(access, self.topic, self.columns, self.options.producer, ticket))
        with own_errors():
            dataset.write_datasink(datasink, concurrency=self.concurrency)
        return datasink.works, datasink.row_count


def check_dataset(dataset: object) -> None:
    """InvalidConfig."""
    import ray.data

    if not isinstance(dataset, ray.data.Dataset):
        raise InvalidConfig("dataset", type(dataset).__name__, "a Dataset of Ray Data")

"""`raylog.data.read`: topics as a Dataset.

    driver: offsets ──► ranges ──by bytes──► tasks: `TopicRead` ──► Arrow blocks
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from raylog.actors.protocol.names import check_topic_name
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.positions import Bounds, PositionOrMap, Positions
from raylog.api.data.rules.read_columns import ReadColumns
from raylog.api.data.rules.read_plan import bytes_per_offset, task_count, total_bytes
from raylog.api.jobs.group_positions import committed_offsets
from raylog.api.jobs.log_questions import LogQuestions
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.api.jobs.rules.subscription import Subscription
from raylog.errors import InvalidConfig, RaylogError

if TYPE_CHECKING:
    import ray.data

    from raylog.api.data.value_decoders import ValueDecoder

_FRESH_SECONDS: Final = 60.0
_ISOLATIONS: Final = ("read_committed", "read_uncommitted")

_log = logging.getLogger(__name__)


def read(
    topics: str | Sequence[str],
    *,
    start: PositionOrMap = "earliest",
    end: PositionOrMap = "latest",
    columns: Sequence[str] | None = None,
    schema: ValueDecoder | None = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    group_id: str | None = None,
    fail_on_data_loss: bool = True,
    override_num_blocks: int | None = None,
    concurrency: int | None = None,
    cluster: Cluster | str | None = None,
) -> ray.data.Dataset:
    """Records of topics, from `start` up to `end`, which is fixed when this returns.

        dataset = raylog.data.read("clicks", columns=["key", "value"], start=datetime(2026, 1, 1))

    Columns: key, value, topic, partition, offset, timestamp, timestampType; headers if named in `columns`. `schema`
    decodes values, so that their fields are columns: `raylog.data.Json(schema)`, `MsgPack`, `ArrowIpc`. `start` and
    `end`: "earliest", "latest", an offset, a datetime (UTC if it does not say), a `Timestamp`, or by partition
    {"clicks": {0: 23}}, where others are read whole. With `group_id` each partition begins at what this group has
    committed, if it has. Tasks read about as many bytes each; `override_num_blocks` says how many there are.

    InvalidConfig, InvalidRange, UnknownTopic, RecordsLost (with `fail_on_data_loss=False` a warning), and what
    `raylog.connect` raises. Tasks raise RecordsLost, RangeNotRead and ValueNotDecoded.
    """
    begin, until = Positions.of_start(start), Positions.of_end(end)
    check_count("concurrency", concurrency)
    choice = ReadChoice.of(topics, columns, schema, isolation, fail_on_data_loss, override_num_blocks)
    plan = ReadPlan(cluster_of(cluster), choice)
    places = plan.places()
    committed = {} if group_id is None else committed_offsets(plan.cluster, group_id, places.keys())
    bounds = Bounds(begin, until, committed, fail_on_data_loss)
    return plan.dataset(bounds.ranges(places, plan.questions.offsets), concurrency)


@dataclass(frozen=True)
class ReadChoice:
    """The arguments that say how records are read, checked."""

    topics: tuple[str, ...]
    columns: ReadColumns
    decoder: ValueDecoder | None
    reads_committed: bool
    fails_on_data_loss: bool
    tasks: int | None

    @classmethod
    def of(
        cls,
        topics: object,
        columns: object,
        schema: ValueDecoder | None,
        isolation: object,
        fails_on_data_loss: bool,
        tasks: int | None,
    ) -> ReadChoice:
        """InvalidConfig, InvalidTopicName."""
        names = topic_names(topics)
        chosen = ReadColumns.choose(columns, None if schema is None else schema.schema.names)
        if isolation not in _ISOLATIONS:
            raise InvalidConfig("isolation", isolation, "one of " + ", ".join(map(repr, _ISOLATIONS)))
        check_count("override_num_blocks", tasks)
        return cls(names, chosen, schema, isolation == "read_committed", fails_on_data_loss, tasks)


class ReadPlan:
    """Ranges of a cluster's topics to Datasets."""

    def __init__(self, cluster: Cluster, choice: ReadChoice) -> None:
        self.cluster = cluster
        self.choice = choice
        self.questions = LogQuestions(cluster, choice.reads_committed)
        self._sizes = sizes_of(cluster, choice.topics)
        self._looked_at = time.monotonic()

    def places(self) -> dict[TopicPartition, bytes]:
        """Return the partitions with the ids of their topics. UnknownTopic."""
        return self.questions.topics(Subscription(self.choice.topics))

    def dataset(self, ranges: Sequence[OffsetRange], concurrency: int | None = None) -> ray.data.Dataset:
        import ray

        from raylog.api.data.topic_datasource import TopicDatasource
        from raylog.api.data.topic_read import TopicRead

        choice = self.choice
        self._look_again()
        how = TopicRead(
            self.questions.access, choice.reads_committed, choice.fails_on_data_loss, choice.columns, choice.decoder
        )
        source = TopicDatasource(self.cluster.name, how, ranges, self._sizes)
        cpus = int(ray.cluster_resources().get("CPU", 1))  # type: ignore[no-untyped-call]
        tasks = choice.tasks or task_count(total_bytes(ranges, self._sizes), cpus)
        found: ray.data.Dataset = ray.data.read_datasource(source, override_num_blocks=tasks, concurrency=concurrency)
        return found

    def _look_again(self) -> None:
        """Now and then learn where the brokers are, and how large the logs. A stream is read for a long time."""
        if time.monotonic() - self._looked_at < _FRESH_SECONDS:
            return
        self._looked_at = time.monotonic()
        self._sizes = sizes_of(self.cluster, self.choice.topics) or self._sizes
        try:
            self.questions.find_again()
        except RaylogError as error:
            _log.warning("The brokers of %r are taken for where they were: %s", self.cluster.name, error)


def topic_names(topics: object) -> tuple[str, ...]:
    """InvalidConfig, InvalidTopicName."""
    named = [topics] if isinstance(topics, str) else topics
    if not isinstance(named, Sequence) or not named or not all(isinstance(each, str) for each in named):
        raise InvalidConfig("topics", topics, "the name of a topic, or a list of names")
    for each in named:
        check_topic_name(each)
    return tuple(sorted(set(named)))


def cluster_of(cluster: Cluster | str | None) -> Cluster:
    from raylog.api.admin.formation import connect

    if isinstance(cluster, Cluster):
        return cluster
    return connect() if cluster is None else connect(cluster)


def sizes_of(cluster: Cluster, topics: Collection[str]) -> Mapping[TopicPartition, float]:
    """Bytes for each offset, which only decide how the work is shared out."""
    try:
        return bytes_per_offset(each for topic in topics for each in cluster.describe_replicas(topic))
    except RaylogError as error:
        _log.warning("Tasks are shared out by records, since nobody tells how large the logs are: %s", error)
        return {}


def check_count(name: str, given: object) -> None:
    if given is not None and (type(given) is not int or given < 1):
        raise InvalidConfig(name, given, "a whole number from 1 on, or None")

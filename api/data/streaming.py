"""`raylog.data.stream` and `raylog.data.sink`, from their arguments to what works."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, Literal

from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition
from raylog.api.data.reading import ReadChoice, ReadPlan, check_count, cluster_of
from raylog.api.data.rules.positions import Bounds, PositionOrMap, Positions
from raylog.api.data.rules.record_columns import RecordColumns
from raylog.api.data.rules.stream_steps import Cursor
from raylog.api.data.topic_sink import TopicSink
from raylog.api.data.topic_stream import StreamOptions, TopicStream
from raylog.api.families.transaction_family import TransactionFamily
from raylog.api.jobs.group_positions import committed_offsets
from raylog.errors import InvalidConfig

if TYPE_CHECKING:
    from raylog.api.data.value_decoders import ValueDecoder

_KEEP_MS: Final = 24 * 3600 * 1000  # the group's offsets say where it goes on, so the family may be forgotten


def stream(
    topics: str | Sequence[str],
    *,
    group_id: str,
    max_rows: int = 100_000,
    max_wait_ms: int = 1_000,
    idle_timeout_ms: int | None = None,
    start: PositionOrMap = "earliest",
    columns: Sequence[str] | None = None,
    schema: ValueDecoder | None = None,
    isolation: Literal["read_committed", "read_uncommitted"] = "read_committed",
    fail_on_data_loss: bool = True,
    prefetch: bool = True,
    cluster: Cluster | str | None = None,
) -> TopicStream:
    """Return batches of records without end, from where the group has got to.

        with raylog.data.stream("clicks", group_id="scores", max_rows=10_000) as batches:
            for batch in batches:
                with batch.transaction(raylog.data.sink("scores", value="score")) as out:
                    out.write(batch.dataset.map_batches(score))

    A batch has up to `max_rows` offsets; it waits up to `max_wait_ms` to be full. With `idle_timeout_ms` the stream
    ends when nothing came for so long. `batch.commit()` commits the group's offsets, `batch.transaction` results as
    well, both or neither. The next batch is read ahead, unless `prefetch` is False. A group has one driver: the one
    that began last. `start`: where nothing is committed. Others are those of `raylog.data.read`.

    InvalidConfig, InvalidRange, UnknownTopic, RecordsLost, UnstableOffset, and what `raylog.connect` raises.
    """
    choice = ReadChoice.of(topics, columns, schema, isolation, fail_on_data_loss, None)
    for name, given in (("max_rows", max_rows), ("idle_timeout_ms", idle_timeout_ms)):
        check_count(name, given)
    _check(group_id, max_wait_ms)
    begin = Positions.of_start(start, refused="")
    idle = None if idle_timeout_ms is None else idle_timeout_ms / 1000
    options = StreamOptions(group_id, max_rows, max_wait_ms / 1000, idle, prefetch)
    plan = ReadPlan(cluster_of(cluster), choice)
    places = plan.places()
    name = f"data-stream-{group_id}"
    family = TransactionFamily(name, cluster=plan.cluster, keep_ms=_KEEP_MS)
    try:
        cursor = _begin(plan, group_id, places, begin)
    except BaseException:
        family.close()
        raise
    return TopicStream(plan, options, family, cursor)


def _check(group_id: object, max_wait_ms: object) -> None:
    if not isinstance(group_id, str) or not group_id:
        raise InvalidConfig("group_id", group_id, "the name of a group")
    if not isinstance(max_wait_ms, int) or max_wait_ms < 0:
        raise InvalidConfig("max_wait_ms", max_wait_ms, "milliseconds, a whole number from 0 on")


def _begin(plan: ReadPlan, group_id: str, places: Mapping[TopicPartition, bytes], start: Positions) -> Cursor:
    """Return where the group goes on. The family is taken over by then, so that no other driver moves it."""
    committed = committed_offsets(plan.cluster, group_id, places.keys())
    bounds = Bounds(start, Positions.of_end("latest"), committed, plan.choice.fails_on_data_loss)
    ranges = bounds.ranges(places, plan.questions.offsets)
    return Cursor(places, {each.place: each.start for each in ranges})


def sink(
    topic: str,
    *,
    key: str | None = None,
    value: str | Sequence[str] = "value",
    partition: str | None = None,
    headers: str | None = None,
    concurrency: int | None = None,
    cluster: Cluster | str | None = None,
    **options: Any,
) -> TopicSink:
    """Return a topic that a batch's transaction writes to; arguments are those of `raylog.data.write`."""
    columns = RecordColumns.choose(value, key, partition, headers)
    check_count("concurrency", concurrency)
    return TopicSink.choose(cluster_of(cluster), topic, columns, concurrency, options)

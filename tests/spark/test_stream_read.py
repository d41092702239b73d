"""Streaming reads: from micro-batch to micro-batch and from run to run each record once, or an error that says why."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import raylog
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition
from raylog.errors import CheckpointInUse, CheckpointOfOther, UnknownTopic
from tests.cluster.conftest import until

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

pytestmark = pytest.mark.timeout(300)
FAST = {"processingTime": "100 milliseconds"}


class Seen:
    """Records in the batches of a query, and of its run `before`: (topic, partition, offset), by batch."""

    def __init__(self, frame: DataFrame, checkpoint: Path, before: Seen | None = None, **trigger: Any) -> None:
        self.batches: dict[int, list[tuple[str, int, int]]] = dict(before.batches) if before is not None else {}
        writer = frame.select("topic", "partition", "offset").writeStream.foreachBatch(self._take)
        writer = writer.option("checkpointLocation", str(checkpoint)).trigger(**(trigger or FAST))
        self.query: StreamingQuery = writer.start()

    def _take(self, frame: DataFrame, batch: int) -> None:
        """One that was not committed is repeated, and holds the same."""
        records = sorted(map(tuple, frame.collect()))
        assert self.batches.setdefault(batch, records) == records

    @property
    def records(self) -> list[tuple[str, int, int]]:
        return sorted(record for batch in self.batches.values() for record in batch)

    def until(self, count: int, seconds: float = 90) -> None:
        until(lambda: len(self.records) >= count or self.query.exception() is not None, seconds)
        assert self.query.exception() is None


@pytest.fixture
def send(cluster: Cluster) -> Callable[..., None]:
    def send(topic: str, count: int, partition: int = 0) -> None:
        with raylog.Producer(cluster=cluster) as producer:
            producer.send_many(topic, [b"x"] * count, partition=partition).result(60)

    return send


def test_a_stream_follows_is_limited_and_goes_on_from_its_checkpoint(
    cluster: Cluster, spark: SparkSession, send: Callable[..., None], tmp_path: Path
) -> None:
    cluster.create_topic("stream", partitions=2, replication_factor=1)
    send("stream", 250)
    options: dict[str, Any] = {
        "subscribePattern": "strea.",
        "startingOffsets": "earliest",
        "maxOffsetsPerTrigger": 100,
        "checkpointLocation": str(tmp_path),
    }
    frame = spark_bridge.read_stream(spark, **options)
    assert frame.isStreaming
    first = Seen(frame, tmp_path)
    first.until(250)
    assert max(map(len, first.batches.values())) <= 100
    cluster.create_partitions("stream", 3)
    send("stream", 20, partition=2)
    send("stream", 30, partition=1)
    first.until(300)
    (progress,) = spark_bridge.stream_progress(frame)
    until(lambda: set(spark_bridge.stream_progress(frame)[0].behind.values()) == {0}, 90)
    ends = {0: 250, 1: 30, 2: 20}
    assert progress.latest == {TopicPartition("stream", number): end for number, end in ends.items()}
    first.query.stop()
    send("stream", 40)

    # A topic that matches, and one more run of the same checkpoint.
    cluster.create_topic("streak", partitions=1, replication_factor=1)
    send("streak", 7)
    second = Seen(spark_bridge.read_stream(spark, **options), tmp_path, first)
    second.until(347)
    second.query.stop()
    numbers = {("stream", 0): 290, ("stream", 1): 30, ("stream", 2): 20, ("streak", 0): 7}
    expected = sorted((*place, offset) for place, count in numbers.items() for offset in range(count))
    assert second.records == expected

    # All that is there, in as many batches as the limit asks for; and then it ends.
    send("stream", 230)
    frame = spark_bridge.read_stream(spark, **options)
    spark_bridge.plan_to_end(frame)
    send("stream", 1)
    third = Seen(frame, tmp_path, second, availableNow=True)
    assert third.query.awaitTermination(90)
    assert third.records == sorted([*expected, *(("stream", 0, 290 + number) for number in range(230))])
    assert max(map(len, third.batches.values())) <= 100

    # What was planned to an end goes on with a query that has none.
    fourth = Seen(frame, tmp_path, third)
    fourth.until(578)
    assert fourth.records[-1] == ("stream", 2, 19)
    assert ("stream", 0, 520) in fourth.records
    fourth.query.stop()

    with pytest.raises(CheckpointOfOther, match=r"started for subscribePattern=strea\."):
        spark_bridge.read_stream(spark, subscribe="stream", checkpointLocation=str(tmp_path))
    with pytest.raises(UnknownTopic):
        spark_bridge.read_stream(spark, subscribe="nowhere", checkpointLocation=str(tmp_path / "other"))


def test_a_driver_that_another_has_overtaken_on_its_checkpoint_fails_and_says_why(
    cluster: Cluster, spark: SparkSession, send: Callable[..., None], tmp_path: Path
) -> None:
    from pyspark.errors import StreamingQueryException

    cluster.create_topic("overtaken", partitions=1, replication_factor=1)
    options = {"subscribe": "overtaken", "startingOffsets": "earliest", "checkpointLocation": str(tmp_path)}
    frame = spark_bridge.read_stream(spark, **options)
    seen = Seen(frame, tmp_path)
    send("overtaken", 5)
    seen.until(5)

    newest = max((tmp_path / "raylog-sources" / "source").glob("*.txt"))
    header = json.loads(newest.read_text().splitlines()[0])
    header["number"] += 1
    other = tmp_path / "by-another-driver"
    other.write_text(json.dumps(header) + "\n")
    other.rename(newest.with_name(f"{header['number']:010d}.txt"))
    send("overtaken", 5)
    with pytest.raises(StreamingQueryException, match="CheckpointInUse"):
        seen.query.awaitTermination(90)
    assert "CheckpointInUse" in str(seen.query.exception())
    with pytest.raises(CheckpointInUse):
        spark_bridge.stream_progress(frame)

    # Nor does the same source begin in silence again; another one goes on.
    with pytest.raises(StreamingQueryException, match="CheckpointInUse"):
        Seen(frame, tmp_path, seen).query.awaitTermination(90)
    again = Seen(spark_bridge.read_stream(spark, **options), tmp_path, seen)
    again.until(10)
    again.query.stop()


def test_windows_with_watermarks_and_a_join_of_two_topics(
    cluster: Cluster, spark: SparkSession, send: Callable[..., None], tmp_path: Path
) -> None:
    for topic in ("views", "sales"):
        cluster.create_topic(topic, partitions=1, replication_factor=1)
    begin = round(time.time() * 1000) - 60_000  # what is much older is deleted by its time
    with raylog.Producer(cluster=cluster) as producer:
        for number in range(10):
            at = begin + 1000 * number
            producer.send("views", b"view", key=b"%d" % number, timestamp_ms=at)
            producer.send("sales", b"sale", key=b"%d" % (2 * number), timestamp_ms=at)
    sides = []
    for topic in ("views", "sales"):
        side = spark_bridge.read_stream(
            spark, subscribe=topic, startingOffsets="earliest", sourceName=topic, checkpointLocation=str(tmp_path)
        )
        side = side.selectExpr("cast(key as string) as id", f"timestamp as {topic}_at")
        sides.append(side.withWatermark(f"{topic}_at", "1 minute"))
    joined = sides[0].join(sides[1], "id")
    found: list[str] = []
    query = (
        joined.writeStream.foreachBatch(lambda frame, _: found.extend(row.id for row in frame.collect()))
        .option("checkpointLocation", str(tmp_path))
        .trigger(**FAST)
        .start()
    )
    until(lambda: len(found) >= 5 or query.exception() is not None, 90)
    query.stop()
    assert sorted(found) == ["0", "2", "4", "6", "8"]


def test_a_topic_that_is_made_anew_ends_a_stream_or_is_read_from_its_beginning(
    cluster: Cluster, spark: SparkSession, send: Callable[..., None], tmp_path: Path
) -> None:
    cluster.create_topic("anew", partitions=1, replication_factor=1)
    send("anew", 10)
    options = {"subscribe": "anew", "startingOffsets": "earliest", "checkpointLocation": str(tmp_path)}
    strict = Seen(spark_bridge.read_stream(spark, **options), tmp_path)
    strict.until(10)
    cluster.delete_topic("anew")
    cluster.create_topic("anew", partitions=1, replication_factor=1)
    send("anew", 25)
    until(lambda: strict.query.exception() is not None, 60)
    assert "SparkDataLoss" in str(strict.query.exception())
    assert "failOnDataLoss=false" in str(strict.query.exception())

    lenient = Seen(spark_bridge.read_stream(spark, failOnDataLoss=False, **options), tmp_path)
    lenient.until(25)
    lenient.query.stop()
    assert lenient.records == [("anew", 0, offset) for offset in range(25)]


def test_a_query_with_another_checkpoint_than_its_source_fails(
    cluster: Cluster, spark: SparkSession, send: Callable[..., None], tmp_path: Path
) -> None:
    cluster.create_topic("misplaced", partitions=1, replication_factor=1)
    send("misplaced", 1)
    frame = spark_bridge.read_stream(spark, subscribe="misplaced", checkpointLocation=str(tmp_path / "one"))
    seen = Seen(frame, tmp_path / "two")
    until(lambda: seen.query.exception() is not None, 60)
    assert "CheckpointOfOther" in str(seen.query.exception())


def test_few_records_wait_for_more(
    cluster: Cluster, spark: SparkSession, send: Callable[..., None], tmp_path: Path
) -> None:
    cluster.create_topic("few", partitions=1, replication_factor=1)
    frame = spark_bridge.read_stream(
        spark,
        subscribe="few",
        startingOffsets="earliest",
        minOffsetsPerTrigger=50,
        maxTriggerDelay="30s",
        checkpointLocation=str(tmp_path),
    )
    seen = Seen(frame, tmp_path)
    send("few", 20)
    until(lambda: 0 in seen.batches, 90)
    time.sleep(1.0)
    assert seen.records == []
    send("few", 40)
    seen.until(60, seconds=20)
    seen.query.stop()

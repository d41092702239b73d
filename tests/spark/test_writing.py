"""DataFrames into topics, in batches and as streams: all or nothing, and once."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypeAlias

import pytest
from pyspark.sql import functions as f

import raylog
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import ConsumerRecord
from raylog.api.families.family_member import FamilyMember
from raylog.api.families.transaction_family import TransactionFamily
from raylog.errors import (
    FrameNotWritable,
    InvalidConfig,
    RowNotWritable,
    UnknownPartition,
    UnknownSparkOption,
    UnknownTopic,
)
from tests.cluster.clients.conftest import kill_coordinators
from tests.spark.processes import executor_pids, kill_leader

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)
ROWS = 2000


_Isolation: TypeAlias = Literal["read_committed", "read_uncommitted"]


def read(cluster: Cluster, topic: str, isolation: _Isolation = "read_committed") -> list[ConsumerRecord]:
    """All records up to the end that readers of this kind see now."""
    found: list[ConsumerRecord] = []
    with raylog.Consumer(cluster=cluster, isolation_level=isolation, auto_offset_reset="earliest") as consumer:
        partitions = [raylog.TopicPartition(topic, each) for each in consumer.partitions_for_topic(topic) or ()]
        consumer.assign(partitions)
        ends = consumer.end_offsets(partitions)
        while any(consumer.position(each) < ends[each] for each in partitions):
            for records in consumer.poll(timeout_ms=200).values():
                found += records
    return found


def values(cluster: Cluster, topic: str, isolation: _Isolation = "read_committed") -> Counter[bytes | None]:
    return Counter(record.value for record in read(cluster, topic, isolation))


def numbers(spark: SparkSession, count: int = ROWS) -> DataFrame:
    return spark.range(0, count, 1, 4).selectExpr("cast(id as string) value", "cast(id % 50 as string) key")


def expected(count: int = ROWS) -> Counter[bytes | None]:
    return Counter(b"%d" % number for number in range(count))


def test_rows_become_records(cluster: Cluster, spark: SparkSession) -> None:
    for topic in ("sink-a", "sink-b"):
        cluster.create_topic(topic, partitions=3, replication_factor=1)
    written = spark_bridge.write(numbers(spark).withColumn("other", f.lit(1)), topic="sink-a", compression_type="lz4")
    assert written == (ROWS, True)
    assert values(cluster, "sink-a") == expected()
    with raylog.Producer(cluster=cluster) as producer:
        places = {b"%d" % key: producer.send("sink-b", b"v", b"%d" % key).result(20).partition for key in range(50)}
    assert {record.key: record.partition for record in read(cluster, "sink-a")} == places
    chosen = spark.sql(
        "select 'sink-b' topic, cast('k' as binary) key, cast(null as binary) value, 2 partition, "
        "array(named_struct('key', 'source', 'value', cast('test' as binary))) headers "
        "union all select 'sink-a', null, cast('w' as binary), null, null"
    )
    assert spark_bridge.write(chosen) == (2, True)
    [record] = [record for record in read(cluster, "sink-b") if record.key == b"k"]
    assert (record.value, record.partition, list(record.headers)) == (None, 2, [("source", b"test")])
    assert values(cluster, "sink-a")[b"w"] == 1


def test_what_cannot_be_written_is_refused_and_nothing_counts(cluster: Cluster, spark: SparkSession) -> None:
    cluster.create_topic("sink-refused", partitions=2, replication_factor=1)
    frame = numbers(spark)
    for refused, error in (
        (lambda: spark_bridge.write(frame.drop("value"), topic="sink-refused"), FrameNotWritable),
        (lambda: spark_bridge.write(frame), FrameNotWritable),
        (lambda: spark_bridge.write(spark.range(3).selectExpr("id value"), topic="sink-refused"), FrameNotWritable),
        (lambda: spark_bridge.write(frame, topic="sink-refused", compresion_type="lz4"), UnknownSparkOption),
        (lambda: spark_bridge.write(frame, topic="sink-refused", txnAppId="a"), InvalidConfig),
        (lambda: spark_bridge.write(frame, topic="no-such-topic"), UnknownTopic),
        (lambda: spark_bridge.write_stream(frame, topic="sink-refused", checkpointLocation="/nowhere"), InvalidConfig),
    ):
        with pytest.raises(error):
            refused()
    rows = frame.selectExpr("value", "if(value = '1500', null, 'sink-refused') topic")
    with pytest.raises(RowNotWritable):
        spark_bridge.write(rows)
    with pytest.raises(UnknownPartition):
        spark_bridge.write(frame.selectExpr("value", "if(value = '1500', 7, 0) partition"), topic="sink-refused")
    assert values(cluster, "sink-refused") == Counter()
    spark_bridge.write(frame, topic="sink-refused")
    assert values(cluster, "sink-refused") == expected()


def test_of_tasks_that_ran_twice_one_counts(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    cluster.create_topic("sink-retried", partitions=2, replication_factor=1)
    marks = str(tmp_path)

    @f.udf("string")  # type: ignore[call-overload, untyped-decorator, unused-ignore]
    def fails_once(value: str) -> str:
        mark = Path(marks, value)
        if int(value) % 500 == 499 and not mark.exists():
            mark.touch()
            raise RuntimeError("This attempt fails when most of it is on its way.")
        return value

    frame = numbers(spark).select(fails_once("value").alias("value"), f.repeat(f.lit("x"), 1000).alias("key"))
    spark.conf.set("spark.sql.execution.arrow.maxRecordsPerBatch", "50")
    try:
        assert spark_bridge.write(frame, topic="sink-retried", batch_size=20_000) == (ROWS, True)
    finally:
        spark.conf.unset("spark.sql.execution.arrow.maxRecordsPerBatch")
    assert len(list(tmp_path.iterdir())) == 4
    assert values(cluster, "sink-retried") == expected()
    assert values(cluster, "sink-retried", "read_uncommitted").total() > ROWS


def test_a_version_is_written_once(cluster: Cluster, spark: SparkSession) -> None:
    cluster.create_topic("sink-versions", partitions=1, replication_factor=1)
    write: Callable[[int], object] = lambda version: spark_bridge.write(  # noqa: E731
        numbers(spark, 10), topic="sink-versions", txnAppId="versions", txnVersion=version
    )
    assert [write(version) for version in (0, 0, 1, 0)] == [(10, True), (0, False), (10, True), (0, False)]
    assert values(cluster, "sink-versions").total() == 20


def test_a_stream_writes_each_batch_once(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    cluster.create_topic("sink-stream", partitions=2, replication_factor=1)
    source, checkpoint = tmp_path / "source", tmp_path / "checkpoint"
    source.mkdir()

    def run() -> None:
        frame = spark.readStream.text(str(source))
        query = spark_bridge.write_stream(
            frame, topic="sink-stream", checkpointLocation=str(checkpoint), trigger={"availableNow": True}
        )
        assert query.awaitTermination(60)

    (source / "0.txt").write_text("".join(f"{number}\n" for number in range(100)))
    run()
    forget_last_commit(checkpoint)  # as if the driver had died before Spark wrote it down
    (source / "1.txt").write_text("".join(f"{number}\n" for number in range(100, 150)))
    run()
    assert values(cluster, "sink-stream") == expected(150)


def forget_last_commit(checkpoint: Path) -> None:
    commits = checkpoint / "commits"
    last = max((each for each in commits.iterdir() if each.name.isdigit()), key=lambda each: int(each.name))
    last.unlink()
    (commits / f".{last.name}.crc").unlink()


def test_a_driver_that_was_replaced_writes_nothing_more(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    cluster.create_topic("sink-fenced", partitions=1, replication_factor=1)
    source = tmp_path / "source"
    source.mkdir()
    (source / "0.txt").write_text("first\n")
    query = spark_bridge.write_stream(
        spark.readStream.text(str(source)), topic="sink-fenced", checkpointLocation=str(tmp_path / "checkpoint")
    )
    query.processAllAvailable()
    with TransactionFamily(query.id, cluster=cluster) as family:
        assert family.last_batch == 0
        with FamilyMember(family.ticket, cluster=cluster) as member:
            member.send("sink-fenced", b"of the new driver")
            (source / "1.txt").write_text("second\n")
            until = time.monotonic() + 60
            while query.isActive and time.monotonic() < until:
                time.sleep(0.1)
            family.commit(1, [member.finish(20)])
    assert "FamilyFenced" in str(query.exception())
    assert values(cluster, "sink-fenced") == Counter([b"first", b"of the new driver"])


def test_killed_executors_leaders_and_coordinators_leave_each_row_once(
    cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    cluster.create_topic("sink-killed", partitions=2, replication_factor=3)
    source = tmp_path / "source"
    source.mkdir()
    query = spark_bridge.write_stream(
        spark.readStream.option("maxFilesPerTrigger", 1).text(str(source)),
        topic="sink-killed",
        checkpointLocation=str(tmp_path / "checkpoint"),
        trigger={"processingTime": "0 seconds"},
    )
    kills: list[Callable[[], object]] = [
        lambda: os.kill(executor_pids(spark)[0], signal.SIGKILL),
        kill_coordinators,
        lambda: kill_leader(cluster, "sink-killed", 0),
    ]
    for number in range(3 * len(kills)):
        part = tmp_path / f"{number}.txt"
        part.write_text("".join(f"{each}\n" for each in range(100 * number, 100 * number + 100)))
        part.rename(source / part.name)
        if number % 3 == 1:
            kills[number // 3]()
        if number % 3 == 2:
            query.processAllAvailable()
    query.stop()
    assert values(cluster, "sink-killed") == expected(900)

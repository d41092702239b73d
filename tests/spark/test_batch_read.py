"""Batch reading: columns, options, bounds, and what is not there."""

from __future__ import annotations

import os
import signal
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

import raylog
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster
from raylog.errors import InvalidSparkOptions, SparkDataLoss, UnknownTopic
from tests.cluster.conftest import until

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def fill(cluster: Cluster, topic: str, count: int, partitions: int = 2, **options: object) -> None:
    cluster.create_topic(topic, partitions=partitions, replication_factor=1)
    with raylog.Producer(cluster=cluster, **options) as producer:  # type: ignore[arg-type]
        for number in range(count):
            producer.send(topic, b"value-%d" % number, key=b"key-%d" % number, partition=number % partitions)


def test_rows_are_those_of_sparks_kafka_source(cluster: Cluster, spark: SparkSession) -> None:
    cluster.create_topic("rows", partitions=2, replication_factor=1)
    now = round(time.time() * 1000)
    with raylog.Producer(cluster=cluster) as producer:
        producer.send("rows", b"a", key=b"k", partition=0, timestamp_ms=now, headers=[("h", b"1")])
        producer.send("rows", None, partition=1, timestamp_ms=now + 1)
    frame = spark_bridge.read(spark, subscribe="rows", includeHeaders="true", kafka_=None)
    assert [(each.name, each.dataType.simpleString()) for each in frame.schema] == [
        ("key", "binary"),
        ("value", "binary"),
        ("topic", "string"),
        ("partition", "int"),
        ("offset", "bigint"),
        ("timestamp", "timestamp"),
        ("timestampType", "int"),
        ("headers", "array<struct<key:string,value:binary>>"),
    ]
    rows = frame.selectExpr("*", "unix_millis(timestamp) as at").orderBy("partition").collect()
    assert [tuple(row[name] for name in ("key", "value", "topic", "partition", "offset", "timestampType", "at"))
            for row in rows] == [
        (b"k", b"a", "rows", 0, 0, 0, now),
        (None, None, "rows", 1, 0, 0, now + 1),
    ]  # fmt: skip
    assert [list(map(tuple, row.headers or [])) for row in rows] == [[("h", b"1")], []]
    assert len(spark_bridge.read(spark, subscribe="rows").columns) == 7


def test_bounds_and_splitting(cluster: Cluster, spark: SparkSession) -> None:
    fill(cluster, "bounds", 1000)
    whole = spark_bridge.read(spark, subscribe=["bounds"], minPartitions=5)
    assert whole.rdd.getNumPartitions() >= 5
    numbers = whole.selectExpr("partition", "offset", "cast(value as string) as value").collect()
    assert len(numbers) == 1000
    assert {(row.partition, row.offset): row.value for row in numbers} == {
        (number % 2, number // 2): f"value-{number}" for number in range(1000)
    }
    some = spark_bridge.read(
        spark,
        subscribePattern="bou.*",
        startingOffsets='{"bounds": {"0": 100, "1": -2}}',
        endingOffsets={"bounds": {"0": 110, "1": 3}},
    )
    assert sorted((row.partition, row.offset) for row in some.select("partition", "offset").collect()) == [
        *[(0, offset) for offset in range(100, 110)],
        *[(1, offset) for offset in range(3)],
    ]
    assert spark_bridge.read(spark, assign={"bounds": [1]}).count() == 500
    later = str(round(time.time() * 1000) + 60_000)
    assert spark_bridge.read(spark, subscribe="bounds", endingTimestamp=later).count() == 1000
    with pytest.raises(InvalidSparkOptions, match="nothing in bounds-0, bounds-1 is as new"):
        spark_bridge.read(spark, subscribe="bounds", startingTimestamp=later)


def test_what_is_not_there(cluster: Cluster, spark: SparkSession) -> None:
    with pytest.raises(UnknownTopic):
        spark_bridge.read(spark, subscribe="nowhere")
    fill(cluster, "shortened", 100, partitions=1)
    beyond: dict[str, Any] = {"startingOffsets": {"shortened": {"0": 500}}}
    with pytest.raises(SparkDataLoss, match="500 is not among 0 to 100"):
        spark_bridge.read(spark, subscribe="shortened", **beyond)
    assert spark_bridge.read(spark, subscribe="shortened", failOnDataLoss=False, **beyond).count() == 0
    # Planned, and deleted before it is read.
    strict, lenient = (spark_bridge.read(spark, subscribe="shortened", failOnDataLoss=fails) for fails in (True, False))
    cluster.delete_records({("shortened", 0): 40})
    with pytest.raises(Exception, match=r"SparkDataLoss.*shortened-0"):
        strict.count()
    assert [row.offset for row in lenient.select("offset").collect()] == list(range(40, 100))
    # Another topic of that name.
    strict, lenient = (spark_bridge.read(spark, subscribe="shortened", failOnDataLoss=fails) for fails in (True, False))
    cluster.delete_topic("shortened")
    fill(cluster, "shortened", 200, partitions=1)
    with pytest.raises(Exception, match=r"SparkDataLoss.*made anew"):
        strict.count()
    assert lenient.count() == 0


def test_a_reader_of_committed_records_sees_no_aborted_ones(cluster: Cluster, spark: SparkSession) -> None:
    cluster.create_topic("transactions", partitions=1, replication_factor=1)
    # The cluster's first transaction: its coordinators are started for it, which takes long on a busy machine.
    with raylog.Producer(cluster=cluster, transactional_id="spark-test", max_block_ms=200_000) as producer:
        producer.init_transactions()
        for keep in (True, False, True):
            producer.begin_transaction()
            for _ in range(10):
                producer.send("transactions", b"kept" if keep else b"aborted")
            producer.flush()
            producer.commit_transaction() if keep else producer.abort_transaction()
    committed = spark_bridge.read(spark, subscribe="transactions", isolationLevel="read_committed")
    assert {bytes(row.value): row["count"] for row in committed.groupBy("value").count().collect()} == {b"kept": 20}
    assert spark_bridge.read(spark, subscribe="transactions").count() == 30


def test_each_record_is_read_once_while_an_executor_and_a_leader_are_killed(
    cluster: Cluster, spark: SparkSession
) -> None:
    from pyspark.sql.functions import count as count_
    from pyspark.sql.functions import sum as sum_

    cluster.create_topic("killed", partitions=2, replication_factor=3)
    count = 400_000
    with raylog.Producer(cluster=cluster) as producer:
        for partition in (0, 1):
            values = [b"%d-%d" % (partition, number) for number in range(count)]
            producer.send_many("killed", values, partition=partition).result(60)
    frame = spark_bridge.read(spark, subscribe="killed", minPartitions=16)

    def slowly(batches):  # type: ignore[no-untyped-def]
        for batch in batches:
            time.sleep(0.02)
            yield batch

    found: list[object] = []
    counted = frame.select("partition", "offset").mapInArrow(slowly, "partition int, offset bigint")
    job = threading.Thread(
        target=lambda: found.append(
            counted.groupBy("partition").agg(count_("*"), sum_("offset")).orderBy("partition").collect()
        )
    )
    victim = an_executor(spark)
    job.start()
    time.sleep(1.0)
    os.kill(victim, signal.SIGKILL)
    leader = cluster.describe_topic("killed").partitions[0].leader
    os.kill(next(each.pid for each in cluster.describe_replicas("killed") if each.broker == leader), signal.SIGKILL)
    job.join(120)
    total = count * (count - 1) // 2
    assert [tuple(row) for row in found[0]] == [(0, count, total), (1, count, total)]  # type: ignore[attr-defined]
    until(lambda: spark.sparkContext._jsc.sc().getExecutorMemoryStatus().size() == 3, 90)


def an_executor(spark: SparkSession) -> int:
    """The process of one of them: a task's Python worker comes from a daemon, which comes from it."""

    def parent(batches):  # type: ignore[no-untyped-def]
        import pyarrow as pa

        for _ in batches:
            stat = Path(f"/proc/{os.getppid()}/stat").read_text()
            yield pa.RecordBatch.from_pydict({"id": [int(stat.rpartition(")")[2].split()[1])]})

    return int(spark.range(1).mapInArrow(parent, "id long").collect()[0].id)

"""Spark on Ray: rows read from a topic a second, beside the same rows in Parquet, and what a micro-batch costs.

What is read is 20 million records of 110 bytes (RAYLOG_BENCH_ROWS for another number), all seven columns, on two
executors of one core.
"""

from __future__ import annotations

import os
import statistics
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import raylog
from bench.measuring import Figure, seconds
from bench.real_cluster import real_cluster
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

ROWS = int(os.environ.get("RAYLOG_BENCH_ROWS", "20000000"))
PARTITIONS = 4
VALUE_BYTES, KEY_BYTES = 100, 10
ROUNDS = 3
WARM_BATCHES, BATCHES = 20, 60  # the first ones start Python workers, and Java compiles what they run
AT_ONCE = 100_000
_EACH_COLUMN = (
    "count(*) as rows",
    "sum(length(key) + length(value)) as bytes",
    "sum(length(topic)) as topics",
    "sum(partition) as partitions",
    "max(offset) as offsets",
    "max(timestamp) as newest",
    "max(timestampType) as types",
)


def run() -> Iterator[Figure]:
    with real_cluster(brokers=1) as cluster, tempfile.TemporaryDirectory() as folder:
        fill(cluster)
        spark = spark_bridge.session(
            "bench", executors=2, executor_memory="2g", configs={"spark.ui.enabled": False}
        )
        try:
            yield from _scans(spark, Path(folder))
            yield _micro_batches(spark, cluster, Path(folder))
        finally:
            spark_bridge.stop(spark)


def fill(cluster: Cluster) -> None:
    cluster.create_topic("rows", partitions=PARTITIONS, replication_factor=1)
    values, keys = [b"v" * VALUE_BYTES] * AT_ONCE, [b"%010d" % number for number in range(AT_ONCE)]
    with raylog.Producer(cluster=cluster, batch_size=1024 * 1024) as producer:
        for number in range(ROWS // AT_ONCE):
            producer.send_many("rows", values, keys=keys, partition=number % PARTITIONS)
        producer.flush(600)


def _scans(spark: SparkSession, folder: Path) -> Iterator[Figure]:
    def scan(frame: DataFrame) -> float:
        def work() -> None:
            (row,) = frame.selectExpr(*_EACH_COLUMN).collect()
            assert (row.rows, row.bytes) == (ROWS, ROWS * (VALUE_BYTES + KEY_BYTES)), row

        return ROWS / seconds(work) / 1e6

    frame = spark_bridge.read(spark, subscribe="rows")
    scan(frame)
    rates = [scan(frame) for _ in range(ROUNDS)]
    frame.write.parquet(str(folder / "rows.parquet"))
    parquet = spark.read.parquet(str(folder / "rows.parquet"))
    scan(parquet)
    others = [scan(parquet) for _ in range(ROUNDS)]
    ratio = f"{statistics.median(rates) / statistics.median(others):.2f} of the Parquet scan"
    yield Figure("Spark: topic, 7 columns", rates, "M rows/s", goal=3.0, note=ratio)
    yield Figure("Spark: the same from Parquet", others, "M rows/s")


def _micro_batches(spark: SparkSession, cluster: Cluster, folder: Path) -> Figure:
    """Time batches that hold something and do nothing with it, from trigger to commit, by Spark's own count."""
    cluster.create_topic("trickle", partitions=1, replication_factor=1)
    frame = spark_bridge.read_stream(spark, subscribe="trickle", checkpointLocation=str(folder / "stream"))
    query = (
        frame.writeStream.format("noop")
        .option("checkpointLocation", str(folder / "stream"))
        .trigger(processingTime="0 seconds")
        .start()
    )
    with raylog.Producer(cluster=cluster) as producer:
        deadline, looked = time.monotonic() + 300, 0.0
        while time.monotonic() < deadline:
            producer.send("trickle", b"x").result(10)
            time.sleep(0.02)
            if time.monotonic() > looked + 1.0:  # Spark writes all of its progress anew for whoever asks
                looked = time.monotonic()
                last: Any = query.lastProgress
                if last is not None and last["batchId"] >= WARM_BATCHES + BATCHES:
                    break
    told: list[Any] = query.recentProgress
    query.stop()
    taken = [each for each in told if each["numInputRows"] and each["batchId"] > WARM_BATCHES]
    times = [each["durationMs"]["triggerExecution"] / 1000 for each in taken]
    return Figure("Spark: a micro-batch", times, "s", goal=0.6, smaller_is_better=True, note="p50, trigger to commit")

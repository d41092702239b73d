"""Clicks in, how many each page had in each minute out: one topic to another, exactly once.

    python -m examples.click_counts

Killed at any moment and started again, it goes on from its checkpoint, and `counts` holds each result once for readers
of committed records. The topic is compacted: of each page and minute it keeps the newest count.
"""

from __future__ import annotations

import json
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING, Any

import raylog
from examples.small_cluster import eventually, small_cluster, small_spark
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

CLICKS, COUNTS = "clicks", "counts"


def count_clicks(spark: SparkSession, checkpoint: Path, **trigger: Any) -> StreamingQuery:
    """`availableNow=True` ends with what is there now; without a trigger it goes on for ever."""
    from pyspark.sql import functions as f

    clicks = spark_bridge.read_stream(
        spark, subscribe=CLICKS, startingOffsets="earliest", checkpointLocation=str(checkpoint)
    )
    counts = (
        clicks.select(f.from_json(f.col("value").cast("string"), "page string, at timestamp").alias("click"))
        .select("click.*")
        .withWatermark("at", "5 minutes")
        .groupBy(f.window("at", "1 minute"), "page")
        .count()
        .withColumn("minute", f.date_format("window.start", "yyyy-MM-dd'T'HH:mm"))
        .selectExpr("concat(page, ' ', minute) key", "to_json(struct(page, minute, count)) value")
    )
    return spark_bridge.write_stream(
        counts, topic=COUNTS, checkpointLocation=str(checkpoint), outputMode="update", trigger=trigger or None
    )


def make_topics(cluster: Cluster, replicas: int = 3) -> None:
    cluster.create_topic(CLICKS, partitions=3, replication_factor=replicas)
    cluster.create_topic(COUNTS, partitions=2, replication_factor=replicas, config={"cleanup.policy": "compact"})


def click(cluster: Cluster, first: int, count: int) -> dict[str, int]:
    """Some clicks, three a second; how many there are of each page and minute."""
    expected: dict[str, int] = {}
    with raylog.Producer(cluster=cluster) as producer:
        for number in range(first, first + count):
            page = f"/page/{number % 5}"
            at = datetime.fromtimestamp(1_700_000_000 + number // 3, timezone.utc)
            value = json.dumps({"page": page, "at": at.isoformat()})
            producer.send(CLICKS, value.encode(), key=b"user-%d" % (number % 11))
            name = f"{page} {at:%Y-%m-%dT%H:%M}"
            expected[name] = expected.get(name, 0) + 1
    return expected


def read_counts(cluster: Cluster) -> dict[str, int]:
    """The newest of each page and minute."""
    found: dict[str, int] = {}
    with raylog.Consumer(
        COUNTS, cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while polled := consumer.poll(timeout_ms=1000):
            for records in polled.values():
                found.update((record.key.decode(), json.loads(record.value)["count"]) for record in records)
    return found


def main(replicas: int = 3) -> None:
    with small_cluster() as (cluster, folder), small_spark("click-counts") as spark:
        make_topics(cluster, replicas)
        expected = click(cluster, 0, 1000)
        count_clicks(spark, folder / "checkpoint", availableNow=True).awaitTermination()
        is_right = eventually(expected, lambda: read_counts(cluster))
        for name, count in sorted(read_counts(cluster).items())[:5]:
            print(count, name)
        print("counts are", "right" if is_right else "WRONG")


if __name__ == "__main__":
    main()

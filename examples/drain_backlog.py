"""A group that is far behind is helped by a temporary job with ten times as many workers.

    python -m examples.drain_backlog

A group has no more working members than its topic has partitions. So a job of Spark's takes the backlog, from where the
group has got to up to the end, cut into ten pieces a partition, and writes the results and the group's new offsets in
one transaction: both or neither, so it may be run again. Then the members go on. They have to be away meanwhile: only
of a group without members may others commit offsets.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import raylog
from examples.small_cluster import eventually, small_cluster, small_spark
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ORDERS, INVOICES, GROUP = "orders", "invoices", "billing"
TIMES = 10


def drain(cluster: Cluster, spark: SparkSession) -> int:
    """Bill the backlog. Return how many orders it was."""
    behind = committed(cluster)
    ends = ends_of(cluster)
    backlog = spark_bridge.read(
        spark,
        subscribe=ORDERS,
        startingOffsets=offsets_text(behind),
        endingOffsets=offsets_text(ends),
        minPartitions=TIMES * len(ends),
    )
    invoices = backlog.selectExpr("key", "concat('invoice for ', cast(value as string)) value")
    return spark_bridge.write(invoices, topic=INVOICES, groupId=GROUP, groupOffsets=ends).row_count


def committed(cluster: Cluster) -> dict[TopicPartition, int]:
    found = cluster.list_group_offsets(GROUP)
    return {place: found[place].offset if place in found else 0 for place in places(cluster)}


def ends_of(cluster: Cluster) -> dict[TopicPartition, int]:
    with raylog.Consumer(cluster=cluster, isolation_level="read_committed") as consumer:
        return dict(consumer.end_offsets(places(cluster)))


def places(cluster: Cluster) -> list[TopicPartition]:
    return [TopicPartition(ORDERS, each.partition) for each in cluster.describe_topic(ORDERS).partitions]


def offsets_text(offsets: dict[TopicPartition, int]) -> str:
    """Return offsets as Spark takes them: {"orders": {"0": 12, "1": 7}}."""
    return json.dumps({ORDERS: {str(place.partition): offset for place, offset in offsets.items()}})


def order(cluster: Cluster, first: int, count: int) -> None:
    with raylog.Producer(cluster=cluster) as producer:
        numbers = range(first, first + count)
        producer.send_many(ORDERS, [b"order %d" % each for each in numbers], [b"%d" % (each % 50) for each in numbers])


def bill_some(cluster: Cluster, count: int) -> None:
    """Bill some orders, as the group's members do all day."""
    with (
        raylog.Consumer(
            ORDERS, cluster=cluster, group_id=GROUP, auto_offset_reset="earliest", enable_auto_commit=False
        ) as consumer,
        raylog.Producer(cluster=cluster) as producer,
    ):
        billed = 0
        while billed < count:
            for records in consumer.poll(timeout_ms=1000, max_records=min(500, count - billed)).values():
                for record in records:
                    producer.send(INVOICES, b"invoice for " + record.value, key=record.key)
                    billed += 1
        producer.flush()
        consumer.commit()


def read_invoices(cluster: Cluster) -> list[bytes]:
    found: list[bytes] = []
    with raylog.Consumer(
        INVOICES, cluster=cluster, auto_offset_reset="earliest", isolation_level="read_committed"
    ) as consumer:
        while polled := consumer.poll(timeout_ms=1000):
            found += [record.value for records in polled.values() for record in records]
    return sorted(found)


def make_topics(cluster: Cluster, replicas: int = 3) -> None:
    cluster.create_topic(ORDERS, partitions=2, replication_factor=replicas)
    cluster.create_topic(INVOICES, partitions=2, replication_factor=replicas)


def main(replicas: int = 3) -> None:
    with small_cluster() as (cluster, _):
        make_topics(cluster, replicas)
        order(cluster, 0, 20_000)
        bill_some(cluster, 1000)
        with small_spark("drain-backlog", executors=2) as spark:
            print(drain(cluster, spark), "orders were billed by the temporary job")
        order(cluster, 20_000, 100)
        bill_some(cluster, 100)
        expected = sorted(b"invoice for order %d" % number for number in range(20_100))
        is_right = eventually(expected, lambda: read_invoices(cluster))
        print("the invoices of", len(expected), "orders are", "right" if is_right else "WRONG")


if __name__ == "__main__":
    main()

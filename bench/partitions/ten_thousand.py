"""Ten thousand partitions of one replica on one machine: made, each written to, each read. It takes minutes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

from bench.measuring import Figure, seconds
from bench.partitions.clusters import LIMIT_SECONDS, PARTITIONS, made
from bench.partitions.kafka import KafkaCluster
from bench.partitions.traffic import read
from bench.real_cluster import real_cluster
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.consumer import Consumer
from raylog.api.producer.producer import Producer

_PARTITIONS: Final = 10 * PARTITIONS
_TOPIC: Final = "very-many"


def run(_kafka: KafkaCluster | None) -> Iterator[Figure]:
    name = f"{_PARTITIONS:,} partitions, RF 1"
    with real_cluster() as cluster:
        yield Figure(f"{name}: made", [made(cluster, _TOPIC, _PARTITIONS, copies=1)], "s")
        yield Figure(f"{name}: a record written to each", [seconds(lambda: _write(cluster))], "s")
        began = time.perf_counter()
        with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(_TOPIC, number) for number in range(_PARTITIONS)])
            read(consumer, _PARTITIONS)
        yield Figure(f"{name}: all read", [time.perf_counter() - began], "s")


def _write(cluster: Cluster) -> None:
    with Producer(cluster=cluster) as producer:
        for number in range(_PARTITIONS):
            producer.send(_TOPIC, b"one", partition=number)
        producer.flush(LIMIT_SECONDS)

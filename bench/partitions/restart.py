"""A clean stop of a cluster with thousands of replicas, and its start from their directories."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Final

import raylog
from bench.measuring import Figure, seconds
from bench.partitions.clusters import COPIES, LIMIT_SECONDS, PARTITIONS, made, until_in_sync
from bench.partitions.kafka import KafkaCluster
from bench.real_cluster import own_ray
from raylog.api.producer.producer import Producer

_TOPIC: Final = "many"
_ROUNDS: Final = 2
_EACH: Final = 20  # records of each partition
_VALUE_BYTES: Final = 100
_START_GOAL: Final = 20.0
_STOP_GOAL: Final = 10.0


def run(_kafka: KafkaCluster | None) -> Iterator[Figure]:
    stops, starts, led = [], [], []
    with own_ray() as folder:
        cluster = raylog.start(f"{folder}/data", brokers=COPIES)
        made(cluster, _TOPIC, PARTITIONS)
        for _ in range(_ROUNDS):
            _write(cluster)
            stops.append(seconds(lambda: cluster.shutdown(LIMIT_SECONDS)))  # noqa: B023 (called at once)
            began = time.perf_counter()
            cluster = raylog.start(f"{folder}/data", timeout=LIMIT_SECONDS)
            led.append(time.perf_counter() - began)
            until_in_sync(cluster, _TOPIC, COPIES, began)
            starts.append(time.perf_counter() - began)
        cluster.shutdown(LIMIT_SECONDS)
    replicas = f"{COPIES * PARTITIONS:,} replicas"
    note = f"`raylog.start` until all are in sync; it returns, with a leader of each partition, after {max(led):.1f}"
    yield Figure(f"cold start of {replicas}", starts, "s", _START_GOAL, smaller_is_better=True, note=note)
    yield Figure(f"clean stop of {replicas}", stops, "s", _STOP_GOAL, smaller_is_better=True)


def _write(cluster: raylog.Cluster) -> None:
    """Write a little to each partition, so that there is something to recover."""
    with Producer(cluster=cluster) as producer:
        for number in range(PARTITIONS):
            producer.send_many(_TOPIC, [bytes(_VALUE_BYTES)] * _EACH, partition=number)
        producer.flush(LIMIT_SECONDS)

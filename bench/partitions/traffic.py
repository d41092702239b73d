"""Throughput over a thousand partitions against four, of the same records, and a consumer that has nothing to do.

Keys decide the partition, and each value is an object of its own, made before the clock starts. Rounds of four and of
a thousand partitions take turns.
"""

from __future__ import annotations

import gc
import multiprocessing
import os
import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from functools import partial
from multiprocessing.connection import Connection
from typing import Final

from bench.measuring import Figure
from bench.partitions.clusters import COPIES, PARTITIONS, made
from bench.partitions.kafka import KafkaCluster, send_all
from bench.real_cluster import real_cluster
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.admin.cluster import Cluster
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.consumer import Consumer
from raylog.api.producer.producer import Producer

_FEW: Final = 4
_ROUNDS: Final = 3
_RECORDS: Final = 1_000_000
_KAFKA_RECORDS: Final = 300_000  # its client takes a third of a million a second
_KEYS: Final = 10_000
_VALUE_BYTES: Final = 100
_FLUSH_SECONDS: Final = 120.0
_POLL_MS: Final = 10_000
_IDLE_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 3.0
_READ_SECONDS: Final = 120.0
_PRODUCE_GOAL: Final = 0.5
_CONSUME_GOAL: Final = 0.7
_IDLE_GOAL: Final = 3.0  # percent of a core


def run(kafka: KafkaCluster | None) -> Iterator[Figure]:
    with real_cluster() as cluster:
        topics = {f"of-{count}": count for count in (_FEW, PARTITIONS)}
        for name, count in topics.items():
            made(cluster, name, count)
        yield from _produced(cluster, list(topics))
        yield from _consumed(cluster, topics)
        yield _idle_consumer(cluster)
    if kafka is not None:
        yield from _of_kafka(kafka)


# --- raylog -----------------------------------------------------------------------------------------------------------


def _produced(cluster: Cluster, topics: Sequence[str]) -> Iterator[Figure]:
    keys, values = _records(_RECORDS)
    with Producer(cluster=cluster) as producer:

        def measure(topic: str) -> float:
            began = time.perf_counter()
            producer.send_many(topic, values, keys=keys)
            producer.flush(_FLUSH_SECONDS)
            return _RECORDS / (time.perf_counter() - began) / 1e6

        yield from _compared("send_many, RF 3, acks=all", [partial(measure, each) for each in topics], _PRODUCE_GOAL)


def _consumed(cluster: Cluster, topics: dict[str, int]) -> Iterator[Figure]:
    count = (_ROUNDS + 1) * _RECORDS

    def measure(topic: str, partitions: int) -> float:
        with Consumer(cluster=cluster, auto_offset_reset="earliest") as consumer:
            consumer.assign([TopicPartition(topic, number) for number in range(partitions)])
            began = time.perf_counter()
            read(consumer, count)
            return count / (time.perf_counter() - began) / 1e6

    yield from _compared("consume", [partial(measure, *each) for each in topics.items()], _CONSUME_GOAL)


def read(consumer: Consumer, count: int) -> None:
    """Poll until so many records have come. TimeoutError: they do not come for minutes."""
    deadline = time.monotonic() + _READ_SECONDS
    seen = 0
    while seen < count:
        seen += sum(map(len, consumer.poll(timeout_ms=_POLL_MS).values()))
        if time.monotonic() > deadline:
            raise TimeoutError(f"{seen} of {count} records came in {_READ_SECONDS:.0f} s")


def _idle_consumer(cluster: Cluster) -> Figure:
    """The consumer is a process of its own, without a Ray that would add to what it takes."""
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=_wait_for_records, args=(theirs, cluster.access()), daemon=True)
    process.start()
    try:
        share = ours.recv()
    finally:
        process.kill()
        process.join()
    name = f"a consumer of {PARTITIONS:,} partitions, idle"
    return Figure(name, [share], "%", _IDLE_GOAL, smaller_is_better=True, note="of one core")


def _wait_for_records(tell: Connection, access: ClusterAccess) -> None:
    with Consumer(cluster=access, auto_offset_reset="latest") as consumer:
        consumer.assign([TopicPartition(f"of-{PARTITIONS}", number) for number in range(PARTITIONS)])
        _poll_for(consumer, _SETTLE_SECONDS)
        before = time.process_time()
        _poll_for(consumer, _IDLE_SECONDS)
        tell.send(100 * (time.process_time() - before) / _IDLE_SECONDS)


def _poll_for(consumer: Consumer, seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while (left := deadline - time.monotonic()) > 0:
        assert not consumer.poll(timeout_ms=round(1000 * left))


# --- Kafka ------------------------------------------------------------------------------------------------------------


def _of_kafka(kafka: KafkaCluster) -> Iterator[Figure]:
    keys, values = _records(_KAFKA_RECORDS)
    with ExitStack() as topics:
        made_topics = {
            topics.enter_context(kafka.topic(f"of-{count}", count, COPIES)): count for count in (_FEW, PARTITIONS)
        }
        with kafka.producer() as producer:

            def send(topic: str) -> float:
                return _KAFKA_RECORDS / send_all(producer, topic, keys, values) / 1e6

            yield from _compared("Kafka: produce, RF 3, acks=all", [partial(send, each) for each in made_topics])
        count = (_ROUNDS + 1) * _KAFKA_RECORDS

        def consume(topic: str, partitions: int) -> float:
            return count / kafka.read(topic, partitions, count) / 1e6

        yield from _compared("Kafka: consume", [partial(consume, *each) for each in made_topics.items()])


# --- both -------------------------------------------------------------------------------------------------------------


def _records(count: int) -> tuple[list[bytes], list[bytes]]:
    known = [b"%010d" % number for number in range(_KEYS)]
    keys = [known[number % _KEYS] for number in range(count)]
    return keys, [b"%0*d" % (_VALUE_BYTES, number) for number in range(count)]


def _compared(what: str, measures: Sequence[Callable[[], float]], goal: float | None = None) -> Iterator[Figure]:
    """Both rates in turn, after a round to warm up; then their ratio."""
    rounds: list[list[float]] = []
    for _ in range(_ROUNDS + 1):
        os.sync()
        gc.collect()
        rounds.append([measure() for measure in measures])
    few, many = zip(*rounds[1:], strict=True)
    yield Figure(f"{what}, {_FEW} partitions", few, "M records/s")
    yield Figure(f"{what}, {PARTITIONS:,} partitions", many, "M records/s")
    ratio = statistics.median(many) / statistics.median(few)
    yield Figure(f"{what}: {PARTITIONS:,} against {_FEW}", [ratio], "", goal, note="the same records")

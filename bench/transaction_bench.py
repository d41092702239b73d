"""Costs of transactions: the same records with and without, side by side in each round, and the time of a commit.

Values of 100 bytes, three partitions, three replicas, acks=all. Producer, leaders, followers and coordinators share the
machine. A ratio is of rates in one round: whatever else the machine does falls on both.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from bench.measuring import ROUNDS, Figure, seconds
from bench.real_cluster import real_cluster, topic
from raylog.api.admin.cluster import Cluster
from raylog.api.producer.producer import Producer

_LARGE, _LARGE_COUNT = 50_000, 6
_SMALL, _SMALL_COUNT = 1_000, 100
_COMMITS = 200
_SECONDS = 120.0


def run() -> Iterator[Figure]:
    with real_cluster() as cluster, _producers(cluster) as (plain, transactional):
        with topic(cluster, "large", 3) as name:
            yield from _beside(
                f"{_LARGE:,} records a transaction", 0.7, "of one flush in the end",
                partial(_without, plain, name, _values(_LARGE), _LARGE_COUNT, False),
                partial(_with, transactional, name, _values(_LARGE), _LARGE_COUNT),
            )  # fmt: skip
        with topic(cluster, "small", 3) as name:
            yield from _beside(
                f"{_SMALL:,} records a transaction", 0.4, "of as many flushes",
                partial(_without, plain, name, _values(_SMALL), _SMALL_COUNT, True),
                partial(_with, transactional, name, _values(_SMALL), _SMALL_COUNT),
            )  # fmt: skip
        with topic(cluster, "one", 3, partitions=1) as name:
            yield from _commits(transactional, name)


@contextmanager
def _producers(cluster: Cluster) -> Iterator[tuple[Producer, Producer]]:
    with Producer(cluster=cluster) as plain, Producer(cluster=cluster, transactional_id="bench") as transactional:
        transactional.init_transactions()
        yield plain, transactional


def _values(count: int) -> list[bytes]:
    return [b"%0100d" % number for number in range(count)]


def _without(producer: Producer, name: str, values: Sequence[bytes], count: int, flushes: bool) -> float:
    """M records/s."""

    def send() -> None:
        for _ in range(count):
            producer.send_many(name, values)
            if flushes:
                producer.flush(_SECONDS)
        producer.flush(_SECONDS)

    return len(values) * count / seconds(send) / 1e6


def _with(producer: Producer, name: str, values: Sequence[bytes], count: int) -> float:
    """M records/s."""

    def send() -> None:
        for _ in range(count):
            with producer.transaction(_SECONDS):
                producer.send_many(name, values)

    return len(values) * count / seconds(send) / 1e6


def _beside(
    name: str, goal: float, of_what: str, without: Callable[[], float], with_: Callable[[], float]
) -> Iterator[Figure]:
    without(), with_()
    pairs = [(without(), with_()) for _ in range(ROUNDS)]
    yield Figure(f"{name}: the same without", [each[0] for each in pairs], "M records/s")
    yield Figure(name, [each[1] for each in pairs], "M records/s")
    yield Figure(f"{name}: ratio", [each[1] / each[0] for each in pairs], of_what, goal)


def _commits(producer: Producer, name: str) -> Iterator[Figure]:
    """Once its one record is delivered."""
    rounds = [_commit_times(producer, name) for _ in range(ROUNDS + 1)][1:]
    first = [[each[0] for each in times] for times in rounds]
    commits = [[each[1] for each in times] for times in rounds]
    yield Figure("first record of a transaction, p50", list(map(_median_ms, first)), "ms", smaller_is_better=True)
    yield Figure("commit, one partition, p50", list(map(_median_ms, commits)), "ms", 2.0, smaller_is_better=True)
    high = [1000 * statistics.quantiles(times, n=100)[-1] for times in commits]
    yield Figure("commit, one partition, p99", high, "ms", smaller_is_better=True)


def _commit_times(producer: Producer, name: str) -> list[tuple[float, float]]:
    """Seconds until the record is acknowledged, and of the commit."""
    found = []
    for _ in range(_COMMITS):
        producer.begin_transaction()
        start = time.perf_counter()
        producer.send(name, b"v" * 100, partition=0).result(_SECONDS)
        delivered = time.perf_counter()
        producer.commit_transaction(_SECONDS)
        found.append((delivered - start, time.perf_counter() - delivered))
    return found


def _median_ms(times: Sequence[float]) -> float:
    return 1000 * statistics.median(times)

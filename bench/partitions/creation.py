"""Creation of topics with three copies of each partition, and what they cost while nobody uses them.

A topic counts as made when all copies of all partitions are in sync, which is later than `create_topic` returns.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from typing import Final

from bench.measuring import Figure
from bench.partitions.clusters import COPIES, PARTITIONS, all_pids, made
from bench.partitions.file_costs import new_file_ms
from bench.partitions.kafka import KafkaCluster
from bench.partitions.processes import cpu_seconds, private_mib, processor_share
from bench.real_cluster import real_cluster

_ROUNDS: Final = 3
_FEW: Final = 3
_SOME: Final = 60
_IDLE_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 5.0
_OWN_GOAL: Final = 1.2  # seconds
_GOALS: Final = {_FEW: 0.3, _SOME: 1.0, PARTITIONS: 5.0}
_PROCESSOR_GOAL: Final = 1.5  # milliseconds
_MEMORY_GOAL: Final = 0.3  # MiB
_IDLE_GOAL: Final = 14.0  # percent of a core
_KAFKA: Final = "Kafka: "


def run(kafka: KafkaCluster | None) -> Iterator[Figure]:
    with real_cluster() as cluster:
        own = [made(cluster, "own", _FEW, host="own")]
        note = "each replica in a host of its own, three copies, in sync"
        yield Figure("3 partitions, own hosts", own, "s", _OWN_GOAL, smaller_is_better=True, note=note)
    with real_cluster() as cluster:
        yield Figure("processor time of a new file", [new_file_ms()], "ms", note="where the data is: see file_costs.py")
        yield from _of_one_system("", lambda name, count: made(cluster, name, count), all_pids)
    if kafka is not None:
        names: list[str] = []

        def create(name: str, partitions: int) -> float:
            names.append(name)
            return kafka.create(name, partitions, COPIES)

        yield from _of_one_system(_KAFKA, create, kafka.pids)
        for name in names:
            kafka.delete(name)


def _of_one_system(system: str, create: Callable[[str, int], float], pids: Callable[[], list[int]]) -> Iterator[Figure]:
    few = [create(f"few-{number}", _FEW) for number in range(_ROUNDS)]
    yield _creation(system, _FEW, few)
    yield _creation(system, _SOME, [create("some", _SOME)])
    time.sleep(_SETTLE_SECONDS)
    running = pids()
    before, spent = private_mib(running), sum(map(cpu_seconds, running))
    yield _creation(system, PARTITIONS, [create("many", PARTITIONS)])
    time.sleep(_SETTLE_SECONDS)
    running = pids()
    spent = sum(map(cpu_seconds, running)) - spent
    yield Figure(
        f"{system}processor time of one replica more", [1000 * spent / (COPIES * PARTITIONS)], "ms",
        None if system else _PROCESSOR_GOAL, smaller_is_better=True, note="in all processes, until five seconds later",
    )  # fmt: skip
    replicas = COPIES * (PARTITIONS + _SOME + _ROUNDS * _FEW)
    share = processor_share(running, _IDLE_SECONDS)
    each = (private_mib(running) - before) / (COPIES * PARTITIONS)
    yield Figure(
        f"{system}memory of one replica more", [each], "MiB", None if system else _MEMORY_GOAL, smaller_is_better=True,
        note="private memory of all processes, by the thousand partitions",
    )  # fmt: skip
    yield Figure(
        f"{system}processor while nobody writes", [share], "%", None if system else _IDLE_GOAL, smaller_is_better=True,
        note=f"of one core, {replicas:,} replicas, {len(running)} processes",
    )  # fmt: skip


def _creation(system: str, partitions: int, rounds: list[float]) -> Figure:
    goal = None if system else _GOALS[partitions]
    name = f"{system}{partitions:,} partitions" + ("" if system else ", shared")
    return Figure(name, rounds, "s", goal, smaller_is_better=True, note="three copies each, in sync")

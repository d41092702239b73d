"""Starts of a replica: from the request for a topic of one partition until its first record is acknowledged.

Ray gives an actor an idle worker where it has one that has done nothing yet, and else starts a process, which is most
of what it takes. A task that is cancelled before its worker is there leaves some. Which of the two a replica got, its
process tells: it had begun before the request, or after. Also what an idle one holds of memory that is its own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import ray

from bench.measuring import ROUNDS, Figure
from bench.real_cluster import real_cluster
from raylog.api.admin.cluster import Cluster
from raylog.api.producer.producer import Producer

_GOAL_MS: Final = 250.0
_MEMORY_GOAL_MB: Final = 60.0
_TRIES: Final = 4 * ROUNDS
_CPUS: Final = 4  # so many idle workers are kept
_BEGIN_SECONDS: Final = 3.0
_SECONDS: Final = 60.0


class _Holder:
    """Keeps a worker from being idle."""

    def pid(self) -> int:
        return os.getpid()


def run() -> Iterator[Figure]:
    with real_cluster(brokers=1, cpus=_CPUS) as cluster, Producer(cluster=cluster) as producer:
        starts = _Starts(cluster, producer)
        warm, cold = starts.measure(warm=True), starts.measure(warm=False)
        memory = starts.memory()
        starts.end()
    for name, found in (("a replica on an idle Ray worker", warm), ("a replica without one", cold)):
        if found:  # else Ray never did it in that way
            note = f"{len(found)} starts: one partition, RF 1, until a record is acknowledged"
            yield Figure(name, found, "ms", _GOAL_MS, True, note)
    yield Figure("memory of an idle replica", memory, "MiB", _MEMORY_GOAL_MB, True, "USS")


class _Starts:
    def __init__(self, cluster: Cluster, producer: Producer) -> None:
        self._cluster = cluster
        self._producer = producer
        self._topics: list[str] = []
        self._holders: list[Any] = []

    def measure(self, *, warm: bool) -> list[float]:
        """Milliseconds. What Ray has done otherwise does not count."""
        found: list[float] = []
        is_other = True
        for _ in range(_TRIES):
            if len(found) == ROUNDS:
                break
            if is_other:
                (_leave_workers if warm else self._take_workers)()
            was_warm, spent = self._start()
            is_other = was_warm != warm
            if not is_other:
                found.append(spent)
        return found

    def _start(self) -> tuple[bool, float]:
        topic = f"start-{len(self._topics)}"
        self._topics.append(topic)
        asked_at, began = _since_boot(), time.perf_counter()
        self._cluster.create_topic(topic, 1, 1, timeout=_SECONDS)
        self._producer.send(topic, b"first")
        self._producer.flush(_SECONDS)
        spent = 1000 * (time.perf_counter() - began)
        return _began_at(self._pid(topic)) < asked_at, spent

    def _take_workers(self) -> None:
        """Take idle workers until Ray has to start one."""
        is_new = False
        while not is_new:
            asked_at = _since_boot()
            self._holders.append(ray.remote(num_cpus=0)(_Holder).remote())
            is_new = _began_at(ray.get(self._holders[-1].pid.remote(), timeout=_SECONDS)) >= asked_at

    def memory(self) -> list[float]:
        return [_private_mib(self._pid(topic)) for topic in self._topics]

    def _pid(self, topic: str) -> int:
        return self._cluster.describe_replicas(topic)[0].pid

    def end(self) -> None:
        for holder in self._holders:
            ray.kill(holder)


def _leave_workers() -> None:
    ray.cancel(ray.remote(num_cpus=1)(_nothing).remote())
    time.sleep(_BEGIN_SECONDS)


def _nothing() -> None:
    """A task."""


def _since_boot() -> float:
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def _began_at(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return int(fields[19]) / os.sysconf("SC_CLK_TCK")


def _private_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024

"""Many partitions on one machine: how fast they are made, and what they cost while nobody uses them.

Topics are made on three brokers with three copies each, first with hosts of their own, then shared. A topic counts as
made when all copies of all partitions are in sync, which is later than `create_topic` returns.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path
from typing import Final

from bench.measuring import Figure
from bench.real_cluster import actor_pids, real_cluster
from raylog.api.admin.cluster import Cluster

_COPIES: Final = 3
_ROUNDS: Final = 3
_IDLE_SECONDS: Final = 10.0
_SETTLE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
_LIMIT_SECONDS: Final = 300.0


def run() -> Iterator[Figure]:
    with real_cluster() as cluster:
        times = {partitions: _made(cluster, f"t{partitions}", partitions) for partitions in (60, 300, 1_000)}
        few = [_made(cluster, f"few-{number}", 3) for number in range(_ROUNDS)]
        time.sleep(_SETTLE_SECONDS)
        yield Figure("3 partitions, shared", few, "s", 0.3, smaller_is_better=True, note="three copies each, in sync")
        yield Figure("60 partitions, shared", [times[60]], "s", 1.0, smaller_is_better=True)
        yield Figure("300 partitions more, shared", [times[300]], "s")
        yield Figure("1,000 partitions more, shared", [times[1_000]], "s", 5.0, smaller_is_better=True)
        replicas = _COPIES * (sum(times) + 3 * _ROUNDS)
        pids = _all_pids()
        before = {pid: _cpu_seconds(pid) for pid in pids}
        time.sleep(_IDLE_SECONDS)
        spent = sum(_cpu_seconds(pid) - before[pid] for pid in pids)
        share = 100 * spent / _IDLE_SECONDS
        note = f"of one core, {replicas:,} replicas, {len(pids)} processes"
        yield Figure("processor while nobody writes", [share], "%", 14.0, smaller_is_better=True, note=note)
        hosts = actor_pids("host-")
        largest = sorted((_private_mib(pid) for pid in hosts), reverse=True)
        smallest = largest[-1]
        each = (sum(largest[:_COPIES]) - _COPIES * smallest) / replicas
        yield Figure("memory of one replica more", [each], "MiB", 0.3, smaller_is_better=True, note="in a shared host")
    with real_cluster() as cluster:
        own = [_made(cluster, "own", 3, "own")]
        yield Figure("3 partitions, each replica in a host of its own", own, "s", 1.2, smaller_is_better=True)


def _made(cluster: Cluster, name: str, partitions: int, host: str = "shared") -> float:
    began = time.perf_counter()
    cluster.create_topic(name, partitions, _COPIES, {"replica.host": host}, timeout=_LIMIT_SECONDS)
    while not all(len(each.isr) == _COPIES for each in cluster.describe_topic(name).partitions):
        if time.perf_counter() - began > _LIMIT_SECONDS:
            raise TimeoutError(f"{name} is not in sync after {_LIMIT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)
    return time.perf_counter() - began


def _all_pids() -> list[int]:
    return [pid for kind in ("host-", "broker-", "controller", "coordinator-") for pid in actor_pids(kind)]


def _cpu_seconds(pid: int) -> float:
    tasks = Path(f"/proc/{pid}/task").iterdir()
    return sum(int((task / "schedstat").read_text().split()[0]) for task in tasks) / 1e9


def _private_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Private")) / 1024

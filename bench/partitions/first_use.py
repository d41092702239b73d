"""A new cluster of three brokers: how long its first group and its first transaction take, and what it is made of then.

One topic of 3 partitions with three copies each, with hosts of their own or in shared ones. Memory is the proportional
set size: what processes share counts once. Ray's own processes are not counted, which it has without raylog too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Final

import raylog
from bench.measuring import Figure
from bench.real_cluster import actor_pids, own_ray
from raylog.api.admin.cluster import Cluster
from raylog.api.admin.cluster_health import problems

_COPIES: Final = 3
_ROUNDS: Final = 3
_SETTLE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.02
_LIMIT_SECONDS: Final = 60.0
_KINDS: Final = ("host-", "broker-", "controller", "coordinator", "housekeeper-")
_GOALS: Final = {"own": (24, 1100), "shared": (14, 650)}


def run() -> Iterator[Figure]:
    """Measure, each round and each kind of host on a cluster of its own."""
    rounds = [_used("shared") for _ in range(_ROUNDS)]
    yield _time("raylog.start, until it returns", [each["start"] for each in rounds])
    yield _time("then until `status --healthy`", [each["healthy"] for each in rounds])
    yield _time("first poll of a group", [each["group"] for each in rounds], 0.7)
    yield _time("first transaction", [each["transaction"] for each in rounds], 0.7)
    yield _time("first poll of the next group", [each["next group"] for each in rounds])
    for host, taken in (("shared", rounds[-1]), ("own", _used("own"))):
        processes, memory = _GOALS[host]
        note = f"one 3 × 3 topic in {host} hosts, a group and a transaction used"
        yield Figure("processes", [taken["processes"]], "", processes, smaller_is_better=True, note=note)
        yield Figure("memory of all", [taken["memory"]], "MiB", memory, smaller_is_better=True, note=note)


def _time(name: str, rounds: list[float], goal: float | None = None) -> Figure:
    return Figure(name, rounds, "s", goal, smaller_is_better=True)


def _used(host: str) -> dict[str, float]:
    """Use a new cluster once; return what that took."""
    taken: dict[str, float] = {}
    with own_ray() as folder:
        began = time.perf_counter()
        cluster = raylog.start(f"{folder}/data", brokers=_COPIES)
        taken["start"] = time.perf_counter() - began
        taken["healthy"] = _timed(lambda: _until_healthy(cluster))
        cluster.create_topic("clicks", 3, _COPIES, {"replica.host": host})
        with raylog.Producer(cluster=cluster) as producer:
            for number in range(3):
                producer.send("clicks", b"record", partition=number).result(_LIMIT_SECONDS)
        taken["group"] = _timed(lambda: _poll(cluster, "first"))
        taken["transaction"] = _timed(lambda: _transact(cluster))
        taken["next group"] = _timed(lambda: _poll(cluster, "next"))
        time.sleep(_SETTLE_SECONDS)
        pids = [pid for kind in _KINDS for pid in actor_pids(kind)]
        taken["processes"] = len(pids)
        taken["memory"] = sum(_pss_mib(pid) for pid in pids)
        cluster.shutdown()
    return taken


def _until_healthy(cluster: Cluster) -> None:
    deadline = time.perf_counter() + _LIMIT_SECONDS
    while found := problems(cluster.describe_cluster()):
        if time.perf_counter() > deadline:
            raise TimeoutError("; ".join(found))
        time.sleep(_LOOK_SECONDS)


def _poll(cluster: Cluster, group: str) -> None:
    with raylog.Consumer("clicks", cluster=cluster, group_id=group, auto_offset_reset="earliest") as consumer:
        began = time.perf_counter()
        while not consumer.poll(timeout_ms=1_000):
            if time.perf_counter() - began > _LIMIT_SECONDS:
                raise TimeoutError(f"no record in {_LIMIT_SECONDS:.0f} s")


def _transact(cluster: Cluster) -> None:
    with raylog.Producer(cluster=cluster, transactional_id="first") as producer:
        producer.init_transactions()
        producer.begin_transaction()
        producer.send("clicks", b"record", partition=0)
        producer.commit_transaction()


def _timed(action: Callable[[], None]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def _pss_mib(pid: int) -> float:
    lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    return sum(int(line.split()[1]) for line in lines if line.startswith("Pss:")) / 1024

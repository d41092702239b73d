"""Topics with many partitions on a cluster of three brokers, and the processes of that cluster."""

from __future__ import annotations

import os
import time
from typing import Final

from bench.real_cluster import actor_pids
from raylog.api.admin.cluster import Cluster

COPIES: Final = 3
LEADER: Final = 1  # one of the brokers 0 to 2, for topics that one broker leads
PARTITIONS: Final = int(os.environ.get("RAYLOG_BENCH_PARTITIONS", "1000"))
LIMIT_SECONDS: Final = 300.0
_LOOK_SECONDS: Final = 0.05
_ACTORS: Final = ("host-", "broker-", "controller", "coordinators-", "housekeeper-")


def made(
    cluster: Cluster, name: str, partitions: int, host: str = "shared", leader: int | None = None, copies: int = COPIES
) -> float:
    """Make a topic; seconds until all copies are in sync. `leader`: the broker that leads all."""
    config = {"replica.host": host}
    began = time.perf_counter()
    if leader is not None:
        others = [broker for broker in range(COPIES) if broker != leader][: copies - 1]
        placed = [[leader, *others]] * partitions
        cluster.create_topic(name, config=config, assignment=placed, timeout=LIMIT_SECONDS)
    else:
        cluster.create_topic(name, partitions, copies, config, timeout=LIMIT_SECONDS)
    until_in_sync(cluster, name, copies, began)
    return time.perf_counter() - began


def until_in_sync(cluster: Cluster, name: str, copies: int, began: float) -> None:
    """Wait until all copies of a topic are in sync. TimeoutError: not within minutes from the beginning."""
    while not all(len(each.isr) == copies for each in cluster.describe_topic(name).partitions):
        if time.perf_counter() - began > LIMIT_SECONDS:
            raise TimeoutError(f"{name} is not in sync after {LIMIT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


def all_pids() -> list[int]:
    """The processes of the clusters on this Ray."""
    return [pid for kind in _ACTORS for pid in actor_pids(kind)]


def leading_pid(cluster: Cluster, topic: str) -> int:
    """Return the process that leads all partitions of a topic."""
    (pid,) = {each.pid for each in cluster.describe_replicas(topic) if each.role == "leader"}
    return pid

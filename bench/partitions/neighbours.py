"""One small batch after the other: alone, in a shared host of a thousand replicas, and beside a partition in flood.

The streams are those of a producer. The flood comes from a process of its own, in batches of 1 MiB, to another
partition that the same host leads. How long the work of one replica holds the loop is measured from outside, in the
processor time of the loop's thread, during that flood and while topics are made, truncated and deleted.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import statistics
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import uvloop

from bench.hostile.client import HostileClient
from bench.loop_watch import LoopWatch
from bench.measuring import ROUNDS, Figure
from bench.partitions.clusters import LEADER, PARTITIONS, leading_pid, made
from bench.partitions.kafka import KafkaCluster
from bench.partitions.streams import leader_of
from bench.real_cluster import real_cluster
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.protocol.endpoint import Endpoint
from raylog.api.admin.cluster import Cluster
from raylog.config import MIB

_ROUND_TRIPS: Final = 2_000
_SMALL_BYTES: Final = 100
_FLOOD_BYTES: Final = MIB - 200  # with the batch's header below max.message.bytes
_FLOOD_WINDOW: Final = 4
_FLOOD_SECONDS: Final = 5.0
_FLOOD_ROUNDS: Final = 3
_WARM_SECONDS: Final = 2.0
_PACE_SECONDS: Final = 0.002
_SEGMENT_BYTES: Final = 64 * MIB
_KEPT_BYTES: Final = 256 * MIB
_MADE: Final = 60
_P50_GOAL_MS: Final = 0.22
_FLOOD_GOAL: Final = 3.0
_STALL_GOAL_MS: Final = 5.0


def run(_kafka: KafkaCluster | None) -> Iterator[Figure]:
    keep_memory()
    with real_cluster() as cluster:
        made(cluster, "alone", 1, host="own", leader=LEADER)
        made(cluster, "neighbour", 1, leader=LEADER)
        made(cluster, "many", PARTITIONS, leader=LEADER)
        access = cluster.access()
        yield _small(access, "alone", "own host")
        yield _small(access, "neighbour", f"shared with {PARTITIONS:,} partitions")
        yield from _flooded(cluster, access)
        yield _longest_stall(cluster, access)


def _small(access: ClusterAccess, topic: str, where: str) -> Figure:
    p50 = uvloop.run(_round_trips(access, topic))
    name = f"a batch of {_SMALL_BYTES} bytes, RF 3, {where}, p50"
    return Figure(name, p50, "ms", _P50_GOAL_MS, smaller_is_better=True, note="acks=all")


async def _round_trips(access: ClusterAccess, topic: str) -> list[float]:
    async with leader_of(access, topic) as leader:
        rounds = []
        for _ in range(ROUNDS + 1):
            rounds.append(statistics.median([await leader.append(_SMALL_BYTES) for _ in range(_ROUND_TRIPS)]))
        return rounds[1:]


# --- a flood ----------------------------------------------------------------------------------------------------------


def _flooded(cluster: Cluster, access: ClusterAccess) -> Iterator[Figure]:
    alone, beside = [], []
    with _topic_in_flood(cluster):
        for _ in range(_FLOOD_ROUNDS):
            alone.append(uvloop.run(_p99(access)))
            with _flood(access):
                time.sleep(_WARM_SECONDS)
                beside.append(uvloop.run(_p99(access)))
    note = f"{statistics.median(alone):.2f} ms alone, {statistics.median(beside):.2f} ms in the flood; acks=all, RF 3"
    ratios = [flooded / calm for flooded, calm in zip(beside, alone, strict=True)]
    yield Figure("p99 beside a flood against alone", ratios, "times", _FLOOD_GOAL, smaller_is_better=True, note=note)


@contextmanager
def _topic_in_flood(cluster: Cluster) -> Iterator[None]:
    made(cluster, "flooded", 1, leader=LEADER)
    kept = {"segment.bytes": _SEGMENT_BYTES, "retention.bytes": _KEPT_BYTES, "max.message.bytes": 2 * MIB}
    cluster.alter_topic_config("flooded", kept)
    yield
    cluster.delete_topic("flooded")


async def _p99(access: ClusterAccess) -> float:
    """p99 of small batches at an even pace, in milliseconds."""
    async with leader_of(access, "neighbour") as leader:
        spent = []
        until = time.monotonic() + _FLOOD_SECONDS
        while time.monotonic() < until:
            spent.append(await leader.append(_SMALL_BYTES))
            await asyncio.sleep(_PACE_SECONDS)
        return statistics.quantiles(spent, n=100)[98]


@contextmanager
def _flood(access: ClusterAccess) -> Iterator[None]:
    process = multiprocessing.get_context("spawn").Process(target=_run_flood, args=(access,), daemon=True)
    process.start()
    try:
        yield
        assert process.is_alive(), "the flood has ended by itself"
    finally:
        process.kill()
        process.join()


def _run_flood(access: ClusterAccess) -> None:
    keep_memory()
    uvloop.run(_append_for_ever(access))


async def _append_for_ever(access: ClusterAccess) -> None:
    async with leader_of(access, "flooded") as leader:

        async def append_some() -> None:
            while True:
                await leader.append(_FLOOD_BYTES)

        await asyncio.gather(*(append_some() for _ in range(_FLOOD_WINDOW)))


# --- stalls -----------------------------------------------------------------------------------------------------------


def _longest_stall(cluster: Cluster, access: ClusterAccess) -> Figure:
    """The worst of several works; each is told with its own longest in the note."""
    pid, endpoint = leading_pid(cluster, "neighbour"), uvloop.run(_endpoint(access))

    def stall_during(work: Callable[[], object]) -> float:
        watch = LoopWatch(pid, lambda: HostileClient(endpoint, access.secrets.own_keys[0]))
        work()
        return watch.end()[0]

    found = {"nothing": stall_during(lambda: time.sleep(_WARM_SECONDS))}
    with _topic_in_flood(cluster):
        found["a flood"] = stall_during(lambda: _flood_for_a_while(access))
        found["deleting records"] = stall_during(lambda: cluster.delete_records({("flooded", 0): -1}))
    found[f"making {_MADE} partitions"] = stall_during(lambda: made(cluster, "made", _MADE, leader=LEADER))
    found[f"deleting {_MADE}"] = stall_during(lambda: _delete_and_wait(cluster))
    note = ", ".join(f"{what} {stall:.1f}" for what, stall in found.items())
    longest = [max(found.values())]
    return Figure(
        "longest hold of a shared host's loop", longest, "ms", _STALL_GOAL_MS, smaller_is_better=True, note=note
    )


def _flood_for_a_while(access: ClusterAccess) -> None:
    with _flood(access):
        time.sleep(_FLOOD_SECONDS)


def _delete_and_wait(cluster: Cluster) -> None:
    cluster.delete_topic("made")
    time.sleep(_WARM_SECONDS)


async def _endpoint(access: ClusterAccess) -> Endpoint:
    async with leader_of(access, "neighbour") as leader:
        return leader.endpoint

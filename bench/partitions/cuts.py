"""The longest wait of a neighbour's append while a log of 1 GiB is cut, thrown away, or looked through beside it.

One loop, as in a shared host: the neighbour appends a small batch each millisecond, and the wait counts from when its
turn should have come. Only what waits on the loop counts: it is told in the processor time of the loop's thread and by
the clock, which other programs and the disk make longer.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Final, NamedTuple, TypeAlias

import uvloop

from bench.batches import NOW_MS, batch_of
from bench.measuring import Figure
from bench.partitions.kafka import KafkaCluster
from raylog.actors.kernel.background import Timers
from raylog.actors.machine.loop_thread import SWITCH_SECONDS
from raylog.actors.machine.real_environment import Place, RealEnvironment
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.replica.hosted_log import HostedLog, PartitionName, ReplicaCalls
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.config import GIB, KIB, MIB
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.log.partition_log import PartitionLog

_GOAL_MS: Final = 5.0
_BATCH_BYTES: Final = 64 * KIB
_SEGMENT_BYTES: Final = 256 * MIB
_PACE_SECONDS: Final = 0.001
_CALM_SECONDS: Final = 2.0
_AFTERWARDS_SECONDS: Final = 0.05
_ROUNDS: Final = 3
_Work: TypeAlias = Callable[[HostedLog], Awaitable[object]]


class Wait(NamedTuple):
    """The longest waits of the neighbour, in milliseconds."""

    by_clock: float
    processor: float


def run(_kafka: KafkaCluster | None) -> Iterator[Figure]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(SWITCH_SECONDS)
    try:
        for name, work in _WORKS.items():
            waits = [_round(work) for _ in range(_ROUNDS)]
            note = f"{max(wait.processor for wait in waits):.1f} ms of it were the loop's own"
            clocks = [wait.by_clock for wait in waits]
            yield Figure(f"longest wait of a neighbour: {name}", clocks, "ms", _GOAL_MS, True, note)
    finally:
        sys.setswitchinterval(before)


async def _nothing(_: HostedLog) -> None:
    await asyncio.sleep(_CALM_SECONDS)


async def _cut(hosted: HostedLog) -> None:
    await hosted.truncate(1)


async def _restart(hosted: HostedLog) -> None:
    await hosted.restart_at(hosted.log.log_end_offset + 5)


async def _look_through(hosted: HostedLog) -> None:
    for segment in hosted.log.segments.sealed:
        segment.transactions_known = False
        for path in segment.index_paths():
            hosted.log.disk.remove(path)
    await hosted.know_aborted(0)


_WORKS: Final[dict[str, _Work]] = {
    "nothing": _nothing,
    "1 GiB cut": _cut,
    "1 GiB thrown away": _restart,
    "transaction indexes of 1 GiB made again": _look_through,
}


def _round(work: _Work) -> Wait:
    root = Path(tempfile.mkdtemp(prefix="raylog-bench-", dir=os.environ.get("RAYLOG_BENCH_DIR")))
    try:
        return uvloop.run(_wait_during(root, work))
    finally:
        shutil.rmtree(root)


async def _wait_during(root: Path, work: _Work) -> Wait:
    env = RealEnvironment(Place("bench", ClusterSecrets(1, (b"internal" * 4,), (b"client" * 6,)), "127.0.0.1"), None)
    hosted, neighbour = _hosted(env, _open(root / "bench-0", 0)), _Neighbour(_open(root / "bench-1", 1))
    batch = batch_of(_BATCH_BYTES)
    for _ in range(GIB // len(batch)):
        hosted.log.append_as_leader(batch, 1, NOW_MS)
    hosted.log.flush()
    task = asyncio.create_task(neighbour.append_on_and_on())
    await work(hosted)
    await asyncio.sleep(_AFTERWARDS_SECONDS)  # so that a hold in the last turn counts too
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task
    neighbour.log.abandon()
    await hosted.close(is_kept=False)
    return neighbour.longest


class _Neighbour:
    """Another log on the same loop."""

    def __init__(self, log: PartitionLog) -> None:
        self.log = log
        self.longest = Wait(0.0, 0.0)

    async def append_on_and_on(self) -> None:
        batch = batch_of(KIB)
        while True:
            began, busy = time.perf_counter(), time.thread_time()
            await asyncio.sleep(_PACE_SECONDS)
            self.log.append_as_leader(batch, 1, NOW_MS)
            waited, spent = time.perf_counter() - began - _PACE_SECONDS, time.thread_time() - busy
            self.longest = Wait(max(self.longest.by_clock, waited * 1000), max(self.longest.processor, spent * 1000))


def _open(path: Path, partition: int) -> PartitionLog:
    identity = PartitionIdentity("bench", "bench", "bench-id", partition)
    log = PartitionLog.open(str(path), identity, {"segment.bytes": _SEGMENT_BYTES}, now_ms=NOW_MS)
    log.begin_epoch(1)
    return log


def _hosted(env: RealEnvironment, log: PartitionLog) -> HostedLog:
    loop = asyncio.get_running_loop()
    name = PartitionName("bench", b"sixteen bytes id", 0)
    return HostedLog(
        log, name, (1, 1), "", env, Timers(loop), ReplicaCounters(loop.time), ReplicaCalls(_refuse, _refuse)
    )


async def _refuse(asked: object) -> None:
    raise AssertionError(f"Nobody is asked here: {asked}")

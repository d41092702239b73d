"""acks=all on three replicas for longer than the page cache helps: gigabytes, beside plain writers of the same bytes.

The kernel lets writers run at the speed of memory until about a tenth of it is dirty, and then at that of the disk. So
here more is written than that, and what counts is the ratio to three plain writers that write as much, at the same
time, in the same run. Beside the large batches one small one after the other tells how long somebody else waits.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import threading
import time
from collections.abc import Iterator

import uvloop

from bench.measuring import Figure
from bench.replicated_partition import TOPIC_ID, replicated_partition
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append
from raylog.config import MIB
from raylog.storage.format.batch_codec import encode_batch

_BYTES = 5_000_000_000
_WINDOW = 16
_ALL = Append(NO_EPOCH, -1, 60_000)
_GOAL_RATIO = 0.7
_REPLICAS = 3


def run() -> Iterator[Figure]:
    yield from uvloop.run(_measure())


async def _measure() -> list[Figure]:
    async with replicated_partition({"max.message.bytes": str(2 * MIB)}) as (leader, folder):
        before = await asyncio.to_thread(_plain_writers, folder)
        ours, small = await _replicated(leader)
    after_folder_is_free = os.environ.get("RAYLOG_BENCH_DIR", "/tmp")
    after = await asyncio.to_thread(_plain_writers, after_folder_is_free)
    raw = statistics.mean((before, after))
    note = f"{ours:,.0f} MB/s; three plain writers {before:,.0f} before, {after:,.0f} after"
    return [
        Figure("acks=all by three, 5 GB / plain writers", [ours / raw], "", _GOAL_RATIO, note=note),
        Figure("a small batch meanwhile, p50", [statistics.median(small)], "ms"),
        Figure("a small batch meanwhile, p99", [statistics.quantiles(small, n=100)[98]], "ms"),
    ]


def _plain_writers(folder: str) -> float:
    """MB/s of each of three that write at the same time."""
    os.sync()
    names = [f"{folder}/plain-{number}" for number in range(_REPLICAS)]
    threads = [threading.Thread(target=_write_plainly, args=(name,)) for name in names]
    start = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    spent = time.perf_counter() - start
    for name in names:
        os.unlink(name)
    os.sync()
    return _BYTES / 1e6 / spent


def _write_plainly(name: str) -> None:
    data = bytes(MIB)
    with open(name, "wb", buffering=0) as file:
        for _ in range(_BYTES // MIB):
            file.write(data)


async def _replicated(leader: Stream) -> tuple[float, list[float]]:
    """(MB/s, milliseconds of the small batches)."""
    left = _BYTES // MIB
    small: list[float] = []

    async def append_large() -> None:
        nonlocal left
        while left > 0:
            left -= 1
            await _append(leader, MIB)

    async def append_small() -> None:
        while left > 0:
            start = time.perf_counter()
            await _append(leader, 100)
            small.append((time.perf_counter() - start) * 1e3)
            await asyncio.sleep(0.005)

    start = time.perf_counter()
    await asyncio.gather(append_small(), *(append_large() for _ in range(_WINDOW)))
    return _BYTES / 1e6 / (time.perf_counter() - start), small


async def _append(leader: Stream, size: int) -> None:
    batch = encode_batch([bytes(size)], timestamps=time.time_ns() // 1_000_000)
    await leader.request(_ALL, batch, topic_id=TOPIC_ID, partition=0, timeout=60)

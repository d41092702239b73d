"""acks=all on three replicas of this machine: latency of one small batch, and how much goes through."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Iterator

import uvloop

from bench.measuring import ROUNDS, Figure, rounds_of
from bench.replicated_partition import TOPIC_ID, replicated_partition
from raylog.actors.kept_memory import keep_memory
from raylog.actors.replication_messages import NO_EPOCH, Append, Appended
from raylog.actors.stream_interface import Stream
from raylog.config import KIB, MIB
from raylog.storage.batch_codec import encode_batch

_ROUND_TRIPS = 2_000
_PIPELINED = {100: (20_000, 64), 16 * KIB: (8_000, 64)}  # batches, in flight
_BURST_BYTES = 300_000_000
_BURST_WINDOW = 16
_ALL = Append(NO_EPOCH, -1, 30_000)
_GOAL_P50_MS, _GOAL_P99_MS, _GOAL_BURST = 0.25, 1.0, 800.0


def run() -> Iterator[Figure]:
    yield from uvloop.run(_measure())


async def _measure() -> list[Figure]:
    keep_memory()
    async with replicated_partition({"max.message.bytes": str(2 * MIB)}) as (leader, folder):
        figures = await _latency(leader)
        for size, (count, window) in _PIPELINED.items():
            figures.append(await _pipelined(leader, size, count, window))
        figures.append(await _burst(leader, folder))
    return figures


async def _latency(leader: Stream) -> list[Figure]:
    p50, p99 = [], []
    for _ in range(ROUNDS + 1):
        spent = []
        for _ in range(_ROUND_TRIPS):
            batch = _batch(100)
            start = time.perf_counter()
            await _append(leader, batch)
            spent.append((time.perf_counter() - start) * 1e3)
        p50.append(statistics.median(spent))
        p99.append(statistics.quantiles(spent, n=100)[98])
    return [
        Figure("acks=all by three, 100 B, p50", p50[1:], "ms", _GOAL_P50_MS, True),
        Figure("acks=all by three, 100 B, p99", p99[1:], "ms", _GOAL_P99_MS, True),
    ]


async def _pipelined(leader: Stream, size: int, count: int, window: int) -> Figure:
    rates = []
    for _ in range(ROUNDS + 1):
        rates.append(count / await _spent(leader, size, count, window))
    through = f"{statistics.median(rates[1:]) * size / 1e6:,.0f} MB/s, {window} in flight"
    return Figure(f"acks=all by three, {size} B pipelined", rates[1:], "batches/s", note=through)


async def _burst(leader: Stream, folder: str) -> Figure:
    """Each round after the kernel has written the one before, so that the page cache takes it."""
    count = _BURST_BYTES // MIB
    rates = []
    for _ in range(ROUNDS + 1):
        os.sync()
        rates.append(count * MIB / 1e6 / await _spent(leader, MIB, count, _BURST_WINDOW))
    raw = statistics.median(rounds_of(lambda: _three_plain_writers(folder, count)))
    note = f"three plain writers, one after the other: {raw:,.0f}"
    return Figure("acks=all by three, burst of 300 MB in 1 MiB", rates[1:], "MB/s", _GOAL_BURST, note=note)


def _three_plain_writers(folder: str, count: int) -> float:
    os.sync()
    data = bytes(MIB)
    start = time.perf_counter()
    for number in range(3):
        with open(f"{folder}/plain-{number}", "wb", buffering=0) as file:
            for _ in range(count):
                file.write(data)
    rate = count * MIB / 1e6 / (time.perf_counter() - start)
    for number in range(3):
        os.unlink(f"{folder}/plain-{number}")
    return rate


async def _spent(leader: Stream, size: int, count: int, window: int) -> float:
    batches = [_batch(size) for _ in range(count)]

    async def append_some() -> None:
        while batches:
            await _append(leader, batches.pop())

    start = time.perf_counter()
    await asyncio.gather(*(append_some() for _ in range(window)))
    return time.perf_counter() - start


async def _append(leader: Stream, batch: bytearray) -> None:
    answer = await leader.request(_ALL, batch, topic_id=TOPIC_ID, partition=0)
    assert isinstance(answer.message, Appended)


def _batch(size: int) -> bytearray:
    return encode_batch([bytes(size)], timestamps=time.time_ns() // 1_000_000)

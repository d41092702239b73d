"""acks=all on three replicas of this machine: latency of one small batch, and how much goes through."""

from __future__ import annotations

import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import TypeAlias

import uvloop

from bench.bare_replication import bare_replication
from bench.measuring import ROUNDS, Figure, rounds_of
from bench.replicated_partition import TOPIC_ID, replicated_partition
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended
from raylog.config import KIB, MIB
from raylog.storage.format.batch_codec import encode_batch

_ROUND_TRIPS = 2_000
_PIPELINED = {100: (20_000, 64), 16 * KIB: (8_000, 64)}  # batches, in flight
_BURST_BYTES = 300_000_000
_BURST_WINDOW = 16
_ALL = Append(NO_EPOCH, -1, 30_000)
_GOAL_P50_MS, _GOAL_P99_MS, _GOAL_BURST = 0.25, 1.0, 800.0

_Write: TypeAlias = Callable[[bytes | bytearray], Awaitable[None]]


def run() -> Iterator[Figure]:
    yield from uvloop.run(_measure())


async def _measure() -> list[Figure]:
    keep_memory()
    settings = {"max.message.bytes": str(2 * MIB)}
    async with replicated_partition(settings) as (leader, folder), bare_replication(folder) as bare:
        figures = await _latency(leader, bare)
        for size, (count, window) in _PIPELINED.items():
            figures.append(await _pipelined(leader, size, count, window))
        figures.append(await _burst(leader, bare, folder))
        return figures


async def _latency(leader: Stream, bare: _Write) -> list[Figure]:
    batch = _batch(100)
    ours, limit = [], []
    for _ in range(ROUNDS + 1):
        ours.append(await _round_trips(lambda: _append(leader, batch)))
        limit.append(await _round_trips(lambda: bare(batch)))
    p50, p99 = zip(*ours[1:], strict=True)
    bare_p50, bare_p99 = (statistics.median(each) for each in zip(*limit[1:], strict=True))
    return [
        Figure("acks=all by three, 100 B, p50", p50, "ms", _GOAL_P50_MS, True, f"four bare processes {bare_p50:.3f}"),
        Figure("acks=all by three, 100 B, p99", p99, "ms", _GOAL_P99_MS, True, f"four bare processes {bare_p99:.3f}"),
    ]


async def _round_trips(ask: Callable[[], Awaitable[None]]) -> tuple[float, float]:
    """(p50, p99) in milliseconds."""
    spent = []
    for _ in range(_ROUND_TRIPS):
        start = time.perf_counter()
        await ask()
        spent.append((time.perf_counter() - start) * 1e3)
    return statistics.median(spent), statistics.quantiles(spent, n=100)[98]


async def _pipelined(leader: Stream, size: int, count: int, window: int) -> Figure:
    batch = _batch(size)
    rates = []
    for _ in range(ROUNDS + 1):
        rates.append(count / await _spent(lambda: _append(leader, batch), count, window))
    through = f"{statistics.median(rates[1:]) * size / 1e6:,.0f} MB/s, {window} in flight"
    return Figure(f"acks=all by three, {size} B pipelined", rates[1:], "batches/s", note=through)


async def _burst(leader: Stream, bare: _Write, folder: str) -> Figure:
    """Each round after the kernel has written the one before, so that the page cache takes it."""
    batch = _batch(MIB)
    count = _BURST_BYTES // MIB
    ours: list[float] = []
    limit: list[float] = []
    for _ in range(ROUNDS + 1):
        for rates, ask in (ours, lambda: _append(leader, batch)), (limit, lambda: bare(batch)):
            _touch_memory(folder, 3 * _BURST_BYTES)
            rates.append(count * MIB / 1e6 / await _spent(ask, count, _BURST_WINDOW))
    raw = statistics.median(rounds_of(lambda: _three_plain_writers(folder, count)))
    note = f"four bare processes {statistics.median(limit[1:]):,.0f}, three plain writers in turn {raw:,.0f}"
    return Figure("acks=all by three, burst of 300 MB in 1 MiB", ours[1:], "MB/s", _GOAL_BURST, note=note)


def _touch_memory(folder: str, size: int) -> None:
    """Let pages be free that the machine has just used.

    The memory of a virtual machine that has been free for seconds goes back to the host, and each page of it costs a
    round trip there when the page cache takes it again: plain writers fell from 4,000 to 330 MB/s by that.
    """
    os.sync()
    _write(f"{folder}/touched", size // MIB)
    os.unlink(f"{folder}/touched")


def _three_plain_writers(folder: str, count: int) -> float:
    _touch_memory(folder, 3 * _BURST_BYTES)
    start = time.perf_counter()
    for number in range(3):
        _write(f"{folder}/plain-{number}", count)
    rate = count * MIB / 1e6 / (time.perf_counter() - start)
    for number in range(3):
        os.unlink(f"{folder}/plain-{number}")
    return rate


def _write(path: str, count: int) -> None:
    data = bytes(MIB)
    with open(path, "wb", buffering=0) as file:
        for _ in range(count):
            file.write(data)


async def _spent(ask: Callable[[], Awaitable[None]], count: int, window: int) -> float:
    left = count

    async def ask_some() -> None:
        nonlocal left
        while left:
            left -= 1
            await ask()

    start = time.perf_counter()
    await asyncio.gather(*(ask_some() for _ in range(window)))
    return time.perf_counter() - start


async def _append(leader: Stream, batch: bytearray) -> None:
    answer = await leader.request(_ALL, batch, topic_id=TOPIC_ID, partition=0)
    assert isinstance(answer.message, Appended)


def _batch(size: int) -> bytearray:
    return encode_batch([bytes(size)], timestamps=time.time_ns() // 1_000_000)

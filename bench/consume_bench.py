"""Consuming: 10-byte keys, 100-byte values, one partition. The reader here, the replicas in processes of their own.

Raw limits of the same run stand beside: reading the log's file from the page cache, and making the same records of the
same batch in memory. CPU time is this process's, client loop included, for wall time suffers from whatever else runs.
"""

from __future__ import annotations

import asyncio
import glob
import multiprocessing
import os
import statistics
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice

import uvloop

from bench.batches import batch_of
from bench.measuring import ROUNDS, Figure, rate_of, rounds_of
from bench.replicated_partition import TOPIC, TOPIC_ID, BenchCluster, bench_cluster
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.machine.kept_memory import keep_memory
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended
from raylog.api.connection.client_access import link_address
from raylog.api.connection.client_runtime import client_runtime
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.consumer import Consumer
from raylog.api.consumer.rules.fetched import RecordRun
from raylog.config import KIB, MIB
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import check_batch, read_header

_MILLION = 1_000_000
_LOG_BYTES = 256 * MIB
_SETTINGS = {"retention.ms": "-1", "message.timestamp.before.max.ms": str(2**63 - 1)}  # the records are of 2023
_SIZES = {"64 KiB": 64 * KIB, "1 MiB": 1000 * KIB}
_WINDOW = 16
_ALL = Append(NO_EPOCH, -1, 30_000)
_PARTITION = TopicPartition(TOPIC, 0)
_GOAL_RECORDS, _GOAL_BATCHES = 2.0, 10.0
_GOAL_P50_MS, _GOAL_P99_MS = 1.0, 4.0
_PER_SECOND, _SECONDS = 1000, 5.0
_STAMP_BYTES = 8


@dataclass
class Reading:
    """One way to read a log to its end: the number of records, or less where it was interrupted."""

    name: str
    read: Callable[[Consumer, int], int]
    goal: float | None = None
    note: str = ""


def _iterate(consumer: Consumer, count: int) -> int:
    seen = 0
    for _ in islice(consumer, count):
        seen += 1
    return seen


def _poll(consumer: Consumer, count: int) -> int:
    seen = 0
    while seen < count:
        for records in consumer.poll(timeout_ms=10_000).values():
            seen += len(records)
    return seen


def _batches(consumer: Consumer, count: int) -> int:
    seen = 0
    while seen < count:
        seen += sum(map(len, consumer.poll_batches(timeout_ms=10_000)))
    return seen


def _columns(consumer: Consumer, count: int) -> int:
    seen = 0
    while seen < count:
        for batch in consumer.poll_batches(timeout_ms=10_000):
            seen += len(batch.values)
            deque(batch.keys, maxlen=0)
    return seen


def _arrow(consumer: Consumer, count: int) -> int:
    seen = 0
    while seen < count:
        seen += consumer.poll_arrow(timeout_ms=10_000).num_rows
    return seen


READINGS = [
    Reading("consume, one by one", _iterate, _GOAL_RECORDS),
    Reading("consume, polls of 500", _poll, _GOAL_RECORDS),
    Reading("poll_batches", _batches, _GOAL_BATCHES, "CRC checked, columns not asked for"),
    Reading("poll_batches, keys and values as lists", _columns),
    Reading("poll_arrow", _arrow, _GOAL_BATCHES),
]


def run() -> Iterator[Figure]:
    keep_memory()
    for name, size in _SIZES.items():
        yield from uvloop.run(_throughput(name, size))
    yield from uvloop.run(_latency())


# --- throughput -------------------------------------------------------------------------------------------------------


async def _throughput(name: str, size: int) -> list[Figure]:
    batch = bytes(batch_of(size))
    per_batch = read_header(batch).record_count
    batches = _LOG_BYTES // len(batch)
    async with bench_cluster(_SETTINGS, 1) as cluster:
        await _fill(cluster.leader, batch, batches)
        return await asyncio.to_thread(_measure, cluster, name, batch, per_batch * batches)


async def _fill(leader: Stream, batch: bytes, count: int) -> None:
    left = [bytearray(batch) for _ in range(count)]

    async def append_some() -> None:
        while left:
            await _append(leader, left.pop())

    await asyncio.gather(*(append_some() for _ in range(_WINDOW)))


async def _append(leader: Stream, batch: bytearray) -> None:
    answer = await leader.request(_ALL, batch, topic_id=TOPIC_ID, partition=0)
    assert isinstance(answer.message, Appended)


def _measure(cluster: BenchCluster, name: str, batch: bytes, count: int) -> list[Figure]:
    per_batch = read_header(batch).record_count
    raw = statistics.median(rounds_of(rate_of(lambda: _make_records(batch), per_batch / _MILLION)))
    file = statistics.median(rounds_of(lambda: _read_file(cluster.folder, count)))
    limits = f"in memory {raw:.2g}, page cache {file:.3g}"
    figures = []
    for local in (True, False):
        with Consumer(cluster=cluster.access, use_local_files=local, auto_offset_reset="earliest") as consumer:
            consumer.assign([_PARTITION])
            for reading in READINGS:
                figures.append(_rates(reading, consumer, count, f"{name}{', files' if local else ', stream'}", limits))
    return figures


def _rates(reading: Reading, consumer: Consumer, count: int, how: str, limits: str) -> Figure:
    rates, cpu = [], []
    for _ in range(ROUNDS + 1):
        consumer.seek_to_beginning()
        began, spent = time.perf_counter(), time.process_time()
        assert reading.read(consumer, count) == count
        rates.append(count / _MILLION / (time.perf_counter() - began))
        cpu.append((time.process_time() - spent) / count * 1e9)
    note = f"{statistics.median(cpu[1:]):.0f} ns of CPU each; {limits}"
    return Figure(f"{reading.name}, {how}", rates[1:], "M records/s", reading.goal, note=note)


def _make_records(batch: bytes) -> None:
    deque(RecordRun(_PARTITION, check_batch(batch), batch, 0).records, maxlen=0)


def _read_file(folder: str, count: int) -> float:
    """M records/s of plain reads of 1 MiB."""
    (path,) = glob.glob(f"{folder}/broker-1/*/0*.log")
    began, size = time.perf_counter(), 0
    fd = os.open(path, os.O_RDONLY)
    while data := os.pread(fd, MIB, size):
        size += len(data)
    os.close(fd)
    return count / _MILLION / (time.perf_counter() - began)


# --- latency ----------------------------------------------------------------------------------------------------------


async def _latency() -> list[Figure]:
    async with bench_cluster({}, 3) as cluster:
        return await asyncio.to_thread(_latencies, cluster.access)


def _latencies(access: ClusterAccess) -> list[Figure]:
    """Time records from before they are encoded until `poll` has returned them; acks=all by three, a batch for each."""
    p50, p99 = [], []
    with Consumer(cluster=access) as consumer:
        consumer.assign([_PARTITION])
        consumer.position(_PARTITION)
        for _ in range(ROUNDS + 1):
            writer = multiprocessing.get_context("spawn").Process(target=_write, args=(access,), daemon=True)
            writer.start()
            spent = _delays(consumer, int(_PER_SECOND * _SECONDS))
            writer.join()
            p50.append(statistics.median(spent))
            p99.append(statistics.quantiles(spent, n=100)[98])
    note = f"{_PER_SECOND} records/s, three replicas, a parked fetch"
    return [
        Figure("end to end, p50", p50[1:], "ms", _GOAL_P50_MS, True, note),
        Figure("end to end, p99", p99[1:], "ms", _GOAL_P99_MS, True, note),
    ]


def _delays(consumer: Consumer, count: int) -> list[float]:
    """Return the delays in milliseconds."""
    spent: list[float] = []
    while len(spent) < count:
        for records in consumer.poll(timeout_ms=10_000).values():
            now = time.perf_counter_ns()
            spent += [(now - int.from_bytes(record.value[:_STAMP_BYTES], "big")) / 1e6 for record in records]
    return spent


def _write(access: ClusterAccess) -> None:
    """A plain writer over one stream; the clock of `perf_counter` is the same in all processes."""
    runtime = client_runtime()
    link = runtime.run(runtime.acquire_link(link_address(access, 10.0)), 10.0)
    rest = bytes(100 - _STAMP_BYTES)

    async def write() -> None:
        view = await link.find_topic(TOPIC, 10.0)
        loop = asyncio.get_running_loop()
        began, pending = loop.time(), set()
        for number in range(int(_PER_SECOND * _SECONDS)):
            await asyncio.sleep(began + number / _PER_SECOND - loop.time())
            stamp = time.perf_counter_ns().to_bytes(_STAMP_BYTES, "big")
            batch = encode_batch([stamp + rest], keys=[b"0123456789"], timestamps=time.time_ns() // 1_000_000)
            pending.add(loop.create_task(link.ask(view.partitions[0], _ALL, batch, expect=Appended, timeout=10.0)))
            pending = {task for task in pending if not task.done()}
        await asyncio.gather(*pending)

    runtime.run(write(), 60.0)

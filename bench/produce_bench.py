"""Producing: records a second from `send` and `send_many` until all are acknowledged, and the latency of one record.

Keys of 10 bytes, values of 100. Client, leaders and followers share the machine. Each value is an object of its
own, made before the clock starts. The raw limits are taken in the same run: what a Python program can append to
lists, what a socket and a file of this machine take.
"""

from __future__ import annotations

import gc
import os
import random
import resource
import socket
import statistics
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial

from bench.measuring import ROUNDS, Figure, rounds_of, seconds
from bench.real_cluster import real_cluster, topic
from raylog.api.admin.cluster import Cluster
from raylog.api.consumer.consumer import Consumer
from raylog.api.producer.producer import Producer
from raylog.config import KIB, MIB

_ONE_BY_ONE = 500_000
_BULK = 1_000_000
_SYNCHRONOUS = 1_000
_DISTINCT = 10_000
_RECORD_BYTES = 126  # on the wire: key, value, two lengths, a timestamp
_OUTRUN_SECONDS = 15.0
_random = random.Random(7)


def run() -> Iterator[Figure]:
    with real_cluster() as cluster:
        raw = _raw_limits()
        yield from raw
        yield from _one_by_one(cluster, raw[0].median)
        yield from _bulk(cluster, raw[1].median)
        yield from _synchronous(cluster, "")
        _use_coordinators(cluster)
        yield from _synchronous(cluster, ", groups in use")
        yield _memory(cluster)


# --- raw limits -------------------------------------------------------------------------------------------------------


def _raw_limits() -> list[Figure]:
    keys, values = _known_keys(_ONE_BY_ONE), _values(_ONE_BY_ONE)
    return [
        Figure("raw: keys and values to lists", rounds_of(partial(_append_all, keys, values)), "M records/s"),
        Figure("raw: a unix socket to a thread", rounds_of(_through_socket), "M records/s", note="of 126 bytes"),
        Figure("raw: a file in the page cache", rounds_of(_to_file), "M records/s", note="of 126 bytes"),
    ]


def _append_all(keys: Sequence[bytes], values: Sequence[bytes]) -> float:
    def append() -> None:
        one: list[bytes] = []
        other: list[bytes] = []
        for place, value in enumerate(values):
            one.append(keys[place])
            other.append(value)

    return len(values) / seconds(append) / 1e6


def _through_socket() -> float:
    here, there = socket.socketpair()
    data = bytes(512 * KIB)
    total = 400 * len(data)

    def read() -> None:
        buffer, left = bytearray(MIB), total
        while left:
            left -= there.recv_into(buffer)

    reader = threading.Thread(target=read)

    def send() -> None:
        reader.start()
        for _ in range(400):
            here.sendall(data)
        reader.join()

    spent = seconds(send)
    here.close()
    there.close()
    return total / _RECORD_BYTES / spent / 1e6


def _to_file() -> float:
    data = bytes(512 * KIB)
    with tempfile.TemporaryFile(buffering=0, dir=os.environ.get("RAYLOG_BENCH_DIR")) as file:
        spent = seconds(lambda: [file.write(data) for _ in range(400)])
    return 400 * len(data) / _RECORD_BYTES / spent / 1e6


# --- throughput -------------------------------------------------------------------------------------------------------


def _one_by_one(cluster: Cluster, raw: float) -> Iterator[Figure]:
    values = _values(_ONE_BY_ONE)
    for name, keys, goal in (
        ("send, RF 1, 10,000 keys", _known_keys(_ONE_BY_ONE), 1.0),
        ("send, RF 1, no keys", None, 1.0),
        ("send, RF 1, each key new", _new_keys(_ONE_BY_ONE), None),
    ):
        work = partial(_send_all, keys=keys, values=values)
        yield _throughput(cluster, name, 1, len(values), work, goal, raw)


def _bulk(cluster: Cluster, raw: float) -> Iterator[Figure]:
    values = _values(_BULK)
    for name, replicas, keys, options, goal in (
        ("send_many, RF 1, 10,000 keys", 1, _known_keys(_BULK), {}, 5.0),
        ("send_many, RF 1, no keys", 1, None, {}, 5.0),
        ("send_many, RF 1, each key new", 1, _new_keys(_BULK), {}, None),
        ("send_many, RF 3, acks=all", 3, _known_keys(_BULK), {}, 3.0),
        ("send_many, RF 3, acks=all, lz4", 3, _known_keys(_BULK), {"compression_type": "lz4"}, None),
    ):

        def work(producer: Producer, name: str, keys: Sequence[bytes] | None = keys) -> None:
            producer.send_many(name, values, keys=keys)

        yield _throughput(cluster, name, replicas, len(values), work, goal, raw, **options)


def _throughput(
    cluster: Cluster,
    name: str,
    replicas: int,
    count: int,
    work: Callable[[Producer, str], None],
    goal: float | None,
    raw: float,
    **options: str,
) -> Figure:
    """Send until everything is acknowledged. The first round warms up: keys are met, pages are mapped."""
    rates, processor = [], []
    with topic(cluster, "bench", replicas) as where, Producer(cluster=cluster, **options) as producer:  # type: ignore[arg-type]

        def all_of_it() -> None:
            work(producer, where)
            producer.flush(120)

        for _ in range(ROUNDS + 1):
            os.sync()
            gc.collect()
            before = time.process_time()
            rates.append(count / seconds(all_of_it) / 1e6)
            processor.append((time.process_time() - before) / count * 1e9)
        per_request = producer.metrics()["records-per-request-avg"]
    note = f"{statistics.median(rates[1:]) / raw:.0%} of raw; {statistics.median(processor[1:]):.0f} ns of processor, "
    return Figure(name, rates[1:], "M records/s", goal, note=note + f"{per_request:,.0f} a batch")


def _send_all(producer: Producer, name: str, keys: Sequence[bytes] | None, values: Sequence[bytes]) -> None:
    send = producer.send
    if keys is None:
        for value in values:
            send(name, value)
    else:
        for key, value in zip(keys, values, strict=True):
            send(name, value, key)


# --- latency and memory -----------------------------------------------------------------------------------------------


def _use_coordinators(cluster: Cluster) -> None:
    """Write a transaction and read it in a group. In some versions the processes for these are made only then."""
    with topic(cluster, "bench-used", 3, 1) as name:
        with Producer(cluster=cluster, transactional_id="bench") as producer:
            producer.init_transactions()
            with producer.transaction():
                producer.send(name, bytes(100))
        with Consumer(name, cluster=cluster, group_id="bench", auto_offset_reset="earliest") as consumer:
            consumer.poll(30_000)
            consumer.commit()


def _synchronous(cluster: Cluster, where: str) -> Iterator[Figure]:
    p50, p99 = [], []
    with topic(cluster, "bench-latency", 3, 1) as name, Producer(cluster=cluster) as producer:
        for _ in range(ROUNDS + 1):
            spent = [1e3 * seconds(lambda: producer.send(name, bytes(100)).result(10)) for _ in range(_SYNCHRONOUS)]
            p50.append(statistics.median(spent))
            p99.append(statistics.quantiles(spent, n=100)[98])
    yield Figure(f"send().result(), RF 3, p50{where}", p50[1:], "ms", 0.4, True)
    yield Figure(f"send().result(), RF 3, p99{where}", p99[1:], "ms", 1.5, True)


def _memory(cluster: Cluster) -> Figure:
    """Measure how far the process grows while it sends faster than the cluster takes."""
    values = _values(100_000)
    with topic(cluster, "bench-memory", 3) as name, Producer(cluster=cluster, buffer_memory=32 * MIB) as producer:
        producer.send_many(name, values).result(60)
        before, waited, until = _resident(), 0, time.monotonic() + _OUTRUN_SECONDS
        most = before
        while time.monotonic() < until:
            producer.send_many(name, values)
            waited += producer.metrics()["buffer-available-bytes"] < MIB
            most = max(most, _resident())
        grown = (most - before) / MIB
    note = f"buffer_memory is 32 MiB; {_OUTRUN_SECONDS:g} s, the buffer was full {waited} times"
    return Figure("growth while outrunning the cluster", [grown], "MiB", 128, True, note)


def _resident() -> int:
    with open("/proc/self/statm") as file:
        return int(file.read().split()[1]) * resource.getpagesize()


# --- records ----------------------------------------------------------------------------------------------------------


def _values(count: int) -> list[bytes]:
    return [b"value %094d" % number for number in range(count)]


def _known_keys(count: int) -> list[bytes]:
    distinct = [b"k%09d" % number for number in range(_DISTINCT)]
    return _random.choices(distinct, k=count)


def _new_keys(count: int) -> list[bytes]:
    return [b"n%09d" % number for number in range(count)]

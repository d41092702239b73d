"""The way of one record between `produce` and a consumer's hands, and its cost: `python -m bench kafka-profile`.

librdkafka sends 1,000 small records a second through a gateway, acks=all, to three replicas of one partition, and reads
them back. Every process is looked at twice: what it asks Linux for, with nothing in its way, and then with a profile.
With `--against HOST:PORT` the brokers of Apache Kafka are asked the same, and what Linux gives them is counted.
"""

from __future__ import annotations

import asyncio
import os
import statistics
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Final

import uvloop

from bench.gateway.comparing import KAFKA, RAYLOG
from bench.gateway.latency import LATENCY_RECORDS, latencies
from bench.gateway.process_profile import Function, Profiles, Spent, shares, spent
from bench.measuring import Figure
from bench.partitions.kafka import KafkaCluster
from bench.replicated_partition import TOPIC, BenchCluster, bench_cluster

_ROUNDS: Final = 3
_SHOWN: Final = 25
_CLIENT: Final = "client"  # librdkafka and Python, which sends and reads
_NOTHING: Final = Spent(0.0, 0.0, 0.0)
_PROFILED: Final = ("gateway", "leader", "follower 2")
_ROOMS: Final = (
    ("write", "writing to sockets"),
    ("api/kafka/protocol/", "Kafka's codec"),
    ("<kafka", "Kafka's codec"),
    ("api/kafka/", "serving requests"),
    ("actors/link/", "the link to the cluster"),
    ("actors/machine/", "streams"),
    ("actors/kernel/", "streams"),
    ("actors/protocol/", "streams"),
    ("actors/replica/", "the replica's roles"),
    ("storage/", "the log"),
    ("asyncio", "tasks and futures"),
)
_OTHERS: Final = "C functions of Python"


def run(against: str | None = None) -> Iterator[Figure]:
    """Yield the figures. `against`: the address of Apache Kafka, on this machine."""
    yield from uvloop.run(_measure())
    if against is not None:
        yield from _of_kafka(against)


def _of_kafka(address: str) -> Iterator[Figure]:
    peer = KafkaCluster(address)
    pids = {str(pid): pid for pid in peer.pids()}
    with peer.topic("profile", 1, 3) as topic:
        latencies(KAFKA, address, topic)
        taken, counts = [], []
        for _ in range(_ROUNDS):
            before = _spent(pids)
            taken.append(latencies(KAFKA, address, topic))
            found = _since(before, pids)
            brokers = _NOTHING
            for name in pids:
                brokers = Spent(*(sum(pair) for pair in zip(brokers, found[name], strict=True)))
            counts.append(brokers)
    yield _end_to_end(KAFKA, taken)
    yield from _of_process("Kafka's three brokers", counts)


async def _measure() -> list[Figure]:
    with tempfile.TemporaryDirectory(prefix="raylog-profiles-") as folder:
        profiles = Profiles(folder)
        async with bench_cluster({}, kafka=True, profiles=profiles) as cluster:
            await _send(cluster)
            taken, counts = [], list[dict[str, Spent]]()
            for _ in range(_ROUNDS):
                before = _spent(cluster.pids)
                taken.append(await _send(cluster))
                counts.append(_since(before, cluster.pids))
            profiles.begin(cluster.pids[name] for name in _PROFILED)
            await _send(cluster)
            functions = profiles.end({name: cluster.pids[name] for name in _PROFILED})
    figures = [_end_to_end(RAYLOG, taken)]
    for name in counts[0]:
        figures += _of_process(name, [count[name] for count in counts])
    for name in _PROFILED:
        _print(name, functions[name])
        parts = shares(functions[name], _ROOMS, _OTHERS)
        figures += [Figure(f"{name}: {room}", [100 * part], "% of its profile") for room, part in parts.items()]
    return figures


async def _send(cluster: BenchCluster) -> list[float]:
    """Send all records and read them. The loop of this process stays free: it is the cluster's broker."""
    return await asyncio.to_thread(partial(latencies, RAYLOG, cluster.kafka, TOPIC))


def _spent(pids: Mapping[str, int]) -> dict[str, Spent]:
    """Return what these processes, and this one, have spent."""
    return {name: spent(pid) for name, pid in {**pids, _CLIENT: os.getpid()}.items()}


def _since(before: Mapping[str, Spent], pids: Mapping[str, int]) -> dict[str, Spent]:
    return {
        name: Spent(*(now - then for now, then in zip(after, before[name], strict=True)))
        for name, after in _spent(pids).items()
    }


def _end_to_end(server: str, taken: Sequence[Sequence[float]]) -> Figure:
    medians = list(map(statistics.median, taken))
    return Figure(f"a record, end to end, p50, {server}", medians, "ms", smaller_is_better=True)


def _of_process(name: str, counts: list[Spent]) -> list[Figure]:
    def of_record(what: str, values: list[float], unit: str) -> Figure:
        return Figure(f"{name}: {what}", [each / LATENCY_RECORDS for each in values], unit, smaller_is_better=True)

    return [
        of_record("processor", [1e6 * each.processor for each in counts], "µs a record"),
        of_record("waits for a processor", [1e6 * each.queued for each in counts], "µs a record"),
        of_record("wakes", [each.wakes for each in counts], "a record"),
    ]


def _print(name: str, functions: list[Function]) -> None:
    """Say which functions of a process take most of its time."""
    print(f"\n{name}: calls a record, µs a record of its own, function")
    for each in sorted(functions, key=lambda function: -function.seconds)[:_SHOWN]:
        place = os.path.relpath(each.file) if each.file.startswith(os.getcwd()) else os.path.basename(each.file)
        calls, microseconds = each.calls / LATENCY_RECORDS, 1e6 * each.seconds / LATENCY_RECORDS
        print(f"{calls:8.2f} {microseconds:8.1f}  {place}:{each.name}")

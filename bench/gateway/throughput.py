"""Records a second through librdkafka, written until all are acknowledged, and read from the first to the last.

Records of one key go to one partition, of four. Those of 16 KiB batches have 100 bytes, as many small ones do, those of
1 MiB batches 1,000.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple

import raylog
from bench.gateway.comparing import RAYLOG, Server, compared, in_turns
from bench.measuring import Figure
from raylog.config import KIB, MIB

if TYPE_CHECKING:
    from confluent_kafka import Producer

_PARTITIONS: Final = 4
_KEYS: Final = 10_000
_FLUSH_SECONDS: Final = 120.0
_POLL_EVERY: Final = 2_000
_READ: Final = 300_000
_GOALS: Final = {1: 0.8, 3: 1.0}  # by replicas


class Load(NamedTuple):
    """One way to write: `copies` of each record, batches of so many bytes, over so many producers."""

    copies: int
    batch_bytes: int
    value_bytes: int
    connections: int
    records: int

    @property
    def name(self) -> str:
        batch = "1 MiB" if self.batch_bytes == MIB else f"{self.batch_bytes // KIB} KiB"
        many = "1 connection" if self.connections == 1 else f"{self.connections} connections"
        return f"librdkafka, RF {self.copies}, {batch}, {many}"


LOADS: Final = tuple(
    Load(copies, *size)
    for copies in (1, 3)
    for size in ((16 * KIB, 100, 1, 300_000), (16 * KIB, 100, 20, 300_000), (MIB, 1_000, 1, 150_000))
)


def run(found: Sequence[Server]) -> Iterator[Figure]:
    for load in LOADS:
        measures = []
        for server in found:
            topic = _topic_of(server, load)
            measures.append(partial(written, server, topic, load))
        rounds = in_turns(measures)
        yield from compared(load.name, "M records/s", list(zip(found, rounds, strict=True)), _GOALS[load.copies])
        for server in found:
            server.admin.delete(_name(load))
    yield from _consumed(found)


def _name(load: Load) -> str:
    return f"rf{load.copies}-{load.batch_bytes}-{load.connections}"


def _topic_of(server: Server, load: Load) -> str:
    server.admin.create(_name(load), _PARTITIONS, load.copies)
    return f"raylog-bench-{_name(load)}"


def written(server: Server, topic: str, load: Load) -> float:
    """Return the rate, in millions."""
    keys = [b"key-%06d" % number for number in range(_KEYS)]
    value = bytes(load.value_bytes)
    producers = [_producer(server.address, load) for _ in range(load.connections)]
    refused: list[object] = []

    def told(error: object, _message: object) -> None:
        if error is not None:
            refused.append(error)

    began = time.perf_counter()
    for number in range(load.records):
        producer = producers[number % load.connections]
        producer.produce(topic, value, keys[number % _KEYS], on_delivery=told)
        if number % _POLL_EVERY == 0:
            producer.poll(0)
    left = sum(producer.flush(_FLUSH_SECONDS) for producer in producers)
    spent = time.perf_counter() - began
    if left or refused:
        raise AssertionError(f"{server.name}: {left} records without an answer, {len(refused)} refused: {refused[:1]}")
    return load.records / spent / 1e6


def _producer(address: str, load: Load) -> Producer:
    from confluent_kafka import Producer

    return Producer(
        {
            "bootstrap.servers": address,
            "acks": "all",
            "linger.ms": 5,
            "batch.size": load.batch_bytes - KIB,  # of records: a broker's limit counts the head of the batch too
            "queue.buffering.max.messages": 2_000_000,
            "queue.buffering.max.kbytes": 1_000_000,
        }
    )


def _consumed(found: Sequence[Server]) -> Iterator[Figure]:
    load = Load(3, 16 * KIB, 100, 1, _READ)
    measures = []
    for server in found:
        server.admin.create("read", _PARTITIONS, load.copies)
        written(server, "raylog-bench-read", load)
        measures.append(partial(_read, server, "raylog-bench-read"))
    rounds = in_turns(measures)
    yield from compared("librdkafka reads", "M records/s", list(zip(found, rounds, strict=True)), _GOALS[3])
    (ours,) = (server for server in found if server.name == RAYLOG)
    yield Figure("librdkafka reads columns, raylog", in_turns([partial(_read, ours, _columns(ours))])[0], "M records/s")
    for server in found:
        server.admin.delete("read")


def _read(server: Server, topic: str) -> float:
    return _READ / server.admin.read(topic, _PARTITIONS, _READ) / 1e6


def _columns(ours: Server) -> str:
    """Return a topic that a Python handle has written."""
    topic = "raylog-bench-columns"
    ours.admin.create("columns", _PARTITIONS, 3)
    with raylog.Producer() as producer:
        keys = [b"key-%06d" % (number % _KEYS) for number in range(_READ)]
        producer.send_many(topic, [bytes(100)] * _READ, keys=keys)
        producer.flush(_FLUSH_SECONDS)
    return topic

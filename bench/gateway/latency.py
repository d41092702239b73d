"""Latency from `produce` to a consumer's hands: 1,000 records a second through librdkafka, acks=all, RF 3."""

from __future__ import annotations

import statistics
import threading
import time
from collections.abc import Iterator, Sequence
from typing import Final

from bench.gateway.comparing import ROUNDS, Server, compared
from bench.gateway.reading import go_to_end
from bench.measuring import Figure

_PER_SECOND: Final = 1_000
_SECONDS: Final = 5
LATENCY_RECORDS: Final = _PER_SECOND * _SECONDS
"""What one round sends."""

_WARM: Final = 500  # of the first records, which are not counted
_WAIT_SECONDS: Final = 30.0
_NAME: Final = "latency"
_TOPIC: Final = "raylog-bench-latency"
_GOAL: Final = 0.5


def run(found: Sequence[Server]) -> Iterator[Figure]:
    for server in found:
        server.admin.create(_NAME, 1, 3)
    rounds = [[latencies(server.name, server.address, _TOPIC) for server in found] for _ in range(ROUNDS)]
    for place, name in ((49, "p50"), (98, "p99")):
        taken = [[statistics.quantiles(each, n=100)[place] for each in of] for of in zip(*rounds, strict=True)]
        title = f"librdkafka, end to end, {name}"
        yield from compared(title, "ms", list(zip(found, taken, strict=True)), _GOAL, smaller=True)
    for server in found:
        server.admin.delete(_NAME)


def latencies(server: str, address: str, topic: str) -> list[float]:
    """Return the milliseconds of records to the topic's first partition, at a server of this name."""
    from confluent_kafka import Producer

    ready, seen = threading.Event(), list[float]()
    reader = threading.Thread(target=_read, args=(address, topic, ready, seen))
    reader.start()
    if not ready.wait(_WAIT_SECONDS):
        raise TimeoutError(f"{server}: the consumer has no position after {_WAIT_SECONDS:.0f} s")
    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    began = time.perf_counter()
    for number in range(LATENCY_RECORDS):
        while (left := began + number / _PER_SECOND - time.perf_counter()) > 0:
            producer.poll(min(left, 0.001))
        producer.produce(topic, b"%d" % time.perf_counter_ns())
    producer.flush(_WAIT_SECONDS)
    reader.join(_WAIT_SECONDS)
    if len(seen) != LATENCY_RECORDS:
        raise TimeoutError(f"{server}: {len(seen)} of {LATENCY_RECORDS} records were read")
    return seen[_WARM:]


def _read(address: str, topic: str, ready: threading.Event, seen: list[float]) -> None:
    from confluent_kafka import Consumer

    settings = {"group.id": _NAME, "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    go_to_end(consumer, topic)
    consumer.poll(1.0)
    ready.set()
    deadline = time.monotonic() + _SECONDS + _WAIT_SECONDS
    while len(seen) < LATENCY_RECORDS and time.monotonic() < deadline:
        message = consumer.poll(0.1)
        if message is not None and message.error() is None:
            seen.append((time.perf_counter_ns() - int(message.value() or b"0")) / 1e6)
    consumer.close()

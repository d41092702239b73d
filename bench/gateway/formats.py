"""The cost of each `batch.format`: topics that a Python handle and librdkafka write in each form, and both read.

A topic as its writer produces it is one of these too: columns of a handle, Kafka's form of librdkafka.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import product
from typing import Final, NamedTuple

import raylog
from bench.gateway.comparing import RAYLOG, Server, in_turns
from bench.gateway.throughput import Load, written
from bench.measuring import Figure
from raylog.config import BATCHES_OF_COLUMNS, BATCHES_OF_KAFKA, KIB

_PARTITIONS: Final = 4
_RECORDS: Final = 300_000
_KEYS: Final = 10_000
_VALUE_BYTES: Final = 100
_SECONDS: Final = 120.0


class _Written(NamedTuple):
    """A topic that one kind of client writes."""

    writer: str
    batch_format: str
    records: int

    @property
    def topic(self) -> str:
        return f"raylog-bench-{self.batch_format}-by-{self.writer}"

    @property
    def what(self) -> str:
        form = "Kafka's form" if self.batch_format == BATCHES_OF_KAFKA else "columns"
        return f"{form} of a {self.writer}"


def run(found: Sequence[Server], records: int = _RECORDS) -> Iterator[Figure]:
    (ours,) = (server for server in found if server.name == RAYLOG)
    cluster = raylog.connect()
    written_in = product(("handle", "librdkafka"), (BATCHES_OF_COLUMNS, BATCHES_OF_KAFKA))
    topics = [_Written(writer, batch_format, records) for writer, batch_format in written_in]
    for each in topics:
        config = {"batch.format": each.batch_format}
        cluster.create_topic(each.topic, partitions=_PARTITIONS, replication_factor=3, config=config)
    yield from _figures("written", topics, lambda each: partial(_write, ours, each))
    firsts = [[_read_by_librdkafka(ours, each)] for each in topics]
    yield from _told("read by librdkafka for the first time", topics, firsts)
    yield from _figures("read by librdkafka again", topics, lambda each: partial(_read_by_librdkafka, ours, each))
    yield from _figures("read by a handle", topics, lambda each: partial(_read_by_handle, each))
    for each in topics:
        cluster.delete_topic(each.topic)


def _figures(
    what: str, topics: Sequence[_Written], measure: Callable[[_Written], Callable[[], float]]
) -> Iterator[Figure]:
    yield from _told(what, topics, in_turns([measure(each) for each in topics]))


def _told(what: str, topics: Sequence[_Written], rounds: Sequence[Sequence[float]]) -> Iterator[Figure]:
    for each, taken in zip(topics, rounds, strict=True):
        yield Figure(f"{each.what}, {what}", taken, "M records/s")


def _write(ours: Server, each: _Written) -> float:
    if each.writer == "librdkafka":
        return written(ours, each.topic, Load(3, 256 * KIB, _VALUE_BYTES, 1, each.records))
    keys = [b"key-%06d" % (number % _KEYS) for number in range(each.records)]
    values = [bytes(_VALUE_BYTES)] * each.records
    with raylog.Producer() as producer:
        producer.partitions_for(each.topic)
        began = time.perf_counter()
        producer.send_many(each.topic, values, keys=keys).result(_SECONDS)
        return each.records / (time.perf_counter() - began) / 1e6


def _read_by_librdkafka(ours: Server, each: _Written) -> float:
    return each.records / ours.admin.read(each.topic, _PARTITIONS, each.records) / 1e6


def _read_by_handle(each: _Written) -> float:
    began, read = time.perf_counter(), 0
    with raylog.Consumer(each.topic, auto_offset_reset="earliest") as consumer:
        while read < each.records:
            read += sum(map(len, consumer.poll_batches(timeout_ms=1_000)))
            if time.perf_counter() - began > _SECONDS:
                raise TimeoutError(f"{read} of {each.records} records were read in {_SECONDS:.0f} s")
    return read / (time.perf_counter() - began) / 1e6

"""raylog's own handles. Their batches are columnar."""

from __future__ import annotations

import threading
from typing import Any, Final

import raylog
from raylog.errors import RaylogError
from tests.kafka.libraries.records import SECONDS, Record, Written, read_until, values

CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")


def write(_bootstrap: str, topic: str, partition: int, records: list[Record], codec: Any = None) -> None:
    with raylog.Producer(compression_type=codec) as producer:
        for each in records:
            producer.send(topic, each.value, each.key, list(each.headers), partition, each.timestamp)


def read(_bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    with raylog.Consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([raylog.TopicPartition(topic, partition)])
        return read_until(count, lambda: _polled(consumer))


def _polled(consumer: raylog.Consumer, most: int | None = None) -> list[Record]:
    return [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        for batch in consumer.poll(timeout_ms=1_000, max_records=most).values()
        for each in batch
    ]


def commit(_bootstrap: str, group: str, topic: str, offset: int) -> int:
    partition = raylog.TopicPartition(topic, 0)
    with raylog.Consumer(group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        before = consumer.committed(partition)
        consumer.commit({partition: offset})
    return before if isinstance(before, int) else -1


def take(_bootstrap: str, group: str, topic: str, count: int) -> list[Record]:
    with raylog.Consumer(group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        found = read_until(count, lambda: _polled(consumer, 1))
        consumer.commit()
    return found


def keep_writing(topic: str, partition: int, stop: threading.Event) -> Written:
    written, futures = Written(), []
    with raylog.Producer() as producer:
        for value in values("raylog", stop):
            futures.append(producer.send(topic, value, partition=partition))
            written.sent.append(value)
        producer.flush(timeout=SECONDS)
    for value, future in zip(written.sent, futures, strict=True):
        try:
            written.acknowledged.append((future.result(timeout=0).offset, value))
        except RaylogError as error:
            written.errors.append(repr(error))
    return written

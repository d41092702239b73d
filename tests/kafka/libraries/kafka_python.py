"""kafka-python."""

from __future__ import annotations

import threading
from typing import Any, Final

import kafka
from kafka import codec as codecs
from kafka.errors import KafkaError

from tests.kafka.libraries.records import SECONDS, Record, Shared, Written, read_until, values

CODECS: Final = tuple(
    codec for codec in (None, "gzip", "snappy", "lz4", "zstd") if codec is None or getattr(codecs, f"has_{codec}")()
)
"""It takes them from other packages, where they are installed."""


def write(bootstrap: str, topic: str, partition: int, records: list[Record], codec: str | None = None) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", compression_type=codec)
    sent = [
        producer.send(
            topic, each.value, each.key, headers=list(each.headers), partition=partition, timestamp_ms=each.timestamp
        )
        for each in records
    ]
    assert [each.get(SECONDS).offset for each in sent] == [each.offset for each in records]
    producer.close()


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, partition)])
    found = read_until(count, lambda: _records(consumer.poll(1_000)))
    consumer.close()
    return found


def _records(polled: Any) -> list[Record]:
    return [
        Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))
        for batch in polled.values()
        for each in batch
    ]


def commit(bootstrap: str, group: str, topic: str, offset: int) -> int:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    before = consumer.committed(partition)
    consumer.commit({partition: kafka.OffsetAndMetadata(offset, "", -1)})
    consumer.close()
    return int(before)


def take(bootstrap: str, group: str, topic: str, count: int) -> list[Record]:
    consumer = _member(bootstrap, group, None, topic)
    found: list[Record] = []
    found = read_until(count, lambda: _records(consumer.poll(1_000, max_records=1)))
    consumer.commit()
    consumer.close()
    return found


def _member(bootstrap: str, group: str, instance: str | None, topic: str) -> Any:
    return kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, group_instance_id=instance, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip


def keep_writing(
    bootstrap: str, topic: str, partition: int, stop: threading.Event, *, idempotent: bool
) -> Written:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=idempotent, linger_ms=5)
    written, futures = Written(), []
    for value in values("kafka-python", stop):
        futures.append(producer.send(topic, value, partition=partition))
        written.sent.append(value)
    for value, future in zip(written.sent, futures, strict=True):
        try:
            written.acknowledged.append((future.get(SECONDS).offset, value))
        except KafkaError as error:
            written.errors.append(repr(error))
    producer.close()
    return written


def stay(bootstrap: str, group: str, instance: str | None, topic: str, stop: threading.Event) -> Shared:
    consumer, shared = _member(bootstrap, group, instance, topic), Shared()
    while not stop.is_set():
        for batch in consumer.poll(200).values():
            for each in batch:
                shared.add(each.partition, each.offset, each.value)
        if shared.found:
            consumer.commit_async()
    consumer.close()
    return shared

"""confluent-kafka, which is librdkafka."""

from __future__ import annotations

import threading
from typing import Any, Final

import confluent_kafka

from tests.kafka.libraries.records import SECONDS, Record, Shared, Written, read_until, values

CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")


def write(bootstrap: str, topic: str, partition: int, records: list[Record], codec: str | None = None) -> None:
    settings = {"enable.idempotence": True, "linger.ms": 5, "compression.type": codec or "none"}
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, **settings})
    failed: list[Any] = []
    for each in records:
        producer.produce(
            topic, each.value, each.key, partition, headers=list(each.headers), timestamp=each.timestamp,
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )  # fmt: skip
    assert producer.flush(SECONDS) == 0
    assert failed == []


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    settings = {"group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    consumer = confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})
    consumer.assign([confluent_kafka.TopicPartition(topic, partition, 0)])
    found = read_until(count, lambda: [_record(each) for each in consumer.consume(count, 1.0)])
    consumer.close()
    return found


def _record(each: Any) -> Record:
    assert each.error() is None, each.error()
    return Record(each.offset(), each.timestamp()[1], each.key(), each.value(), tuple(each.headers() or ()))


def commit(bootstrap: str, group: str, topic: str, offset: int) -> int:
    consumer = _member(bootstrap, group, None)
    consumer.assign([confluent_kafka.TopicPartition(topic, 0, 0)])
    (before,) = consumer.committed([confluent_kafka.TopicPartition(topic, 0)], timeout=SECONDS)
    (written,) = consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, offset)], asynchronous=False)
    assert written.error is None
    consumer.close()
    return int(before.offset)


def take(bootstrap: str, group: str, topic: str, count: int) -> list[Record]:
    consumer = _member(bootstrap, group, "one")
    consumer.subscribe([topic])
    found = read_until(count, lambda: [_record(each) for each in consumer.consume(1, 1.0)])
    consumer.commit(asynchronous=False)
    consumer.unsubscribe()
    consumer.close()
    return found


def _member(bootstrap: str, group: str, instance: str | None) -> Any:
    static = {} if instance is None else {"group.instance.id": instance}
    settings = {"group.id": group, "auto.offset.reset": "earliest", "enable.auto.commit": False, **static}
    return confluent_kafka.Consumer({"bootstrap.servers": bootstrap, **settings})


def keep_writing(
    bootstrap: str, topic: str, partition: int, stop: threading.Event, *, idempotent: bool
) -> Written:
    producer = confluent_kafka.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": idempotent})
    written = Written()

    def told(error: Any, message: Any) -> None:
        if error is None:
            written.acknowledged.append((message.offset(), message.value()))
        else:
            written.errors.append(str(error))

    for value in values("confluent", stop):
        producer.produce(topic, value, partition=partition, on_delivery=told)
        written.sent.append(value)
        producer.poll(0)
    assert producer.flush(SECONDS) == 0
    return written


def stay(bootstrap: str, group: str, instance: str | None, topic: str, stop: threading.Event) -> Shared:
    consumer, shared = _member(bootstrap, group, instance), Shared()
    consumer.subscribe([topic])
    while not stop.is_set():
        for each in consumer.consume(500, 0.2):
            if each.error() is None:
                shared.add(each.partition(), each.offset(), each.value())
        if consumer.assignment() and shared.found:
            consumer.commit(asynchronous=True)
    consumer.close()
    return shared

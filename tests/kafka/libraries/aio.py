"""aiokafka, in an event loop of its own for each call."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import Any, Final

import aiokafka
from aiokafka.errors import CommitFailedError, IllegalStateError, KafkaError

from tests.kafka.libraries.records import SECONDS, Record, Shared, Written, values

CODECS: Final = (None, "gzip", "snappy", "lz4", "zstd")


def write(bootstrap: str, topic: str, partition: int, records: list[Record], codec: str | None = None) -> None:
    asyncio.run(_write(bootstrap, topic, partition, records, codec))


async def _write(bootstrap: str, topic: str, partition: int, records: list[Record], codec: str | None) -> None:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True, compression_type=codec)
    await producer.start()
    for each in records:
        headers = list(each.headers)
        await producer.send(
            topic, each.value, each.key, partition=partition, headers=headers, timestamp_ms=each.timestamp
        )
    await producer.flush()
    await producer.stop()


def read(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    return asyncio.run(_read(bootstrap, topic, partition, count))


async def _read(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    await consumer.start()
    consumer.assign([aiokafka.TopicPartition(topic, partition)])
    found = [_record(await asyncio.wait_for(consumer.getone(), SECONDS)) for _ in range(count)]
    await consumer.stop()
    return found


def _record(each: Any) -> Record:
    return Record(each.offset, each.timestamp, each.key, each.value, tuple(each.headers))


def commit(bootstrap: str, group: str, topic: str, offset: int) -> int:
    return asyncio.run(_commit(bootstrap, group, topic, offset))


async def _commit(bootstrap: str, group: str, topic: str, offset: int) -> int:
    consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    await consumer.start()
    partition = aiokafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    before = await consumer.committed(partition)
    await consumer.commit({partition: offset})
    await consumer.stop()
    return int(before)


def take(bootstrap: str, group: str, topic: str, count: int) -> list[Record]:
    return asyncio.run(_take(bootstrap, group, topic, count))


async def _take(bootstrap: str, group: str, topic: str, count: int) -> list[Record]:
    consumer = _member(bootstrap, group, None, topic)
    await consumer.start()
    found = [_record(await asyncio.wait_for(consumer.getone(), SECONDS)) for _ in range(count)]
    await consumer.commit()
    await consumer.stop()
    return found


def _member(bootstrap: str, group: str, instance: str | None, topic: str) -> Any:
    return aiokafka.AIOKafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, group_instance_id=instance, auto_offset_reset="earliest",
        enable_auto_commit=False,
    )  # fmt: skip


def keep_writing(
    bootstrap: str, topic: str, partition: int, stop: threading.Event, *, idempotent: bool
) -> Written:
    return asyncio.run(_keep_writing(bootstrap, topic, partition, stop, idempotent))


async def _keep_writing(bootstrap: str, topic: str, partition: int, stop: threading.Event, idempotent: bool) -> Written:
    producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, acks="all", enable_idempotence=idempotent)
    await producer.start()
    written, futures = Written(), []
    source = values("aiokafka", stop)
    while (value := await asyncio.to_thread(next, source, None)) is not None:
        futures.append(await producer.send(topic, value, partition=partition))
        written.sent.append(value)
    for value, future in zip(written.sent, futures, strict=True):
        try:
            written.acknowledged.append(((await asyncio.wait_for(future, SECONDS)).offset, value))
        except KafkaError as error:
            written.errors.append(repr(error))
    await producer.stop()
    return written


def stay(bootstrap: str, group: str, instance: str | None, topic: str, stop: threading.Event) -> Shared:
    return asyncio.run(_stay(bootstrap, group, instance, topic, stop))


async def _stay(bootstrap: str, group: str, instance: str | None, topic: str, stop: threading.Event) -> Shared:
    consumer, shared = _member(bootstrap, group, instance, topic), Shared()
    await consumer.start()
    while not stop.is_set():
        for batch in (await consumer.getmany(timeout_ms=200)).values():
            for each in batch:
                shared.add(each.partition, each.offset, each.value)
        if shared.found:
            with contextlib.suppress(CommitFailedError, IllegalStateError):  # it is joining again
                await consumer.commit()
    await consumer.stop()
    return shared

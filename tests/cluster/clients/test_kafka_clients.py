"""Clients of Kafka that people use, on a real cluster, through the gateways of its brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any, Final, NamedTuple

import pytest

import raylog

kafka: Any = pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
aiokafka: Any = pytest.importorskip("aiokafka", reason="the extra `kafka` is not installed")
confluent: Any = pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

_SECONDS: Final = 30.0
_PARTITIONS: Final = 2


class Record(NamedTuple):
    key: bytes | None
    value: bytes | None
    headers: tuple[tuple[str, bytes], ...]


@pytest.fixture(scope="module")
def bootstrap(cluster: raylog.Cluster) -> str:
    addresses = cluster.kafka_addresses()
    assert len(set(addresses)) == 3
    return ",".join(addresses)


def records_of(name: str) -> list[Record]:
    return [
        Record(
            b"key-%d" % number if number % 3 else None,
            f"{name}-{number}".encode(),
            (("writer", name.encode()),) if number % 2 else (),
        )
        for number in range(100)
    ]


# --- writers: (bootstrap, topic, partition, records) ---------------------------------------------------------------


def confluent_writes(bootstrap: str, topic: str, partition: int, records: list[Record]) -> None:
    producer = confluent.Producer({"bootstrap.servers": bootstrap, "enable.idempotence": True, "linger.ms": 5})
    failed: list[Any] = []
    for each in records:
        producer.produce(
            topic,
            each.value,
            each.key,
            partition,
            headers=list(each.headers),
            on_delivery=lambda error, _: failed.append(error) if error is not None else None,
        )
    assert producer.flush(_SECONDS) == 0
    assert failed == []


def kafka_python_writes(bootstrap: str, topic: str, partition: int, records: list[Record]) -> None:
    producer = kafka.KafkaProducer(bootstrap_servers=bootstrap, acks="all")
    sent = [
        producer.send(topic, each.value, each.key, headers=list(each.headers), partition=partition) for each in records
    ]
    assert [each.get(_SECONDS).offset for each in sent][-1] >= len(records) - 1
    producer.close()


def aiokafka_writes(bootstrap: str, topic: str, partition: int, records: list[Record]) -> None:
    async def write() -> None:
        producer = aiokafka.AIOKafkaProducer(bootstrap_servers=bootstrap, enable_idempotence=True)
        await producer.start()
        for each in records:
            await producer.send(topic, each.value, each.key, partition=partition, headers=list(each.headers))
        await producer.flush()
        await producer.stop()

    asyncio.run(write())


def raylog_writes(bootstrap: str, topic: str, partition: int, records: list[Record]) -> None:
    with raylog.Producer() as producer:
        for each in records:
            producer.send(topic, each.value, key=each.key, partition=partition, headers=list(each.headers))


# --- readers: (bootstrap, topic, partition, count) -----------------------------------------------------------------


def confluent_reads(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "none", "enable.auto.commit": False, "check.crcs": True}
    )
    consumer.assign([confluent.TopicPartition(topic, partition, 0)])
    found: list[Record] = []
    deadline = time.monotonic() + _SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for each in consumer.consume(count, 1.0):
            assert each.error() is None, each.error()
            found.append(Record(each.key(), each.value(), tuple(each.headers() or ())))
    consumer.close()
    return found


def kafka_python_reads(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest")
    consumer.assign([kafka.TopicPartition(topic, partition)])
    found: list[Record] = []
    deadline = time.monotonic() + _SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for batch in consumer.poll(1_000).values():
            found += [Record(each.key, each.value, tuple(each.headers)) for each in batch]
    consumer.close()
    return found


def aiokafka_reads(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    async def read() -> list[Record]:
        consumer = aiokafka.AIOKafkaConsumer(
            bootstrap_servers=bootstrap, group_id=None, auto_offset_reset="earliest"
        )
        await consumer.start()
        consumer.assign([aiokafka.TopicPartition(topic, partition)])
        found: list[Record] = []
        while len(found) < count:
            each = await asyncio.wait_for(consumer.getone(), _SECONDS)
            found.append(Record(each.key, each.value, tuple(each.headers)))
        await consumer.stop()
        return found

    return asyncio.run(read())


def raylog_reads(bootstrap: str, topic: str, partition: int, count: int) -> list[Record]:
    found: list[Record] = []
    with raylog.Consumer(auto_offset_reset="earliest") as consumer:
        consumer.assign([raylog.TopicPartition(topic, partition)])
        deadline = time.monotonic() + _SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=1_000).values():
                found += [Record(each.key, each.value, tuple(each.headers)) for each in batch]
    return found


WRITERS: Final[dict[str, Callable[[str, str, int, list[Record]], None]]] = {
    "confluent": confluent_writes,
    "kafka-python": kafka_python_writes,
    "aiokafka": aiokafka_writes,
    "raylog": raylog_writes,
}
READERS: Final[dict[str, Callable[[str, str, int, int], list[Record]]]] = {
    "confluent": confluent_reads,
    "kafka-python": kafka_python_reads,
    "aiokafka": aiokafka_reads,
    "raylog": raylog_reads,
}


@pytest.mark.parametrize("writer", WRITERS)
def test_what_one_client_writes_all_of_them_read(cluster: raylog.Cluster, bootstrap: str, writer: str) -> None:
    topic = f"written-by-{writer}"
    cluster.create_topic(topic, partitions=_PARTITIONS)
    records = records_of(writer)
    WRITERS[writer](bootstrap, topic, 1, records)
    for name, read in READERS.items():
        assert read(bootstrap, topic, 1, len(records)) == records, name


# --- committed offsets, without membership: (bootstrap, group, topic, offset to commit) → what was committed ----------


def confluent_commits(bootstrap: str, group: str, topic: str, offset: int) -> int:
    consumer = confluent.Consumer({"bootstrap.servers": bootstrap, "group.id": group, "enable.auto.commit": False})
    consumer.assign([confluent.TopicPartition(topic, 0, 0)])
    (before,) = consumer.committed([confluent.TopicPartition(topic, 0)], timeout=_SECONDS)
    (written,) = consumer.commit(offsets=[confluent.TopicPartition(topic, 0, offset)], asynchronous=False)
    assert written.error is None
    consumer.close()
    return int(before.offset)


def kafka_python_commits(bootstrap: str, group: str, topic: str, offset: int) -> int:
    consumer = kafka.KafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
    partition = kafka.TopicPartition(topic, 0)
    consumer.assign([partition])
    before = consumer.committed(partition)
    consumer.commit({partition: kafka.OffsetAndMetadata(offset, "", -1)})
    consumer.close()
    return int(before)


def aiokafka_commits(bootstrap: str, group: str, topic: str, offset: int) -> int:
    async def commit() -> int:
        consumer = aiokafka.AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=group, enable_auto_commit=False)
        await consumer.start()
        partition = aiokafka.TopicPartition(topic, 0)
        consumer.assign([partition])
        before = await consumer.committed(partition)
        await consumer.commit({partition: offset})
        await consumer.stop()
        return int(before)

    return asyncio.run(commit())


def raylog_commits(bootstrap: str, group: str, topic: str, offset: int) -> int:
    partition = raylog.TopicPartition(topic, 0)
    with raylog.Consumer(group_id=group, enable_auto_commit=False) as consumer:
        consumer.assign([partition])
        before = consumer.committed(partition)
        consumer.commit({partition: offset})
    return before if isinstance(before, int) else -1


def test_offsets_that_one_client_commits_the_next_one_knows(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "read-by-hand"
    cluster.create_topic(topic, partitions=1)
    raylog_writes(bootstrap, topic, 0, records_of("raylog"))
    found = [
        commits(bootstrap, "by-hand", topic, offset)
        for offset, commits in (
            (10, raylog_commits),
            (20, confluent_commits),
            (30, kafka_python_commits),
            (40, aiokafka_commits),
            (50, raylog_commits),
        )
    ]
    assert found == [-1, 10, 20, 30, 40]


# --- members of a group: (bootstrap, group, topic, count) → values ---------------------------------------------------


def confluent_subscribes(bootstrap: str, group: str, topic: str, count: int) -> list[bytes | None]:
    consumer = confluent.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": group, "auto.offset.reset": "earliest", "group.instance.id": "one"}
    )
    consumer.subscribe([topic])
    found: list[bytes | None] = []
    deadline = time.monotonic() + _SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for each in consumer.consume(count - len(found), 1.0):
            assert each.error() is None, each.error()
            found.append(each.value())
    consumer.commit(asynchronous=False)
    consumer.unsubscribe()
    consumer.close()
    return found


def kafka_python_subscribes(bootstrap: str, group: str, topic: str, count: int) -> list[bytes | None]:
    consumer = kafka.KafkaConsumer(
        topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
    )
    found: list[bytes | None] = []
    deadline = time.monotonic() + _SECONDS
    while len(found) < count and time.monotonic() < deadline:
        for batch in consumer.poll(1_000, max_records=count - len(found)).values():
            found += [each.value for each in batch]
    consumer.commit()
    consumer.close()
    return found


def aiokafka_subscribes(bootstrap: str, group: str, topic: str, count: int) -> list[bytes | None]:
    async def read() -> list[bytes | None]:
        consumer = aiokafka.AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=group, auto_offset_reset="earliest", enable_auto_commit=False
        )
        await consumer.start()
        found = [(await asyncio.wait_for(consumer.getone(), _SECONDS)).value for _ in range(count)]
        await consumer.commit()
        await consumer.stop()
        return found

    return asyncio.run(read())


def raylog_subscribes(bootstrap: str, group: str, topic: str, count: int) -> list[bytes | None]:
    found: list[bytes | None] = []
    with raylog.Consumer(group_id=group, auto_offset_reset="earliest", enable_auto_commit=False) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + _SECONDS
        while len(found) < count and time.monotonic() < deadline:
            for batch in consumer.poll(timeout_ms=1_000, max_records=count - len(found)).values():
                found += [each.value for each in batch]
        consumer.commit()
    return found


def test_members_of_each_client_go_on_where_the_last_one_stopped(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "read-in-turn"
    cluster.create_topic(topic, partitions=1)
    raylog_writes(bootstrap, topic, 0, records_of("raylog"))
    found: list[bytes | None] = []
    for subscribes in (kafka_python_subscribes, aiokafka_subscribes, raylog_subscribes, confluent_subscribes):
        found += subscribes(bootstrap, "in-turn", topic, 25)
    assert found == [each.value for each in records_of("raylog")]


def test_members_of_different_clients_share_a_group(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "shared-by-two"
    cluster.create_topic(topic, partitions=4)
    settings = {"bootstrap.servers": bootstrap, "group.id": "shared", "partition.assignment.strategy": "range"}
    one = confluent.Consumer(settings)
    two = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="shared",
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )
    one.subscribe([topic])
    deadline = time.monotonic() + _SECONDS
    counts: list[int] = []
    while counts != [2, 2] and time.monotonic() < deadline:
        one.poll(0.2)
        two.poll(200)
        counts = [len(one.assignment()), len(two.assignment())]
    assert counts == [2, 2]
    with raylog.Consumer(group_id="shared") as handle:
        handle.subscribe([topic])
        with pytest.raises(raylog.errors.InconsistentGroupProtocol):
            handle.poll(timeout_ms=5_000)
    one.close()
    two.close()

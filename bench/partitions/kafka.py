"""Apache Kafka through its C client (confluent-kafka): what each subject asks of it beside raylog."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from bench.partitions.processes import listener_at

if TYPE_CHECKING:  # of the extra `bench`, which only those need who measure Kafka
    from confluent_kafka import KafkaError, Producer

_SECONDS: Final = 120.0
_LOOK_SECONDS: Final = 0.02
_AT_ONCE: Final = 10_000  # records of one call
_EARLIEST: Final = -2
_PREFIX: Final = "raylog-bench-"


class KafkaCluster:
    """A cluster of Apache Kafka whose brokers run on this machine."""

    def __init__(self, address: str) -> None:
        from confluent_kafka.admin import AdminClient

        self._address = address
        self._admin = AdminClient({"bootstrap.servers": address})

    def pids(self) -> list[int]:
        """Return the brokers' processes. LookupError: one is not on this machine, or of another user."""
        brokers = self._admin.list_topics(timeout=_SECONDS).brokers.values()
        return sorted({listener_at(broker.port) for broker in brokers})

    @contextmanager
    def topic(self, name: str, partitions: int, copies: int) -> Iterator[str]:
        """Make a topic, and delete it afterwards."""
        self.create(name, partitions, copies)
        yield _PREFIX + name
        self.delete(name)

    def create(self, name: str, partitions: int, copies: int) -> float:
        """Make a topic; seconds until a broker says of every partition that it is led and in sync."""
        from confluent_kafka.admin import NewTopic

        began = time.perf_counter()
        self._admin.create_topics([NewTopic(_PREFIX + name, partitions, copies)])[_PREFIX + name].result(_SECONDS)
        while not self._is_in_sync(_PREFIX + name, partitions, copies):
            if time.perf_counter() - began > _SECONDS:
                raise TimeoutError(f"Kafka's topic {name} is not in sync after {_SECONDS:.0f} s")
            time.sleep(_LOOK_SECONDS)
        return time.perf_counter() - began

    def delete(self, name: str) -> None:
        self._admin.delete_topics([_PREFIX + name])[_PREFIX + name].result(_SECONDS)

    def _is_in_sync(self, topic: str, partitions: int, copies: int) -> bool:
        found = self._admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions.values()
        return len(found) == partitions and all(each.leader >= 0 and len(each.isrs) == copies for each in found)

    @contextmanager
    def producer(self) -> Iterator[Producer]:
        """A producer with acks=all, and with room for all that a round sends."""
        from confluent_kafka import Producer

        producer = Producer(
            {
                "bootstrap.servers": self._address,
                "acks": "all",
                "linger.ms": 5,
                "queue.buffering.max.messages": 2_000_000,
                "queue.buffering.max.kbytes": 1_000_000,
            }
        )
        yield producer
        producer.flush(_SECONDS)

    def read(self, topic: str, partitions: int, count: int) -> float:
        """Read so many records of all partitions, from the first on; seconds."""
        from confluent_kafka import Consumer, TopicPartition

        consumer = Consumer({"bootstrap.servers": self._address, "group.id": _PREFIX, "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, number, _EARLIEST) for number in range(partitions)])
        began = time.perf_counter()
        seen = 0
        while seen < count:
            found = consumer.consume(min(_AT_ONCE, count - seen), timeout=1.0)
            seen += sum(1 for each in found if each.error() is None)
            if time.perf_counter() - began > _SECONDS:
                raise TimeoutError(f"{seen} of {count} records were read in {_SECONDS:.0f} s")
        spent = time.perf_counter() - began
        consumer.close()
        return spent


def send_all(producer: Producer, topic: str, keys: Sequence[bytes], values: Sequence[bytes]) -> float:
    """Send all until each is acknowledged; seconds."""
    began = time.perf_counter()
    for place, (key, value) in enumerate(zip(keys, values, strict=True)):
        producer.produce(topic, value, key, on_delivery=_acknowledged)
        if place % _AT_ONCE == 0:
            producer.poll(0)
    if left := producer.flush(_SECONDS):
        raise TimeoutError(f"Kafka has not acknowledged {left} records in {_SECONDS:.0f} s")
    return time.perf_counter() - began


def _acknowledged(error: KafkaError | None, _record: object) -> None:
    if error is not None:
        raise AssertionError(f"Kafka refused a record: {error}")

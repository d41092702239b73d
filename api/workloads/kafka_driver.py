"""Any Kafka endpoint, through aiokafka."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from raylog.api.workloads.driver import Target
from raylog.api.workloads.workload import Workload


class KafkaDriver:
    def __init__(self, address: str, admin: Any) -> None:
        self._address = address
        self._admin = admin

    async def create(self, topic: str, workload: Workload) -> None:
        await self._admin.create_topics([NewTopic(topic, workload.partitions, workload.replicas)])

    async def delete(self, topic: str) -> None:
        await self._admin.delete_topics([topic])

    async def publisher(self, topic: str, workload: Workload) -> KafkaPublisher:
        acks = "all" if workload.acks == "all" else int(workload.acks)
        producer = AIOKafkaProducer(
            bootstrap_servers=self._address,
            acks=acks,
            enable_idempotence=acks == "all",
            max_batch_size=1_000_000,
            max_request_size=max(1 << 20, 2 * workload.size),
        )
        await producer.start()
        return KafkaPublisher(producer, topic)

    async def subscriber(self, topic: str, workload: Workload) -> KafkaSubscriber:
        consumer = AIOKafkaConsumer(topic, bootstrap_servers=self._address, auto_offset_reset="earliest")
        await consumer.start()
        return KafkaSubscriber(consumer)

    def guarantee(self, workload: Workload) -> str:
        whose = f"all in-sync of {workload.replicas} replicas" if workload.acks == "all" else "the leader"
        return "sent; nobody has said that it arrived" if workload.acks == "0" else f"in the page cache of {whose}"

    async def close(self) -> None:
        await self._admin.close()


class KafkaPublisher:
    def __init__(self, producer: Any, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def publish(self, payloads: Sequence[bytes]) -> None:
        await asyncio.gather(*[await self._producer.send(self._topic, each) for each in payloads])

    async def close(self) -> None:
        await self._producer.stop()


class KafkaSubscriber:
    def __init__(self, consumer: Any) -> None:
        self._consumer = consumer

    async def poll(self, seconds: float) -> Sequence[bytes]:
        found = await self._consumer.getmany(timeout_ms=round(1000 * seconds))
        return [record.value for records in found.values() for record in records]

    async def close(self) -> None:
        await self._consumer.stop()


async def open_driver(target: Target) -> KafkaDriver:
    admin = AIOKafkaAdminClient(bootstrap_servers=target.address)
    await admin.start()
    return KafkaDriver(target.address, admin)

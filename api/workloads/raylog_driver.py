"""raylog: one by one while little is under way, columns where there is much."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Final

from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.workloads.driver import Target
from raylog.api.workloads.workload import Workload

if TYPE_CHECKING:
    from raylog.actors.machine.cluster_access import ClusterAccess

_ONE_BY_ONE: Final = 32  # fewer are not worth a bulk call's thread


class RaylogDriver:
    def __init__(self, access: ClusterAccess, cluster: Any) -> None:
        self._access = access
        self._cluster = cluster  # for topics; None in the subscriber's process

    async def create(self, topic: str, workload: Workload) -> None:
        await asyncio.to_thread(self._cluster.create_topic, topic, workload.partitions, workload.replicas)

    async def delete(self, topic: str) -> None:
        await asyncio.to_thread(self._cluster.delete_topic, topic)

    async def publisher(self, topic: str, workload: Workload) -> RaylogPublisher:
        acks: Any = workload.acks
        producer = AsyncProducer(cluster=self._access, acks=acks, max_request_size=max(1 << 20, 2 * workload.size))
        await producer.start()
        return RaylogPublisher(producer, topic)

    async def subscriber(self, topic: str, workload: Workload) -> RaylogSubscriber:
        consumer = AsyncConsumer(
            topic, cluster=self._access, auto_offset_reset="earliest", exclude_internal_topics=True
        )
        await consumer.start()
        return RaylogSubscriber(consumer)

    def guarantee(self, workload: Workload) -> str:
        if workload.acks == "0":
            return "sent; nobody has said that it arrived"
        if workload.acks == "1":
            return f"in the page cache of the leader; {workload.replicas} replicas follow"
        holders = "the one replica" if workload.replicas == 1 else f"all in-sync of {workload.replicas} replicas"
        return f"in the page cache of {holders}; written once"

    async def close(self) -> None:
        pass


class RaylogPublisher:
    def __init__(self, producer: AsyncProducer, topic: str) -> None:
        self._producer = producer
        self._topic = topic

    async def publish(self, payloads: Sequence[bytes]) -> None:
        if len(payloads) <= _ONE_BY_ONE:
            for future in [await self._producer.send(self._topic, each) for each in payloads]:
                await future
        else:
            await (await self._producer.send_many(self._topic, payloads))

    async def close(self) -> None:
        await self._producer.stop()


class RaylogSubscriber:
    def __init__(self, consumer: AsyncConsumer) -> None:
        self._consumer = consumer

    async def poll(self, seconds: float) -> Sequence[bytes]:
        batches = await self._consumer.poll_batches(timeout_ms=1000 * seconds)
        return [value for batch in batches for value in batch.values if value is not None]

    async def close(self) -> None:
        await self._consumer.stop()


async def open_driver(target: Target) -> RaylogDriver:
    access, name = target.address
    if name is None:
        return RaylogDriver(access, None)
    from raylog.api.admin.cluster import Cluster

    return RaylogDriver(access, Cluster(name))

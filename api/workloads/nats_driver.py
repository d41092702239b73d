"""NATS JetStream: a stream with a subject per partition, read by an ordered consumer."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import nats
from nats.js.api import StorageType, StreamConfig

from raylog.api.workloads.driver import Target
from raylog.api.workloads.workload import Workload

_PENDING = 100_000


class NatsDriver:
    def __init__(self, client: Any) -> None:
        self._client = client
        self._stream = client.jetstream(publish_async_max_pending=_PENDING)

    async def create(self, topic: str, workload: Workload) -> None:
        config = StreamConfig(name=topic, subjects=[f"{topic}.*"], storage=StorageType.FILE, num_replicas=1)
        await self._stream.add_stream(config)

    async def delete(self, topic: str) -> None:
        await self._stream.delete_stream(topic)

    async def publisher(self, topic: str, workload: Workload) -> NatsPublisher:
        return NatsPublisher(self._stream, [f"{topic}.{number}" for number in range(workload.partitions)])

    async def subscriber(self, topic: str, workload: Workload) -> NatsSubscriber:
        subscriber = NatsSubscriber()
        subscriber.subscription = await self._stream.subscribe(
            f"{topic}.*",
            stream=topic,
            cb=subscriber.take,
            ordered_consumer=True,
            pending_msgs_limit=-1,
            pending_bytes_limit=-1,
        )
        return subscriber

    def guarantee(self, workload: Workload) -> str:
        return "in the page cache of one process; its files are synced every two minutes; no replica"

    async def close(self) -> None:
        await self._client.close()


class NatsPublisher:
    def __init__(self, stream: Any, subjects: list[str]) -> None:
        self._stream = stream
        self._subjects = subjects
        self._sent = 0

    async def publish(self, payloads: Sequence[bytes]) -> None:
        subject = self._subjects[self._sent % len(self._subjects)]
        self._sent += 1
        await asyncio.gather(*[await self._stream.publish_async(subject, each) for each in payloads])

    async def close(self) -> None:
        pass


class NatsSubscriber:
    def __init__(self) -> None:
        self._values: list[bytes] = []
        self._came = asyncio.Event()
        self.subscription: Any = None

    async def take(self, message: Any) -> None:
        self._values.append(message.data)
        self._came.set()

    async def poll(self, seconds: float) -> Sequence[bytes]:
        try:
            await asyncio.wait_for(self._came.wait(), seconds)
        except asyncio.TimeoutError:
            return []
        self._came.clear()
        values, self._values = self._values, []
        return values

    async def close(self) -> None:
        await self.subscription.unsubscribe()


async def open_driver(target: Target) -> NatsDriver:
    return NatsDriver(await nats.connect(f"nats://{target.address}"))

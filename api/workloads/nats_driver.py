"""NATS JetStream: a stream with a subject per partition, pull consumers."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import nats
from nats.errors import TimeoutError as NothingCame
from nats.js.api import AckPolicy, ConsumerConfig, DeliverPolicy, StorageType, StreamConfig

from raylog.api.workloads.driver import Target
from raylog.api.workloads.workload import Workload

_MOST = 1_000
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
        config = ConsumerConfig(ack_policy=AckPolicy.NONE, deliver_policy=DeliverPolicy.ALL)
        return NatsSubscriber(await self._stream.pull_subscribe(f"{topic}.*", stream=topic, config=config))

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
    def __init__(self, subscription: Any) -> None:
        self._subscription = subscription

    async def poll(self, seconds: float) -> Sequence[bytes]:
        """The first record at once, then what else is there."""
        try:
            first = await self._subscription.fetch(1, timeout=max(0.05, seconds))
            pending = (await self._subscription.consumer_info()).num_pending
            more = await self._subscription.fetch(min(_MOST, pending), timeout=1) if pending > 1 else []
        except NothingCame:
            return []
        return [each.data for each in (*first, *more)]

    async def close(self) -> None:
        await self._subscription.unsubscribe()


async def open_driver(target: Target) -> NatsDriver:
    return NatsDriver(await nats.connect(f"nats://{target.address}"))

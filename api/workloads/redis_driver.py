"""Redis Streams: a stream per partition, pipelines of XADD, XREAD."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import redis.asyncio as redis

from raylog.api.workloads.driver import Target
from raylog.api.workloads.workload import Workload

_MOST = 5_000
_CONNECTIONS = 16  # records that find none free wait for one, and their latency counts


def _keys(topic: str, partitions: int) -> list[str]:
    return [f"{topic}-{number}" for number in range(partitions)]


class RedisDriver:
    def __init__(self, address: str) -> None:
        host, _, port = address.rpartition(":")
        pool = redis.BlockingConnectionPool(host=host, port=int(port), max_connections=_CONNECTIONS, timeout=None)
        self._client: Any = redis.Redis.from_pool(pool)

    async def create(self, topic: str, workload: Workload) -> None:
        """A stream is there from its first record on."""

    async def delete(self, topic: str) -> None:
        found = [key async for key in self._client.scan_iter(f"{topic}-*")]
        if found:
            await self._client.delete(*found)

    async def publisher(self, topic: str, workload: Workload) -> RedisPublisher:
        return RedisPublisher(self._client, _keys(topic, workload.partitions))

    async def subscriber(self, topic: str, workload: Workload) -> RedisSubscriber:
        return RedisSubscriber(self._client, _keys(topic, workload.partitions))

    def guarantee(self, workload: Workload) -> str:
        return "in the memory of one process; its file is synced every second; no replica"

    async def close(self) -> None:
        await self._client.aclose()


class RedisPublisher:
    def __init__(self, client: Any, keys: list[str]) -> None:
        self._client = client
        self._keys = keys
        self._sent = 0

    async def publish(self, payloads: Sequence[bytes]) -> None:
        """A group goes to one partition, as a producer's batch does."""
        key = self._keys[self._sent % len(self._keys)]
        self._sent += 1
        if len(payloads) == 1:
            await self._client.xadd(key, {b"v": payloads[0]})
            return
        pipeline = self._client.pipeline(transaction=False)
        for each in payloads:
            pipeline.xadd(key, {b"v": each})
        await pipeline.execute()

    async def close(self) -> None:
        pass


class RedisSubscriber:
    def __init__(self, client: Any, keys: list[str]) -> None:
        self._client = client
        self._places: dict[str, Any] = dict.fromkeys(keys, "0")

    async def poll(self, seconds: float) -> Sequence[bytes]:
        answer = await self._client.xread(self._places, count=_MOST, block=max(1, round(1000 * seconds)))
        values = []
        for key, entries in answer:
            self._places[key.decode()] = entries[-1][0]
            values += [fields[b"v"] for _, fields in entries]
        return values

    async def close(self) -> None:
        pass


async def open_driver(target: Target) -> RedisDriver:
    return RedisDriver(target.address)

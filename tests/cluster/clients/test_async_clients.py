"""Producers and consumers of coroutines inside an asyncio actor of Ray, which find the cluster by themselves."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
import ray

import raylog

pytestmark = pytest.mark.cluster


class Pipe:
    async def send(self, values: list[bytes]) -> list[int]:
        async with raylog.AsyncProducer() as producer:
            return [(await producer.send_and_wait("clicks", value, partition=0)).offset for value in values]

    async def read(self, count: int) -> list[bytes | None]:
        found: list[bytes | None] = []
        async with raylog.AsyncConsumer("clicks", auto_offset_reset="earliest") as consumer:
            async for record in consumer:
                found.append(record.value)
                if len(found) == count:
                    break
        return found

    async def was_warned_of_blocking(self) -> bool:
        from ray._private import worker

        return worker.blocking_get_inside_async_warned

    async def is_free(self) -> bool:
        await asyncio.sleep(0)
        return True


@pytest.mark.timeout(180)
def test_an_asyncio_actor_sends_and_reads_while_its_loop_stays_free(cluster: raylog.Cluster) -> None:
    cluster.create_topic("clicks", partitions=2)
    actor: Any = ray.remote(Pipe).options(num_cpus=0, max_concurrency=10).remote()
    values = [b"%d" % number for number in range(50)]
    reading = actor.read.remote(50)
    assert ray.get(actor.is_free.remote(), timeout=60)
    assert ray.get(actor.send.remote(values), timeout=60) == list(range(50))
    assert ray.get(actor.is_free.remote(), timeout=60)
    assert ray.get(reading, timeout=60) == values
    assert not ray.get(actor.was_warned_of_blocking.remote(), timeout=60)
    ray.kill(actor)

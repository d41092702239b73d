"""Subscriptions and a fetcher on one simulated loop, with a fake link: a consumer without threads."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from random import Random

from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.subscription_state import SubscriptionState
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.api.fake_link import FakeLink

_CALM = NetworkSettings(slow_chance=0.0, stuck_chance=0.0, notice=(0.0, 0.001))


class Consuming:
    """What a facade does, with virtual time."""

    def __init__(self, env: SimEnvironment, seed: int = 1, node_id: str = "", **options: object) -> None:
        self.random = Random(seed)
        self.link = FakeLink(env, self.random, node_id)
        self.options = ConsumerOptions.parse({"auto_offset_reset": "earliest", **options})
        self.fetcher = Fetcher(self.link.as_link, self.options)
        self.subscriptions = SubscriptionState(self.options, lambda order: order(self.fetcher))
        self._taking: asyncio.Task[None] | None = None
        self._is_closed = False

    async def wait(self, seconds: float) -> None:
        """Until something has come, or the time is over."""
        if self._taking is None:
            self._taking = asyncio.ensure_future(self._take())
        await asyncio.wait([self._taking], timeout=seconds)
        if self._taking.done():
            self._taking.result()
            self._taking = None

    async def _take(self) -> None:
        self.subscriptions.receive(await self.fetcher.take())

    async def poll(self, seconds: float = 1.0, most: int = 500) -> dict[TopicPartition, list[ConsumerRecord]]:
        deadline = asyncio.get_running_loop().time() + seconds
        await self.wait(0.0)
        while True:
            found = self.subscriptions.collector.poll(most)
            left = deadline - asyncio.get_running_loop().time()
            if found or left <= 0:
                return found
            await self.wait(left)

    async def values(self, count: int, seconds: float = 60.0, most: int = 500) -> list[bytes]:
        """So many records' values, of all partitions."""
        deadline = asyncio.get_running_loop().time() + seconds
        found: list[bytes] = []
        while len(found) < count and asyncio.get_running_loop().time() < deadline:
            for records in (await self.poll(0.5, most)).values():
                found += [record.value for record in records]
        return found

    async def close(self) -> None:
        if self._is_closed:
            return
        self._is_closed = True
        if self._taking is not None:
            self._taking.cancel()
        await self.fetcher.close()


def consuming(
    main: Callable[[Consuming], Awaitable[None]],
    seed: int = 1,
    node_id: str = "",
    seconds: float = 600.0,
    **options: object,
) -> None:
    """Run `main` in a simulated process, to its end."""
    over = []

    async def run(env: SimEnvironment) -> None:
        consumer = Consuming(env, seed, node_id, **options)
        await main(consumer)
        await consumer.close()
        over.append(True)

    with World(seed, settings=_CALM) as world:
        world.add_machine("one").start("consumer", run)
        world.run_until_idle_or(lambda: bool(over), limit=seconds)
    assert over

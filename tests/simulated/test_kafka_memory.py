"""Fetches of many Kafka clients while a gateway has little memory: all of them come to their end, within the bound."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka.rules.memory_budget import FREE_BYTES
from raylog.storage.format.record_batch import split_batches
from tests.simulated.test_kafka_gateway import batch_of, fetched, parts_of, produced, values_of
from tests.simulator.clients.kafka_clients import BesideBroker, gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

_TOPIC: Final = "heavy"
_PARTITIONS: Final = 3
_BATCHES: Final = 10
_BATCH: Final = 40_000
_MOST: Final = 200_000
_CLIENTS: Final = 12
_SETTINGS: Final = {"message.timestamp.after.max.ms": str(10**15)}


@pytest.fixture
def gateway() -> Iterator[BesideBroker]:
    with World(7, settings=CALM) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        cluster.create_topic(_TOPIC, _PARTITIONS, 3, _SETTINGS)
        gateway, *_ = gateways_beside(cluster, *cluster.homes)
        for number in range(_BATCHES):
            batches = {each: batch_of([_value(each, number)]) for each in range(_PARTITIONS)}
            gateway.run(gateway.client().ask("Produce", 9, **produced(dict(batches), topic=_TOPIC)))
        yield gateway
        cluster.is_over = True


def _value(partition: int, number: int) -> bytes:
    return b"%d %d" % (partition, number) * (_BATCH // 3)


async def _read_all(gateway: BesideBroker, min_bytes: int, most: list[int]) -> dict[int, list[bytes | None]]:
    """Read the topic as one client. `most`: the most that all clients held."""
    client = gateway.client()
    offsets = dict.fromkeys(range(_PARTITIONS), 0)
    found: dict[int, list[bytes | None]] = {each: [] for each in offsets}
    while any(offset < _BATCHES for offset in offsets.values()):
        asked = fetched(offsets, topic=_TOPIC, min_bytes=min_bytes, wait_ms=5_000)
        for partition, part in parts_of(await client.ask("Fetch", 12, **asked)).items():
            assert part.error_code == 0
            found[partition] += values_of(part)
            offsets[partition] += len(list(split_batches(part.records))) if part.records else 0
        budget = gateway.gateway.budget
        assert budget.broken_invariants() == []
        most.append(budget.held)
        offsets = dict(reversed(offsets.items()))  # as clients do, so that all partitions have their turn
    client.connection.close()
    return found


@pytest.mark.parametrize("min_bytes", [1, 1 << 20], ids=["at once", "much together"])
def test_all_clients_read_all_within_the_bound(gateway: BesideBroker, min_bytes: int) -> None:
    budget = gateway.gateway.budget
    budget.most_bytes = _MOST
    most: list[int] = []

    async def all_at_once() -> list[dict[int, list[bytes | None]]]:
        return await asyncio.gather(*(_read_all(gateway, min_bytes, most) for _ in range(_CLIENTS)))

    wanted = {each: [_value(each, number) for number in range(_BATCHES)] for each in range(_PARTITIONS)}
    assert gateway.run(all_at_once()) == [wanted] * _CLIENTS
    assert _MOST // 2 < max(most) <= _MOST + _CLIENTS * FREE_BYTES
    assert budget.held == 0


def test_fetches_wait_for_room_that_others_hold_and_small_ones_do_not(gateway: BesideBroker) -> None:
    budget = gateway.gateway.budget
    other = budget.account()
    other.take(budget.most_bytes)
    client, small = gateway.client(), gateway.client()

    async def fetch() -> None:
        asked = asyncio.ensure_future(client.ask("Fetch", 12, **fetched({0: 0}, topic=_TOPIC, wait_ms=60_000)))
        await asyncio.sleep(10)
        assert not asked.done()
        at_end = fetched({0: _BATCHES}, topic=_TOPIC, wait_ms=1_000)
        assert parts_of(await small.ask("Fetch", 12, **at_end))[0].high_watermark == _BATCHES
        other.close()
        first = _value(0, 0)
        assert values_of(parts_of(await asked)[0])[0] == first

    gateway.run(fetch())


def test_a_client_that_is_over_gives_up_what_it_waits_for(gateway: BesideBroker) -> None:
    budget = gateway.gateway.budget
    other = budget.account()
    other.take(budget.most_bytes)
    client = gateway.client()

    async def fetch() -> None:
        asked = asyncio.ensure_future(client.ask("Fetch", 12, **fetched({0: 0}, topic=_TOPIC, wait_ms=60_000)))
        await asyncio.sleep(5)
        waited_for = [budget.is_waited_for]
        asked.cancel()
        client.connection.close()
        await asyncio.sleep(1)
        waited_for.append(budget.is_waited_for)
        assert waited_for == [True, False]
        other.close()

    gateway.run(fetch())
    assert budget.held == 0

"""Clients of Kafka's protocol that go away: what was under way for them is given up, but for what they had finished."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.replica.leader import LeaderRole
from tests.simulated.test_kafka_gateway import Stage, batch_of, fetched, parts_of, produced, values_of
from tests.simulator.clients.kafka_clients import KafkaClient
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        yield stage
        stage.cluster.is_over = True


def role_of(stage: Stage, partition: int) -> LeaderRole:
    role = stage.leader(partition)._leader_role
    assert isinstance(role, LeaderRole)
    return role


def goes(client: KafkaClient, asked: asyncio.Future[object]) -> None:
    """End a connection as `KafkaConnection` does when its client is gone."""
    asked.cancel()
    client.connection.close()


def test_leaders_hold_no_fetch_of_a_client_that_has_gone(stage: Stage) -> None:
    roles = [role_of(stage, each) for each in (0, 1)]
    client, other = stage.gateway.client(), stage.gateway.client()

    async def fetch_and_go() -> None:
        asked = asyncio.ensure_future(client.ask("Fetch", 12, **fetched({0: 0, 1: 0}, wait_ms=60_000)))
        others = asyncio.ensure_future(other.ask("Fetch", 12, **fetched({0: 0}, wait_ms=60_000)))
        await asyncio.sleep(2)
        assert [role.reads.waiting for role in roles] == [2, 1]
        goes(client, asked)
        await asyncio.sleep(0.5)
        assert [role.reads.waiting for role in roles] == [1, 0]
        goes(other, others)
        await asyncio.sleep(0.5)

    stage.gateway.run(fetch_and_go())
    assert [role.reads.waiting for role in roles] == [0, 0]
    stage.produce_at_last(0, batch_of([b"a"]))
    assert values_of(stage.read(0)) == [b"a"], "the streams to the leaders are as good as before"


def test_a_client_that_reads_elsewhere_leaves_no_fetch_behind(stage: Stage) -> None:
    role = role_of(stage, 0)
    client = stage.gateway.client()

    async def read_elsewhere() -> None:
        assert parts_of(await client.ask("Fetch", 12, **fetched({0: 0}, wait_ms=0)))[0].error_code == 0
        await client.ask("Fetch", 12, **fetched({0: 0}, wait_ms=100))
        await client.ask("Fetch", 12, **fetched({1: 0}, wait_ms=100))
        await asyncio.sleep(0.05)
        assert role.reads.waiting == 0

    stage.gateway.run(read_elsewhere())


@pytest.mark.parametrize("seconds", [0.0, 0.0005])
def test_batches_that_want_no_answer_are_appended_though_their_client_has_gone(stage: Stage, seconds: float) -> None:
    client = stage.gateway.client()
    budget = stage.gateway.gateway.budget

    async def send_and_go() -> None:
        batches: dict[int, bytes | None] = {0: batch_of([b"a", b"b"]), 1: batch_of([b"c"])}
        asked = asyncio.ensure_future(client.ask("Produce", 9, **produced(batches, acks=0)))
        await asyncio.sleep(seconds)
        goes(client, asked)
        await asyncio.sleep(2)

    stage.gateway.run(send_and_go())
    assert [values_of(stage.read(each)) for each in (0, 1)] == [[b"a", b"b"], [b"c"]]
    assert budget.held == 0

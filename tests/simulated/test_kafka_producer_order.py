"""An idempotent producer of Kafka's pipelines its batches, while leaders die that were the only ones to know it."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka.protocol.error_codes import ErrorCode
from tests.simulated.test_kafka_gateway import TOPIC, Stage, batch_of, outcome, produced, values_of
from tests.simulator.clients.kafka_clients import KafkaClient
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        yield stage
        stage.cluster.is_over = True


def sends(client: KafkaClient, partition: int, values: list[bytes], producer: tuple[int, int, int]) -> Any:
    """Send a batch without waiting; its answer is (error, base offset)."""

    async def send() -> tuple[int, int]:
        batch = batch_of(values, producer=producer)
        return outcome(await client.ask("Produce", 10, **produced({partition: batch})))[0]

    return asyncio.ensure_future(send())


async def identity(client: KafkaClient) -> int:
    told = await client.ask("InitProducerId", 4, transactional_id=None, transaction_timeout_ms=0)
    producer_id: int = told.producer_id
    return producer_id


def test_a_batch_does_not_pass_one_that_failed_under_the_leader_before(stage: Stage) -> None:
    """The answer to `first` waits behind that of another partition, so the client sends `second` meanwhile."""
    link = stage.gateway.link
    assert link is not None
    stage.produce_at_last(0, batch_of([b"another"]))

    async def run() -> list[tuple[int, int]]:
        client = stage.client
        producer = await identity(client)
        before = link.leader(TOPIC, 0)
        assert before is not None
        stage.leader(0).process.kill()
        first = sends(client, 0, [b"first"], (producer, 0, 0))
        while (now := link.leader(TOPIC, 0)) is None or now.epoch == before.epoch or not now.endpoints:
            await asyncio.sleep(0.02)
        second = sends(client, 0, [b"second"], (producer, 0, 1))
        told = [await first, await second]
        while told[-1][0]:
            sent = [sends(client, 0, [value], (producer, 0, at)) for at, value in enumerate((b"first", b"second"))]
            told += [await each for each in sent]
        return told

    told = stage.gateway.run(run())
    assert [code for code, _ in told[:2]] == [ErrorCode.REQUEST_TIMED_OUT, ErrorCode.NOT_LEADER_OR_FOLLOWER]
    assert values_of(stage.read(0)) == [b"another", b"first", b"second"]


def test_batches_behind_the_first_of_a_producer_wait_for_it_and_then_keep_their_order(stage: Stage) -> None:
    async def run() -> list[tuple[int, int]]:
        producer = await identity(stage.client)
        sent = [sends(stage.client, 0, [b"%d" % number], (producer, 0, number)) for number in range(20)]
        return [await each for each in sent]

    assert stage.gateway.run(run()) == [(0, number) for number in range(20)]
    assert values_of(stage.read(0)) == [b"%d" % number for number in range(20)]


def test_a_client_that_repeats_what_failed_at_another_gateway_goes_on_here(stage: Stage) -> None:
    async def run() -> list[int]:
        here, there = stage.client, stage.gateway.client()
        producer = await identity(here)
        assert (await sends(here, 0, [b"0"], (producer, 0, 0)))[0] == 0
        stage.leader(0).process.kill()
        assert (await sends(here, 0, [b"1"], (producer, 0, 1)))[0] != 0
        while (await sends(there, 0, [b"1"], (producer, 0, 1)))[0]:
            await asyncio.sleep(0.05)
        return [(await sends(here, 0, [b"2"], (producer, 0, 2)))[0] for _ in range(2)]

    assert stage.gateway.run(run()) == [ErrorCode.NOT_LEADER_OR_FOLLOWER, 0]
    assert values_of(stage.read(0)) == [b"0", b"1", b"2"]

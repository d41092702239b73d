"""How long an open batch waits for more records: decided from numbers, and tried with the real sender."""

from __future__ import annotations

import asyncio

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.rules.producer_batch import ENOUGH, FAST, FEW, LONGEST_SECONDS, SHORTEST_SECONDS, BatchGrowth
from tests.unit.actors.link_world import TOPIC, LinkWorld, link_world
from tests.unit.api.producer_world import LoopProducer, outcomes

BATCH_SIZE = 1_000_000


def test_few_records_go_at_once() -> None:
    growth = BatchGrowth(BATCH_SIZE)
    assert growth.seconds_to_wait(1.0, FEW - 1, 4_000, 1.0) == 0.0


def test_a_batch_that_is_filled_fast_waits_and_a_full_one_does_not() -> None:
    growth = BatchGrowth(BATCH_SIZE)
    assert growth.seconds_to_wait(1.0, 500, 50_000, 1.0005) == SHORTEST_SECONDS
    assert growth.seconds_to_wait(1.0, ENOUGH, 450_000, 1.0015) == 0.0
    assert growth.seconds_to_wait(2.0, 100, BATCH_SIZE // 2, 2.0005) == 0.0


def test_one_that_is_filled_slowly_does_not_wait() -> None:
    growth = BatchGrowth(BATCH_SIZE)
    assert growth.seconds_to_wait(1.0, FEW, 4_000, 1.0 + 1.1 * FEW / FAST) == 0.0


def test_when_nothing_more_comes_it_goes_at_the_next_look() -> None:
    growth = BatchGrowth(BATCH_SIZE)
    wait = growth.seconds_to_wait(1.0, 500, 50_000, 1.0)
    assert wait > 0
    assert growth.seconds_to_wait(1.0, 510, 51_000, 1.0 + wait) == 0.0


def test_a_new_batch_is_looked_at_afresh() -> None:
    growth = BatchGrowth(BATCH_SIZE)
    assert growth.seconds_to_wait(1.0, 500, 50_000, 1.001) > 0
    assert growth.seconds_to_wait(1.002, 100, 10_000, 1.003) > 0


@given(st.lists(st.integers(0, 3_000), min_size=1, max_size=20), st.floats(0.0, 0.002))
def test_no_wait_goes_beyond_the_longest(growths: list[int], first_look: float) -> None:
    """However it is filled, and however late each look comes."""
    growth = BatchGrowth(1 << 40)
    now, records = 3.0 + first_look, 0
    for more in [*growths, *[3_000] * 20]:
        records += more
        wait = growth.seconds_to_wait(3.0, records, records, now)
        if not wait:
            break
        assert now + wait <= 3.0 + LONGEST_SECONDS + 1e-9
        now += wait
    else:
        pytest.fail("It waits and waits.")


# --- the sender -------------------------------------------------------------------------------------------------------


async def opened(world: LinkWorld, **options: object) -> LoopProducer:
    """A producer whose stream is open, and whose leader knows it."""
    await world.link.find_topic(TOPIC, 10.0)
    producer = LoopProducer(world.link, **options)
    producer.send(TOPIC, 0, b"first")
    await producer.flush()
    return producer


async def requests_of(producer: LoopProducer, seconds: float) -> float:
    """How many requests it has made when so much time has passed."""
    await asyncio.sleep(seconds)
    return producer.metrics.read()["request-total"]


def fill(producer: LoopProducer, count: int) -> list[RecordFuture]:
    return [producer.send(TOPIC, 0, b"%d" % number) for number in range(count)]


def test_the_sender_lets_a_batch_grow_that_is_filled_fast() -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> tuple[float, list[int | Exception]]:
            producer = await opened(world)
            before = await requests_of(producer, 0.0)
            futures = []
            for _ in range(4):  # in one go they would be four requests: each comes while nothing is under way
                futures += fill(producer, 100)
                await asyncio.sleep(0.001)
            requests = await requests_of(producer, 0.1) - before
            return requests, list(outcomes(futures))

        requests, offsets = world.do(main())
        assert requests == 1
        assert offsets == list(range(1, 401))


def test_the_sender_sends_a_lone_record_at_once() -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> tuple[float, float]:
            producer = await opened(world)
            before = await requests_of(producer, 0.0)
            fill(producer, 1)
            alone = await requests_of(producer, 0.0)
            await asyncio.sleep(0.1)
            fill(producer, FEW)
            held = await requests_of(producer, 0.0)
            return alone - before, held - alone

        assert world.do(main()) == (1, 0)


def test_a_lone_record_does_not_wait_out_the_timer_of_the_batch_before() -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> tuple[float, float]:
            producer = await opened(world, acks=0)  # no answer to wait for, so the timer still runs
            before = await requests_of(producer, 0.0)
            fill(producer, 100)
            assert await requests_of(producer, 0.0) == before
            await producer.flush()
            flushed = await requests_of(producer, 0.0)
            fill(producer, 1)
            return flushed - before, await requests_of(producer, 0.0) - flushed

        assert world.do(main()) == (1, 1)


@pytest.mark.parametrize("comes_first", ["the wait", "the sender"])
def test_a_batch_that_somebody_waits_for_goes_at_once(comes_first: str) -> None:
    with link_world() as world:
        world.create_topic()

        async def main() -> float:
            producer = await opened(world)
            before = await requests_of(producer, 0.0)
            futures = fill(producer, 100)
            if comes_first == "the sender":
                assert await requests_of(producer, 0.0) == before
            waiting = asyncio.ensure_future(_metadata(futures[0]))
            await asyncio.sleep(0)
            sent = await requests_of(producer, 0.0) - before
            await waiting
            return sent

        assert world.do(main()) == 1


async def _metadata(future: RecordFuture) -> object:
    return await future

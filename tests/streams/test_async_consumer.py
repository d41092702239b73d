"""The consumer for asyncio, with a make-believe cluster behind it: coroutines that never block their loop."""

from __future__ import annotations

import asyncio
import gc
import time
from collections.abc import Coroutine
from typing import Any

import pytest

from raylog.api.connection.records import ConsumerRecord, OffsetAndTimestamp, TopicPartition
from raylog.api.consumer.async_consumer import AsyncConsumer
from raylog.errors import ConsumerClosed, InvalidConfig, NotAssigned, RequestTimedOut, UnknownTopic
from tests.streams.test_consumer import Cluster, cluster, numbers
from tests.unit.api.fake_link import TIME

__all__ = ["cluster"]

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 30.0))


def values(polled: dict[TopicPartition, list[ConsumerRecord]]) -> list[Any]:
    return [record.value for records in polled.values() for record in records]


def test_a_topic_is_read_by_polling_and_by_iterating(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    for first in range(0, 100, 10):
        cluster.append(log, *numbers(first, first + 10))

    async def main() -> None:
        async with AsyncConsumer("t", auto_offset_reset="earliest", consumer_timeout_ms=300) as consumer:
            found = values(await consumer.poll(timeout_ms=5000, max_records=7))
            async for record in consumer:
                found.append(record.value)
                if len(found) == 25:
                    break
            assert await consumer.position(P0) == 25
            found.append((await consumer.getone()).value)
            found += values(await consumer.getmany(timeout_ms=5000))
            assert found == numbers(0, 100)
            assert [record async for record in consumer] == []
            cluster.append(log, b"more")
            assert [record.value async for record in consumer] == [b"more"]
            assert consumer.metrics()["records_consumed"] == 101
            assert "1 partitions" in repr(consumer)
        assert cluster.released == 1
        await consumer.stop()
        with pytest.raises(ConsumerClosed):
            await consumer.poll()
        assert cluster.released == 1

    run(main())


def test_a_wait_blocks_nobody_and_ends_when_something_comes(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")

    async def main() -> None:
        async with AsyncConsumer("t", auto_offset_reset="earliest") as consumer:
            waiting = asyncio.ensure_future(consumer.poll(timeout_ms=20_000))
            for _ in range(20):
                await asyncio.sleep(0.01)
            assert not waiting.done()
            cluster.append(log, b"a")
            began = time.monotonic()
            assert values(await waiting) == [b"a"]
            assert time.monotonic() - began < 2.0
            assert await consumer.poll(timeout_ms=100) == {}

    run(main())


def test_a_task_that_only_polls_lets_others_run(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    cluster.append(log, *numbers(0, 1000))

    async def main() -> None:
        async with AsyncConsumer("t", auto_offset_reset="earliest") as consumer:
            await consumer.getone()
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            task = asyncio.ensure_future(other())
            for _ in range(100):
                await consumer.poll(max_records=1)
            task.cancel()
            assert turns >= 90

    run(main())


def test_a_call_that_is_cancelled_loses_no_record(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")

    async def main() -> None:
        async with AsyncConsumer("t", auto_offset_reset="earliest") as consumer:
            found: list[Any] = []
            for number in range(30):
                waiting = asyncio.ensure_future(consumer.poll(timeout_ms=20_000))
                for _ in range(number % 4):
                    await asyncio.sleep(0)
                cluster.append(log, b"%d" % number)
                waiting.cancel()
                await asyncio.wait([waiting])
                found += [] if waiting.cancelled() else values(waiting.result())
            while len(found) < 30:
                found += values(await consumer.poll(timeout_ms=5_000))
            assert found == numbers(0, 30)

    run(main())


def test_columns(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    cluster.append(log, *numbers(0, 10))

    async def main() -> None:
        async with AsyncConsumer("t", auto_offset_reset="earliest") as consumer:
            (batch,) = await consumer.poll_batches(timeout_ms=5000)
            assert list(batch.values) == numbers(0, 10)
            cluster.append(log, *numbers(10, 20))
            table = await consumer.poll_arrow(timeout_ms=5000)
            assert table["value"].to_pylist() == numbers(10, 20)

    run(main())


def test_positions_pauses_and_questions(cluster: Cluster) -> None:
    one, two = cluster.add_topic("t", 2)
    cluster.append(one, *numbers(0, 10))
    cluster.append(two, *numbers(10, 20))

    async def main() -> None:
        async with AsyncConsumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([P0])
            consumer.seek(P0, 8)
            assert values(await consumer.poll(timeout_ms=5000)) == numbers(8, 10)
            consumer.seek_to_beginning(P0)
            assert await consumer.position(P0) == 0
            consumer.seek_to_end()
            assert await consumer.position(P0) == 10
            consumer.seek(P0, 0)
            consumer.pause(P0)
            assert consumer.paused() == {P0}
            assert await consumer.poll(timeout_ms=200) == {}
            consumer.resume(P0)
            assert values(await consumer.poll(timeout_ms=5000)) == numbers(0, 10)
            assert await consumer.beginning_offsets([P0, P1]) == {P0: 0, P1: 0}
            assert await consumer.end_offsets([P0, P1]) == {P0: 10, P1: 10}
            found = (await consumer.offsets_for_times({P0: TIME}))[P0]
            assert isinstance(found, OffsetAndTimestamp)
            assert await consumer.topics() == {"t"}
            assert await consumer.partitions_for_topic("t") == {0, 1}
            assert await consumer.partitions_for_topic("none") is None
            assert consumer.highwater(P0) == 10
            consumer.unsubscribe()
            assert consumer.assignment() == set()
            await consumer.subscribe(["t"])
            assert consumer.subscription() == {"t"}
            assert consumer.assignment() == {P0, P1}
            with pytest.raises(TypeError, match="list of topics"):
                await consumer.subscribe("t")
            with pytest.raises(UnknownTopic):
                await consumer.subscribe(["none"])
            with pytest.raises(NotAssigned):
                consumer.seek(TopicPartition("t", 7), 0)

    run(main())


def test_a_position_that_nobody_tells_is_waited_for_so_long(cluster: Cluster) -> None:
    cluster.add_topic("t")
    cluster.do(lambda: setattr(cluster.link.faults, "refusals", 1.0))

    async def main() -> None:
        async with AsyncConsumer(auto_offset_reset="earliest") as consumer:
            consumer.assign([P0])
            with pytest.raises(RequestTimedOut):
                await consumer.position(P0, timeout_ms=200)

    run(main())


def test_stop_ends_a_wait(cluster: Cluster) -> None:
    cluster.add_topic("t")

    async def main() -> None:
        consumer = AsyncConsumer("t")
        await consumer.start()
        await consumer.start()  # twice is once
        waiting = asyncio.ensure_future(consumer.poll(timeout_ms=20_000))
        await asyncio.sleep(0.1)
        await consumer.stop()
        with pytest.raises(ConsumerClosed):
            await waiting

    run(main())


def test_what_is_wrong_is_said_before_it_starts(cluster: Cluster) -> None:
    with pytest.raises(InvalidConfig):
        AsyncConsumer(auto_offset_reset="smallest")  # type: ignore[arg-type]

    async def main() -> None:
        consumer = AsyncConsumer("none")
        assert repr(consumer) == "<AsyncConsumer, not started>"
        with pytest.raises(ConsumerClosed, match="not started"):
            await consumer.poll()
        await consumer.stop()  # nothing to stop
        with pytest.raises(UnknownTopic):
            await consumer.start()

    run(main())
    assert cluster.released == 1


def test_a_loop_that_is_gone_does_not_harm_the_client_loop(cluster: Cluster) -> None:
    (log,) = cluster.add_topic("t")
    kept: list[AsyncConsumer] = []

    async def main() -> None:
        consumer = AsyncConsumer("t", auto_offset_reset="earliest")
        await consumer.start()
        kept.append(consumer)

    run(main())
    cluster.append(log, b"a")
    time.sleep(0.2)
    run(kept.pop().stop())
    gc.collect()
    assert cluster.released == 1

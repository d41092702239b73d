"""What the producer for coroutines promises beside what every one does: order, room, cancels, turns of the loop."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

import pytest

from raylog.api.connection.client_runtime import client_runtime
from raylog.api.producer.async_producer import AsyncProducer
from raylog.api.producer.buffer.interceptors import ProducerRecord
from raylog.config import KIB
from raylog.errors import BufferFull, InvalidConfig, NotEnoughReplicas, ProducerClosed, UnknownTopic
from tests.unit.api.producer_cluster import TOPIC, FakeLink, fake_cluster


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60.0))


async def on_client_loop(work: Coroutine[Any, Any, None]) -> None:
    await asyncio.wrap_future(client_runtime().submit(work))


@pytest.fixture
def link(monkeypatch: pytest.MonkeyPatch) -> Any:
    with fake_cluster(monkeypatch, 2) as link:
        yield link


def test_a_record_is_delivered_and_tells_where(link: FakeLink) -> None:
    async def main() -> None:
        async with AsyncProducer() as producer:
            metadata = await producer.send_and_wait(TOPIC, b"value", b"key", [("name", b"x")], 1, 77)
            assert (metadata.partition, metadata.offset, metadata.timestamp) == (1, 0, 77)
            future = await producer.send(TOPIC, b"another", partition=1)
            assert (await future).offset == 1
            assert await producer.partitions_for(TOPIC) == {0, 1}
            assert producer.metrics()
        assert link.values(1) == [b"value", b"another"]

    run(main())


def test_leaving_the_block_delivers_what_is_left_in_order(link: FakeLink) -> None:
    async def main() -> None:
        async with AsyncProducer(linger_ms=60_000, batch_size=1_000) as producer:
            for number in range(2_000):
                await producer.send(TOPIC, b"%d" % number, partition=0)
        assert link.values(0) == [b"%d" % number for number in range(2_000)]
        with pytest.raises(ProducerClosed):
            await producer.send(TOPIC, b"late")
        await producer.stop()

    run(main())


def test_where_there_is_no_room_it_waits_and_the_loop_goes_on(link: FakeLink) -> None:
    async def main() -> None:
        async with AsyncProducer(buffer_memory=64 * KIB, batch_size=8 * KIB, max_request_size=8 * KIB) as producer:
            link.hold()

            async def send_all() -> None:
                for number in range(300):
                    await producer.send(TOPIC, b"%04d" % number + bytes(1_000), partition=0)

            sending = asyncio.ensure_future(send_all())
            for _ in range(2_000):
                await asyncio.sleep(0)
            assert not sending.done()
            await on_client_loop(link.release())
            await sending
        assert [int((value or b"")[:4]) for value in link.values(0)] == list(range(300))

    run(main())


def test_a_full_buffer_is_an_error_after_max_block_ms(link: FakeLink) -> None:
    async def main() -> None:
        options: Any = {"buffer_memory": 64 * KIB, "batch_size": 8 * KIB, "max_request_size": 8 * KIB}
        async with AsyncProducer(**options, max_block_ms=50) as producer:
            link.hold()

            async def send_all() -> None:
                for _ in range(300):
                    await producer.send(TOPIC, bytes(1_000))

            with pytest.raises(BufferFull, match="within 50 ms"):
                await send_all()
            await on_client_loop(link.release())

    run(main())


def test_a_send_that_is_cancelled_while_it_waits_has_taken_nothing(link: FakeLink) -> None:
    async def main() -> None:
        async with AsyncProducer(buffer_memory=64 * KIB, batch_size=8 * KIB, max_request_size=8 * KIB) as producer:
            link.hold()
            taken = 0

            async def send_all() -> None:
                nonlocal taken
                while True:
                    await producer.send(TOPIC, bytes(1_000), partition=0)
                    taken += 1

            sending = asyncio.ensure_future(send_all())
            for _ in range(2_000):
                await asyncio.sleep(0)
            sending.cancel()
            await asyncio.wait([sending])
            await on_client_loop(link.release())
            await producer.flush(10)
            assert len(link.values(0)) == taken > 0

    run(main())


def test_a_task_that_only_sends_lets_others_run(link: FakeLink) -> None:
    async def main() -> None:
        async with AsyncProducer() as producer:
            turns = 0

            async def other() -> None:
                nonlocal turns
                while True:
                    await asyncio.sleep(0)
                    turns += 1

            task = asyncio.ensure_future(other())
            for _ in range(3_000):
                await producer.send(TOPIC, b"v")
            task.cancel()
            assert turns >= 10

    run(main())


def test_interceptors_see_each_record_once(link: FakeLink) -> None:
    seen: list[Any] = []

    class Note:
        def on_send(self, record: ProducerRecord) -> ProducerRecord:
            seen.append(record.value)
            return record

    async def main() -> None:
        options: Any = {"buffer_memory": 64 * KIB, "batch_size": 8 * KIB, "max_request_size": 8 * KIB}
        async with AsyncProducer(**options, interceptors=[Note()]) as producer:
            for number in range(200):
                await producer.send(TOPIC, b"%04d" % number + bytes(1_000), partition=0)
        assert [int(value[:4]) for value in seen] == list(range(200))
        assert link.values(0) == seen

    run(main())


def test_many_at_once(link: FakeLink) -> None:
    pyarrow = pytest.importorskip("pyarrow")

    async def main() -> None:
        async with AsyncProducer() as producer:
            future = await producer.send_many(TOPIC, [b"%d" % number for number in range(100)], partition=0)
            assert (await future).record_count == 100
            table = pyarrow.table({"value": [b"x", b"y"]})
            assert (await (await producer.send_arrow(TOPIC, table, partition=1))).record_count == 2
        assert (len(link.values(0)), link.values(1)) == (100, [b"x", b"y"])

    run(main())


def test_errors_come_where_one_waits_for_them(link: FakeLink) -> None:
    async def main() -> None:
        async with AsyncProducer(delivery_timeout_ms=30_000) as producer:
            with pytest.raises(TypeError):
                await producer.send(TOPIC, "text")
            with pytest.raises(UnknownTopic):
                await producer.send("unknown", b"v")
            link.errors.append(NotEnoughReplicas(TOPIC, 0, 1, 2))  # it is sent again
            assert (await producer.send_and_wait(TOPIC, b"v", partition=0)).offset == 0

    run(main())
    with pytest.raises(InvalidConfig):
        AsyncProducer(acks=5)  # type: ignore[arg-type]


def test_before_it_is_started_it_says_so(link: FakeLink) -> None:
    async def main() -> None:
        producer = AsyncProducer()
        with pytest.raises(ProducerClosed, match="not started"):
            await producer.send(TOPIC, b"v")
        await producer.stop()  # nothing to stop
        await producer.start()
        await producer.start()
        await producer.stop()

    run(main())

"""The producer for coroutines."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from raylog.api.connection.client_runtime import client_runtime
from raylog.api.producer.async_producer import AsyncProducer
from raylog.errors import BufferFull, InternalTopic, InvalidConfig, ProducerClosed, ResultNotReady, UnknownTopic
from tests.unit.api.producer_cluster import TOPIC, fake_cluster


def test_sending_from_coroutines(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        async with AsyncProducer(linger_ms=1) as producer:
            metadata = await producer.send_and_wait(TOPIC, b"one", b"key", partition=0)
            assert (metadata.partition, metadata.offset) == (0, 0)
            assert (metadata.serialized_key_size, metadata.serialized_value_size) == (3, 3)
            futures = [await producer.send(TOPIC, b"%d" % number, partition=0) for number in range(50)]
            assert [(await future).offset for future in futures] == list(range(1, 51))
            assert (await (await producer.send_many(TOPIC, [b"v"] * 5, partition=0))).ranges[0].first_offset == 51
            await producer.send(TOPIC, b"left")
            await producer.flush(10)
            assert await producer.partitions_for(TOPIC) == {0, 1, 2}
            assert producer.metrics()["record-send-total"] == 57
            with pytest.raises(UnknownTopic):
                await producer.send("unknown", b"v")
            with pytest.raises(InternalTopic):
                await producer.send("__consumer_offsets", b"v", b"k")
            with pytest.raises(TypeError):
                await producer.send(5, b"v")  # type: ignore[arg-type]
            with pytest.raises(TypeError):
                await producer.send(TOPIC, "text")
        with pytest.raises(ProducerClosed):
            await producer.send(TOPIC, b"v")

    with fake_cluster(monkeypatch) as link:
        asyncio.run(main())
        assert len(link.all_values()) == 57


def test_no_room_and_no_answer_do_not_block_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    async def main() -> None:
        settings: dict[str, Any] = {"buffer_memory": 65536, "batch_size": 8192, "max_request_size": 8192}
        async with AsyncProducer(max_block_ms=30, **settings) as producer:
            link.hold()
            with pytest.raises(BufferFull):
                await asyncio.gather(*(producer.send(TOPIC, bytes(1000), partition=0) for _ in range(100)))
            with pytest.raises(ResultNotReady):
                await producer.flush(0.01)
            producer.options = producer.options.__class__.parse({**settings, "max_block_ms": 10_000})
            waiting = asyncio.ensure_future(producer.send(TOPIC, bytes(1000), partition=0))
            await asyncio.sleep(0)
            assert not waiting.done()
            await asyncio.to_thread(client_runtime().run, link.release())
            await (await waiting)

    with fake_cluster(monkeypatch) as link:
        asyncio.run(main())


def test_it_has_to_be_started(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(InvalidConfig):
        AsyncProducer(acks=5)  # type: ignore[arg-type]
    with pytest.raises(ProducerClosed, match="started"):
        asyncio.run(AsyncProducer().send(TOPIC, b"v"))

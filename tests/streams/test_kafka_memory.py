"""Many Kafka clients that hold a gateway's memory, over real sockets: others are served, and the bound holds."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any, Final

import pytest
import uvloop

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka import connection_memory
from raylog.api.kafka.connection_memory import LONG_ANSWER_BYTES
from raylog.api.kafka.listener import KafkaListener
from raylog.api.kafka.protocol.codecs import RequestHeader, request_frame
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.memory_budget import FREE_BYTES, MemoryBudget
from raylog.config import KIB, MIB
from raylog.storage.format.record_batch import Bytes

_SECONDS: Final = 30.0
_MOST: Final = 8 * MIB
_BAD: Final = 60
_ANSWER: Final = MIB
_METADATA: Final = 3


class Side:
    """Answers Metadata with a MiB, and all else with a byte."""

    def __init__(self, budget: MemoryBudget) -> None:
        self.account = budget.account()
        self.is_admitted = True

    async def serve(self, header: RequestHeader, frame: Bytes) -> Sequence[Bytes] | None:
        await asyncio.sleep(0)
        size = _ANSWER if header.api_key == _METADATA else 1
        return [(size).to_bytes(4, "big"), bytes(size)]

    def close(self) -> None:
        self.account.close()


class Stage:
    """A listener with little memory, and clients of it."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(_MOST)
        self.listener = KafkaListener(lambda: Side(self.budget), self.budget)
        self.port = 0
        self.writers: list[asyncio.StreamWriter] = []

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        reader, writer = await asyncio.open_connection("127.0.0.1", self.port, limit=KIB)
        self.writers.append(writer)
        return reader, writer

    async def ask(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
        """Return the size of the answer."""
        writer.write(request)
        size = int.from_bytes(await reader.readexactly(4), "big")
        assert len(await reader.readexactly(size)) == size
        return size

    async def until_full(self) -> None:
        while not self.budget.is_waited_for:
            await asyncio.sleep(0.01)

    async def run(self, test: Coroutine[Any, Any, None]) -> None:
        self.port = await self.listener.open("127.0.0.1", 0)
        try:
            await test
        finally:
            for each in self.writers:
                each.transport.abort()
            await self.listener.close()
        while self.budget.held:
            await asyncio.sleep(0.01)


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def loop(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> asyncio.AbstractEventLoop:
    monkeypatch.setattr(connection_memory, "STALL_SECONDS", 0.5)
    made: asyncio.AbstractEventLoop = request.param()
    return made


def in_stage(loop: asyncio.AbstractEventLoop, test: Any) -> None:
    async def run() -> None:
        stage = Stage()
        await stage.run(test(stage))

    try:
        loop.run_until_complete(asyncio.wait_for(run(), _SECONDS))
    finally:
        loop.close()


def metadata(number: int) -> bytes:
    return b"".join(request_frame("Metadata", 9, message_type("MetadataRequest")(), correlation_id=number))


def produce(number: int, size: int) -> bytes:
    part = message_type("ProduceRequest", "PartitionProduceData")
    topic = message_type("ProduceRequest", "TopicProduceData")
    message = message_type("ProduceRequest")(topic_data=[topic("clicks", partition_data=[part(0, bytes(size))])])
    return b"".join(request_frame("Produce", 9, message, correlation_id=number))


def heartbeat(number: int) -> bytes:
    message = message_type("HeartbeatRequest")("group", 1, "member")
    return b"".join(request_frame("Heartbeat", 3, message, correlation_id=number))


def test_clients_that_never_read_hold_no_more_than_the_bound_and_others_are_served(
    loop: asyncio.AbstractEventLoop,
) -> None:
    async def read_nothing(stage: Stage) -> None:
        for number in range(_BAD):
            _, writer = await stage.connect()
            writer.transport.pause_reading()  # type: ignore[attr-defined] # it is one that reads
            for _ in range(8):
                writer.write(metadata(number))
        await stage.until_full()
        reader, writer = await stage.connect()
        assert await asyncio.wait_for(stage.ask(reader, writer, heartbeat(1)), 0.4) == 1  # at once
        most = 0
        for number in range(2 * _BAD):
            assert await stage.ask(reader, writer, metadata(number)) == _ANSWER
            most = max(most, stage.budget.held)
        # What was begun before all was held may have answers that are longer than was set aside for them.
        assert most <= _MOST * _ANSWER // LONG_ANSWER_BYTES
        assert len(stage.listener) < _BAD

    in_stage(loop, read_nothing)


def test_requests_that_are_never_whole_hold_no_more_than_the_bound_and_others_are_served(
    loop: asyncio.AbstractEventLoop,
) -> None:
    async def send_halves(stage: Stage) -> None:
        for number in range(_BAD):
            _, writer = await stage.connect()
            writer.write(produce(number, MIB)[: MIB // 2])
        await stage.until_full()
        assert stage.budget.held <= _MOST + _BAD * FREE_BYTES
        reader, writer = await stage.connect()
        assert await asyncio.wait_for(stage.ask(reader, writer, produce(1, 1_000)), 0.4) == 1  # at once
        for number in range(20):
            assert await stage.ask(reader, writer, produce(number, 2 * MIB)) == 1
            assert stage.budget.held <= _MOST + _BAD * FREE_BYTES

    in_stage(loop, send_halves)


def test_clients_that_read_are_all_served_whatever_they_ask_for_together(loop: asyncio.AbstractEventLoop) -> None:
    async def ask(stage: Stage, number: int) -> None:
        reader, writer = await stage.connect()
        for _ in range(3):
            request = metadata(number) if number % 2 else produce(number, 3 * MIB)
            assert await stage.ask(reader, writer, request) == (_ANSWER if number % 2 else 1)

    async def all_at_once(stage: Stage) -> None:
        await asyncio.gather(*(ask(stage, number) for number in range(40)))

    in_stage(loop, all_at_once)

"""The listener for Kafka clients, over real sockets, on asyncio's loop and on uvloop's."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Sequence
from typing import Any, TypeAlias

import pytest
import uvloop

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka import listener
from raylog.api.kafka.listener import KafkaListener
from raylog.api.kafka.protocol.api_versions import api_versions_answer
from raylog.api.kafka.protocol.codecs import RequestHeader, answer_frame, decoder, request_frame
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.storage.format.record_batch import Bytes

_SECONDS = 10.0


class Side:
    """The gateway's side of a connection, which knows ApiVersions."""

    def __init__(self, sides: list[Side]) -> None:
        sides.append(self)
        self.account = MemoryBudget().account()
        self.is_admitted = True
        self.is_closed = False

    async def serve(self, header: RequestHeader, frame: Bytes) -> Sequence[Bytes] | None:
        version, answer = api_versions_answer(header.api_version, 1)
        return answer_frame("ApiVersions", version, answer, header.correlation_id)

    def close(self) -> None:
        self.is_closed = True


class Stage:
    def __init__(self, idle_seconds: float = 600.0, most: int | None = None) -> None:
        self.sides: list[Side] = []
        self.listener = KafkaListener(
            lambda: Side(self.sides), MemoryBudget(), idle_seconds=idle_seconds, most_connections=most
        )
        self.port = 0

    async def open(self) -> None:
        self.port = await self.listener.open("127.0.0.1", 0)

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection("127.0.0.1", self.port)


Run: TypeAlias = Callable[[Coroutine[Any, Any, None]], None]


@pytest.fixture(params=[asyncio.new_event_loop, uvloop.new_event_loop], ids=["asyncio", "uvloop"])
def run(request: pytest.FixtureRequest) -> Run:
    """Return a function that runs a test on one of the loops."""

    def run_it(test: Coroutine[Any, Any, None]) -> None:
        loop = request.param()
        try:
            loop.run_until_complete(asyncio.wait_for(test, _SECONDS))
            loop.run_until_complete(asyncio.sleep(0))  # transports that were aborted are told so
        finally:
            loop.close()

    return run_it


def asks(correlation_id: int) -> bytes:
    request = message_type("ApiVersionsRequest")()
    return b"".join(request_frame("ApiVersions", 3, request, correlation_id=correlation_id))


async def answered(reader: asyncio.StreamReader) -> int:
    frame = await reader.readexactly(int.from_bytes(await reader.readexactly(4), "big"))
    assert decoder("ApiVersionsResponse", 3)(frame, 4).api_keys
    return int.from_bytes(frame[:4], "big")


def test_clients_are_answered_and_one_that_sends_nonsense_costs_itself_only(run: Run) -> None:
    async def serve() -> None:
        stage = Stage()
        await stage.open()
        reader, writer = await stage.connect()
        other, nonsense = await stage.connect()
        writer.write(asks(1) + asks(2))
        assert [await answered(reader), await answered(reader)] == [1, 2]
        nonsense.write(b"GET / HTTP/1.1\r\n\r\n")
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await other.readexactly(1)
        assert [side.is_closed for side in stage.sides] == [False, True]
        writer.write(asks(3))
        assert await answered(reader) == 3
        assert len(stage.listener) == 1
        await stage.listener.close()
        assert [side.is_closed for side in stage.sides] == [True, True]
        for each in (writer, nonsense):
            each.close()

    run(serve())


def test_clients_beyond_the_bound_are_turned_away_and_may_come_when_another_has_gone(
    run: Run, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(listener, "_of_clients", RareLog(logging.getLogger("raylog")))  # it has said nothing yet

    async def come_and_go() -> None:
        stage = Stage(most=1)
        await stage.open()
        reader, writer = await stage.connect()
        writer.write(asks(1))
        assert await answered(reader) == 1
        late, turned_away = await stage.connect()
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await late.readexactly(1)
        assert "A Kafka client is turned away: 1 are connected" in caplog.text
        writer.write(asks(2))
        assert await answered(reader) == 2
        writer.close()
        while len(stage.listener):
            await asyncio.sleep(0.01)
        reader, writer = await stage.connect()
        writer.write(asks(3))
        assert await answered(reader) == 3
        await stage.listener.close()
        for each in (writer, turned_away):
            each.close()

    run(come_and_go())


def test_a_connection_that_is_idle_for_too_long_is_closed(run: Run) -> None:
    async def wait() -> None:
        stage = Stage(idle_seconds=0.2)
        await stage.open()
        reader, writer = await stage.connect()
        writer.write(asks(1))
        assert await answered(reader) == 1
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(1)
        assert stage.sides[0].is_closed
        await stage.listener.close()
        writer.close()

    run(wait())


def test_a_port_that_is_taken_is_said(run: Run) -> None:
    async def take() -> None:
        stage, second = Stage(), Stage()
        await stage.open()
        with pytest.raises(OSError, match="in use"):
            await second.listener.open("127.0.0.1", stage.port)
        await second.listener.close()
        await stage.listener.close()

    run(take())

"""A connection of a Kafka client on a transport made for it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka import kafka_connection
from raylog.api.kafka.kafka_connection import KafkaConnection
from raylog.api.kafka.protocol.codecs import RequestHeader, request_frame
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.request_frames import MOST_BEFORE_ADMISSION
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.errors import NotLeader


@pytest.fixture(autouse=True)
def _no_line_before(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kafka_connection, "_of_clients", RareLog(logging.getLogger("clients")))


class Wire(asyncio.Transport):
    """What was written, and whether it reads."""

    def __init__(self) -> None:
        super().__init__({"peername": ("10.0.0.7", 4711)})
        self.written = b""
        self.reads = True
        self.is_aborted = False

    def writelines(self, list_of_data: Iterable[bytes | bytearray | memoryview[Any]]) -> None:
        self.written += b"".join(list_of_data)

    def get_write_buffer_size(self) -> int:
        return len(self.written)

    def pause_reading(self) -> None:
        assert self.reads
        self.reads = False

    def resume_reading(self) -> None:
        assert not self.reads
        self.reads = True

    def abort(self) -> None:
        self.is_aborted = True


class Timer:
    """The only one of a loop."""

    def __init__(self, timers: list[tuple[float, Callable[[], None]]]) -> None:
        self._timers = timers

    def cancel(self) -> None:
        self._timers.clear()


class Clock:
    """The time of a loop, which the test moves."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.now = 1_000.0
        self.create_task = loop.create_task
        self.call_soon = loop.call_soon
        self.timers: list[tuple[float, Callable[[], None]]] = []

    def call_later(self, delay: float, callback: Callable[[], None]) -> Timer:
        self.timers.append((delay, callback))
        return Timer(self.timers)

    def time(self) -> float:
        return self.now


class Gateway:
    """Serves when the test says so: a correlation id is answered with one byte."""

    def __init__(self, most_bytes: int = 100_000, *, is_admitted: bool = True) -> None:
        self.is_admitted = is_admitted
        self.held: dict[int, asyncio.Future[list[bytes] | None]] = {}
        self.refuse = False  # at once
        self.over: list[KafkaConnection] = []
        self.wire = Wire()
        loop = asyncio.get_running_loop()
        shared = memoryview(bytearray(4096))
        self.clock = Clock(loop)
        self.budget = MemoryBudget()
        self.connection = KafkaConnection(
            self.clock,  # type: ignore[arg-type] # all of a loop that it uses
            shared, self.serve, self.over.append, self.budget.account(), most_bytes=most_bytes,
            is_admitted=lambda: self.is_admitted,
        )  # fmt: skip
        self.connection.connection_made(self.wire)

    def is_read(self) -> bool:
        return self.wire.reads

    async def serve(self, header: RequestHeader, frame: bytearray) -> list[bytes] | None:
        if self.refuse:
            return [b"."]
        future: asyncio.Future[list[bytes] | None] = asyncio.get_running_loop().create_future()
        self.held[header.correlation_id] = future
        return await future

    async def arrive(self, data: bytes) -> None:
        while data:
            memory = self.connection.get_buffer(-1)
            piece = data[: len(memory)]
            memory[: len(piece)] = piece
            self.connection.buffer_updated(len(piece))
            data = data[len(piece) :]
        await settle()

    async def answer(self, correlation_id: int, answer: bytes | None = b".") -> None:
        self.held.pop(correlation_id).set_result(None if answer is None else [answer])
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def produce(correlation_id: int, size: int = 10) -> bytes:
    part = message_type("ProduceRequest", "PartitionProduceData")
    topic = message_type("ProduceRequest", "TopicProduceData")
    message = message_type("ProduceRequest")(topic_data=[topic("clicks", partition_data=[part(0, bytes(size))])])
    return b"".join(request_frame("Produce", 9, message, correlation_id=correlation_id, client_id="writer"))


def fetch(correlation_id: int) -> bytes:
    return b"".join(request_frame("Fetch", 12, message_type("FetchRequest")(), correlation_id=correlation_id))


def metadata(correlation_id: int) -> bytes:
    return b"".join(request_frame("Metadata", 9, message_type("MetadataRequest")(), correlation_id=correlation_id))


def runs(test: Callable[[], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())  # type: ignore[arg-type] # a coroutine

    run.__name__ = test.__name__
    return run


@runs
async def test_answers_go_out_in_the_order_of_requests() -> None:
    gateway = Gateway()
    await gateway.arrive(produce(1) + produce(2) + metadata(3) + produce(4))
    assert sorted(gateway.held) == [1, 2]
    await gateway.answer(2, b"2")
    assert gateway.wire.written == b""
    await gateway.answer(1, b"1")
    assert (gateway.wire.written, sorted(gateway.held)) == (b"12", [3])
    await gateway.answer(3, None)
    await gateway.answer(4, b"4")
    assert gateway.wire.written == b"124"
    assert not gateway.held


@runs
async def test_a_batch_is_passed_on_as_it_arrives_and_answered_as_its_answer_comes() -> None:
    gateway = Gateway()
    request = produce(1)
    gateway.connection.get_buffer(-1)[: len(request)] = request
    gateway.connection.buffer_updated(len(request))
    gateway.held[1].set_result([b"1"])
    await asyncio.sleep(0)
    assert gateway.wire.written == b"1"


@runs
async def test_many_requests_that_are_served_at_once_take_a_turn_each() -> None:
    gateway = Gateway()
    gateway.refuse = True
    await gateway.arrive(b"".join(fetch(number) for number in range(30)))
    assert 3 <= len(gateway.wire.written) <= 6
    for _ in range(30):
        await asyncio.sleep(0)
    assert gateway.wire.written == b"." * 30


@runs
async def test_a_client_that_sends_too_much_is_not_read_until_it_is_answered() -> None:
    gateway = Gateway(most_bytes=10_000)
    await gateway.arrive(produce(1, size=9_000))
    assert gateway.is_read()
    await gateway.arrive(produce(2, size=9_000))
    assert not gateway.is_read()
    await gateway.answer(1)
    assert gateway.is_read()
    assert gateway.connection.bytes_held > 9_000


@runs
async def test_a_client_that_takes_no_answers_is_asked_for_no_more() -> None:
    gateway = Gateway()
    await gateway.arrive(metadata(1))
    gateway.connection.pause_writing()
    assert not gateway.is_read()
    await gateway.arrive(metadata(2))
    await gateway.answer(1)
    assert gateway.held == {}
    gateway.connection.resume_writing()
    await settle()
    assert (gateway.is_read(), list(gateway.held)) == (True, [2])


@runs
async def test_a_connection_that_is_lost_cancels_what_is_under_way() -> None:
    gateway = Gateway()
    await gateway.arrive(produce(1) + produce(2))
    gateway.connection.connection_lost(None)
    await settle()
    assert all(future.cancelled() for future in gateway.held.values())
    assert gateway.over == [gateway.connection]
    gateway.connection.buffer_updated(4)
    gateway.connection.end()
    assert (gateway.wire.written, gateway.over) == (b"", [gateway.connection])


NONSENSE = {
    "no length": b"GET / HTTP/1.1\r\n\r\n",
    "no header": b"\0\0\0\2\0\0",
    "no such API": b"\0\0\0\x0a\x03\xe8\0\0\0\0\0\1\xff\xff",
    "no such version": b"\0\0\0\x0a\0\0\0\x63\0\0\0\1\xff\xff",
}


@pytest.mark.parametrize("data", NONSENSE.values(), ids=NONSENSE)
def test_nonsense_ends_a_connection_with_one_line(data: bytes, caplog: pytest.LogCaptureFixture) -> None:
    async def send() -> None:
        gateway = Gateway()
        await gateway.arrive(produce(1) + data)
        assert gateway.wire.is_aborted
        assert gateway.over == [gateway.connection]
        assert gateway.held == {}

    asyncio.run(send())
    (line,) = caplog.messages
    assert "10.0.0.7" in line


def test_many_clients_that_send_nonsense_do_not_fill_the_log(caplog: pytest.LogCaptureFixture) -> None:
    async def send() -> None:
        for _ in range(100):
            gateway = Gateway()
            await gateway.arrive(b"\xff" * 100)
            assert gateway.wire.is_aborted

    asyncio.run(send())
    assert len(caplog.messages) < 5


def test_a_request_that_fails_ends_its_connection(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        gateway = Gateway()
        await gateway.arrive(produce(1) + produce(2))
        gateway.held[1].set_exception(NotLeader("clicks", 0, 3, 7))
        await settle()
        assert gateway.wire.is_aborted
        assert gateway.held[2].cancelled()

    asyncio.run(fail())
    (line,) = caplog.messages
    assert "'writer'" in line


@runs
async def test_a_connection_is_idle_while_nothing_comes_goes_or_is_under_way() -> None:
    gateway = Gateway()

    def idle_after(seconds: float) -> float:
        gateway.clock.now += seconds
        return gateway.connection.idle_seconds()

    assert idle_after(60) == 60
    await gateway.arrive(metadata(1))
    assert idle_after(60) == 0  # it waits for an answer
    await gateway.answer(1)
    assert idle_after(60) == 0  # which has gone out to the transport
    assert idle_after(60) == 60
    gateway.wire.written = b""  # and to the client
    assert idle_after(60) == 0
    await gateway.arrive((90 << 20).to_bytes(4, "big") + b"x")
    assert idle_after(600) == 600  # of 90 MiB it sent a byte
    await gateway.arrive(b"x")
    assert idle_after(60) == 60


@runs
async def test_a_client_that_takes_no_answers_is_idle_whatever_else_it_has_sent() -> None:
    gateway = Gateway()
    await gateway.arrive(metadata(1))
    gateway.connection.pause_writing()
    await gateway.arrive(metadata(2))
    await gateway.answer(1, bytes(1_000))
    gateway.connection.idle_seconds()
    gateway.clock.now += 600
    assert gateway.connection.idle_seconds() == 600
    gateway.wire.written = gateway.wire.written[:-1]
    assert gateway.connection.idle_seconds() == 0


@runs
async def test_a_client_that_has_not_said_who_it_is_sends_small_requests_only() -> None:
    stranger = Gateway(is_admitted=False)
    await stranger.arrive(metadata(1))
    assert sorted(stranger.held) == [1]
    await stranger.arrive((64 * 1024 + 1).to_bytes(4, "big"))
    assert stranger.wire.is_aborted
    known = Gateway(is_admitted=False)
    await known.arrive(metadata(1))
    known.is_admitted = True
    await known.answer(1)
    await known.arrive(produce(2, 70_000))
    assert sorted(known.held) == [2]
    assert known.clock.timers == []


@runs
async def test_a_client_that_has_not_said_who_it_is_has_few_requests_waiting() -> None:
    stranger = Gateway(1_000_000, is_admitted=False)
    tiny = b"".join(fetch(number) for number in range(10_000))
    while stranger.is_read() and tiny:
        room = len(stranger.connection.get_buffer(-1))
        await stranger.arrive(tiny[:room])
        tiny = tiny[room:]
    assert tiny
    assert stranger.connection.bytes_held < 2 * MOST_BEFORE_ADMISSION
    assert stranger.budget.held < 2 * MOST_BEFORE_ADMISSION
    stranger.is_admitted = True
    await stranger.answer(0)
    assert stranger.is_read()
    await stranger.arrive(tiny[: len(stranger.connection.get_buffer(-1))])  # the rest of one
    assert len(stranger.connection.get_buffer(-1)) > 4_000


@runs
async def test_a_client_says_who_it_is_soon_or_goes() -> None:
    stranger = Gateway(is_admitted=False)
    ((seconds, end),) = stranger.clock.timers
    assert seconds == 30.0
    end()
    assert stranger.wire.is_aborted
    assert stranger.clock.timers == []
    assert Gateway().clock.timers == []

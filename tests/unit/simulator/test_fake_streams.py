"""Streams between simulated processes: what `Stream` promises, and all the ways in which a network breaks."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass, field
from functools import partial
from typing import Any

import pytest

from raylog.actors.kernel.stream_interface import Answer, Handler, Request, Response, Stream
from raylog.actors.protocol.endpoint import Endpoint, StreamLimits
from raylog.actors.protocol.messages import Done, Message, Ping, message
from raylog.config import KIB, MIB
from raylog.errors import (
    FrameTooLarge,
    MessageUnknown,
    OffsetOutOfRange,
    PeerNotAdmitted,
    PeerUnreachable,
    RemoteFailed,
    RequestTimedOut,
    StreamClosed,
    StreamNotOpen,
    TooManyBytesInFlight,
)
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.fake_streams import FakeStream
from tests.simulator.world.machines import Machine, Process, SimEnvironment
from tests.simulator.world.world import SimulationFailed, World

EVEN = NetworkSettings(slow_chance=0.0, stuck_chance=0.0, silence=(10.0, 20.0), packed_share=0.5)
ROUGH = NetworkSettings(slow_chance=0.1, stuck_chance=0.01, notice=(0.001, 2.0))


@message(kind=241)
@dataclass(frozen=True, slots=True)
class Item(Message):
    value: int


def echo(request: Request) -> Answer:
    return Response(request.message, request.payload)


@dataclass
class Pair:
    """A server on machine `there`, a client on machine `here`, and one stream."""

    world: World
    handler: Handler = echo
    client_handler: Handler = echo
    accepted: list[Stream] = field(default_factory=list)
    endpoints: tuple[Endpoint, ...] = ()

    def __post_init__(self) -> None:
        self.here: Machine = self.world.add_machine("here")
        self.there: Machine = self.world.add_machine("there")
        self.server: Process = self.there.start("server", self.serve)
        self.client: Process = self.here.start("client", sleep_for_ever)
        self.world.run_for(0.01)

    async def serve(self, environment: SimEnvironment) -> None:
        _, self.endpoints = await environment.listen("s", "broker 1", self._handle, self.accepted.append)
        await sleep_for_ever(environment)

    def _handle(self, request: Request) -> Answer | Awaitable[Answer]:
        return self.handler(request)

    def dial(self) -> FakeStream:
        stream: FakeStream = self.do(self.client.environment.dial(self.endpoints[1], "client", self.client_handler))
        return stream

    def do(self, coroutine: Coroutine[Any, Any, Any], limit: float = 60.0) -> Any:
        """What a coroutine returns that the client runs."""
        task = self.client.run(coroutine)
        assert self.world.run_until_idle_or(task.done, limit)
        return task.result()


async def sleep_for_ever(_: SimEnvironment) -> None:
    while True:
        await asyncio.sleep(1_000)


async def ask(stream: Stream, value: int = 1, payload: bytes = b"", **options: Any) -> Response:
    return await stream.request(Item(value), payload, **options)


async def ping(stream: Stream) -> Response:
    return await stream.request(Ping())


async def failure_of(asked: Awaitable[Response]) -> Exception:
    try:
        answer = await asked
    except Exception as error:  # noqa: BLE001 (the caller looks at it)
        return error
    raise AssertionError(f"{answer} is no failure")


def collector(into: list[int]) -> Handler:
    def handle(request: Request) -> Answer:
        assert isinstance(request.message, Item)
        into.append(request.message.value)
        return None

    return handle


# --- requests and answers -----------------------------------------------------------------------------------------


def test_both_sides_ask_over_one_stream() -> None:
    with World(1, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()

        before = world.now
        assert pair.do(ask(stream, 7, b"payload")) == Response(Item(7), b"payload")
        assert 0.000_1 <= world.now - before <= 0.05
        task = pair.server.run(ask(pair.accepted[0], 8, b"from there"))
        world.run_for(0.1)
        assert task.result() == Response(Item(8), b"from there")
        assert isinstance(pair.do(ping(stream)).message, Done)
        assert "broker 1" in stream.peer
        assert "client" in pair.accepted[0].peer
        assert stream.bytes_in_flight == stream.held_bytes == 0


def test_a_handler_answers_with_a_value_with_none_later_or_through_a_future() -> None:
    async def later(request: Request) -> Answer:
        await asyncio.sleep(0.1)
        return Response(request.message, b"later")

    def through_future(request: Request) -> Awaitable[Answer]:
        loop = asyncio.get_running_loop()
        future: asyncio.Future[Answer] = loop.create_future()
        loop.call_later(0.1, future.set_result, Response(request.message, b"future"))
        return future

    def handler(request: Request) -> Answer | Awaitable[Answer]:
        assert isinstance(request.message, Item)
        assert (request.topic_id, request.partition) == (b"t" * 16, request.message.value)
        handlers: list[Handler] = [echo, lambda _: None, later, through_future]
        return handlers[request.message.value](request)

    with World(2, settings=EVEN) as world:
        pair = Pair(world, handler)
        stream = pair.dial()

        async def test() -> list[Response]:
            asked = (ask(stream, n, b"now", topic_id=b"t" * 16, partition=n) for n in range(4))
            return list(await asyncio.gather(*asked))

        assert [(type(answer.message), bytes(answer.payload)) for answer in pair.do(test())] == [
            (Item, b"now"),
            (Done, b""),
            (Item, b"later"),
            (Item, b"future"),
        ]


def test_errors_come_back_typed() -> None:
    def handler(request: Request) -> Answer:
        if request.message == Item(1):
            raise OffsetOutOfRange(7, 1, 5)
        raise MessageUnknown(1, 2)

    with World(3, settings=EVEN) as world:
        pair = Pair(world, handler)
        stream = pair.dial()
        error = pair.do(failure_of(ask(stream, 1)))
        assert isinstance(error, RemoteFailed)
        assert isinstance(error.error, OffsetOutOfRange)
        assert error.error.args == (7, 1, 5)
        error = pair.do(failure_of(ask(stream, 2)))
        assert isinstance(error, RemoteFailed)
        assert isinstance(error.error, MessageUnknown)


def test_another_error_of_a_handler_fails_the_run() -> None:
    def handler(request: Request) -> Answer:
        raise ZeroDivisionError

    with World(4, settings=EVEN) as world:
        pair = Pair(world, handler)
        stream = pair.dial()
        with pytest.raises(SimulationFailed, match=r"(?s)a handler failed.*ZeroDivisionError.*Seed 4\."):
            pair.do(failure_of(ask(stream)))
        world.failures.clear()


def test_a_payload_arrives_as_the_takers_own() -> None:
    taken: list[Request] = []

    def handler(request: Request) -> Answer:
        request.payload[0] = 0
        taken.append(request)
        return Response(Item(1), request.payload)

    with World(5, settings=EVEN) as world:
        pair = Pair(world, handler)
        stream = pair.dial()
        sent = bytearray(b"sent")
        answer = pair.do(stream_request(stream, sent))
        assert sent == b"sent"
        assert bytes(taken[0].payload) == bytes(answer.payload) == b"\0ent"
        assert answer.payload is not taken[0].payload
        assert bytes(pair.do(stream_request(stream, memoryview(b"view")[1:])).payload) == b"\0ew"


async def stream_request(stream: Stream, payload: Any) -> Response:
    return await stream.request(Item(1), payload)


def test_a_sender_that_changes_what_it_has_sent_is_found_out() -> None:
    with World(6, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()
        payload = bytearray(b"payload")

        async def test() -> None:
            asked = stream.request(Item(1), payload)
            await asyncio.sleep(0)
            payload[0] = 0
            await asked

        with pytest.raises(SimulationFailed, match="was changed while the stream had it"):
            pair.do(test())
        world.failures.clear()


def test_a_handler_that_changes_its_answer_is_found_out() -> None:
    def handler(request: Request) -> Answer:
        asyncio.get_running_loop().call_soon(request.payload.__setitem__, 0, 0)
        return Response(Item(1), request.payload)

    with World(7, settings=EVEN) as world:
        pair = Pair(world, handler)
        stream = pair.dial()
        with pytest.raises(SimulationFailed, match="was changed while the stream had it"):
            pair.do(ask(stream, 1, b"payload"))
        world.failures.clear()


def test_messages_are_really_packed() -> None:
    taken: list[Message] = []

    def handler(request: Request) -> Answer:
        taken.append(request.message)
        return None

    with World(30, settings=NetworkSettings(packed_share=1.0)) as world:
        pair = Pair(world, handler)
        stream = pair.dial()
        sent = Item(5)
        pair.do(stream_send(stream, sent))
        world.run_for(0.1)
        assert taken == [sent]
        assert taken[0] is not sent
        with pytest.raises(SimulationFailed, match="FrameInvalid"):
            pair.do(ask(stream, "text"))  # type: ignore[arg-type]
        world.failures.clear()


async def stream_send(stream: Stream, outgoing: Message) -> None:
    stream.send(outgoing)


# --- bounds and time-outs -----------------------------------------------------------------------------------------


def test_a_time_out_gives_up_the_request_and_not_its_bytes() -> None:
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(2.0)
        return None

    with World(8, settings=EVEN) as world:
        pair = Pair(world, slow)
        stream = pair.dial()
        before = world.now
        error = pair.do(failure_of(ask(stream, timeout=0.5)))
        assert isinstance(error, RequestTimedOut)
        assert error.timeout_ms == 500
        assert 0.49 <= world.now - before <= 0.6
        assert stream.bytes_in_flight > 0
        world.run_for(2.0)
        assert stream.bytes_in_flight == 0
        assert isinstance(pair.do(ask(stream)), Response)


def test_bytes_in_flight_are_bounded() -> None:
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(1.0)
        return Response(request.message)

    with World(9, settings=EVEN) as world:
        pair = Pair(world, slow)
        stream = pair.dial()
        large = bytes(40 * MIB)

        async def test() -> None:
            first = stream.request(Item(1), large)
            refused = stream.request(Item(2), large, wait=False)
            assert isinstance(await failure_of(refused), TooManyBytesInFlight)
            late = await failure_of(stream.request(Item(3), large, timeout=0.5))
            assert isinstance(late, TooManyBytesInFlight)
            waiting = stream.request(Item(4), large)
            assert (await first).message == Item(1)
            assert (await waiting).message == Item(4)
            assert isinstance(await failure_of(stream.request(Item(5), bytes(129 * MIB))), FrameTooLarge)

        pair.do(test())


def test_who_does_not_read_is_not_sent_more() -> None:
    with World(10, settings=EVEN) as world:
        seen: list[int] = []
        pair = Pair(world, collector(seen))
        stream = pair.dial()
        pair.server.pause()

        async def say() -> int:
            for number in range(1_000):
                try:
                    stream.send(Item(number), bytes(64 * KIB))
                except TooManyBytesInFlight:
                    return number
                await asyncio.sleep(0.001)
            raise AssertionError("there was no bound")

        count = pair.do(say())
        assert seen == []
        pair.server.resume()
        world.run_for(1.0)
        assert seen == list(range(count))
        assert pair.do(ask(stream, 5_000)) == Response(Done(), b"")


def test_who_is_slow_holds_a_bounded_number_of_requests() -> None:
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(0.1)
        return None

    with World(31, settings=EVEN) as world:
        world.network.limits = StreamLimits(held_bytes=100 * KIB)
        pair = Pair(world, slow)
        stream = pair.dial()
        accepted = pair.accepted[0]
        assert isinstance(accepted, FakeStream)
        held = []

        async def test() -> None:
            asked = [stream.request(Item(number), bytes(10 * KIB)) for number in range(100)]
            while not all(each.done() for each in asked):
                held.append(accepted.held_bytes)
                await asyncio.sleep(0.01)

        pair.do(test())
        assert 100 * KIB < max(held) < 300 * KIB
        assert stream.bytes_in_flight == 0


# --- order --------------------------------------------------------------------------------------------------------


def test_a_stream_keeps_order_and_two_streams_do_not() -> None:
    overtakings = 0
    for seed in range(10):
        with World(seed, settings=ROUGH) as world:
            seen: list[int] = []
            pair = Pair(world, collector(seen))
            one, other = pair.dial(), pair.dial()

            async def say(one: Stream = one, other: Stream = other) -> None:
                for number in range(0, 200, 2):
                    one.send(Item(number))
                    other.send(Item(number + 1))
                    await asyncio.sleep(0.000_1)

            pair.do(say())
            world.run_for(60.0)
            assert [value for value in seen if value % 2 == 0] == list(range(0, 200, 2))
            assert [value for value in seen if value % 2 == 1] == list(range(1, 200, 2))
            overtakings += seen != sorted(seen)
    assert overtakings == 10


# --- closing ------------------------------------------------------------------------------------------------------


def test_closing_waits_for_handlers_and_ends_both_sides() -> None:
    async def slow(request: Request) -> Answer:
        await asyncio.sleep(1.0)
        return None

    with World(11, settings=EVEN) as world:
        pair = Pair(world, client_handler=slow)
        stream = pair.dial()
        asked = pair.server.run(ask(pair.accepted[0]))
        world.run_for(0.1)
        pair.do(stream.close())
        world.run_for(0.1)
        assert isinstance(asked.result(), Response)
        assert stream.closed.done()
        assert pair.accepted[0].closed.done()
        assert isinstance(pair.do(failure_of(ask(stream))), StreamNotOpen)
        with pytest.raises(StreamNotOpen):
            stream.send(Item(1))


def test_closing_a_server_ends_its_streams_and_its_endpoints() -> None:
    async def main(environment: SimEnvironment, found: list[Endpoint]) -> None:
        server, endpoints = await environment.listen("s", "broker", echo)
        found += endpoints
        await asyncio.sleep(1.0)
        await server.close()
        await asyncio.sleep(100.0)

    with World(12, settings=EVEN) as world:
        found: list[Endpoint] = []
        machine = world.add_machine("one")
        machine.start("server", main, found)
        client = machine.start("client", sleep_for_ever)
        world.run_for(0.1)
        dialling = client.run(client.environment.dial(found[0], "client", echo))
        world.run_for(0.1)
        stream = dialling.result()
        world.run_for(1.0)
        assert stream.closed.done()
        refused = client.run(client.environment.dial(found[0], "client", echo))
        world.run_for(0.1)
        assert isinstance(refused.exception(), PeerUnreachable)


# --- dialling -----------------------------------------------------------------------------------------------------


def dial_error(pair: Pair, endpoint: Endpoint) -> tuple[Exception, float]:
    before = pair.client.loop.time()
    error = pair.do(failure_of(pair.client.environment.dial(endpoint, "client", echo)))  # type: ignore[arg-type]
    return error, pair.client.loop.time() - before


def test_nobody_there() -> None:
    with World(13, settings=EVEN) as world:
        pair = Pair(world)
        for endpoint in (Endpoint(host="there", port=1), Endpoint(host="nowhere", port=1), pair.endpoints[0]):
            error, seconds = dial_error(pair, endpoint)
            assert isinstance(error, PeerUnreachable)
            assert seconds < 0.1
        pair.server.kill()
        world.run_for(0.1)
        assert isinstance(dial_error(pair, pair.endpoints[1])[0], PeerUnreachable)


def test_no_answer_from_there() -> None:
    with World(14, settings=EVEN) as world:
        pair = Pair(world)
        world.network.block(pair.there, pair.here)
        error, seconds = dial_error(pair, pair.endpoints[1])
        assert isinstance(error, PeerNotAdmitted)
        assert 4.99 < seconds < 5.1
        world.network.partition([pair.here], [pair.there])
        error, seconds = dial_error(pair, pair.endpoints[1])
        assert isinstance(error, PeerUnreachable)
        assert 4.99 < seconds < 5.1
        world.network.heal()
        pair.there.crash()
        assert isinstance(dial_error(pair, pair.endpoints[1])[0], PeerUnreachable)


def test_a_connection_is_made_after_all_when_the_partition_is_short() -> None:
    with World(15, settings=EVEN) as world:
        pair = Pair(world)
        world.network.partition([pair.here], [pair.there])
        world.after(2.5, world.network.heal)
        assert pair.dial().admitted.done()


def test_a_paused_process_does_not_admit_and_hears_nothing_of_it_later() -> None:
    with World(16, settings=EVEN) as world:
        pair = Pair(world)
        pair.server.pause()
        error, seconds = dial_error(pair, pair.endpoints[1])
        assert isinstance(error, PeerNotAdmitted)
        assert 4.99 < seconds < 5.1
        pair.server.resume()
        world.run_for(1.0)
        assert pair.accepted == []
        pair.dial()
        assert len(pair.accepted) == 1


def test_dialling_may_be_given_up() -> None:
    with World(17, settings=EVEN) as world:
        pair = Pair(world)
        task = pair.client.run(pair.client.environment.dial(pair.endpoints[1], "client", echo))
        world.run_for(0.000_05)
        task.cancel()
        world.run_for(1.0)
        assert task.cancelled()
        assert all(stream.closed.done() for stream in pair.accepted)
        assert world.network.streams() == []


def test_an_old_address_may_lead_to_a_stranger() -> None:
    found = set()
    for seed in range(20):
        with World(seed, settings=EVEN) as world:
            pair = Pair(world)
            old = pair.endpoints[1]
            pair.server.kill()
            pair.there.start("next", pair.serve)
            world.run_for(0.1)
            found.add(old == pair.endpoints[1])
    assert found == {True, False}


# --- cuts ---------------------------------------------------------------------------------------------------------


def test_a_cut_delivers_any_first_part_and_each_side_notices_in_its_own_time() -> None:
    counts, noticed = set[int](), set[tuple[str, ...]]()
    for seed in range(60):
        with World(seed, settings=ROUGH) as world:
            seen: list[int] = []
            pair = Pair(world, collector(seen))
            stream = pair.dial()
            world.run_for(1.0)
            closings: list[str] = []
            stream.closed.add_done_callback(partial(closed, closings, "here"))
            pair.accepted[0].closed.add_done_callback(partial(closed, closings, "there"))

            async def say(stream: Stream = stream) -> list[asyncio.Future[Response]]:
                return [stream.request(Item(number)) for number in range(8)]

            asked = pair.do(say())
            world.network.cut(stream)
            world.run_for(20.0)
            assert seen == list(range(len(seen)))
            counts.add(len(seen))
            noticed.add(tuple(closings))
            assert all(isinstance(each.exception(), StreamClosed) for each in asked if each.exception())
            assert isinstance(asked[-1].exception(), StreamClosed)
    assert {0, 8} < counts
    assert noticed == {("here", "there"), ("there", "here")}


def closed(closings: list[str], side: str, _: object) -> None:
    closings.append(side)


def test_cutting_some() -> None:
    with World(18, settings=EVEN) as world:
        pair = Pair(world)
        for _ in range(20):
            pair.dial()
        world.network.cut_some(0.5)
        world.run_for(10.0)
        assert 1 <= len(world.network.streams()) <= 19


# --- partitions ---------------------------------------------------------------------------------------------------


def test_what_is_sent_into_a_partition_arrives_when_it_is_over() -> None:
    with World(19, settings=EVEN) as world:
        seen: list[int] = []
        pair = Pair(world, collector(seen))
        stream = pair.dial()
        world.network.partition([pair.here], [pair.there])
        asked = [pair.client.run(ask(stream, number, timeout=20.0)) for number in range(3)]
        world.run_for(5.0)
        assert seen == []
        world.network.heal()
        world.run_for(4.0)
        assert seen == [0, 1, 2]
        assert all(isinstance(task.result(), Response) for task in asked)


def test_a_partition_in_one_direction() -> None:
    with World(20, settings=EVEN) as world:
        seen: list[int] = []
        pair = Pair(world, collector(seen))
        stream = pair.dial()
        world.network.block(pair.there, pair.here)
        error = pair.do(failure_of(ask(stream, 1, timeout=1.0)))
        assert isinstance(error, RequestTimedOut)
        assert seen == [1]
        world.network.heal()
        world.run_for(4.0)
        assert stream.bytes_in_flight == 0
        assert not stream.closed.done()


def test_each_side_gives_up_a_stream_after_long_silence() -> None:
    times = set()
    for seed in range(10):
        with World(seed, settings=EVEN) as world:
            pair = Pair(world)
            stream = pair.dial()
            world.run_for(0.1)
            world.network.isolate(pair.there)
            begin = world.now
            asked = pair.client.run(ask(stream, timeout=100.0))
            assert world.run_until_idle_or(stream.closed.done, 30.0)
            here = world.now - begin
            assert world.run_until_idle_or(pair.accepted[0].closed.done, 30.0)
            assert 9.9 < here < 20.1
            world.run_for(0.1)
            assert isinstance(asked.exception(), StreamClosed)
            times.add(world.now - begin > here + 0.2)
            world.network.heal()
            world.run_for(5.0)
            assert pair.do(ask(pair.dial())) == Response(Item(1), b"")
    assert times == {True, False}


def test_only_one_long_silence_ends_a_stream_and_not_two_short_ones() -> None:
    with World(32, settings=NetworkSettings(silence=(10.0, 10.0))) as world:
        pair = Pair(world)
        stream = pair.dial()
        world.network.isolate(pair.here)
        world.run_for(5.0)
        world.network.heal()
        world.run_for(3.0)
        world.network.isolate(pair.here)
        world.run_for(9.0)
        assert not stream.closed.done()
        world.run_for(1.5)
        assert stream.closed.done()


def test_what_waits_for_a_link_is_lost_with_its_machine() -> None:
    for seed in range(10):
        with World(seed, settings=EVEN) as world:
            seen: list[int] = []
            pair = Pair(world, collector(seen))
            stream = pair.dial()
            world.network.isolate(pair.here)
            asked = [pair.client.run(ask(stream, number)) for number in range(5)]
            world.run_for(1.0)
            assert not any(task.done() for task in asked)
            pair.here.crash()
            world.run_for(1.0)
            world.network.heal()
            world.run_for(5.0)
            assert seen == []


def test_a_flapping_link_delays_and_does_not_break() -> None:
    with World(21, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()
        world.network.flap(pair.here, pair.there, 8.0)

        async def test() -> list[float]:
            loop, times = asyncio.get_running_loop(), []
            for number in range(100):
                before = loop.time()
                await ask(stream, number, timeout=30.0)
                times.append(loop.time() - before)
            return times

        times = pair.do(test(), 400.0)
        assert min(times) < 0.002
        assert max(times) > 0.02
        world.run_for(10.0)
        assert not world.network.is_blocked(pair.here, pair.there)
        assert not world.network.is_blocked(pair.there, pair.here)


def test_a_slow_link() -> None:
    with World(29, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()
        world.network.slow_down(pair.there, pair.here, 0.5)
        before = world.now
        pair.do(ask(stream))
        assert 0.5 < world.now - before < 0.6
        world.network.heal()
        before = world.now
        pair.do(ask(stream))
        assert world.now - before < 0.1


# --- deaths -------------------------------------------------------------------------------------------------------


def test_the_peers_of_a_killed_process_hear_of_it_soon() -> None:
    with World(22, settings=EVEN) as world:
        pair = Pair(world, lambda _: asyncio.get_running_loop().create_future())
        stream = pair.dial()
        asked = pair.client.run(ask(stream))
        world.run_for(0.1)
        pair.server.kill()
        world.run_for(0.05)
        assert isinstance(asked.exception(), StreamClosed)
        assert stream.closed.done()


def test_the_peers_of_a_killed_process_behind_a_partition_hear_of_it_later() -> None:
    with World(23, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()
        world.network.isolate(pair.there)
        pair.server.kill()
        world.run_for(5.0)
        assert not stream.closed.done()
        world.network.heal()
        world.run_for(4.0)
        assert stream.closed.done()


def test_the_peers_of_a_crashed_machine_hear_nothing() -> None:
    with World(24, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()
        pair.there.crash()
        assert isinstance(pair.do(failure_of(ask(stream, timeout=2.0))), RequestTimedOut)
        world.run_for(5.0)
        assert not stream.closed.done()
        world.run_for(15.0)
        assert stream.closed.done()


def test_a_machine_that_is_up_again_resets_old_streams() -> None:
    with World(25, settings=EVEN) as world:
        pair = Pair(world)
        stream = pair.dial()
        pair.there.crash()
        world.run_for(1.0)
        pair.there.restart()
        world.run_for(1.0)
        assert not stream.closed.done()
        assert isinstance(pair.do(failure_of(ask(stream)), 5.0), StreamClosed)


def test_a_paused_process_collects_silently_and_goes_on_as_if_nothing_had_been() -> None:
    with World(26, settings=EVEN) as world:
        seen: list[int] = []
        pair = Pair(world, collector(seen))
        stream = pair.dial()
        pair.server.pause()
        for number in range(3):
            assert isinstance(pair.do(failure_of(ask(stream, number, timeout=1.0))), RequestTimedOut)
        world.run_for(100.0)
        assert seen == []
        assert not stream.closed.done()
        pair.server.resume()
        world.run_for(1.0)
        assert seen == [0, 1, 2]
        assert stream.bytes_in_flight == 0


def test_what_a_process_sends_after_its_death_gets_nowhere() -> None:
    with World(27, settings=EVEN) as world:
        seen: list[int] = []
        pair = Pair(world, collector(seen))
        stream = pair.dial()
        refused: list[bool] = []

        async def main() -> None:
            stream.send(Item(1))
            pair.client.kill()
            try:
                stream.send(Item(2))
            except StreamNotOpen:
                refused.append(True)
            await asyncio.sleep(0)
            seen.append(3)

        pair.client.run(main())
        world.run_for(1.0)
        assert refused == [True]
        assert seen in ([], [1])


def test_what_a_process_sends_while_it_dies_at_its_disk_gets_nowhere() -> None:
    for seed in range(10):
        with World(seed, settings=EVEN) as world:
            seen: list[int] = []
            pair = Pair(world, collector(seen))
            stream = pair.dial()

            async def main(pair: Pair = pair, stream: Stream = stream) -> None:
                try:
                    pair.client.disk.write_file("/a", b"a")
                finally:
                    stream.send(Item(1))

            pair.client.kill_at_disk("write_at")
            pair.client.run(main())
            world.run_for(1.0)
            assert not pair.client.is_alive
            assert stream.far is not None
            assert stream.far.closed.done()
            assert seen == []


def test_processes_of_one_machine_know_no_partitions() -> None:
    with World(28, settings=EVEN) as world:
        pair = Pair(world)
        neighbour = pair.there.start("neighbour", sleep_for_ever)
        world.network.isolate(pair.there)
        dialling: Callable[..., Any] = neighbour.environment.dial
        for endpoint in pair.endpoints:
            task = neighbour.run(dialling(endpoint, "neighbour", echo))
            world.run_for(0.1)
            asked = neighbour.run(ask(task.result(), 5))
            world.run_for(0.1)
            assert asked.result() == Response(Item(5), b"")

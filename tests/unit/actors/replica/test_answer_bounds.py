"""Answers have a bound (rule 31): nothing is read for a client that does not take them, or that is gone."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import pytest

from raylog.actors.kernel.answer_room import AnswerRoom
from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response, Stream
from raylog.actors.kernel.stream_requests import RequestsHeld
from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.replication_messages import Fetched
from raylog.actors.replica.leader import LeaderRole
from raylog.actors.replica.reads import FetchWaits
from raylog.config import MIB
from raylog.errors import NotLeader, RemoteFailed, StreamNotOpen, TooManyBytesInFlight
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio


class Reader:
    """A stream whose other side reads, or does not."""

    peer = "client"

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.is_congested = False
        self.bytes_unsent = 0
        self.waiting: list[Any] = []

    @property
    def stream(self) -> Stream:
        return cast(Stream, self)

    def when_it_reads(self, call: Any) -> None:
        self.waiting.append(call)

    def reads(self) -> None:
        self.is_congested = False
        waiting, self.waiting = self.waiting, []
        for call in waiting:
            call()


def run(test: Any) -> None:
    """On a loop with virtual time."""
    with World(1) as world:

        async def main(env: SimEnvironment) -> None:
            await test(env)

        process = world.add_machine("one").start("one", main)
        world.run_for(60.0)
        world.check()
        assert process.why_ended == "exited"


# --- waiting fetches --------------------------------------------------------------------------------------------------


class Waits:
    """Fetches of which each gets an answer of a MiB, once there is something."""

    def __init__(self) -> None:
        self.waits = FetchWaits(Timers(asyncio.get_running_loop()))
        self.reader = Reader()
        self.read = 0
        self.has_more = False

    def attempt(self, must_answer: bool) -> Answer:
        if not self.has_more and not must_answer:
            return None
        self.read += 1
        self.reader.bytes_unsent += MIB
        self.reader.is_congested = self.reader.bytes_unsent > 4 * MIB
        return Response(Done(), bytes(MIB))

    def wait(self, milliseconds: int = 30_000) -> LaterAnswer:
        return self.waits.wait(self.reader.stream, self.attempt, milliseconds)


def test_very_many_fetches_are_tried_in_turns_and_each_of_them_is() -> None:
    async def test(_: SimEnvironment) -> None:
        tried: list[int] = []
        waits, reader = FetchWaits(Timers(asyncio.get_running_loop())), Reader()

        def attempt(number: int, must_answer: bool) -> Answer:
            tried.append(number)
            return Response(Done()) if must_answer else None

        owed = [waits.wait(reader.stream, partial(attempt, number), 30_000) for number in range(1_000)]
        waits.wake()
        assert 0 < len(tried) < 500
        waits.wake()  # something came for those that were tried, too
        await asyncio.sleep(1.0)
        assert sorted(tried) == sorted([*range(1_000)] * 2)
        waits.fail_all(StreamNotOpen("a leader", "it is over"))
        assert all(each.done() for each in owed)

    run(test)


def test_what_many_fetches_wait_for_is_read_as_far_as_their_client_takes_it() -> None:
    async def test(_: SimEnvironment) -> None:
        many = Waits()
        owed = [many.wait() for _ in range(60)]
        many.has_more = True
        many.waits.wake()
        assert many.read == 5
        for _append in range(20):
            many.waits.wake()
        assert many.read == 5
        many.reader.bytes_unsent = 0
        many.reader.reads()
        assert many.read == 10
        while many.reader.waiting:
            many.reader.bytes_unsent = 0
            many.reader.reads()
        assert many.read == 60
        assert all(each.done() for each in owed)

    run(test)


def test_a_fetch_whose_time_is_over_is_answered_once_its_client_reads() -> None:
    async def test(_: SimEnvironment) -> None:
        one = Waits()
        one.reader.is_congested = True
        owed = one.wait(100)
        await asyncio.sleep(5.0)
        assert not owed.done()
        one.reader.reads()
        assert owed.done()
        assert one.read == 1

    run(test)


def test_nothing_is_left_of_what_nobody_waits_for() -> None:
    async def test(_: SimEnvironment) -> None:
        one = Waits()
        owed, deferred = one.wait(), one.wait()
        owed.cancel()
        one.reader.is_congested = one.has_more = True
        one.waits.wake()
        deferred.cancel()
        assert len(one.waits) == 0
        one.reader.reads()
        one.waits.wake()
        await asyncio.sleep(40.0)
        assert one.read == 0

    run(test)


def test_whoever_waits_hears_that_the_leader_has_changed_also_where_it_does_not_read() -> None:
    async def test(_: SimEnvironment) -> None:
        one = Waits()
        owed = one.wait()
        one.reader.is_congested = one.has_more = True
        one.waits.wake()
        one.waits.fail_all(NotLeader("t", 0, 1, 2))
        with pytest.raises(NotLeader):
            await owed
        one.reader.reads()
        assert one.read == 0

    run(test)


# --- the end of a stream ----------------------------------------------------------------------------------------------


def test_the_end_of_a_stream_cancels_what_waits_and_lets_work_end() -> None:
    async def test(_: SimEnvironment) -> None:
        owed, future, done = LaterAnswer(), asyncio.get_running_loop().create_future(), []
        cancelled: list[bool] = []
        owed.when_cancelled(lambda: cancelled.append(True))

        async def work() -> Answer:
            await asyncio.sleep(1.0)
            done.append(True)
            return None

        answers: Iterator[Any] = iter([owed, future, work()])
        held = RequestsHeld(lambda _: next(answers), StreamLimits(), lambda *_: None, lambda _: None)
        held.is_internal = True
        for number in range(3):
            held.take(Request(Done(), bytearray(), b"", 0, cast(Stream, None), number, 100))
        held.is_congested = True
        held.when_it_reads(lambda: cancelled.append(False))
        held.stream_ended()
        held.is_congested = False
        held.handle_queued()
        await asyncio.sleep(0.1)
        assert cancelled == [True]
        assert future.cancelled()
        assert held.bytes_held == 100
        await asyncio.sleep(1.0)
        assert done == [True]
        assert held.bytes_held == 0

    run(test)


# --- the room of a process --------------------------------------------------------------------------------------------


def test_a_process_refuses_what_would_be_too_much_and_looks_what_was_taken() -> None:
    async def test(_: SimEnvironment) -> None:
        room = AnswerRoom(process_bytes=10 * MIB)
        one, other = Reader(), Reader()
        one.bytes_unsent = other.bytes_unsent = 6 * MIB
        room.check(20 * MIB)  # one alone may be larger
        room.answered(one.stream)
        room.answered(other.stream)
        assert room.held == 12 * MIB
        await asyncio.sleep(1.0)
        with pytest.raises(TooManyBytesInFlight) as refused:
            room.check(0)
        assert refused.value.retriable
        one.bytes_unsent = 0
        with pytest.raises(TooManyBytesInFlight):
            room.check(0)  # it looked a moment ago
        await asyncio.sleep(0.02)
        room.check(0)
        assert room.held == 6 * MIB
        room.ended(other.stream)
        assert room.held == 0

    run(test)


def test_reads_of_one_stream_wait_for_each_other_and_for_their_client() -> None:
    async def test(_: SimEnvironment) -> None:
        room = AnswerRoom(stream_bytes=10 * MIB)
        reader, begun = Reader(), []

        async def read(size: int) -> None:
            async with room.reading(reader.stream, size):
                begun.append(size)
                await asyncio.sleep(1.0)

        reading = [asyncio.ensure_future(read(size * MIB)) for size in (20, 4, 4)]
        await asyncio.sleep(0.5)
        assert begun == [20 * MIB]
        reader.is_congested = True
        await asyncio.sleep(3.0)
        assert begun == [20 * MIB]
        reader.reads()
        await asyncio.sleep(0.5)
        assert len(begun) == 3
        assert room.held == 8 * MIB
        await asyncio.gather(*reading)
        assert room.held == 0

    run(test)


def test_a_thousand_reads_of_a_stream_take_turns_without_looking_again_and_again() -> None:
    async def test(_: SimEnvironment) -> None:
        room, reader = AnswerRoom(stream_bytes=10 * MIB), Reader()
        most, looks = 0, 0

        def is_full(asker: Stream, size: int) -> bool:
            nonlocal looks
            looks += 1
            return AnswerRoom._is_full(room, asker, size)

        room._is_full = is_full  # type: ignore[method-assign]

        async def read() -> None:
            nonlocal most
            async with room.reading(reader.stream, 4 * MIB):
                most = max(most, room.held)
                await asyncio.sleep(0.01)

        await asyncio.gather(*(read() for _ in range(1_000)))
        assert most == 8 * MIB
        assert room.held == 0
        assert not room._queued
        assert looks < 5_000

    run(test)


def test_nothing_is_read_for_a_stream_that_has_ended() -> None:
    async def test(_: SimEnvironment) -> None:
        room, reader = AnswerRoom(), Reader()
        reader.is_congested = True

        async def read() -> None:
            async with room.reading(reader.stream, MIB):
                raise AssertionError("It was read for nobody.")

        reading = asyncio.ensure_future(read())
        await asyncio.sleep(1.0)
        reader.closed.set_result(None)
        with pytest.raises(StreamNotOpen):
            await reading
        assert room.held == 0

    run(test)


# --- a leader ---------------------------------------------------------------------------------------------------------


@pytest.fixture
def trio() -> Iterator[Trio]:
    with World(5) as world:
        trio = Trio(world)
        trio.start(1, 2, 3)
        trio.elect(1, (1, 2, 3))
        yield trio


def test_a_leader_reads_nothing_while_its_process_holds_too_much(trio: Trio) -> None:
    process = trio.members[1].process
    assert process is not None
    readers: list[Reader] = []

    async def hold_much() -> None:
        readers.append(Reader())
        readers[0].bytes_unsent = 300 * MIB
        process.environment.answers.answered(readers[0].stream)

    trio.until(process.run(hold_much()).done)
    assert trio.offset_of(trio.append(1, b"a")) == 0
    with pytest.raises(RemoteFailed) as refused:
        trio.answer(trio.fetch(1, 0))
    assert isinstance(refused.value.error, TooManyBytesInFlight)
    readers[0].bytes_unsent = 0
    trio.world.run_for(0.1)
    answer = trio.answer(trio.fetch(1, 0))
    assert isinstance(answer.message, Fetched)
    assert answer.payload


def test_a_fetch_ends_with_its_stream(trio: Trio) -> None:
    replica = trio.members[1].replica
    assert replica is not None
    assert replica._replica is not None
    assert trio.offset_of(trio.append(1, b"a")) == 0
    role = replica._replica._role
    assert isinstance(role, LeaderRole)
    for _ in range(3):
        trio.fetch(1, 1, max_wait_ms=600_000)
    trio.until(lambda: role.reads.waiting == 3)
    assert trio.client is not None
    trio.client.kill()
    trio.until(lambda: role.reads.waiting == 0)

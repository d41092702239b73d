"""What a leader makes of its followers' answers, in whatever order they come."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.protocol.replication_messages import NO_EPOCH, Pull, Push, Pushed
from raylog.actors.replica.hosted_log import PartitionName
from raylog.actors.replica.pushes import FollowerPushes
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import OneProcess

_FOLLOWER = (2, 5)


class _Stream:
    """To a follower. It keeps what was asked until the test answers."""

    def __init__(self) -> None:
        self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: list[tuple[Push, Callable[[Response], object]]] = []

    def request(self, message: Push, **_: Any) -> asyncio.Future[Response]:
        reply: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.asked.append((message, reply.set_result))
        return reply

    def request_then(self, taken: Callable[[Response], object], message: Push, *_: Any, **__: Any) -> None:
        self.asked.append((message, taken))

    def answer(self, message: Pushed, number: int) -> None:
        self.asked[number][1](Response(message))


class _Leader:
    """Of an empty log, with a follower that it pushes to."""

    def __init__(self) -> None:
        self.log = SimpleNamespace(
            log_start_offset=0, log_end_offset=0, high_watermark=0, epochs=SimpleNamespace(span_at=lambda _: (0, 0))
        )
        self.log.marks = self.log
        hosted = SimpleNamespace(
            log=self.log,
            name=PartitionName("t", b"t" * 16, 0),
            timers=Timers(asyncio.get_running_loop()),
            is_cold=lambda _: False,
            read=lambda *_: SimpleNamespace(data=b"", next_offset=self.log.log_end_offset),
        )
        self.held: list[int] = []
        self.stream = _Stream()
        self.pushes = FollowerPushes(
            cast(Any, hosted), 0, lambda _, end, __: self.held.append(end), lambda _: None, lambda _: None
        )
        pull = Pull(0, 1, *_FOLLOWER, 0, NO_EPOCH, 0, 1000)
        self.pushes.pull(cast(Any, SimpleNamespace(stream=self.stream)), pull, _FOLLOWER[1])

    def append(self) -> None:
        offset = self.log.log_end_offset
        self.log.log_end_offset += 1
        self.pushes.appended(b"a batch", offset, offset + 1)


@pytest.fixture
def one() -> Iterator[OneProcess]:
    with World(1) as world:
        yield OneProcess(world)


def _with_marks_and_a_batch_under_way(one: OneProcess) -> _Leader:
    leader = one.make(_Leader)
    one.make(leader.pushes.marks_moved)
    one.until(lambda: len(leader.stream.asked) == 1)
    one.make(leader.append)
    one.until(lambda: len(leader.stream.asked) == 2)
    assert [message.base_offset for message, _ in leader.stream.asked] == [0, 0]
    return leader


def test_answers_that_come_in_one_turn_count_in_their_order(one: OneProcess) -> None:
    """What it said before it had the batch does not count behind what it said then."""
    leader = _with_marks_and_a_batch_under_way(one)

    def arrive() -> None:
        leader.stream.answer(Pushed(0, 0, True), 0)
        leader.stream.answer(Pushed(1, 0, True), 1)

    one.make(arrive)
    one.world.run_for(0.01)
    assert leader.held == [0, 0, 1]


def test_an_answer_that_was_overtaken_takes_nothing_back(one: OneProcess) -> None:
    """Else nobody hears of the last batch until the follower pulls, which it does after a second of silence."""
    leader = _with_marks_and_a_batch_under_way(one)
    one.make(lambda: leader.stream.answer(Pushed(1, 0, True), 1))
    one.make(lambda: leader.stream.answer(Pushed(0, 0, True), 0))
    one.world.run_for(0.01)
    assert leader.held[-1] == 1


def test_telling_where_the_log_begins_ends_with_the_answer(one: OneProcess) -> None:
    leader = one.make(_Leader)
    telling = one.begin(leader.pushes.tell_log_start({_FOLLOWER}, 5.0))
    one.until(lambda: len(leader.stream.asked) == 1)
    assert not telling.done()
    one.make(lambda: leader.stream.answer(Pushed(0, 0, True), 0))
    one.until(telling.done, 1.0)


def test_who_takes_batches_before_its_log_begins_there_is_told_once_more(one: OneProcess) -> None:
    """It writes its start beside the loop. A push without batches is answered when that is on disk."""
    leader = one.make(_Leader)
    leader.log.log_start_offset = 1
    one.make(leader.append)
    one.until(lambda: len(leader.stream.asked) == 1)
    one.make(lambda: leader.stream.answer(Pushed(1, 0, True), 0))
    one.until(lambda: len(leader.stream.asked) == 2)
    assert leader.stream.asked[1][0].log_start_offset == 1
    one.make(lambda: leader.stream.answer(Pushed(1, 0, True), 1))
    one.world.run_for(1.0)
    assert len(leader.stream.asked) == 2  # it cannot, as it seems: the next push tells it again

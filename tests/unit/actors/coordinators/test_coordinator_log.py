"""The partition of a coordinator where something goes wrong that nobody expected, or a leader changes midway."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, cast

import pytest

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import Append, Appended, Fetch, Fetched, ListedOffset, ListOffset
from raylog.errors import CoordinatorRecordUnknown, CoordinatorStopped, FrameInvalid, MessageUnknown
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.record_batch import Bytes, stamp
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import HandLink, OneProcess


class _Leaders(HandLink):
    """Of two batches of epoch 3. The one of epoch 5 has written nothing, and the next has never heard of it."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.env = env
        self.mistake: Exception | None = None
        self.fetched: list[Fetch] = []
        self.appended: list[list[bytes | None]] = []  # the keys of each batch

    def leader(self, topic: str, partition: int) -> PartitionLeader:
        return PartitionLeader(topic, b"t" * 16, partition, 1, 5, (Endpoint.parse("tcp:h:1"),), "n")

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[Any], timeout: float
    ) -> Any:
        if isinstance(message, Append):
            if self.mistake is not None:
                raise self.mistake
            self.appended.append(decode_batch(payload).keys)
            return Response(Appended(2, -1, 0))
        if isinstance(message, ListOffset):
            return Response(ListedOffset(0, -1, 3))
        assert isinstance(message, Fetch)
        self.fetched.append(message)
        batch = encode_batch([b"v"], keys=[b"k"], timestamps=1)
        stamp(batch, message.offset, 3)
        return Response(Fetched(message.offset + 1, 3, 3, 0, 5 + message.offset, None, (), None), batch)


class LogWorld:
    def __init__(self, world: World) -> None:
        self.one = OneProcess(world)
        self.link = _Leaders(self.one.env)
        self.log = self.one.make(lambda: CoordinatorLog(cast(Any, self.link), "t", 0, 7, 1))


@pytest.fixture
def world() -> Iterator[LogWorld]:
    with World(7) as world:
        logging.disable(logging.CRITICAL)
        yield LogWorld(world)
        logging.disable(logging.NOTSET)


def test_a_mistake_ends_the_log_and_whoever_waits_for_it(world: LogWorld) -> None:
    world.one.do(world.log.claim())
    world.link.mistake = ZeroDivisionError("a mistake")

    async def append() -> None:
        both = [world.log.append([(b"k", b"v")]) for _ in range(2)]
        await asyncio.wait(both, timeout=10.0)
        assert [type(each.exception()) for each in both if each.done()] == [CoordinatorStopped] * 2

    world.one.do(append(), 20.0)
    assert world.log.ended.done()
    world.one.until(lambda: True)
    late = world.one.make(lambda: world.log.append([(b"k", b"v")]))
    assert isinstance(late.exception(), CoordinatorStopped)


def test_a_log_that_is_given_up_writes_nothing_of_what_waits(world: LogWorld) -> None:
    world.one.do(world.log.claim())
    world.one.world.run_for(0.1)

    async def append() -> None:
        waiting = world.log.append([(b"k", b"v")])
        world.log.give_up(ValueError("a mistake"))
        await asyncio.wait([waiting])
        assert isinstance(waiting.exception(), CoordinatorStopped)
        await asyncio.sleep(0.1)

    world.one.do(append())
    writing = world.log._writing
    assert writing is not None
    assert isinstance(writing.exception(), CoordinatorStopped), "it stumbled over what was taken from it"


def test_a_replay_names_the_epoch_of_what_it_has_read_and_not_the_leaders(world: LogWorld) -> None:
    async def replay() -> list[int]:
        return [entry.offset async for entries in world.log.replay(2) for entry in entries]

    assert world.one.do(replay()) == [0, 1]
    assert [each.last_epoch for each in world.link.fetched] == [-1, 3]


def test_what_is_not_urgent_goes_with_what_comes_next_and_alone_a_moment_later(world: LogWorld) -> None:
    world.one.do(world.log.claim())
    claim = world.link.appended.pop()

    async def append() -> None:
        later = world.log.append([(b"later", b"v")], is_urgent=False)
        await asyncio.sleep(0.01)
        assert not later.done()
        await world.log.append([(b"now", b"v")])
        assert later.done()
        alone = world.log.append([(b"alone", b"v")], is_urgent=False)
        await asyncio.sleep(0.1)
        assert alone.done()
        await asyncio.sleep(3600.5)

    world.one.do(append(), 4000.0)
    assert world.link.appended == [[b"later", b"now"], [b"alone"], claim]


def test_who_waits_until_all_is_settled_waits_no_moment_longer(world: LogWorld) -> None:
    world.one.do(world.log.claim())
    began = world.one.world.now

    async def append() -> None:
        later = world.log.append([(b"later", b"v")], is_urgent=False)
        await world.log.settled()
        assert later.done()

    world.one.do(append())
    assert world.one.world.now - began < 0.01


def test_what_was_not_urgent_ends_with_the_log(world: LogWorld) -> None:
    world.one.do(world.log.claim())

    async def append() -> None:
        later = world.log.append([(b"later", b"v")], is_urgent=False)
        world.log.give_up(ValueError("a mistake"))
        assert isinstance(later.exception(), CoordinatorStopped)
        await asyncio.sleep(0.1)

    world.one.do(append())
    assert len(world.link.appended) == 1


def test_a_record_that_no_coordinator_wrote_is_told_with_its_place(
    world: LogWorld, caplog: pytest.LogCaptureFixture
) -> None:
    logging.disable(logging.NOTSET)
    for offset in range(30):
        world.log.cannot_read(offset, FrameInvalid("It holds no message."))
    assert len(caplog.records) == 20, "one program may have left millions of them"
    assert "t-0 holds at offset 3 a record that no coordinator wrote" in caplog.records[3].getMessage()
    assert "It holds no message." in caplog.records[3].getMessage()
    assert "More of them" in caplog.records[19].getMessage()


def test_a_record_of_a_later_raylog_ends_the_replay(world: LogWorld) -> None:
    with pytest.raises(CoordinatorRecordUnknown, match="offset 7 of t-0 has kind 130 in version 2"):
        world.log.cannot_read(7, MessageUnknown(130, 2))

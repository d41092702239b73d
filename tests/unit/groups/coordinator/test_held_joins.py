"""Joins and syncs of Kafka clients that wait at a coordinator: whom they wait for, and what ends the waiting."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.protocol.messages import Message
from raylog.errors import NotCoordinator, RebalanceInProgress, UnknownMember
from raylog.groups.records.classic_messages import (
    ClassicHeartbeat,
    ClassicJoined,
    ClassicKey,
    ClassicSynced,
    JoinClassic,
    SyncClassic,
)
from tests.unit.groups.coordinator_world import HandLog, World, play

_REBALANCE_MS = 20_000


def join(world: World, member: str, known: str = "", said: bytes = b"") -> asyncio.Task[Message]:
    request = JoinClassic(
        "g", known, member, False, "", "test", "", 10_000, _REBALANCE_MS, "consumer", (("range", said),)
    )
    return world.loop.create_task(world.coordinator.handle(request))


async def joined(waiting: asyncio.Task[Message]) -> ClassicJoined:
    answer = await waiting
    assert isinstance(answer, ClassicJoined)
    return answer


async def synced(world: World, member: str, **given: bytes) -> bytes:
    request = SyncClassic("g", member, "", 1, "", "", tuple(given.items()))
    answer = await world.coordinator.handle(request)
    assert isinstance(answer, ClassicSynced)
    return answer.assignment


async def beat(world: World, member: str, generation: int = 1) -> None:
    await world.coordinator.handle(ClassicHeartbeat("g", member, "", generation))


async def pair(world: World) -> None:
    await world.start()
    one, two = join(world, "one"), join(world, "two")
    assert (await joined(one)).leader == "one"
    await two
    waiting = world.loop.create_task(synced(world, "two"))
    assert await synced(world, "one", one=b"1", two=b"2") == b"1"
    assert await waiting == b"2"


def test_nobody_hears_of_an_assignment_before_it_is_written() -> None:
    async def scene(world: World) -> None:
        await world.start()
        await joined(join(world, "one"))
        world.log.is_held = True
        waiting = world.loop.create_task(synced(world, "one", one=b"1"))
        await asyncio.sleep(1.0)
        assert not waiting.done()
        world.log.let_go()
        assert await waiting == b"1"
        assert any(isinstance(key, ClassicKey) for key, _ in world.log.records)

    play(scene)


def test_a_later_join_takes_the_place_of_the_one_that_waits() -> None:
    async def scene(world: World) -> None:
        await pair(world)
        before = join(world, "", "one")
        await asyncio.sleep(1.0)
        later = join(world, "", "one")
        with pytest.raises(RebalanceInProgress):
            await before
        await join(world, "", "two")
        assert (await joined(later)).generation == 2

    play(scene)


def test_a_join_that_is_given_up_is_forgotten() -> None:
    async def scene(world: World) -> None:
        await pair(world)
        given_up = join(world, "", "one")
        await asyncio.sleep(1.0)
        given_up.cancel()
        assert (await joined(join(world, "", "two"))).generation == 2
        await asyncio.sleep(11.0)
        with pytest.raises(UnknownMember):
            await beat(world, "one", 2)

    play(scene)


def test_all_that_wait_hear_of_the_end() -> None:
    async def scene(world: World) -> None:
        await pair(world)
        waiting = join(world, "", "one")
        await asyncio.sleep(1.0)
        world.coordinator.stop()
        with pytest.raises(NotCoordinator):
            await waiting

    play(scene)


def test_nobody_is_removed_because_the_log_was_out_of_reach() -> None:
    async def scene(world: World) -> None:
        await pair(world)
        await asyncio.sleep(9.0)
        world.log.is_held = True
        await asyncio.sleep(8.0)
        world.log.let_go()
        await asyncio.sleep(0.5)
        await beat(world, "one")
        await beat(world, "two")
        await asyncio.sleep(15.0)
        with pytest.raises(UnknownMember):
            await beat(world, "two")

    play(scene)


def test_a_silent_member_is_removed_in_time() -> None:
    async def scene(world: World) -> None:
        await pair(world)
        for _ in range(4):
            await asyncio.sleep(2.4)
            await beat(world, "one")
        await asyncio.sleep(0.6)
        with pytest.raises(RebalanceInProgress):
            await beat(world, "one")

    play(scene)


def test_members_outlive_their_coordinator() -> None:
    kept: list[HandLog] = []

    async def first(world: World) -> None:
        await pair(world)
        kept.append(world.log)

    async def second(world: World) -> None:
        await world.start()
        await beat(world, "one")
        assert await synced(world, "two") == b"2"
        await asyncio.sleep(11.0)
        with pytest.raises(UnknownMember):
            await beat(world, "one")

    play(first)
    play(second, log=kept[0])

"""Slow work that is done together: who hears what of it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import pytest

from raylog.actors.kernel.together import Together
from raylog.errors import DiskFailed, DiskFull, RaylogError
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import OneProcess


class Disk:
    def __init__(self, world: World) -> None:
        self.one = OneProcess(world)
        self.did: list[str] = []
        self.finish_fails = False
        self.together = self.one.make(lambda: Together(self.one.env, self._finish))

    def _finish(self) -> None:
        self.did.append("finish")
        if self.finish_fails:
            raise DiskFailed("It cannot be synced.")

    def work(self, name: str, error: Exception | None = None) -> Callable[[], None]:
        def work() -> None:
            self.did.append(name)
            if error is not None:
                raise error

        return work

    def outcomes(self, *works: Callable[[], None]) -> list[BaseException | None]:
        async def all_of_them() -> list[BaseException | None]:
            return list(await asyncio.gather(*map(self.together.do, works), return_exceptions=True))

        return self.one.do(all_of_them())


@pytest.fixture
def disk() -> Iterator[Disk]:
    with World(1) as world:
        yield Disk(world)


def test_what_comes_up_in_one_turn_is_finished_once(disk: Disk) -> None:
    assert disk.outcomes(*(disk.work(str(number)) for number in range(64))) == [None] * 64
    assert disk.did == [*map(str, range(64)), "finish"]
    disk.outcomes(*(disk.work("more") for _ in range(65)))
    assert disk.did.count("finish") == 3


def test_one_that_fails_leaves_the_others_alone(disk: Disk) -> None:
    full = DiskFull("There is no room.")
    assert disk.outcomes(disk.work("a"), disk.work("b", full), disk.work("c")) == [None, full, None]
    assert disk.did == ["a", "b", "c", "finish"]
    assert disk.outcomes(disk.work("d", full)) == [full]
    assert disk.did[-1] == "d"  # nothing to finish


def test_what_is_not_finished_is_not_done(disk: Disk) -> None:
    disk.finish_fails = True
    full = DiskFull("There is no room.")
    outcomes = disk.outcomes(disk.work("a"), disk.work("b", full))
    assert [type(each) for each in outcomes] == [DiskFailed, DiskFull]


def test_an_error_that_nobody_foresaw_reaches_all(disk: Disk) -> None:
    outcomes = disk.outcomes(disk.work("a"), disk.work("b", ZeroDivisionError()))
    assert [type(each) for each in outcomes] == [ZeroDivisionError, ZeroDivisionError]


def test_one_that_does_not_wait_any_more_takes_nothing_from_the_others(disk: Disk) -> None:
    async def two() -> RaylogError | None:
        first = asyncio.ensure_future(disk.together.do(disk.work("a")))
        second = asyncio.ensure_future(disk.together.do(partial(disk.did.append, "b")))
        await asyncio.sleep(0)
        first.cancel()
        await second
        return None

    disk.one.do(two())
    assert disk.did == ["a", "b", "finish"]

"""Requests that wait for an epoch to be on disk: their order, their bound, and what is left of them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import cast

import pytest

from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response, Stream
from raylog.actors.protocol.messages import Done
from raylog.actors.replica.early_requests import EarlyRequests
from raylog.actors.replica.reads import FetchWaits
from raylog.config import MIB
from raylog.errors import NotLeader

_DONE = Response(Done())


class FakeRequest:
    """All of a request that counts here."""

    def __init__(self, size: int = 1) -> None:
        self.payload = bytes(size)


def hold(early: EarlyRequests, size: int = 1) -> LaterAnswer | None:
    return early.hold(cast(Request, FakeRequest(size)))


def in_a_loop(scene: Callable[[EarlyRequests], Awaitable[None]]) -> None:
    async def run() -> None:
        early = EarlyRequests(asyncio.get_running_loop().create_task)
        early.begin()
        await scene(early)

    asyncio.run(run())


def test_none_is_held_that_comes_after_one_that_was_refused() -> None:
    async def scene(early: EarlyRequests) -> None:
        assert hold(early, 16 * MIB - 10) is not None
        assert hold(early, 100) is None
        assert hold(early, 10) is None, "it would be handled before the one that is refused, and sent again"
        early.release(lambda _: _DONE)
        early.begin()
        assert hold(early, 100) is not None

    in_a_loop(scene)


def test_whatever_goes_wrong_with_one_is_its_answer_and_the_others_are_handled() -> None:
    async def scene(early: EarlyRequests) -> None:
        owed = [hold(early, size) for size in (1, 2, 3, 4)]
        errors = {2: KeyError("nobody foresaw it"), 3: NotLeader("clicks", 0, 1, 1)}

        def handle(request: Request) -> Answer:
            error = errors.get(len(request.payload))
            if error is not None:
                raise error
            return _DONE

        early.release(handle)
        for size, each in enumerate(owed, 1):
            assert each is not None
            if size in errors:
                with pytest.raises(type(errors[size])):
                    await each
            else:
                assert await each == _DONE

    in_a_loop(scene)


def test_a_fetch_goes_with_its_stream() -> None:
    async def scene(early: EarlyRequests) -> None:
        timers = Timers(asyncio.get_running_loop())
        waits = FetchWaits(timers)
        owed = hold(early)
        assert owed is not None

        class Reading:
            is_congested = False

        early.release(lambda _: waits.wait(cast(Stream, Reading()), lambda _: None, 600_000))
        assert len(waits) == 1
        owed.cancel()
        assert len(waits) == 0
        timers.close()

    in_a_loop(scene)


def test_a_handler_that_goes_on_is_cancelled_with_its_stream() -> None:
    async def scene(early: EarlyRequests) -> None:
        owed = hold(early)
        assert owed is not None
        never: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
        early.release(lambda _: never)
        await asyncio.sleep(0)
        owed.cancel()
        await asyncio.sleep(0)
        assert never.cancelled()

    in_a_loop(scene)

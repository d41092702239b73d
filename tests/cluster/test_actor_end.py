"""The end of an actor's process: not while Ray only fails to reach it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from ray.exceptions import ActorDiedError, ActorUnavailableError, RayError

from raylog.actors.on_ray import actor_end
from raylog.actors.on_ray.actor_end import end_of


def _until_over(*errors: RayError) -> tuple[list[RayError], Callable[[], Awaitable[None]]]:
    """Return the errors that are left, and a call that fails with the next one of them, if any."""
    left = list(errors)

    async def until_over() -> None:
        if left:
            raise left.pop(0)

    return left, until_over


def test_a_process_that_ray_does_not_reach_has_not_ended(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_end, "_LOOK_AGAIN_SECONDS", 0.0)
    unreachable = ActorUnavailableError("no connection", None)
    left, until_over = _until_over(unreachable, unreachable, ActorDiedError())
    assert "died" in asyncio.run(end_of("host 7", until_over))
    assert not left


def test_a_process_that_is_never_reached_again_is_not_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(actor_end, "_LOOK_AGAIN_SECONDS", 0.0)

    async def until_over() -> None:
        raise ActorUnavailableError("no connection", None)

    async def scenario() -> None:
        watch = asyncio.ensure_future(end_of("host 7", until_over))
        for _ in range(100):
            await asyncio.sleep(0)
        assert not watch.done()
        watch.cancel()

    asyncio.run(scenario())


def test_a_process_that_answers_has_ended() -> None:
    _, until_over = _until_over()
    assert asyncio.run(end_of("host 7", until_over)) == "it says that it is over"

"""Prompt calls: they begin at once, go on without a turn of the loop, and end as a task does."""

from __future__ import annotations

import asyncio
import gc
import traceback
import weakref
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raylog.actors.kernel.prompt_call import PromptCall, all_of


def runs(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        asyncio.run(test())

    run.__name__ = test.__name__
    return run


class Work:
    """Coroutines that note what they do, and wait for futures of the test."""

    def __init__(self) -> None:
        self.done: list[str] = []
        self.over: list[str] = []
        self.gates: dict[str, asyncio.Future[str]] = {}

    async def of(self, name: str) -> str:
        self.done.append(f"{name} begins")
        self.gates[name] = asyncio.get_running_loop().create_future()
        try:
            found = await self.gates[name]
        finally:
            self.done.append(f"{name} ends")
        return found

    def call(self, name: str) -> PromptCall[str]:
        return PromptCall(self.of(name), lambda _: self.over.append(name))


class _Failure(Exception):
    pass


async def _at_once() -> str:
    return "at once"


async def _failing() -> str:
    raise ValueError("no")


@runs
async def test_it_begins_at_once_and_its_end_is_heard_in_the_moment_in_which_it_ends() -> None:
    work = Work()
    call = work.call("a")
    assert work.done == ["a begins"]
    work.gates["a"].add_done_callback(lambda _: work.over.append("behind it"))
    work.gates["a"].set_result("found")
    assert not call.done()
    await asyncio.sleep(0)
    assert (work.over, call.result()) == (["a", "behind it"], "found")


@runs
async def test_what_ends_at_once_is_over_when_it_is_made_and_nobody_is_told() -> None:
    told: list[PromptCall[str]] = []
    assert PromptCall(_at_once(), told.append).result() == "at once"
    with pytest.raises(ValueError, match="no"):
        PromptCall(_failing(), told.append).result()
    assert not told


@runs
async def test_it_is_waited_for_as_a_task_is() -> None:
    work = Work()
    waiting = asyncio.ensure_future(asyncio.wait_for(work.call("a"), 60.0))
    await asyncio.sleep(0)
    work.gates["a"].set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await waiting
    assert work.over == ["a"]


@runs
async def test_it_is_cancelled_where_it_waits() -> None:
    work = Work()
    call, outer = work.call("a"), PromptCall(all_of([work.of("b")]))
    assert call.cancel()
    assert outer.cancel()
    assert not call.done()
    await asyncio.sleep(0)
    assert work.done[2:] == ["a ends", "b ends"]
    assert call.cancelled()
    assert outer.cancelled()
    assert not call.cancel()


@runs
async def test_one_that_only_lets_others_have_a_turn_goes_on_and_can_be_cancelled() -> None:
    async def turns(count: int) -> str:
        for _ in range(count):
            await asyncio.sleep(0)
        return "over"

    assert await PromptCall(turns(3)) == "over"
    call = PromptCall(turns(3))
    call.cancel()
    with pytest.raises(asyncio.CancelledError):
        await call


@runs
async def test_one_that_cancels_itself_ends_so_at_its_next_wait_or_its_end() -> None:
    calls: list[PromptCall[str]] = []
    work = Work()

    async def cancel_and(wait: Coroutine[Any, Any, str]) -> str:
        await work.of("gate")
        calls[-1].cancel()
        return await wait

    for wait in (work.of("a"), _at_once()):
        calls.append(PromptCall(cancel_and(wait)))
        work.gates["gate"].set_result("open")
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert calls[-1].cancelled()
    assert work.done[-3:] == ["a ends", "gate begins", "gate ends"]


@runs
async def test_all_begin_in_their_order_before_the_first_is_waited_for() -> None:
    work = Work()
    together = PromptCall(all_of([work.of(name) for name in "abc"]))
    assert work.done == ["a begins", "b begins", "c begins"]
    for name in "cba":
        work.gates[name].set_result(name.upper())
    assert await together == ["A", "B", "C"]


@runs
async def test_an_error_of_one_ends_all() -> None:
    work = Work()
    together = PromptCall(all_of([work.of(name) for name in "abc"]))
    work.gates["a"].set_exception(ValueError("no"))
    with pytest.raises(ValueError, match="no"):
        await together
    await asyncio.sleep(0)
    assert sorted(work.done[3:]) == ["a ends", "b ends", "c ends"]


@runs
async def test_two_may_wait_for_one_future() -> None:
    gate: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    async def wait() -> str:
        return await gate

    calls = [PromptCall(wait()), PromptCall(wait())]
    task = asyncio.ensure_future(wait())
    await asyncio.sleep(0)
    assert not any(call.done() for call in calls)
    gate.set_result("open")
    assert [await each for each in (*calls, task)] == ["open"] * 3


@runs
async def test_what_has_failed_is_not_kept_by_its_own_traceback() -> None:
    async def fail() -> str:
        raise _Failure

    def failed(together: bool) -> weakref.ref[_Failure]:
        call: PromptCall[Any] = PromptCall(all_of([fail(), _at_once()]) if together else fail())
        error = call.exception()
        assert isinstance(error, _Failure)
        assert "in fail" in "".join(traceback.format_exception(error))
        return weakref.ref(error)

    gc.disable()
    try:
        assert [failed(together)() for together in (False, True)] == [None, None]
    finally:
        gc.enable()

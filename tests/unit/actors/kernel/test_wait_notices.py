"""Waits that people are told of: after 3 s, then every 10 s, in one line for all that a client waits for."""

from __future__ import annotations

import asyncio

import pytest

from raylog.actors.kernel.wait_notices import LoopNotices, Wait, WaitNotices
from raylog.errors import NotEnoughReplicas
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


def lines(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.name.endswith("wait_notices")]


def test_a_wait_is_told_after_three_seconds_and_then_every_ten(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = WaitNotices(clock)
    for _ in range(4 * 24):  # 24 s, as a loop looks that turns four times a second
        notices.waits("clicks-0 to take records", NotEnoughReplicas("clicks", 0, 1, 2))
        notices.tell_if_due()
        clock.now += 0.25
    told = lines(caplog)
    assert [line.split(" for ")[0] for line in told] == ["Has waited 3 s", "Has waited 13 s", "Has waited 23 s"]
    assert all("\n" not in line and "for clicks-0 to take records: NotEnoughReplicas: " in line for line in told)


def test_a_short_wait_is_not_told(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = WaitNotices(clock)
    for _ in range(5):
        notices.waits("one thing", "why")
        clock.now += 2.9
        notices.tell_if_due()
        notices.over("one thing")
        notices.tell_if_due()
    assert notices.seconds_left() is None
    assert lines(caplog) == []


def test_many_waits_are_one_line_that_names_the_longest(caplog: pytest.LogCaptureFixture) -> None:
    clock = Clock()
    notices = WaitNotices(clock)
    notices.waits("first", "because")
    clock.now += 1
    notices.only({"first": "another reason", "second": "why", "third": "why"})
    clock.now += 2
    notices.tell_if_due()
    notices.tell_if_due()
    assert lines(caplog) == ["Has waited 3 s for first and 2 more: another reason"]
    notices.only({"second": "why"})
    clock.now += 10
    notices.tell_if_due()
    assert lines(caplog)[1:] == ["Has waited 12 s for second: why"]


def _run(main: object) -> None:
    over = []

    async def run(_env: SimEnvironment) -> None:
        await main()  # type: ignore[operator]
        over.append(True)

    with World(3) as world:
        world.add_machine("one").start("client", run)
        assert world.run_until_idle_or(lambda: bool(over), limit=120.0)


def test_on_a_loop_a_timer_runs_only_while_something_is_waited_for(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        notices = LoopNotices()
        notices.waits("first", "why")
        await asyncio.sleep(14)
        notices.over("first")
        await asyncio.sleep(20)
        assert len(lines(caplog)) == 2
        notices.waits("second", "why")
        await asyncio.sleep(2)
        notices.close()
        await asyncio.sleep(20)

    _run(main)
    assert [line.split(":")[0] for line in lines(caplog)] == ["Has waited 3 s for first", "Has waited 13 s for first"]


def test_a_single_wait_counts_from_where_it_began(caplog: pytest.LogCaptureFixture) -> None:
    async def main() -> None:
        with Wait("an answer") as wait:
            await asyncio.sleep(5)  # the first attempt
            wait.failed("nobody answers")
            wait.failed("nobody answers")
            await asyncio.sleep(0.1)
            assert lines(caplog) == ["Has waited 5 s for an answer: nobody answers"]
        with Wait("what comes at once"):
            pass

    _run(main)
    assert len(lines(caplog)) == 1

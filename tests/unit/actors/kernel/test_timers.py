"""The timers of a process: in order, in time, and none after it was cancelled."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raylog.actors.kernel.background import Timers
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM


def in_a_process(main: Callable[[Timers], Awaitable[None]], seconds: float = 10.0) -> None:
    """Run it to its end, in virtual time."""
    over = []

    async def run(_env: SimEnvironment) -> None:
        await main(Timers(asyncio.get_running_loop()))
        over.append(True)

    with World(1, settings=CALM) as world:
        world.add_machine("one").start("process", run)
        world.run_for(seconds)
    assert over


def test_callbacks_come_in_the_order_of_their_times_and_never_early() -> None:
    async def main(timers: Timers) -> None:
        loop, seen = asyncio.get_running_loop(), []
        began = loop.time()
        for delay in (500, 20, 1, 70, 20, 4000):
            timers.after(delay, lambda delay=delay: seen.append((delay, loop.time() - began)))  # type: ignore[misc]
        assert len(timers) == 6
        await asyncio.sleep(5.0)
        assert [delay for delay, _ in seen] == [1, 20, 20, 70, 500, 4000]
        assert all(0 <= late - delay / 1000 < 0.04 for delay, late in seen)
        assert len(timers) == 0

    in_a_process(main)


def test_a_cancelled_timer_stays_silent() -> None:
    async def main(timers: Timers) -> None:
        seen: list[int] = []
        first = timers.after(10, lambda: seen.append(1))
        timers.after(20, lambda: seen.append(2))
        assert timers.cancel(first)
        assert not timers.cancel(first)
        await asyncio.sleep(0.1)
        assert seen == [2]

    in_a_process(main)


def test_a_timer_may_set_the_next_one() -> None:
    async def main(timers: Timers) -> None:
        times: list[float] = []

        def tick() -> None:
            times.append(asyncio.get_running_loop().time())
            if len(times) < 5:
                timers.after(100, tick)

        timers.after(0, tick)
        await asyncio.sleep(1.0)
        assert len(times) == 5
        assert 0.4 <= times[-1] - times[0] < 0.6

    in_a_process(main)


def test_after_closing_nothing_goes_off() -> None:
    async def main(timers: Timers) -> None:
        seen: list[int] = []
        timers.after(10, lambda: seen.append(1))
        timers.close()
        await asyncio.sleep(0.1)
        assert seen == []

    in_a_process(main)

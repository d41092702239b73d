"""Who is silent is found out, once, and nobody because the watcher itself slept."""

from __future__ import annotations

import asyncio

from raylog.actors.kernel.background import SilenceWatch, Timers
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM
from tests.unit.actors.kernel.test_timers import in_a_process


def test_a_sign_of_life_puts_it_off() -> None:
    async def main(timers: Timers) -> None:
        silent: list[str] = []
        watch: SilenceWatch[str] = SilenceWatch(timers, silent.append, 1.0)
        watch.watch("a")
        watch.watch("b")
        await asyncio.sleep(0.8)
        watch.heard("a")
        await asyncio.sleep(0.4)
        assert silent == ["b"]
        assert "b" not in watch
        await asyncio.sleep(0.5)
        assert silent == ["b"]
        await asyncio.sleep(0.3)
        assert silent == ["b", "a"]

    in_a_process(main)


def test_who_is_forgotten_is_never_found_silent() -> None:
    async def main(timers: Timers) -> None:
        silent: list[str] = []
        watch: SilenceWatch[str] = SilenceWatch(timers, silent.append, 1.0)
        for each in "abc":
            watch.watch(each)
        watch.forget("a")
        watch.heard("a")
        await asyncio.sleep(0.5)
        watch.watch("b")
        await asyncio.sleep(0.7)
        assert silent == ["c"]
        watch.close()
        await asyncio.sleep(2.0)
        assert silent == ["c"]

    in_a_process(main)


def test_a_watcher_that_was_stopped_gives_everybody_a_little_more_time() -> None:
    silent: list[str] = []

    async def main(_env: SimEnvironment) -> None:
        watch: SilenceWatch[str] = SilenceWatch(Timers(asyncio.get_running_loop()), silent.append, 1.0)
        watch.watch("a")
        await asyncio.sleep(100.0)

    with World(1, settings=CALM) as world:
        process = world.add_machine("one").start("watcher", main)
        world.run_for(0.5)
        process.pause(5.0)
        world.run_for(5.5)
        assert silent == []
        world.run_for(0.3)
        assert silent == ["a"]

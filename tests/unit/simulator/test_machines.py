"""Machines and processes: deaths, disks, clocks, work off the loop, and the same world from the same seed."""

from __future__ import annotations

import asyncio
import gc
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, Request, Response
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message, message
from raylog.errors import DirectoryLocked, DiskFailed, DiskFull, StreamError
from tests.simulator.world.faulty_disk import UsedAfterCrash
from tests.simulator.world.machines import Machine, Process, SimEnvironment
from tests.simulator.world.virtual_loop import VirtualLoop
from tests.simulator.world.world import SimulationFailed, World

REPOSITORY = Path(__file__).parents[3]


@message(kind=242)
@dataclass(frozen=True, slots=True)
class Write(Message):
    asker: str


async def sleep_for_ever(_: SimEnvironment) -> None:
    while True:
        await asyncio.sleep(1_000)


def idle(world: World, name: str = "one") -> tuple[Machine, Process]:
    """A machine with a process that does nothing."""
    machine = world.add_machine(name)
    machine.disk.make_directory("/data")
    machine.disk.sync_everything()
    return machine, machine.start("process", sleep_for_ever)


# --- deaths -------------------------------------------------------------------------------------------------------


def test_a_killed_process_leaves_the_page_cache_and_nothing_else() -> None:
    async def main(environment: SimEnvironment) -> None:
        disk = environment.disk
        lock = disk.lock_directory("/data")
        file = disk.open("/data/a", create=True)
        file.write_at(b"written", 0)
        try:
            await asyncio.sleep(100)
        finally:
            file.write_at(b"after death", 0)
            disk.remove("/data/a")
            lock.release()

    with World(1) as world:
        machine, other = idle(world)
        process = machine.start("writer", main)
        world.run_for(1.0)
        with pytest.raises(DirectoryLocked, match=f"pid {process.pid}"):
            other.disk.lock_directory("/data")
        process.kill()
        world.run_for(1.0)
        assert not process.is_alive
        assert process.why_ended == "killed"
        assert machine.processes == [other]
        other.disk.lock_directory("/data")
        assert machine.disk.read_file("/data/a") == b"written"
    assert machine.disk.read_file("/data/a") == b"written"
    gc.collect()


def test_a_process_that_kills_itself_is_dead_at_once() -> None:
    seen: list[str] = []

    async def main(environment: SimEnvironment) -> None:
        file = environment.disk.open("/data/a", create=True)
        environment.kill(process.pid)
        with pytest.raises(UsedAfterCrash):
            file.write_at(b"x", 0)
        seen.append("on the stack")
        environment.disk.make_directory("/data/b")

    with World(2) as world:
        machine, _ = idle(world)
        process = machine.start("suicide", main)
        world.run_for(1.0)
        assert process.why_ended == "killed by suicide"
        assert seen == ["on the stack"]
        assert machine.disk.list_directory("/data") == ["a"]


def test_a_process_exits_when_its_main_returns() -> None:
    async def main(environment: SimEnvironment, result: list[str]) -> None:
        result.append("background began")
        task = asyncio.ensure_future(background(result))
        await asyncio.sleep(0.1)
        result.append(f"main returns, {task.done()}")

    async def background(result: list[str]) -> None:
        await asyncio.sleep(1.0)
        result.append("never")

    with World(3) as world:
        machine, _ = idle(world)
        result: list[str] = []
        exits: list[Process] = []
        process = machine.start("short", main, result, on_exit=exits.append)
        world.run_for(5.0)
        assert result == ["background began", "main returns, False"]
        assert process.why_ended == "exited"
        assert exits == [process]


def test_what_a_process_runs_is_held_by_it() -> None:
    async def wait_for_nobody(seen: list[int]) -> None:
        try:
            await asyncio.get_running_loop().create_future()
        finally:
            seen.append(1)

    seen: list[int] = []
    with World(3) as world:
        _, process = idle(world)
        process.run(wait_for_nobody(seen))
        world.run_for(1.0)
        gc.collect()
        assert seen == []


def test_who_watches_a_process_starts_it_again() -> None:
    with World(4) as world:
        machine, _ = idle(world)
        pids: list[int] = []

        def start(_: object = None) -> None:
            pids.append(machine.start("child", sleep_for_ever, on_exit=start).pid)

        start()
        for _ in range(3):
            machine.processes[-1].kill()
            world.run_for(0.1)
        assert len(set(pids)) == 4
        machine.processes[-1].kill()
        machine.crash()  # before anybody has noticed
        machine.restart()
        world.run_for(1.0)
        assert len(pids) == 4
        machine.crash()
        with pytest.raises(RuntimeError):
            machine.start("child", sleep_for_ever)


def test_a_process_may_kill_others_of_its_machine_only() -> None:
    with World(5) as world:
        one, killer = idle(world)
        _, stranger = idle(world, "two")
        victim = one.start("victim", sleep_for_ever)
        victim.pause()
        assert stranger.pid != victim.pid
        killer.environment.kill(victim.pid)
        killer.environment.kill(999_999)
        assert not victim.is_alive
        _, other = one, one.start("other", sleep_for_ever)
        stranger.environment.kill(other.pid)
        assert other.is_alive


def test_a_power_cut_takes_all_processes_and_unsynced_bytes() -> None:
    lost = set()
    for seed in range(20):
        with World(seed) as world:
            machine, process = idle(world)
            disk = process.disk
            boot = disk.boot_id()
            disk.write_file("/data/synced", b"synced", sync=True)
            disk.sync_directory("/data")
            disk.write_file("/data/unsynced", b"unsynced")
            machine.crash()
            world.run_for(1.0)
            assert machine.processes == []
            machine.restart()
            new = machine.start("next", sleep_for_ever)
            assert new.disk.boot_id() != boot
            assert new.disk.read_file("/data/synced") == b"synced"
            lost.add(new.disk.exists("/data/unsynced") and new.disk.read_file("/data/unsynced") == b"unsynced")
    assert lost == {True, False}


@pytest.mark.parametrize("with_machine", [False, True])
def test_a_process_dies_before_midway_in_or_after_an_operation_on_its_disk(with_machine: bool) -> None:
    async def main(environment: SimEnvironment) -> None:
        environment.disk.write_file("/data/other", b"x")
        file = environment.disk.open("/data/log", create=True)
        try:
            for number in range(4):
                file.write_at(b"0123456789", number * 10)
                await asyncio.sleep(0.1)
        finally:
            environment.disk.remove("/data/log")

    sizes = set()
    for seed in range(40):
        with World(seed) as world:
            machine, _ = idle(world)
            process = machine.start("writer", main)
            process.kill_at_disk("write_at", "/log", skip=1, with_machine=with_machine)
            world.run_for(5.0)
            assert not process.is_alive
            assert machine.is_up is not with_machine
            if not with_machine:
                sizes.add(len(machine.disk.read_file("/data/log")))
    if not with_machine:
        assert {10, 20} < sizes <= set(range(10, 21))


def test_an_error_that_leaves_a_process_fails_the_run() -> None:
    async def main(environment: SimEnvironment) -> None:
        await asyncio.sleep(1.0)
        raise ZeroDivisionError("of main")

    with World(77) as world:
        world.add_machine("one").start("broken", main)
        world.run_for(0.5)
        with pytest.raises(SimulationFailed, match=r"(?s)broken failed.*of main.*Seed 77\..*broken ends"):
            world.run_for(5.0)
        assert world.now < 1.2
        world.failures.clear()


def test_an_error_that_nobody_takes_notice_of_fails_the_run_at_the_latest_in_the_end() -> None:
    async def fail() -> None:
        raise ZeroDivisionError("of a task")

    async def forget() -> None:
        ring: list[Any] = [asyncio.ensure_future(fail())]
        ring.append(ring)
        await asyncio.sleep(0.1)

    async def main(environment: SimEnvironment) -> None:
        await forget()
        await sleep_for_ever(environment)

    def run() -> None:
        with World(6) as world:
            world.add_machine("one").start("careless", main)
            world.run_for(1.0)

    with pytest.raises(SimulationFailed, match="of a task"):
        run()


# --- off the loop -------------------------------------------------------------------------------------------------


def test_work_off_the_loop_is_done_later_in_any_order_and_without_a_loop() -> None:
    orders = set[tuple[str, ...]]()

    async def main(environment: SimEnvironment, order: list[str]) -> None:
        loop = asyncio.get_running_loop()

        def work(name: str) -> str:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()
            order.append(name)
            return name

        before = loop.time()
        asked = [environment.off_loop(lambda: work("one")), environment.off_loop(lambda: work("other"))]
        assert order == []
        assert list(await asyncio.gather(*asked)) == ["one", "other"]
        assert loop.time() > before
        with pytest.raises(DiskFailed):
            await environment.off_loop(lambda: environment.disk.open("/data").size())
        environment.off_loop(lambda: order.append("cancelled")).cancel()
        await asyncio.sleep(1.0)

    for seed in range(10):
        with World(seed) as world:
            machine, _ = idle(world)
            order: list[str] = []
            process = machine.start("worker", main, order)
            world.run_for(2.0)
            assert process.why_ended == "exited"
            assert order.pop() == "cancelled"
            orders.add(tuple(order))
    assert orders == {("one", "other"), ("other", "one")}


def test_work_off_the_loop_ends_with_its_process_and_waits_while_that_is_paused() -> None:
    with World(7) as world:
        machine, process = idle(world)
        machine.slow_disk(10.0)
        done: list[str] = []

        async def start(name: str) -> None:
            await process.environment.off_loop(lambda: done.append(name))
            done.append(f"{name} known")

        def ask(name: str) -> None:
            process.run(start(name))
            world.run_for(0.000_1)

        ask("paused")
        process.pause()
        world.run_for(10.0)
        assert done == []
        process.resume()
        world.run_for(10.0)
        assert done == ["paused", "paused known"]
        ask("killed")
        process.kill()
        world.run_for(10.0)
        assert done == ["paused", "paused known"]


def test_dying_in_work_off_the_loop() -> None:
    with World(8) as world:
        _, process = idle(world)

        async def main() -> None:
            await process.environment.off_loop(lambda: process.disk.write_file("/data/a", b"abc", sync=True))

        process.run(main())
        process.kill_at_disk("sync")
        world.run_for(1.0)
        assert process.why_ended.endswith("sync /data/a")


# --- disks and clocks ---------------------------------------------------------------------------------------------


def test_a_disk_fails_for_a_while() -> None:
    with World(9) as world:
        machine, process = idle(world)
        machine.fail_disk("sync", "/log", seconds=2.0)
        process.disk.write_file("/data/other", b"x", sync=True)
        with pytest.raises(DiskFailed):
            process.disk.write_file("/data/log", b"x", sync=True)
        with pytest.raises(DiskFailed):
            process.disk.write_file("/data/log", b"x", sync=True)
        world.run_for(2.0)
        process.disk.write_file("/data/log", b"x", sync=True)
        machine.fail_disk(seconds=1.0, error=DiskFull("no room"))
        with pytest.raises(DiskFull):
            process.disk.read_file("/data/log")


def test_a_disk_is_full_for_a_while() -> None:
    with World(10) as world:
        machine, process = idle(world)
        process.disk.write_file("/data/log", b"12345")
        machine.fill_disk()
        file = process.disk.open("/data/log")
        file.write_at(b"5", 0)
        with pytest.raises(DiskFull):
            file.write_at(b"6", 5)
        assert process.disk.free_bytes("/data") == 0
        machine.free_disk()
        file.write_at(b"6", 5)


def test_clocks_differ_and_only_the_wall_clock_jumps() -> None:
    with World(11) as world:
        (one, process), (_, other) = idle(world), idle(world, "two")
        loops = process.loop, other.loop
        begin = [loop.time() for loop in loops]
        wall = process.environment.wall_ms()
        world.run_for(1_000.0)
        gone = [loop.time() - before for loop, before in zip(loops, begin, strict=True)]
        assert gone[0] != gone[1]
        assert gone == pytest.approx([1_000.0, 1_000.0], rel=3e-4)
        assert process.environment.wall_ms() - wall == pytest.approx(gone[0] * 1_000, abs=2)
        one.jump_wall_clock(-5_000.0)
        assert process.environment.wall_ms() < wall
        assert loops[0].time() == begin[0] + gone[0]
        neighbour = one.start("neighbour", sleep_for_ever)
        assert neighbour.loop.time() == process.loop.time()
        one.crash()
        one.restart()
        assert one.start("after boot", sleep_for_ever).loop.time() < 100.0


# --- the world ----------------------------------------------------------------------------------------------------


def test_the_world_keeps_time_and_a_trace() -> None:
    with World(12, trace_lines=3) as world:
        seen: list[float] = []
        world.at(2.0, lambda: seen.append(world.now))
        world.after(1.0, world.trace, "after {}", 1)
        world.after(1.5, lambda: seen.append(-1.0)).cancel()
        world.run_until(1.5)
        assert world.now == 1.5
        assert seen == []
        assert world.run_until_idle_or(lambda: seen == [2.0])
        assert not world.run_until_idle_or(lambda: False)
        assert world.trace_text() == "    1.000000  after 1"
        for number in range(5):
            world.trace("line {}", number)
        assert [line.split("  ")[-1] for line in world.trace_text().splitlines()] == ["line 2", "line 3", "line 4"]


def test_a_call_of_the_test_that_fails_names_the_seed() -> None:
    def fail() -> None:
        raise AssertionError("the checker is not content")

    with World(78) as world:
        world.after(1.0, fail)
        with pytest.raises(SimulationFailed, match=r"(?s)the checker is not content.*Seed 78\."):
            world.run_for(2.0)
        world.failures.clear()


def test_going_in_circles_fails_the_run() -> None:
    async def main(environment: SimEnvironment) -> None:
        while True:
            await asyncio.sleep(0)

    with World(13) as world:
        world.add_machine("one").start("spinning", main)
        with pytest.raises(SimulationFailed, match="More than 1000 events"):
            world.run_for(60.0, max_events=1_000)
        world.failures.clear()


def test_the_environment_is_one() -> None:
    with World(14) as world:
        _, process = idle(world)
        environment: Environment = process.environment
        assert environment.disk.boot_id() == "boot-1"
        assert isinstance(process.loop, VirtualLoop)


def break_something(world: World, machine: Machine, boot: Callable[[Machine], None]) -> None:
    if not machine.processes:
        return
    process, random, network = machine.processes[0], world.random, world.network
    fault = random.randrange(9)
    if fault == 0:
        process.kill()
    elif fault == 1:
        machine.crash()
        world.after(1.0, boot, machine)
    elif fault == 2:
        process.pause(0.5)
    elif fault == 3:
        network.flap(machine, world.machines[0], 0.5)
    elif fault == 4:
        network.isolate(machine)
        world.after(1.5, network.heal)
    elif fault == 5:
        network.cut_some(0.5)
    elif fault == 6:
        machine.fail_disk("sync", seconds=0.1)
    elif fault == 7:
        machine.jump_wall_clock(random.uniform(-1e3, 1e3))
    else:
        process.kill_at_disk("write_at")


def stormy_world(seed: int) -> tuple[int, str]:
    """Three machines whose processes write, talk and dial anew, under all kinds of faults."""
    endpoints: dict[str, Endpoint] = {}

    async def main(environment: SimEnvironment, name: str, others: tuple[str, ...]) -> None:
        async def handle(request: Request) -> Answer:
            await environment.off_loop(lambda: environment.disk.write_file(f"/{name}", request.payload, sync=True))
            return Response(request.message, environment.wall_ms().to_bytes(8, "big"))

        def choose(request: Request) -> Answer | Any:
            return handle(request) if request.payload else None

        _, (_, endpoints[name]) = await environment.listen(name, name, choose)
        await asyncio.gather(*(talk(environment, name, other) for other in others))

    async def talk(environment: SimEnvironment, name: str, other: str) -> None:
        while True:
            await asyncio.sleep(environment.random.random() / 10)
            try:
                stream = await environment.dial(endpoints[other], name, lambda _: None)
                while True:
                    asked = [stream.request(Write(name), bytes(n), timeout=0.5) for n in range(4)]
                    done, _ = await asyncio.wait(asked)
                    for each in done:
                        each.result()
                    await asyncio.sleep(environment.random.random() / 10)
            except (StreamError, KeyError, DiskFailed):
                continue

    def boot(machine: Machine) -> None:
        machine.restart()
        begin(machine)

    def begin(machine: Machine) -> None:
        others = tuple(name for name in names if name != machine.name)
        machine.start(machine.name, main, machine.name, others, on_exit=lambda _: begin(machine))

    names = ("one", "two", "three")
    with World(seed) as world:
        machines = [world.add_machine(name) for name in names]
        for machine in machines:
            begin(machine)
        for _ in range(12):
            world.run_for(world.random.random())
            break_something(world, world.random.choice(machines), boot)
        world.run_for(1.0)
        counters = " ".join(f"{name}={count}" for name, count in sorted(world.counters.items()))
        return world.fingerprint, f"{world.trace_text()}\n{counters}"


def test_the_same_seed_gives_the_same_world() -> None:
    for seed in range(2):
        first = stormy_world(seed)
        ballast = [object() for _ in range(10_000 * seed)]
        assert stormy_world(seed) == first
        del ballast
        assert stormy_world(seed + 100)[0] != first[0]


def test_the_same_seed_gives_the_same_world_in_another_interpreter() -> None:
    code = """
import zlib
from tests.unit.simulator.test_machines import stormy_world
fingerprint, trace = stormy_world(5)
print(fingerprint, zlib.crc32(trace.encode()))
"""
    said = set()
    for hash_seed in ("0", "1"):
        environment = {**os.environ, "PYTHONHASHSEED": hash_seed}
        command = [sys.executable, "-W", "error", "-c", code]
        said.add(subprocess.run(command, env=environment, cwd=REPOSITORY, check=True, capture_output=True).stdout)
    assert len(said) == 1

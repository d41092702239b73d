"""The scheduler and its loops: asyncio as it is, virtual time, kills, pauses, and the same run from the same seed."""

from __future__ import annotations

import asyncio
import gc
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from tests.simulator.world.scheduler import MICROSECONDS, Scheduler, TooManyEvents
from tests.simulator.world.virtual_loop import VirtualLoop


class Processes:
    """A scheduler, and loops whose complaints are collected."""

    def __init__(self, seed: int = 1) -> None:
        self.scheduler = Scheduler(Random(seed))
        self.loops: list[VirtualLoop] = []
        self.complaints: list[str] = []

    def add(self, *, base: float = 0.0, rate: float = 1.0) -> VirtualLoop:
        name = f"p{len(self.loops)}"
        report = self._report
        self.loops.append(VirtualLoop(self.scheduler, name, report, base=base, rate=rate))  # type: ignore[abstract]
        return self.loops[-1]

    def _report(self, _loop: VirtualLoop, context: dict[str, Any]) -> None:
        self.complaints.append(repr(context["exception"]))  # not the error itself, whose traceback keeps tasks alive

    def run(self, seconds: float = 1_000.0) -> None:
        self.scheduler.run(self.scheduler.now + int(seconds * MICROSECONDS), max_events=1_000_000)


@contextmanager
def processes(seed: int = 1) -> Iterator[Processes]:
    """In the end no loop may have complained, and nothing that was dropped may warn."""
    those = Processes(seed)
    yield those
    gc.collect()
    assert not those.complaints
    for loop in those.loops:
        loop.kill()
        loop.dispose()
    those.loops.clear()
    those.scheduler.clear()
    gc.collect()
    assert not those.complaints


def run_alone(main: Coroutine[Any, Any, Any], *, seed: int = 1, rate: float = 1.0) -> Any:
    """What `main` returns, on a loop of its own."""
    with processes(seed) as those:
        task = those.add(rate=rate).create_task(main)
        those.run()
        return task.result()


# --- asyncio ------------------------------------------------------------------------------------------------------


async def slowly(value: int) -> int:
    await asyncio.sleep(value / 1_000)
    return value


def test_sleep_gather_wait_and_wait_for() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, VirtualLoop)
        before = loop.time()
        assert await asyncio.gather(*(slowly(value) for value in (30, 10, 20))) == [30, 10, 20]
        assert 0.030 <= loop.time() - before < 0.070
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(slowly(5_000), 1.0)
        assert await asyncio.wait_for(slowly(500), 1.0) == 500
        tasks = [asyncio.ensure_future(slowly(value)) for value in (1, 2, 90_000)]
        done, pending = await asyncio.wait(tasks, timeout=1.0)
        assert done == set(tasks[:2])
        assert pending == {tasks[2]}
        tasks[2].cancel()
        done, _ = await asyncio.wait(tasks, return_when=asyncio.ALL_COMPLETED)
        assert tasks[2].cancelled()

    run_alone(main())


def test_events_locks_queues_and_shields() -> None:
    async def main() -> list[str]:
        seen: list[str] = []
        loop = asyncio.get_running_loop()
        event, lock, queue = asyncio.Event(), asyncio.Lock(), asyncio.Queue[int](maxsize=1)

        async def consume() -> None:
            async with lock:
                seen.append(f"got {await queue.get()}")
            event.set()

        consumer = asyncio.ensure_future(consume())
        await queue.put(7)
        loop.call_later(0.5, seen.append, "later")
        await event.wait()
        inner = asyncio.ensure_future(slowly(2_000))
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(asyncio.shield(inner), 1.0)
        assert await inner == 2_000
        await consumer
        return seen

    assert run_alone(main()) == ["got 7", "later"]


def test_timers_keep_their_order_and_their_promise() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        seen: list[int] = []
        for delay in (5, 1, 3, 1):
            loop.call_later(delay, seen.append, delay)
        when = loop.time() + 2
        handle = loop.call_at(when, seen.append, 2)
        assert handle.when() == when
        dropped = loop.call_later(4, seen.append, 4)
        dropped.cancel()
        assert dropped.cancelled()
        for seconds in (0.000_001, 0.1, 0.333_333, 7.0):
            before = loop.time()
            await asyncio.sleep(seconds)
            assert before + seconds <= loop.time() < before + seconds + 0.04
        assert seen == [1, 1, 2, 3, 5]

    run_alone(main(), rate=1.000_2)
    run_alone(main(), rate=0.999_8)


def test_a_timer_may_wait_for_ever() -> None:
    with processes() as those:
        loop = those.add()
        loop.call_later(float("inf"), print)
        those.run()


def test_threads_are_refused() -> None:
    async def main() -> None:
        with pytest.raises(RuntimeError, match="off_loop"):
            await asyncio.to_thread(print)

    run_alone(main())


def test_the_running_loop_is_that_of_the_process_and_none_in_between() -> None:
    with processes() as those:
        seen: list[object] = []

        async def main() -> None:
            await asyncio.sleep(1)
            seen.append(asyncio.get_running_loop())

        loops = [those.add(), those.add()]
        for loop in loops:
            loop.create_task(main())

        def look() -> None:
            with pytest.raises(RuntimeError):
                asyncio.get_running_loop()

        those.scheduler.at(500_000, look)
        those.run()
        look()
        assert set(map(id, seen)) == set(map(id, loops))


def test_each_process_has_a_clock_of_its_own() -> None:
    with processes() as those:
        fast, slow = those.add(base=100.0, rate=1.01), those.add(base=5.0)
        those.run(200.0)
        assert fast.time() == pytest.approx(302.0)
        assert slow.time() == pytest.approx(205.0)


# --- turns --------------------------------------------------------------------------------------------------------


def test_what_arrives_comes_between_two_turns_and_a_busy_process_does_not_stop_the_clock() -> None:
    with processes() as those:
        loop, seen = those.add(), list[str]()

        def spin() -> None:
            seen.append("spin")
            if seen.count("arrived") < 2:
                loop.call_soon(spin)

        loop.call_soon(spin)
        for when in (1_000, 2_000):
            those.scheduler.at(when, loop.deliver, seen.append, "arrived")
        those.run(1.0)
        assert seen.count("arrived") == 2
        first = seen.index("arrived")
        assert "spin" in seen[:first]
        assert "spin" in seen[first + 1 : len(seen) - seen[::-1].index("arrived") - 1]


def test_a_busy_process_takes_what_arrives_when_it_is_free() -> None:
    with processes() as those:
        loop, times = those.add(), list[int]()
        for _ in range(10):
            those.scheduler.at(1_000, loop.deliver, lambda: times.append(those.scheduler.now))
        those.run(1.0)
        assert times[0] == 1_000
        assert times[1] > 1_000
        assert times[1:] == [times[1]] * 9


def test_a_run_that_goes_in_circles_is_ended() -> None:
    those = Processes()

    def again() -> None:
        those.scheduler.after(0, again)

    again()
    with pytest.raises(TooManyEvents):
        those.scheduler.run(MICROSECONDS, max_events=10_000)


def test_cancelled_timers_do_not_pile_up() -> None:
    with processes() as those:
        loop = those.add()
        for _ in range(50_000):
            loop.call_later(30.0, print).cancel()
        assert those.scheduler.pending < 2_000
        kept: list[int] = []
        loop.call_later(31.0, kept.append, 1)
        for _ in range(50_000):
            loop.call_later(30.0, print).cancel()
        those.run()
        assert kept == [1]
        assert those.scheduler.pending == 0


def test_run_tells_whether_it_was_enough() -> None:
    with processes() as those:
        seen: list[int] = []
        for second in range(5):
            those.scheduler.at(second * MICROSECONDS, seen.append, second)
        assert those.scheduler.run(10 * MICROSECONDS, lambda: len(seen) == 3)
        assert those.scheduler.now == 2 * MICROSECONDS
        assert not those.scheduler.run(3 * MICROSECONDS, lambda: False)
        assert seen == [0, 1, 2, 3]
        cancelled = those.scheduler.after(1, seen.append, 9)
        cancelled.cancel()
        assert not those.scheduler.run(Scheduler.NEVER, lambda: False)
        assert seen == [0, 1, 2, 3, 4]


# --- the same run again -------------------------------------------------------------------------------------------


def busy_run(seed: int) -> tuple[int, list[str]]:
    """Three processes, and what they did in which order; two of them walk through sets of tasks."""
    with processes(seed) as those:
        seen: list[str] = []

        async def one(name: str, random: Random) -> None:
            await asyncio.sleep(random.random() / 100)
            seen.append(name)

        async def main(name: str) -> None:
            random = Random(name)
            tasks = {asyncio.ensure_future(one(f"{name}.{n}", random)): n for n in range(50)}
            done, _ = await asyncio.wait(tasks)
            seen.extend(f"{name}:{tasks[task]}" for task in done)
            futures = [asyncio.get_running_loop().create_future() for _ in range(50)]
            for future in futures:
                future.set_result(None)
            seen.extend(f"{name}={futures.index(future)}" for future in set(futures))

        for index in range(3):
            those.add().create_task(main(f"m{index}"))
        those.run()
        return those.scheduler.fingerprint, seen


def test_the_same_seed_gives_the_same_run_and_another_seed_another() -> None:
    first = busy_run(1)
    ballast = [bytearray(1000) for _ in range(1000)]  # so that addresses are others
    assert busy_run(1) == first
    del ballast
    assert busy_run(2)[0] != first[0]


# --- kills and pauses ---------------------------------------------------------------------------------------------


def test_nothing_of_a_killed_process_runs_again() -> None:
    with processes() as those:
        loop, other, seen = those.add(), those.add(), list[str]()

        async def wait_long(name: str) -> None:
            seen.append(f"{name} began")
            try:
                await asyncio.sleep(10)
            finally:
                seen.append(f"{name} ended")

        async def main() -> None:
            inner = asyncio.ensure_future(wait_long("inner"))
            await asyncio.wait_for(asyncio.shield(inner), 20)

        loop.create_task(main())
        loop.call_later(7, seen.append, "timer")
        other.create_task(wait_long("other"))
        those.scheduler.at(5 * MICROSECONDS, loop.kill)
        those.run()
        assert loop.is_dead
        assert seen == ["other began", "inner began", "other ended"]
        gc.collect()
        assert "inner ended" not in seen
        loop.dispose()
        assert seen[-1] == "inner ended"


def test_code_that_is_still_on_the_stack_of_a_killed_process_has_no_effect() -> None:
    with processes() as those:
        loop, seen = those.add(), list[str]()

        async def never() -> None:
            seen.append("never")

        async def main() -> None:
            loop.call_soon(seen.append, "ready")
            loop.kill()
            loop.call_soon(seen.append, "soon")
            loop.call_later(1, seen.append, "later")
            loop.create_task(never())
            loop.call_exception_handler({"message": "of a dead one"})
            seen.append("on the stack")
            await asyncio.sleep(0)
            seen.append("after the await")

        loop.create_task(main())
        those.run()
        assert seen == ["on the stack"]


def test_cleaning_up_may_do_what_it_likes_when_the_world_is_over() -> None:
    with processes() as those:
        loop = those.add()

        async def stubborn() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                await asyncio.sleep(10)

        async def failing() -> None:
            try:
                await asyncio.sleep(10)
            finally:
                asyncio.get_running_loop()  # there is none

        loop.create_task(stubborn())
        loop.create_task(failing())
        those.run(1.0)
        loop.kill()
        loop.dispose()


def test_a_paused_process_does_nothing_until_it_is_resumed() -> None:
    with processes() as those:
        loop, seen = those.add(), list[str]()

        async def tick() -> None:
            for number in range(4):
                await asyncio.sleep(1)
                seen.append(f"tick {number} at {loop.time():.1f}")

        loop.create_task(tick())
        loop.call_later(3, seen.append, "timer 3")
        loop.call_later(2.5, seen.append, "timer 2.5")
        those.scheduler.at(1_500_000, loop.pause)
        those.scheduler.at(1_600_000, loop.deliver, seen.append, "arrived")
        those.scheduler.at(9_500_000, loop.resume)
        those.run(9.0)
        assert seen == ["tick 0 at 1.0"]
        assert loop.is_paused
        those.run(10.0)
        assert seen == [
            "tick 0 at 1.0",
            "arrived",
            "timer 2.5",
            "timer 3",
            "tick 1 at 9.5",
            "tick 2 at 10.5",
            "tick 3 at 11.5",
        ]


def test_a_process_may_pause_itself() -> None:
    with processes() as those:
        loop, seen = those.add(), list[int]()

        def stop() -> None:
            loop.pause()

        loop.call_soon(seen.append, 1)
        loop.call_soon(stop)
        loop.call_soon(seen.append, 2)
        those.run(1.0)
        assert seen == [1]
        loop.resume()
        those.run(1.0)
        assert seen == [1, 2]


# --- errors -------------------------------------------------------------------------------------------------------


def test_errors_that_get_away_are_reported() -> None:
    those = Processes()
    loop = those.add()

    def fail() -> None:
        raise ValueError("of a callback")

    async def main() -> None:
        raise KeyError("of a task")

    loop.call_soon(fail)
    loop.create_task(main())
    those.run(1.0)
    gc.collect()
    assert those.complaints == ["ValueError('of a callback')", "KeyError('of a task')"]


def test_errors_of_the_dead_are_not() -> None:
    with processes() as those:
        loop = those.add()

        async def main() -> None:
            raise KeyError("of a task")

        kept = loop.create_task(main())
        those.run(1.0)
        loop.kill()
        del kept
        gc.collect()


def test_an_interrupt_gets_through() -> None:
    those = Processes()
    loop = those.add()

    def interrupt() -> None:
        raise KeyboardInterrupt

    loop.call_soon(interrupt)
    with pytest.raises(KeyboardInterrupt):
        those.run(1.0)
    with pytest.raises(RuntimeError):
        asyncio.get_running_loop()

"""When a host looks at each of its replicas: soon after a change, when it was asked to, and rarely else."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Iterator

import pytest

from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.environment import Environment
from raylog.actors.replica.rules.sweep import (
    LONGEST_PAUSE,
    ROUND_SECONDS,
    TOGETHER_SECONDS,
    SweepSchedule,
    checkpoint_seconds,
)
from raylog.actors.replica.sweep import HostSweep
from tests.simulator.world.world import World

# --- the schedule -----------------------------------------------------------------------------------------------------


def looks(schedule: SweepSchedule[str], until: float, *, wanted: float | None = None, now: float = 0.0) -> list[float]:
    """Look at the only member whenever it is due; return when that was."""
    seen: list[float] = []
    while (at := schedule.wake_at()) is not None and at <= until:
        now = max(now, at)
        for key in schedule.take(now, 10):
            seen.append(now)
            schedule.looked(key, now, wanted)
    return seen


def test_an_idle_member_is_looked_at_ever_more_rarely() -> None:
    schedule: SweepSchedule[str] = SweepSchedule()
    schedule.add("a", 0.0)
    assert looks(schedule, 200.0) == [1.0, 2.0, 4.0, 8.0, 16.0, 35.0, 65.0, 95.0, 125.0, 155.0, 185.0]


def test_one_that_has_changed_is_looked_at_within_a_round_and_once() -> None:
    schedule: SweepSchedule[str] = SweepSchedule()
    schedule.add("a", 0.0)
    looks(schedule, 100.0)
    assert schedule.changed("a", 100.0)
    assert not schedule.changed("a", 100.1)
    assert looks(schedule, 101.0) == [101.0]
    assert looks(schedule, 105.0, now=101.0) == [102.0, 104.0]


def test_constant_traffic_costs_a_look_a_round() -> None:
    schedule: SweepSchedule[str] = SweepSchedule()
    schedule.add("a", 0.0)
    seen: list[float] = []
    for tenth in range(100):
        schedule.changed("a", tenth / 10)
        seen += looks(schedule, tenth / 10)
    assert len(seen) in (9, 10)


def test_a_member_says_when_it_wants_to_be_looked_at() -> None:
    schedule: SweepSchedule[str] = SweepSchedule()
    schedule.add("a", 0.0)
    assert looks(schedule, 100.0)[-1] == 95.0
    assert looks(schedule, 135.0, wanted=3.5) == [125.0, 128.5, 132.0]


def test_what_changes_during_a_look_is_looked_at_again() -> None:
    schedule: SweepSchedule[str] = SweepSchedule()
    schedule.add("a", 0.0)
    assert schedule.take(1.0, 1) == ["a"]
    schedule.changed("a", 1.0)
    schedule.looked("a", 1.0, 20.0)
    assert schedule.wake_at() == 1.0 + ROUND_SECONDS


def test_a_member_that_is_gone_is_not_looked_at() -> None:
    schedule: SweepSchedule[str] = SweepSchedule()
    schedule.add("a", 0.0)
    schedule.add("b", 0.0)
    assert schedule.take(1.0, 1) == ["a"]
    schedule.remove("a")
    schedule.looked("a", 1.0, None)
    assert not schedule.changed("a", 1.0)
    assert schedule.take(100.0, 10) == ["b"]
    schedule.remove("b")
    assert schedule.wake_at() is None


def test_idle_members_come_together() -> None:
    """Else each of a thousand would wake up the process by itself."""
    schedule: SweepSchedule[str] = SweepSchedule()
    for number in range(1000):
        schedule.add(f"replica {number}", number * 0.03)
    assert len({round(at, 3) for at in looks_of_all(schedule, 100.0) if at > 70.0}) <= 30 / TOGETHER_SECONDS + 1


def looks_of_all(schedule: SweepSchedule[str], until: float) -> Iterator[float]:
    while (at := schedule.wake_at()) is not None and at <= until:
        for key in schedule.take(at, 10**6):
            schedule.looked(key, at, None)
        yield at


@pytest.mark.parametrize("seed", range(50))
def test_whatever_happens_nobody_is_forgotten(seed: int) -> None:
    rng = random.Random(seed)
    schedule: SweepSchedule[int] = SweepSchedule()
    last: dict[int, float] = {}
    changed: dict[int, float] = {}
    now = 0.0
    for _ in range(2000):
        key = rng.randrange(12)
        match rng.choice(("add", "remove", "changed", "changed", "changed", "time", "time", "time", "time")):
            case "add" if key not in last:
                schedule.add(key, now)
                last[key] = changed[key] = now
            case "remove":
                schedule.remove(key)
                last.pop(key, None)
                changed.pop(key, None)
            case "changed" if key in last:
                schedule.changed(key, now)
                changed.setdefault(key, now)
            case "time":
                now += rng.choice((0.01, 0.3, 2.0, 7.0))
                while taken := schedule.take(now, 3):
                    for each in taken:
                        last[each] = now
                        changed.pop(each, None)
                        schedule.looked(each, now, rng.choice((None, None, 0.0, 0.5, 40.0)) if now % 2 < 1 else None)
        assert not list(schedule.broken_invariants(now))
        assert all(now - at <= ROUND_SECONDS + 7.0 for at in changed.values())
        assert all(now - at <= LONGEST_PAUSE + TOGETHER_SECONDS + 7.0 for at in last.values())
        assert len(schedule) == len(last)


# --- the host's sweep -------------------------------------------------------------------------------------------------


class Replica:
    """It only counts."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.looks: list[float] = []
        self.wants: float | None = None

    def look(self) -> float | None:
        self.looks.append(self.world.now)
        return self.wants


class SweptHost:
    """A process with a sweep."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.sweep: HostSweep[Replica] | None = None
        self.process = world.add_machine("machine").start("host", self._main)
        world.run_for(0.1)

    async def _main(self, _: Environment) -> None:
        loop = asyncio.get_running_loop()
        self.sweep = HostSweep(Timers(loop))
        await loop.create_future()

    def do(self, work: Callable[[HostSweep[Replica]], None]) -> None:
        async def run() -> None:
            assert self.sweep is not None
            work(self.sweep)

        self.process.run(run())
        self.world.run_for(0.001)

    def replicas(self, count: int) -> list[Replica]:
        replicas = [Replica(self.world) for _ in range(count)]
        self.do(lambda sweep: _add_all(sweep, replicas))
        return replicas


def _add_all(sweep: HostSweep[Replica], replicas: list[Replica]) -> None:
    for replica in replicas:
        sweep.add(replica)


@pytest.fixture
def host() -> Iterator[SweptHost]:
    with World(1) as world:
        yield SweptHost(world)


def test_a_host_looks_at_all_of_them_and_rarely_at_idle_ones(host: SweptHost) -> None:
    replicas = host.replicas(100)
    host.world.run_for(300.0)
    assert all(12 <= len(each.looks) <= 15 for each in replicas)
    assert len({at for each in replicas for at in each.looks[-3:]}) <= 3 * 4  # few of them in a turn of the loop


def test_a_change_is_looked_at_soon_and_told_to_the_broker_once(host: SweptHost) -> None:
    first, second = host.replicas(2)
    told: list[list[Replica]] = []
    host.world.run_for(101.0)
    host.do(lambda sweep: told.append(sweep.take_changed()))
    seen = len(first.looks), len(second.looks)
    host.do(lambda sweep: sweep.changed(first))
    host.do(lambda sweep: told.append(sweep.take_changed()))
    host.do(lambda sweep: told.append(sweep.take_changed()))
    assert told[1:] == [[first], []]
    host.world.run_for(1.1)
    assert (len(first.looks), len(second.looks)) == (seen[0] + 1, seen[1])


def test_each_of_many_changes_is_told_after_it_and_looked_at_after_it(host: SweptHost) -> None:
    (replica,) = host.replicas(1)
    host.world.run_for(101.0)
    host.do(lambda sweep: sweep.changed(replica))
    for number in range(50):  # every 0.3 s, as heartbeats go
        told: list[Replica] = []
        host.do(lambda sweep, told=told: told.extend(sweep.take_changed()))  # type: ignore[misc]
        assert told == [replica], number
        host.do(lambda sweep: sweep.changed(replica))
        host.do(lambda sweep: sweep.changed(replica))
        host.world.run_for(0.297)
    last = host.world.now
    host.world.run_for(1.1)
    assert any(at >= last for at in replica.looks)
    assert 13 <= sum(at > 101.0 for at in replica.looks) <= 17


def test_one_that_is_gone_is_neither_looked_at_nor_told(host: SweptHost) -> None:
    (replica,) = host.replicas(1)
    told: list[Replica] = []
    host.do(lambda sweep: sweep.remove(replica))
    host.do(lambda sweep: told.extend(sweep.take_changed()))
    host.world.run_for(100.0)
    assert (replica.looks, told) == ([], [])


def test_what_nobody_has_told_of_is_found_within_half_a_minute_or_so(host: SweptHost) -> None:
    """The broker is told the marks of each replica that was looked at, if they are others."""
    (replica,) = host.replicas(1)
    told: list[Replica] = []
    host.world.run_for(200.0)
    host.do(lambda sweep: told.extend(sweep.take_changed()))
    told.clear()
    host.world.run_for(LONGEST_PAUSE + TOGETHER_SECONDS)
    host.do(lambda sweep: told.extend(sweep.take_changed()))
    assert told == [replica]


def test_one_that_asks_for_it_is_looked_at_in_time(host: SweptHost) -> None:
    (replica,) = host.replicas(1)
    host.world.run_for(100.0)
    replica.wants = 0.25
    host.do(lambda sweep: sweep.changed(replica))
    seen = len(replica.looks)
    host.world.run_for(3.1)
    assert 8 <= len(replica.looks) - seen <= 10


def test_a_sweep_that_has_ended_looks_at_nobody(host: SweptHost) -> None:
    (replica,) = host.replicas(1)
    host.do(lambda sweep: sweep.close())
    host.world.run_for(100.0)
    assert not replica.looks


def test_marks_of_many_are_written_more_rarely_but_in_a_minute() -> None:
    assert [checkpoint_seconds(replicas) for replicas in (1, 250, 1_000, 50_000)] == [5.0, 5.0, 20.0, 60.0]

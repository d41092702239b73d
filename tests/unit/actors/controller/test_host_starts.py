"""Processes for replicas that are slow to come up: they are given the time that they need."""

from __future__ import annotations

from collections.abc import Iterator
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import pytest

from raylog.actors.controller.host_starts import HostSupervisor
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.protocol.replica_spec import HostSpec
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import OneProcess

BROKER = 1


@pytest.fixture
def one() -> Iterator[OneProcess]:
    with World(7) as world:
        yield OneProcess(world)


class SlowLauncher:
    """A `HostLauncher` on a busy machine: a process runs so many seconds after it was asked for, if nobody ends it."""

    def __init__(self, one: OneProcess, seconds: float) -> None:
        self.one = one
        self.seconds = seconds
        self.asked: dict[int, float] = {}  # when, by incarnation
        self.ended: list[int] = []

    async def start(self, spec: HostSpec) -> None:
        self.asked[spec.incarnation] = self.one.world.now

    async def stop(self, spec: HostSpec) -> None:
        self.ended.append(spec.incarnation)

    def starts_at_once(self, _node_id: str) -> int:
        return 4

    def running(self) -> list[int]:
        now = self.one.world.now
        return [run for run, asked in self.asked.items() if asked + self.seconds <= now and run not in self.ended]


def supervisor(one: OneProcess, launcher: SlowLauncher, failures: list[BaseException]) -> HostSupervisor:
    broker = SimpleNamespace(endpoints=("tcp://127.0.0.1:7000",), node_id="node")
    state = SimpleNamespace(broker=lambda _: broker)
    changes: Any = SimpleNamespace(state=state, live=SimpleNamespace(brokers={BROKER}))
    numbers = iter(range(1, 1_000))
    return one.make(
        lambda: HostSupervisor(
            cast(Any, changes), launcher, BackgroundTasks(failures.append), Random(1), "id", lambda: next(numbers)
        )
    )


def heartbeats(one: OneProcess, supervisor: HostSupervisor, launcher: SlowLauncher, wanted: int) -> float:
    """Let the broker report until it has what it wants; how long that took."""
    began = one.world.now
    while len(launcher.running()) < wanted:
        assert one.world.now < began + 600.0, "it never comes up"

        def report() -> None:
            running = launcher.running()
            supervisor.heard(BROKER, running, wanted - len(running))

        one.make(report)
        one.world.run_for(0.5)
    return one.world.now - began


@pytest.mark.parametrize(("seconds", "tries"), [(20.0, 1), (45.0, 2), (100.0, 3), (200.0, 4)])
def test_a_process_that_is_slow_comes_up(one: OneProcess, seconds: float, tries: int) -> None:
    launcher, failures = SlowLauncher(one, seconds), list[BaseException]()
    heartbeats(one, supervisor(one, launcher, failures), launcher, 1)
    assert len(launcher.asked) == tries
    assert not failures


def test_of_several_that_are_too_slow_the_next_ones_have_twice_the_time(one: OneProcess) -> None:
    launcher, failures = SlowLauncher(one, 45.0), list[BaseException]()
    took = heartbeats(one, supervisor(one, launcher, failures), launcher, 3)
    assert len(launcher.asked) == 6
    assert took < 30.0 + 45.0 + 10.0
    assert not failures

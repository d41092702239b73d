"""One seed of the simplest coordinators: what one has acknowledged, the next one knows, and nobody is shown less.

    python -m tests.simulator.simulate --of coordinators --seed 123
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Final

from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.names import OFFSETS_TOPIC
from tests.simulator.cluster import kept_numbers
from tests.simulator.cluster.kept_numbers import NumberWriter
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.disturbances import Disturbances
from tests.simulator.scenario import Outcome
from tests.simulator.world.world import World

_NAMES: Final = ("a", "b", "c")
_FAULT_SECONDS: Final = 15.0
_QUIET_SECONDS: Final = 30.0  # an order to start one that got lost is repeated after 20
_LEAST: Final = 10
_ABOUT_GRANTS: Final = 12  # the weight of each such fault, in every other seed


class CoordinatorBroken(AssertionError):
    """A check of coordinators failed: something happened that may not happen."""


def run_coordinators_seed(seed: int, *, trace_lines: int = 200, look: Callable[[World], None] | None = None) -> Outcome:
    """Raises what was found. `look` sees the world at its end either way."""
    with World(seed, trace_lines=trace_lines) as world:
        try:
            return _run(world)
        finally:
            if look is not None:
                look(world)


def _run(world: World) -> Outcome:
    random = Random(world.random.getrandbits(64))
    cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: kept_numbers.make})
    cluster.form(3)
    writers = _start_writers(cluster)
    disturbances = Disturbances(cluster, random, about_grants=_ABOUT_GRANTS if world.seed % 2 else 0)
    disturbances.go_on(_FAULT_SECONDS)
    before = [writer.acknowledged for writer in writers]
    world.run_for(_QUIET_SECONDS)
    cluster.is_over = True
    problems = [problem for writer in writers for problem in writer.problems]
    for writer, acknowledged in zip(writers, before, strict=True):
        if writer.acknowledged <= acknowledged + _LEAST or writer.looked <= _LEAST:
            problems.append(f"{writer.name} does not go on: {writer.last_error}")
    if problems:
        raise CoordinatorBroken("; ".join(problems))
    acknowledged = sum(writer.acknowledged for writer in writers)
    return Outcome(world.seed, world.scheduler.events, acknowledged, world.fingerprint, dict(disturbances.counts))


def _start_writers(cluster: SimulatedCluster) -> list[NumberWriter]:
    machine = cluster.world.add_machine("clients")
    writers: list[NumberWriter] = []

    async def write(env: Environment, name: str) -> None:
        writer = NumberWriter(env, cluster.broker_endpoints(), OFFSETS_TOPIC, name)
        writers.append(writer)
        await writer.run()

    for name in _NAMES:
        machine.start(f"writer-{name}", write, name)
    assert cluster.world.run_until_idle_or(lambda: len(writers) == len(_NAMES), 5.0)
    onlookers = cluster.world.add_machine("onlookers")
    for writer in writers:
        onlookers.start(f"onlooker-{writer.name}", writer.look_on)
    return writers

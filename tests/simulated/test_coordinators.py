"""Coordinators of a simulated cluster under faults: what one has acknowledged, the next one knows (rule 25)."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.protocol.names import OFFSETS_TOPIC
from tests.simulator.cluster import kept_numbers
from tests.simulator.cluster.kept_numbers import NumberWriter
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.disturbances import Disturbances
from tests.simulator.world.world import World

_FAULT_SECONDS = 15.0
_QUIET_SECONDS = 30.0  # an order to start one that got lost is repeated after 20


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of each fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(6))
def test_what_a_coordinator_acknowledged_the_next_one_knows(seed: int) -> None:
    with World(seed) as world:
        random = Random(world.random.getrandbits(64))
        cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: kept_numbers.make})
        cluster.form(3)
        writers = _start_writers(cluster)
        Disturbances(cluster, random).go_on(_FAULT_SECONDS)
        before = [writer.acknowledged for writer in writers]
        world.run_for(_QUIET_SECONDS)
        cluster.is_over = True
        for writer, acknowledged in zip(writers, before, strict=True):
            assert not writer.problems
            assert writer.acknowledged > acknowledged + 10, writer.last_error
        assert len(cluster.coordinator_hosts) > 3


def _start_writers(cluster: SimulatedCluster) -> list[NumberWriter]:
    machine = cluster.world.add_machine("clients")
    writers: list[NumberWriter] = []

    async def write(env: Environment, name: str) -> None:
        writer = NumberWriter(env, cluster.broker_endpoints(), OFFSETS_TOPIC, name)
        writers.append(writer)
        await writer.run()

    for name in ("a", "b", "c"):
        machine.start(f"writer-{name}", write, name)
    assert cluster.world.run_until_idle_or(lambda: len(writers) == 3, 5.0)
    return writers

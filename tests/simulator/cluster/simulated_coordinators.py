"""Coordinator processes of a simulated cluster: the real process core, started as replicas are."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from raylog.actors.coordinators.process import CoordinatorProcess
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.errors import CoordinatorNotStarted
from tests.simulator.checks.step_checks import CoordinatorSteps
from tests.simulator.world.machines import Process, SimEnvironment

if TYPE_CHECKING:
    from tests.simulator.cluster.simulated_cluster import SimulatedCluster

_START_SECONDS: Final = (0.01, 0.3)
_ORDER_LOST: Final = 0.02


class SimulatedCoordinators:
    """Starts coordinators for one controller. An order takes its time, and now and then it is lost."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._processes: dict[CoordinatorSpec, Process] = {}
        self._unwanted: set[CoordinatorSpec] = set()

    async def start(self, spec: CoordinatorSpec) -> None:
        if spec.topic not in self._cluster.coordinator_makers:
            raise CoordinatorNotStarted(spec.topic, spec.partition, "this simulation has none of its kind")
        world = self._cluster.world
        await asyncio.sleep(0.001)
        if world.random.random() >= _ORDER_LOST or not self._cluster.loses_orders:
            world.after(world.random.uniform(*_START_SECONDS), self._start, spec)

    async def stop(self, spec: CoordinatorSpec) -> None:
        self._unwanted.add(spec)
        process = self._processes.get(spec)
        if process is not None and process.is_alive:
            process.kill("stopped by the launcher")

    def _start(self, spec: CoordinatorSpec) -> None:
        machine = self._cluster.homes[spec.broker_id].machine
        if spec not in self._unwanted and machine.is_up and not self._cluster.is_over:
            self._processes[spec] = machine.start(str(spec), self._main, spec)

    async def _main(self, env: SimEnvironment, spec: CoordinatorSpec) -> None:
        process = self._processes[spec]
        make = self._cluster.coordinator_makers[spec.topic]
        running = CoordinatorProcess(env, spec, process.pid, self._cluster.find_controller, make)
        self._cluster.coordinators[spec.topic, spec.partition, spec.epoch] = running
        process.loop.after_call = CoordinatorSteps(running)
        self._cluster.world.trace("{}: {}", spec, await running.run())

"""Processes for coordinators of a simulated cluster: the real host, started as Ray does it, one for each broker."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from raylog.actors.coordinators.coordinator import HostedCoordinator
from raylog.actors.coordinators.host import CoordinatorHost
from raylog.actors.protocol.coordinator_spec import CoordinatorHostSpec
from tests.simulator.checks.step_checks import CoordinatorHostSteps
from tests.simulator.world.machines import Process, SimEnvironment

if TYPE_CHECKING:
    from tests.simulator.cluster.simulated_cluster import SimulatedCluster

_START_SECONDS: Final = (0.01, 0.3)
_ORDER_LOST: Final = 0.02


class SimulatedCoordinatorHost(CoordinatorHost):
    """A host that fails the run where a coordinator in it met an error that nobody foresaw."""

    def __init__(self, cluster: SimulatedCluster, env: SimEnvironment, spec: CoordinatorHostSpec) -> None:
        process, makers = env.process, cluster.coordinator_makers
        super().__init__(env, spec, _run_of(process), process.pid, cluster.find_controller, makers)
        self._cluster = cluster
        self.process = process

    def has_ended(self, coordinator: HostedCoordinator, why: str, mistake: Exception | None) -> None:
        self._cluster.world.trace("{}: {}", coordinator.spec, why)
        if mistake is not None:
            self._cluster.world.fail(f"{coordinator.spec} met an error that nobody foresaw", mistake)


class SimulatedCoordinators:
    """Starts the processes for one controller. An order takes its time, and now and then it is lost."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster

    async def start(self, spec: CoordinatorHostSpec) -> None:
        world = self._cluster.world
        await asyncio.sleep(0.001)
        if world.random.random() >= _ORDER_LOST or not self._cluster.loses_orders:
            world.after(world.random.uniform(*_START_SECONDS), self._start, spec)

    async def stop(self, spec: CoordinatorHostSpec) -> None:
        process = self._running(spec)
        if process is not None:
            process.kill("stopped by the launcher")

    def _running(self, spec: CoordinatorHostSpec) -> Process | None:
        """Return the process under the name, whoever has started it."""
        processes = self._cluster.coordinator_processes()
        return next((each for each in processes if each.name == str(spec)), None)

    def _start(self, spec: CoordinatorHostSpec) -> None:
        machine = self._cluster.homes[spec.broker_id].machine
        if self._running(spec) is None and machine.is_up and not self._cluster.is_over:
            machine.start(str(spec), self._main, spec, on_exit=lambda process: self._gone(spec, process))

    async def _main(self, env: SimEnvironment, spec: CoordinatorHostSpec) -> None:
        host = SimulatedCoordinatorHost(self._cluster, env, spec)
        self._cluster.coordinator_hosts.append(host)
        steps, grants = CoordinatorHostSteps(host), self._cluster.grants

        def after_call() -> None:
            steps()
            grants.look(host)

        env.process.loop.after_call = after_call
        self._cluster.world.trace("{}: {}", spec, await host.run())

    def _gone(self, spec: CoordinatorHostSpec, process: Process) -> None:
        """Ray tells whoever watches it, sooner or later."""
        for running in self._cluster.controllers:
            if running.serves and running.controller is not None:
                running.controller.coordinators_ended(spec, _run_of(process))


def _run_of(process: Process) -> str:
    return f"run-{process.pid}"

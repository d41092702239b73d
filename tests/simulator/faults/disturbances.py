"""Faults for the coordinators of a simulated cluster: a seeded series, and then its end.

Processes of coordinators, replicas and controllers are killed and stopped (what was stopped comes back as a zombie),
one coordinator fails by itself beside others, and the network fails. Disks and machines do not: `faults.py` and
`losses.py` have those, for the logs below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.network_faults import NetworkFaults
from tests.simulator.world.machines import Process

_PAUSES = (0.2, 2.0)


@dataclass
class Disturbances:
    """`go_on` for a while, after which nothing is broken any more. `others`: faults, with their weights."""

    cluster: SimulatedCluster
    random: Random
    others: list[tuple[int, Callable[[], bool]]] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def go_on(self, seconds: float) -> None:
        network = NetworkFaults(self.cluster, self.random)
        faults = [
            (9, self._kill_coordinator),
            (6, self._pause_coordinator),
            (4, self._fail_coordinator),
            (6, self._kill_replica),
            (3, self._pause_replica),
            (2, self._kill_controller),
            (3, network.cut_off_client),
            *network.faults(),
            *self.others,
        ]
        weights, world = [weight for weight, _ in faults], self.cluster.world
        end = world.now + seconds
        while world.now < end:
            world.run_for(self.random.uniform(*_PAUSES))
            _, fault = self.random.choices(faults, weights)[0]
            if fault():
                self.counts[fault.__name__.strip("_")] += 1
        self.cluster.loses_orders = False
        network.heal()
        world.trace("--- the faults are over")

    def _kill_coordinator(self) -> bool:
        return self._kill(self.cluster.coordinator_processes())

    def _pause_coordinator(self) -> bool:
        return self._pause(self.cluster.coordinator_processes(), 6.0)

    def _fail_coordinator(self) -> bool:
        """One fails by itself. Its process, with others in it, goes on."""
        living = [host for host in self.cluster.coordinator_hosts if host.process.is_alive and host.hosted()]
        if not living:
            return False
        host = self.random.choice(living)
        coordinator = self.random.choice(host.hosted())

        async def fail() -> None:
            coordinator._partition_log.give_up(MemoryError("the simulation says so"))

        host.process.run(fail())
        return True

    def _kill_replica(self) -> bool:
        return self._kill(self._replicas())

    def _pause_replica(self) -> bool:
        return self._pause(self._replicas(), 4.0)

    def _kill_controller(self) -> bool:
        return self._kill([running.process for running in self.cluster.controllers[-1:]])

    def _kill(self, processes: list[Process]) -> bool:
        if processes:
            self.random.choice(processes).kill()
        return bool(processes)

    def _pause(self, processes: list[Process], longest: float) -> bool:
        if processes:
            self.random.choice(processes).pause(self.random.uniform(0.5, longest))
        return bool(processes)

    def _replicas(self) -> list[Process]:
        return [running.process for running in self.cluster.replicas if running.process.is_alive]

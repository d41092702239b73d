"""Faults for the coordinators of a simulated cluster: a seeded series, and then its end.

Processes of coordinators, replicas and controllers are killed and stopped (what was stopped comes back as a zombie),
one coordinator fails by itself beside others, and the network fails. Disks and machines do not: `faults.py` and
`losses.py` have those, for the logs below.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from random import Random

from raylog.actors.controller.admin import ControllerAdmin
from raylog.errors import RaylogError
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.network_faults import NetworkFaults
from tests.simulator.world.machines import Process

_PAUSES = (0.2, 2.0)


@dataclass
class Disturbances:
    """`go_on` for a while, after which nothing is broken any more. `others`: faults, with their weights.

    `about_grants`: the weight of each fault that lets a coordinator be replaced while it does not know of it.
    """

    cluster: SimulatedCluster
    random: Random
    others: list[tuple[int, Callable[[], bool]]] = field(default_factory=list)
    about_grants: int = 0
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
        if self.about_grants:
            faults += [(self.about_grants, self._divide), (self.about_grants, self._renew_unheard)]
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

    def _divide(self) -> bool:
        """Cut the controller off from the other brokers, with the coordinators beside it. Those get another controller.

        A machine of clients reaches both sides, or only one of them.
        """
        running = self.cluster.in_office()
        brokers = [home.machine for home in self.cluster.homes.values()]
        if running is None or running.process.machine not in brokers or len(brokers) < 2:
            return False
        world, here = self.cluster.world, running.process.machine
        others = [each for each in brokers if each is not here]
        world.network.partition([here], others)
        for client in [each for each in world.machines if each not in brokers]:
            world.network.partition([client], self.random.choice(([], [here], others, others)))
        world.after(self.random.uniform(*_PAUSES) / 2, self.cluster.start_controller, self.random.choice(others))
        world.after(self.random.uniform(4.0, 8.0), world.network.heal)
        world.run_for(4.0)  # so long nothing else interferes
        return True

    def _renew_unheard(self) -> bool:
        """Let coordinators of groups begin anew, one of them elsewhere, while its process hears no order to end it."""
        running = self.cluster.in_office()
        if running is None or running.controller is None:
            return False
        here, controller, world = running.process.machine, running.controller, self.cluster.world
        placed = controller.reign.changes.state.coordinators.values()
        leaders = [
            replica
            for replica in self.cluster.replicas
            if replica.leads_epoch is not None and replica.process.machine is not here
            and any(each.id == replica.spec.id and each.broker_id == replica.spec.broker_id for each in placed)
        ]  # fmt: skip
        if not leaders:
            return False
        leader = self.random.choice(leaders)
        there = leader.process.machine
        leader.process.kill()  # the next coordinator is beside the next leader
        world.run_for(self.random.uniform(0.3, 0.8))
        world.network.block(here, there)
        settings = {"group.assignors": f"nobody.has_{self.counts.total()}"}
        running.process.run(_alter(controller.admin, settings))
        world.run_for(1.5)
        world.network.heal()
        return True

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


async def _alter(admin: ControllerAdmin, settings: dict[str, str]) -> None:
    with suppress(RaylogError):  # it may be refused, or not be heard of any more
        await admin.alter_cluster_settings(settings, timeout=5.0)

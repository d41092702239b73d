"""Faults of the network of a simulated cluster. Each of them ends by itself."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from random import Random

from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.machines import Machine


@dataclass
class NetworkFaults:
    cluster: SimulatedCluster
    random: Random

    def faults(self) -> list[tuple[int, Callable[[], bool]]]:
        """Return the faults with their weights."""
        return [
            (5, self.cut_off),
            (2, self.flap),
            (3, self.slow_links),
            (3, self.cut_streams),
            (2, self.heal),
        ]

    def cut_off(self) -> bool:
        """A broker's machine from all or some of the others, both ways or one way, for a while."""
        return self._cut_off(self.random.choice(list(self.cluster.homes.values())).machine)

    def cut_off_client(self) -> bool:
        """The same with a machine on which no broker runs."""
        homes = [home.machine for home in self.cluster.homes.values()]
        return self._cut_off(self.random.choice([each for each in self.cluster.world.machines if each not in homes]))

    def _cut_off(self, one: Machine) -> bool:
        network = self.cluster.world.network
        others = [machine for machine in self.cluster.world.machines if machine is not one]
        if self.random.random() < 0.4:
            others = self.random.sample(others, self.random.randint(1, len(others)))
        ways = self.random.choice(("both", "both", "out", "in"))
        for other in others:
            if ways != "in":
                network.block(one, other)
            if ways != "out":
                network.block(other, one)
        self.cluster.world.after(self.random.choice((0.3, 1.0, 3.0, 6.0)), self.heal)
        return True

    def flap(self) -> bool:
        one, other = self.random.sample(self.cluster.world.machines, 2)
        self.cluster.world.network.flap(one, other, self.random.uniform(0.5, 4.0))
        return True

    def slow_links(self) -> bool:
        """Slow the links to or from one machine."""
        network, one = self.cluster.world.network, self.random.choice(self.cluster.world.machines)
        seconds, outward = self.random.choice((0.02, 0.1, 0.5)), self.random.random() < 0.5
        for other in self.cluster.world.machines:
            if other is not one:
                network.slow_down(*((one, other) if outward else (other, one)), seconds)
        self.cluster.world.after(self.random.choice((1.0, 3.0)), self.heal)
        return True

    def cut_streams(self) -> bool:
        self.cluster.world.network.cut_some(self.random.choice((0.1, 0.5, 1.0)))
        return True

    def heal(self) -> bool:
        self.cluster.world.network.heal()
        return True

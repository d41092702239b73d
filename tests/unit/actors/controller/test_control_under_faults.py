"""Brokers and controllers under faults that a seed chooses: whatever happened, in the end everything runs again.

Only control is looked at here: who is alive, who leads, who has been told. What becomes of records is the business of
the simulator with real replicas.
"""

from __future__ import annotations

from collections.abc import Callable
from random import Random

import pytest

from raylog.actors.protocol.control_messages import NO_LEADER
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import ControlCluster

TOPIC = "clicks"
REPLICAS = ((1, 2, 3), (2, 3, 1), (3, 1, 2))
FAULTS = 12
RECOVERY_SECONDS = 60.0


class Faults:
    """Each method is a fault, and brings back later what it has ended."""

    def __init__(self, cluster: ControlCluster, random: Random) -> None:
        self._cluster = cluster
        self._world = cluster.world
        self._random = random

    def draw(self) -> Callable[[], None]:
        kinds = (
            self.kill_replica,
            self.pause_replica,
            self.kill_broker,
            self.pause_broker,
            self.crash_machine,
            self.kill_controller,
            self.pause_controller,
            self.start_another_controller,
            self.cut_streams,
            self.isolate_machine,
        )
        return self._random.choice(kinds)

    def kill_replica(self) -> None:
        stand_in = self._random.choice(list(self._cluster.replicas.values()))
        if stand_in.process is not None:
            stand_in.process.kill()

    def pause_replica(self) -> None:
        stand_in = self._random.choice(list(self._cluster.replicas.values()))
        if stand_in.process is not None:
            stand_in.process.pause(self._seconds())

    def kill_broker(self) -> None:
        broker_id = self._broker()
        self._cluster.processes[broker_id].kill()
        self._world.after(self._seconds(), self.bring_broker_back, broker_id)

    def pause_broker(self) -> None:
        self._cluster.processes[self._broker()].pause(self._seconds())

    def crash_machine(self) -> None:
        broker_id = self._broker()
        self._cluster.machines[broker_id].crash()
        self._world.after(1.0 + self._seconds(), self.bring_broker_back, broker_id)

    def kill_controller(self) -> None:
        self._cluster.kill_controller()
        self._world.after(self._seconds(), self.bring_controller_back)

    def pause_controller(self) -> None:
        self._cluster.controller_processes[-1].pause(self._seconds())

    def start_another_controller(self) -> None:
        self._cluster.start_controller()

    def cut_streams(self) -> None:
        self._world.network.cut_some(0.3)

    def isolate_machine(self) -> None:
        machines = [self._cluster.head, *self._cluster.machines.values()]
        self._world.network.isolate(self._random.choice(machines))
        self._world.after(self._seconds(), self._world.network.heal)

    # --- the end of them ---

    def bring_broker_back(self, broker_id: int) -> None:
        self._cluster.machines[broker_id].restart()
        if not self._cluster.processes[broker_id].is_alive:
            self._cluster.start_broker(broker_id)

    def bring_controller_back(self) -> None:
        if not self._cluster.controller_processes[-1].is_alive:
            self._cluster.start_controller()

    def end(self) -> None:
        self._world.network.heal()
        for broker_id in self._cluster.machines:
            self.bring_broker_back(broker_id)
        self.bring_controller_back()

    def _broker(self) -> int:
        return self._random.choice(list(self._cluster.machines))

    def _seconds(self) -> float:
        return self._random.uniform(0.0, 4.0)


def is_healthy(cluster: ControlCluster) -> bool:
    if not cluster.serves() or cluster.live_brokers() != set(cluster.machines):
        return False
    partitions = range(len(REPLICAS))
    return all(
        cluster.partition(TOPIC, number).leader != NO_LEADER
        and cluster.is_assigned(TOPIC, number)
        and all(stand_in.is_running for stand_in in cluster.replicas.values())
        for number in partitions
    )


@pytest.mark.parametrize("seed", range(12))
def test_everything_runs_again_after_any_faults(seed: int) -> None:
    random = Random(seed)
    with World(seed, settings=NetworkSettings.drawn(random)) as world:
        cluster = ControlCluster(world)
        cluster.form()
        cluster.create_topic(TOPIC, REPLICAS)
        faults = Faults(cluster, random)
        for _ in range(FAULTS):
            world.run_for(random.uniform(0.0, 2.0))
            faults.draw()()
        world.run_for(6.0)
        faults.end()
        give_up = world.now + RECOVERY_SECONDS
        while not is_healthy(cluster):
            assert world.now < give_up
            faults.bring_controller_back()  # as Ray does, where one has given up
            world.run_for(0.1)

"""A leader's disk stays full in a whole cluster: another one leads, and writes go on (rule 14)."""

from __future__ import annotations

import pytest

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.replica.rules.full_disk import STAYS_FULL_SECONDS
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.housekeeping.test_housekeeping_cluster import TOPIC, KeyWriter

SETTINGS = {"producer.id.expiration.ms": "9000000000", "message.timestamp.after.max.ms": "9000000000"}


def partition_of(cluster: SimulatedCluster) -> PartitionState:
    controller = cluster.serving()
    assert controller is not None
    return controller.reign.changes.state.partition_named(TOPIC, 0)


@pytest.mark.parametrize("seed", range(3))
def test_writes_go_on_while_the_disk_of_the_first_leader_is_full(seed: int) -> None:
    with World(seed) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        cluster.create_topic(TOPIC, 1, 3, SETTINGS)
        writer = KeyWriter(cluster)
        client = world.add_machine("client").start("client", writer.main)
        world.run_for(3.0)
        first = partition_of(cluster).leader
        cluster.homes[first].machine.fill_disk()
        world.run_for(STAYS_FULL_SECONDS + 4.0)
        assert partition_of(cluster).leader not in (-1, first)
        world.run_for(25.0)  # the preferred leader is not brought back while its disk is full
        assert partition_of(cluster).leader not in (-1, first)
        written = dict(writer.newest)
        world.run_for(3.0)
        assert writer.newest != written, "nothing is written any more"
        cluster.homes[first].machine.free_disk()
        assert world.run_until_idle_or(lambda: len(partition_of(cluster).isr) == 3, 60.0)
        writer.is_over = True
        assert world.run_until_idle_or(lambda: not client.is_alive, 60.0)
        cluster.is_over = True

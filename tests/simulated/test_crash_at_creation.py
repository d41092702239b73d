"""Every machine loses its power as soon as a new topic is led: nothing was written, so nothing waits for a person."""

from __future__ import annotations

import pytest

from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World

TOPIC = "topic"
PARTITIONS = 6


def led_for_the(time: int, cluster: SimulatedCluster) -> bool:
    """Whether each partition has a leader, and has had as many as this."""
    controller = cluster.serving()
    if controller is None:
        return False
    partitions = controller.reign.changes.state.partitions.values()
    return len(partitions) == PARTITIONS and all(
        each.leader >= 0 and each.leader_epoch >= time - 1 for each in partitions
    )


@pytest.mark.parametrize("replication", [1, 3])
@pytest.mark.parametrize("seed", range(4))
def test_a_new_topic_survives_the_loss_of_power(seed: int, replication: int) -> None:
    with World(seed) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        cluster.create_topic(TOPIC, PARTITIONS, replication, {})
        assert led_for_the(1, cluster)
        for home in cluster.homes.values():
            cluster.crash_machine(home)
        is_led_again = world.run_until_idle_or(lambda: led_for_the(2, cluster), 120.0)
        assert is_led_again, "a partition has no leader"
        cluster.is_over = True

"""A machine comes back with a blank disk: its broker is another voter, its replicas hold nothing yet (rules 7, 17)."""

from __future__ import annotations

from functools import partial

import pytest

from raylog.actors.protocol.metadata_quorum_records import Voter
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.simulator.world.world import World

TOPIC = "topic"


def replace_disk(cluster: SimulatedCluster, broker_id: int) -> None:
    home = cluster.homes[broker_id]
    cluster.crash_machine(home)
    home.machine.disk = FaultyDisk()


def voters(cluster: SimulatedCluster) -> tuple[Voter, ...]:
    controller = cluster.serving()
    return () if controller is None else controller.reign.writer.voters


def is_whole(cluster: SimulatedCluster, without: Voter) -> bool:
    controller = cluster.serving()
    if controller is None or len(voters(cluster)) != 3 or without in voters(cluster):
        return False
    if controller.reign.writer.version < controller.reign.writer.tail.voters_offset:
        return False  # until that is committed, the loss of one more disk would be that of a majority
    state = controller.reign.changes.state
    registered = {(broker.id, broker.directory_id) for broker in state.brokers.values()}
    in_sync = all(len(each.isr) == 3 for each in state.partitions.values())
    return in_sync and set(voters(cluster)) == registered


@pytest.mark.parametrize("seed", range(6))
def test_each_disk_in_turn_is_replaced_and_the_cluster_goes_on(seed: int) -> None:
    """Need the broker that came back blank for every majority and every replica in the end."""
    with World(seed) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        cluster.create_topic(TOPIC, 1, 3, {})
        first = voters(cluster)
        for broker_id in cluster.homes:
            lost = dict(voters(cluster))[broker_id]
            replace_disk(cluster, broker_id)
            is_over = partial(is_whole, cluster, without=(broker_id, lost))
            assert world.run_until_idle_or(is_over, 120.0), f"it does not get over the loss of disk {broker_id}"
        assert not set(first) & set(voters(cluster))
        controller = cluster.serving()
        assert controller is not None
        assert controller.reign.changes.state.has_topic(TOPIC)
        cluster.is_over = True

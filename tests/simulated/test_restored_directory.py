"""A broker comes back with an older copy of its directory: it has forgotten what it promised and acknowledged."""

from __future__ import annotations

from typing import Final

import pytest

from raylog.errors import DirectoryOutdated
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.mutations.mutations import switched_off
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.simulator.world.world import World

TOPIC = "topic"


def formed(world: World) -> SimulatedCluster:
    cluster = SimulatedCluster(world)
    cluster.form(3)
    cluster.create_topic(TOPIC, 1, 3, {})
    return cluster


def marks(cluster: SimulatedCluster) -> list[int]:
    controller = cluster.serving()
    return [] if controller is None else [each.mark for each in controller.reign.changes.state.brokers.values()]


def until_all_have(cluster: SimulatedCluster, mark: int) -> None:
    """Wait until all have that mark or more: each raises its own when its time has come."""
    assert cluster.world.run_until_idle_or(lambda: min(marks(cluster), default=0) >= mark, 3_000.0)


def put_back(cluster: SimulatedCluster, broker_id: int, copy: FaultyDisk) -> None:
    home = cluster.homes[broker_id]
    cluster.crash_machine(home)
    cluster.change_disk(home, copy, is_older=True)


def restore(cluster: SimulatedCluster, broker_id: int, grows_old: int) -> None:
    """Copy the disk, let the cluster live on, and put the copy back."""
    copy = cluster.homes[broker_id].machine.disk.clone()
    until_all_have(cluster, grows_old)
    cluster.world.run_for(1.0)  # what was written is committed, and the others know
    put_back(cluster, broker_id, copy)


@pytest.mark.parametrize("seed", range(4))
def test_an_older_copy_of_a_directory_is_refused_and_the_others_go_on(seed: int) -> None:
    with World(seed) as world:
        cluster = formed(world)
        until_all_have(cluster, 1)
        restore(cluster, 1, grows_old=3)
        refused: list[object] = []

        def is_refused() -> bool:
            broker = cluster.homes[1].broker
            if broker is not None and broker.failed.done():
                refused.append(broker.failed.result())
            return bool(refused)

        assert world.run_until_idle_or(is_refused, 60.0), "nobody has noticed"
        assert isinstance(refused[0], DirectoryOutdated)
        assert refused[0].mark < refused[0].recorded
        assert cluster.serving() is not None
        cluster.is_over = True


@pytest.mark.parametrize("seed", range(4))
def test_the_promise_of_an_older_copy_counts_for_no_controller(seed: int) -> None:
    """Refuse the promise: with it, and one voter that lags, a majority would adopt a log without what was committed."""
    with World(seed) as world:
        cluster = formed(world)
        until_all_have(cluster, 1)
        restore(cluster, 1, grows_old=2)
        other = cluster.homes[3]
        cluster.crash_machine(other, boot_after=(200.0, 200.0))
        for running in list(cluster.controllers):
            running.process.kill()
        world.run_for(60.0)
        assert cluster.serving() is None, "the outdated voter was counted"
        assert world.run_until_idle_or(lambda: cluster.serving() is not None, 300.0)
        cluster.is_over = True


def is_refused(cluster: SimulatedCluster, broker_id: int) -> bool:
    broker = cluster.homes[broker_id].broker
    return broker is not None and broker.failed.done() and isinstance(broker.failed.result(), DirectoryOutdated)


_YOUNG: Final = 5.0  # seconds; the next mark comes after half a minute at least


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_from_before_the_last_start_is_refused_however_young_it_is(seed: int) -> None:
    with World(seed) as world:
        cluster = formed(world)
        home = cluster.homes[1]
        cluster.crash_machine(home, boot_after=(1.0, 1.0))
        copy = home.machine.disk.clone()
        assert world.run_until_idle_or(lambda: home.machine.is_up, _YOUNG)
        world.run_for(_YOUNG)
        put_back(cluster, 1, copy)
        assert world.run_until_idle_or(lambda: is_refused(cluster, 1), 60.0), "nobody has noticed"
        cluster.is_over = True


@pytest.mark.parametrize("seed", range(4))
def test_a_copy_from_before_the_last_controller_is_refused_however_young_it_is(seed: int) -> None:
    with World(seed) as world:
        cluster = formed(world)
        copy = cluster.homes[1].machine.disk.clone()
        for running in list(cluster.controllers):
            running.process.kill()
        assert world.run_until_idle_or(lambda: cluster.serving() is not None, 30.0)
        world.run_for(_YOUNG)
        put_back(cluster, 1, copy)
        assert world.run_until_idle_or(lambda: is_refused(cluster, 1), 60.0), "nobody has noticed"
        cluster.is_over = True


@pytest.mark.parametrize("seed", range(2))
def test_without_a_mark_at_each_start_a_young_copy_is_not_noticed(seed: int) -> None:
    """The same again, with marks that rise with time only."""
    with switched_off("no_mark_at_registration"), pytest.raises(AssertionError, match="nobody has noticed"):
        test_a_copy_from_before_the_last_start_is_refused_however_young_it_is(seed)


@pytest.mark.parametrize("seed", range(2))
def test_a_cluster_whose_directories_are_all_of_one_moment_comes_back(seed: int) -> None:
    with World(seed) as world:
        cluster = formed(world)
        until_all_have(cluster, 2)
        copies = {home.broker_id: home.machine.disk.clone() for home in cluster.homes.values()}
        until_all_have(cluster, 4)
        for broker_id, copy in copies.items():
            put_back(cluster, broker_id, copy)
        until_all_have(cluster, 3)
        cluster.is_over = True

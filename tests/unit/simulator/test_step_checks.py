"""That a simulated process is looked at after each callback, and that what is found ends the run."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.replica.leader import LeaderRole
from raylog.groups.coordinator.coordinator import GroupCoordinator
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.checks.step_checks import CoordinatorSteps, HostSteps, PartitionChanges
from tests.simulator.cluster.group_world import GroupWorld
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster
from tests.simulator.world.world import SimulationFailed, World
from tests.unit.actors.small_cluster import SmallCluster


def test_each_callback_is_followed_by_a_look_and_a_killed_process_by_none() -> None:
    seen: list[str] = []

    async def main(_: Environment) -> None:
        process.loop.after_call = lambda: seen.append("look")
        for _step in range(3):
            seen.append("step")
            await asyncio.sleep(0.1)
        process.kill()

    with World(1) as world:
        process = world.add_machine("one").start("p", main)
        world.run_for(1.0)
    assert [each for each in seen if each == "step"] == ["step"] * 3
    assert seen[:2] == ["step", "look"]
    assert seen[-1] == "look"


def test_what_is_found_ends_the_run() -> None:
    def look() -> None:
        raise InvariantBroken("the head of this file")

    async def main(_: Environment) -> None:
        process.loop.after_call = look
        await asyncio.sleep(0.1)

    with World(1) as world:
        process = world.add_machine("one").start("p", main)
        with pytest.raises(SimulationFailed, match="the head of this file"):
            world.run_for(1.0)
        world.failures.clear()


@pytest.fixture
def cluster() -> Iterator[SimulatedCluster]:
    with World(5) as world:
        cluster = SimulatedCluster(world)
        cluster.form(3)
        cluster.create_topic("t", 1, 3, {})
        world.run_for(2.0)
        yield cluster
        cluster.is_over = True


def leading(cluster: SimulatedCluster) -> tuple[RunningReplica, LeaderRole]:
    running = next(each for each in cluster.replicas if each.leads_epoch is not None)
    role = running._leader_role
    assert role is not None
    return running, role


def test_replicas_of_a_simulated_cluster_are_looked_at(cluster: SimulatedCluster) -> None:
    running, _ = leading(cluster)
    assert isinstance(running.process.loop.after_call, HostSteps)
    running.process.loop.after_call()
    assert running.log is not None
    running.log.marks.recovery_point = running.log.log_end_offset + 1
    with pytest.raises(SimulationFailed, match="recovery point"):
        cluster.world.run_for(2.0)
    cluster.world.failures.clear()


def test_a_high_watermark_that_moves_too_early_is_noticed(cluster: SimulatedCluster) -> None:
    running, role = leading(cluster)
    of_host = running.process.loop.after_call
    assert isinstance(of_host, HostSteps)
    of_host()
    look = of_host.steps_of(running.replica)
    look._high_watermark -= 1
    look._then = None
    look()
    look._high_watermark -= 1
    look._then = None
    role._leadership.follower_holds(role._leadership._waits_for[0], -1, 0, 0)
    with pytest.raises(InvariantBroken, match="moved too early"):
        look()


def test_the_controller_of_a_simulated_cluster_is_looked_at(cluster: SimulatedCluster) -> None:
    controller = cluster.serving()
    assert controller is not None
    controller.reign.writer._uncommitted_bytes = 1
    controller.reign.changes._fold.version -= 1
    with pytest.raises(SimulationFailed, match="bytes are counted as uncommitted"):
        cluster.world.run_for(2.0)
    cluster.world.failures.clear()


def test_a_partition_that_changes_without_an_epoch_is_noticed() -> None:
    cluster, changes = SmallCluster(3), PartitionChanges()
    cluster.create("t", [1, 2, 3])
    state = cluster.state
    assert list(changes.broken(state)) == []
    key, before = next(iter(state.partitions.items()))
    state.partitions[key] = replace(before, isr=before.isr[:1])
    assert "the partition epoch was" in "; ".join(changes.broken(state))
    assert list(changes.broken(state)) == []


def test_coordinators_of_simulated_groups_are_looked_at() -> None:
    world = GroupWorld(3)
    try:
        world.is_calm = True
        world._run_until(5)
        core = world.coordinators[-1].core
        assert isinstance(core, GroupCoordinator)
        assert list(core.broken_invariants()) == []
        core._line.committed_until -= 1
        with pytest.raises(InvariantBroken, match="committed up to batch"):
            world._run_until(15)
    finally:
        world._dispose()


def test_a_coordinator_that_does_not_serve_is_left_alone() -> None:
    class Starting:
        _is_serving = False

    CoordinatorSteps(Starting())()  # type: ignore[arg-type]

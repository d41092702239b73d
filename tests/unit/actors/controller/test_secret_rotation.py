"""Changing the secrets without a stop: who is told, and how long the former ones are valid."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from typing import Any, cast

import pytest

from raylog.actors.broker.secret_keeping import SecretKeeping
from raylog.actors.controller.secret_rotation import SecretRotation
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.stream_interface import Stream
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.actors.protocol.secret_messages import KeepSecrets
from raylog.errors import AdminTimedOut, DiskFailed, RequestTimedOut
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def versions(cluster: ControlCluster) -> set[int]:
    """What the controller and all brokers that live hold."""
    held = [broker._env.keys.secrets.version for number, broker in cluster.brokers.items() if _lives(cluster, number)]
    return {cluster.controller._env.keys.secrets.version, *held}


def _lives(cluster: ControlCluster, number: int) -> bool:
    return cluster.processes[number].is_alive


def held(cluster: ControlCluster) -> ClusterSecrets:
    return cluster.controller._env.keys.secrets


def rotate(cluster: ControlCluster, grace: float = 10.0) -> None:
    cluster.ask(cluster.controller.rotate_secrets(grace, 20.0))


def test_all_brokers_hold_the_new_secrets_and_for_a_while_the_former_ones(cluster: ControlCluster) -> None:
    before = held(cluster)
    rotate(cluster)
    assert versions(cluster) == {held(cluster).version}
    assert held(cluster).internal[1:] == before.internal
    assert held(cluster).client[1:] == before.client
    cluster.world.run_for(5.0)
    assert held(cluster).has_previous
    cluster.world.run_for(8.0)
    assert not held(cluster).has_previous
    cluster.until(lambda: len(versions(cluster)) == 1)
    assert cluster.live_brokers() == {1, 2, 3}


def test_the_former_are_valid_as_long_as_a_broker_does_not_keep_the_new(cluster: ControlCluster) -> None:
    cluster.processes[2].pause()
    with pytest.raises(AdminTimedOut):
        cluster.ask(cluster.controller.rotate_secrets(0.0, 0.5))
    assert held(cluster).has_previous
    cluster.processes[2].resume()
    cluster.until(lambda: not held(cluster).has_previous)
    cluster.until(lambda: len(versions(cluster)) == 1)


def test_a_broker_that_comes_later_is_told(cluster: ControlCluster) -> None:
    cluster.processes[3].kill()
    cluster.until(lambda: cluster.live_brokers() == {1, 2})
    rotate(cluster)
    cluster.start_broker(3)  # under the secrets of before, which are still valid
    cluster.until(lambda: cluster.live_brokers() == {1, 2, 3} and len(versions(cluster)) == 1)


def test_a_later_controller_never_counts_behind_an_earlier_one(cluster: ControlCluster) -> None:
    rotate(cluster, grace=1_000.0)
    first = held(cluster).version
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(cluster.serves)
    rotate(cluster, grace=1_000.0)
    assert held(cluster).version > first
    cluster.until(lambda: len(versions(cluster)) == 1)


def test_the_first_secrets_are_nothing_to_tell(cluster: ControlCluster) -> None:
    assert not cluster.controller.reign.rotation._is_looking
    assert versions(cluster) == {1}


# --- a broker's part ------------------------------------------------------------------------------------------------


class Beside:
    """A stream to a process beside the broker."""

    peer = "replica"

    def __init__(self) -> None:
        self.told: list[int] = []

    def send(self, message: KeepSecrets, **_: Any) -> None:
        self.told.append(message.version)


def keep(cluster: ControlCluster, is_broken: bool) -> tuple[list[int], list[int], int]:
    """(versions on the disk, versions told to the process beside, version in use) after a set, and that set again."""
    env = cast(SimEnvironment, cluster.brokers[1]._env)
    kept: list[int] = []
    beside = Beside()

    def write(secrets: ClusterSecrets) -> None:
        if is_broken:
            raise DiskFailed("no disk")
        assert env.keys.secrets.version == 1, "on the disk first"
        kept.append(secrets.version)

    keeping = SecretKeeping(env, write, lambda: [cast(Stream, beside)])
    message = KeepSecrets.of(env.keys.secrets.rotated(0))

    async def take() -> None:
        await keeping.take(message)
        await keeping.take(message)

    task = cluster.processes[1].run(take())
    cluster.until(task.done)
    if is_broken:
        with pytest.raises(DiskFailed):
            task.result()
    return kept, beside.told, env.keys.secrets.version


def test_a_broker_writes_them_down_uses_them_and_passes_them_on_once(cluster: ControlCluster) -> None:
    assert keep(cluster, is_broken=False) == ([2], [2], 2)


def test_what_cannot_be_written_down_is_not_used(cluster: ControlCluster) -> None:
    assert keep(cluster, is_broken=True) == ([], [], 1)


def test_a_set_that_was_told_twice_does_not_replace_a_later_one_on_the_disk() -> None:
    """As where the first answer was late: the second writing of it was still under way when the next set came."""
    with World(3, settings=CALM) as world:
        kept: list[int] = []
        seconds = iter([1.0, 3.0, 0.1])

        async def main(env: SimEnvironment) -> None:
            async def slowly(write: Callable[[], None]) -> None:
                await asyncio.sleep(next(seconds))
                write()

            env.off_loop = slowly  # type: ignore[method-assign, assignment]
            keeping = SecretKeeping(env, lambda held: kept.append(held.version), list)
            second = env.keys.secrets.rotated(0)
            taking = [asyncio.create_task(keeping.take(KeepSecrets.of(second))) for _ in range(2)]
            await taking[0]
            await keeping.take(KeepSecrets.of(second.without_previous()))
            await taking[1]

        world.add_machine("one").start("one", main)
        world.run_for(10.0)
        assert kept[-1] == 3


def test_what_a_broker_has_learned_from_its_search_is_written_when_it_is_told(cluster: ControlCluster) -> None:
    """Its stream had ended with the former secrets. The search for the controller told it the new ones."""
    env = cast(SimEnvironment, cluster.brokers[1]._env)
    kept: list[int] = []
    beside = Beside()
    keeping = SecretKeeping(env, lambda held: kept.append(held.version), lambda: [cast(Stream, beside)])
    found = env.keys.secrets.rotated(0)
    env.keys.adopt(found)
    task = cluster.processes[1].run(keeping.take(KeepSecrets.of(found)))
    cluster.until(task.done)
    assert (kept, beside.told) == ([found.version], [found.version])


def test_whoever_does_not_answer_is_told_again() -> None:
    with World(3, settings=CALM) as world:
        asked: list[int] = []

        class Silent:
            peer = "broker 1"

            def __init__(self) -> None:
                self.closed: asyncio.Future[None] = asyncio.get_running_loop().create_future()

            async def request(self, message: KeepSecrets, **_: Any) -> None:
                asked.append(message.version)
                if len(asked) < 3:
                    raise RequestTimedOut(self.peer, 5_000)

        async def main(env: SimEnvironment) -> None:
            stream = cast(Stream, Silent())
            tasks = BackgroundTasks(lambda error: world.fail(str(error)))
            rotation = SecretRotation(env, tasks, lambda: 0, lambda: [stream])
            await rotation.rotate(100.0, 30.0)
            await tasks.close()

        world.add_machine("one").start("one", main)
        world.run_for(10.0)
        assert asked[:3] == [2, 2, 2]

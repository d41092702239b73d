"""Marks of replicas at the controller: told when they change, and gone with their replica."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.sessions import BrokerSessions
from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.control_messages import BrokerHeartbeat, ReplicaMarks
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(7, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        cluster.create_topic(replicas=((1, 2, 3), (2, 3, 1)))
        world.run_for(2.0)
        yield cluster


@pytest.fixture
def beats(monkeypatch: pytest.MonkeyPatch) -> list[BrokerHeartbeat]:
    """Those that controllers get, from now on."""
    seen: list[BrokerHeartbeat] = []
    heartbeat = BrokerSessions.heartbeat

    async def note(sessions: BrokerSessions, beat: BrokerHeartbeat, stream: Stream) -> Response | None:
        seen.append(beat)
        return await heartbeat(sessions, beat, stream)

    monkeypatch.setattr(BrokerSessions, "heartbeat", note)
    return seen


def known(cluster: ControlCluster) -> dict[ReplicaKey, ReplicaMarks]:
    return dict(cluster.controller.reign.changes.live.marks)


def told(cluster: ControlCluster) -> dict[ReplicaKey, ReplicaMarks]:
    """The marks as the running replicas have them."""
    return {each.key: each.marks() for each in cluster.stand_ins if each.is_running and not each.is_stopped}


def test_the_controller_knows_the_marks_of_all(cluster: ControlCluster) -> None:
    assert known(cluster) == told(cluster)
    assert len(known(cluster)) == 6


def test_a_heartbeat_of_idle_replicas_carries_none(cluster: ControlCluster, beats: list[BrokerHeartbeat]) -> None:
    cluster.world.run_for(3.0)
    assert len(beats) >= 27
    assert not any(beat.marks or beat.marks_are_all for beat in beats)
    assert known(cluster) == told(cluster)


def test_a_change_is_told_once_it_is_there(cluster: ControlCluster, beats: list[BrokerHeartbeat]) -> None:
    replica = cluster.replica(2)
    replica.log_end = (0, 77)
    cluster.world.run_for(1.0)
    assert known(cluster)[replica.key].log_end_offset == 77
    assert [marks.log_end_offset for beat in beats for marks in beat.marks] == [77]


def test_a_new_controller_is_told_all_of_them(cluster: ControlCluster) -> None:
    epoch = cluster.controller.epoch
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and cluster.controller.epoch > epoch)
    cluster.until(lambda: len(cluster.live_brokers()) == 3)
    cluster.world.run_for(2.0)
    assert known(cluster) == told(cluster)


def test_marks_end_with_their_replica_and_the_next_one_tells_its_own(
    cluster: ControlCluster, beats: list[BrokerHeartbeat]
) -> None:
    lost = cluster.replica(2)
    cluster.kill(lost)
    cluster.until(lambda: any(beat.lost for beat in beats))
    cluster.world.run_for(0.01)
    marks = known(cluster).get(lost.key)
    assert marks is None or marks.incarnation > lost.spec.incarnation
    cluster.until(lambda: cluster.is_assigned("clicks", 0))
    cluster.world.run_for(1.0)
    assert known(cluster) == told(cluster)
    assert known(cluster)[lost.key].incarnation > lost.spec.incarnation


def test_a_broker_that_was_cut_off_and_comes_back_tells_what_it_has(cluster: ControlCluster) -> None:
    network = cluster.world.network
    machine = cluster.replica(3).process
    assert machine is not None
    network.isolate(machine.machine)
    cluster.replica(3).log_end = (0, 5)
    cluster.world.run_for(5.0)
    network.heal()
    cluster.until(lambda: len(cluster.live_brokers()) == 3)
    cluster.until(lambda: cluster.is_assigned("clicks", 0))
    cluster.world.run_for(2.0)
    assert known(cluster) == told(cluster)

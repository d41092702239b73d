"""Replicas that should not lead, for a damaged copy or a disk that stays full: when they ask, and what is decided."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import pytest

from raylog.actors.cluster.election.standing_down import stand_down
from raylog.actors.cluster.state import Liveness
from raylog.actors.protocol.control_messages import NO_LEADER, StandDown
from raylog.actors.protocol.metadata_records import PartitionChanged
from raylog.actors.replica.rules.full_disk import STAYS_FULL_SECONDS, FullDisk
from raylog.errors import EligibleLeadersNotAvailable, RemoteFailed, StaleIncarnation
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster, StandIn
from tests.unit.actors.replica.test_replica_faults import led_by_one
from tests.unit.actors.replica_trio import Trio

DAMAGED, FULL = True, False


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(1, settings=CALM) as world:
        made = ControlCluster(world)
        made.form()
        made.create_topic()
        yield made


def asked(cluster: ControlCluster, broker_id: int, is_damaged: bool) -> StandDown:
    spec = cluster.replica(broker_id).spec
    return StandDown(spec.topic_id, 0, broker_id, spec.incarnation, is_damaged, "the test says so")


def decide(cluster: ControlCluster, broker_id: int, is_damaged: bool, **live: object) -> list[PartitionChanged]:
    known = cluster.controller.reign.changes.live
    liveness = Liveness(known.brokers, known.replicas, **live)  # type: ignore[arg-type]
    return list(stand_down(cluster.state, liveness, asked(cluster, broker_id, is_damaged)))  # type: ignore[arg-type]


def ask(cluster: ControlCluster, stand_in: StandIn, is_damaged: bool) -> None:
    assert stand_in.process is not None
    assert stand_in.broker is not None
    message = asked(cluster, stand_in.spec.broker_id, is_damaged)

    async def request() -> None:
        assert stand_in.broker is not None
        await stand_in.broker.request(message, timeout=3.0)

    task = stand_in.process.run(request())
    cluster.until(task.done)
    task.result()


# --- the decision -----------------------------------------------------------------------------------------------------


def test_a_damaged_leader_hands_over_and_leaves_the_isr_in_one_record(cluster: ControlCluster) -> None:
    (record,) = decide(cluster, 1, DAMAGED)
    assert (record.leader, record.isr, record.elr) == (2, (2, 3), ())
    assert record.leader_epoch == cluster.partition().leader_epoch + 1


def test_a_damaged_follower_leaves_and_the_leader_stays(cluster: ControlCluster) -> None:
    (record,) = decide(cluster, 3, DAMAGED)
    assert (record.leader, record.isr, record.leader_epoch) == (1, (1, 2), cluster.partition().leader_epoch)


def test_a_damaged_leader_hands_over_to_an_eligible_leaver(cluster: ControlCluster) -> None:
    """Which holds all that was acknowledged, and may never catch up with a leader that cannot read what comes next."""
    leaver_only = replace(cluster.partition(), isr=(1,), elr=(3,))
    state = replace(cluster.state, partitions={**cluster.state.partitions, leaver_only.id: leaver_only})
    (record,) = stand_down(state, cluster.controller.reign.changes.live, asked(cluster, 1, DAMAGED))
    assert isinstance(record, PartitionChanged)
    assert (record.leader, record.isr, record.elr) == (3, (3,), ())
    assert record.leader_epoch == leaver_only.leader_epoch + 1
    assert record.unclean_epoch == leaver_only.unclean_epoch


def test_a_damaged_leader_stays_where_the_eligible_leaver_is_away(cluster: ControlCluster) -> None:
    leaver_only = replace(cluster.partition(), isr=(1,), elr=(3,))
    state = replace(cluster.state, partitions={**cluster.state.partitions, leaver_only.id: leaver_only})
    live = cluster.controller.reign.changes.live
    without = Liveness(live.brokers, {key: value for key, value in live.replicas.items() if key[2] != 3})
    with pytest.raises(EligibleLeadersNotAvailable):
        stand_down(state, without, asked(cluster, 1, DAMAGED))


def test_nobody_leaves_who_is_the_last_one_alive(cluster: ControlCluster) -> None:
    """Otherwise it would throw away what nobody else has."""
    before = cluster.partition()
    live = cluster.controller.reign.changes.live
    alone = Liveness(live.brokers, {key: value for key, value in live.replicas.items() if key[2] == 1})
    for is_damaged in (DAMAGED, FULL):
        with pytest.raises(EligibleLeadersNotAvailable):
            stand_down(cluster.state, alone, asked(cluster, 1, is_damaged))
    assert cluster.partition() == before


def test_of_two_that_ask_at_the_same_time_the_second_stays(cluster: ControlCluster) -> None:
    ask(cluster, cluster.replica(3), DAMAGED)
    ask(cluster, cluster.replica(1), DAMAGED)
    assert (cluster.partition().leader, cluster.partition().isr) == (2, (2,))
    with pytest.raises(RemoteFailed, match="EligibleLeadersNotAvailable"):
        ask(cluster, cluster.replica(2), DAMAGED)


def test_a_leader_with_a_full_disk_hands_over_to_one_that_has_room(cluster: ControlCluster) -> None:
    (record,) = decide(cluster, 1, FULL, full={1, 2})
    assert (record.leader, record.isr) == (3, (1, 2, 3))
    with pytest.raises(EligibleLeadersNotAvailable):
        decide(cluster, 1, FULL, full={1, 2, 3})
    assert decide(cluster, 2, FULL) == []  # it does not lead any more


def test_what_a_former_process_asks_is_refused(cluster: ControlCluster) -> None:
    spec = cluster.replica(1).spec
    old = StandDown(spec.topic_id, 0, 1, spec.incarnation - 1, DAMAGED, "late")
    with pytest.raises(StaleIncarnation):
        stand_down(cluster.state, cluster.controller.reign.changes.live, old)


def test_the_preferred_leader_is_not_brought_back_while_its_disk_is_full(cluster: ControlCluster) -> None:
    """It would hand over again, and so on for ever."""
    stand_in = cluster.replica(1)
    stand_in.has_full_disk = True
    for _ in range(80):
        cluster.world.run_for(0.1)
        if cluster.partition().leader == 1 and 1 in cluster.controller.reign.changes.live.full:
            ask(cluster, stand_in, FULL)
    stand_in.has_full_disk = False
    assert cluster.partition().leader not in (1, NO_LEADER)
    cluster.until(lambda: cluster.partition().leader == 1)


# --- when a leader asks -----------------------------------------------------------------------------------------------


def test_a_disk_counts_as_full_while_it_refuses_and_asks_after_a_while() -> None:
    now = [100.0]
    asked_at: list[float] = []
    disk = FullDisk(lambda: now[0])
    disk.stays_full = lambda: asked_at.append(now[0])
    assert not disk.is_full
    disk.refused()
    now[0] += 3.1  # nothing was refused since
    for _ in range(12):
        disk.refused()
        now[0] += 1.0
    assert asked_at == [103.1 + STAYS_FULL_SECONDS]
    disk.took()
    assert not disk.is_full
    for _ in range(10):
        disk.refused()
        now[0] += 1.0
    assert len(asked_at) == 1  # the time begins anew


def test_a_leader_whose_disk_stays_full_lets_another_one_lead() -> None:
    with World(1) as world:
        trio = led_by_one(Trio(world), 2)
        trio.offset_of(trio.append(1, b"before"))
        trio.members[1].machine.fill_disk()
        began = world.now
        while trio.leader == 1 and world.now < began + 30.0:
            task = trio.append(1, b"refused")
            task.add_done_callback(lambda done: done.exception())
            world.run_for(0.5)
        assert trio.leader == 2
        assert STAYS_FULL_SECONDS <= world.now - began <= STAYS_FULL_SECONDS + 2.0
        assert [(each.broker, each.is_damaged) for each in trio.stand_downs] == [(1, False)]
        trio.members[1].machine.free_disk()
        trio.offset_of(trio.append(2, b"after", timeout_ms=20_000))
        world.run_for(0.01)


def test_a_full_disk_that_gets_room_in_time_changes_nothing() -> None:
    with World(1) as world:
        trio = led_by_one(Trio(world), 2)
        for is_full in (True, False) * 4:
            if is_full:
                trio.members[1].machine.fill_disk()
            else:
                trio.members[1].machine.free_disk()
            for _ in range(8):
                task = trio.append(1, b"one")
                task.add_done_callback(lambda done: done.exception())
                world.run_for(0.5)
        assert trio.leader == 1
        assert not trio.stand_downs
        world.run_for(0.01)



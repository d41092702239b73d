"""A broker and its hosts: what is opened where, and what is lost with whom (rules 26, 35)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

import pytest

from raylog.actors.cluster.cluster_settings import OWN_REPLICAS_MAX
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.host_messages import OWN, SHARED, SPARE
from raylog.errors import DirectoryLocked
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster, HostStandIn

SIX = tuple((1 + number % 3, 1 + (number + 1) % 3, 1 + (number + 2) % 3) for number in range(6))


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        world.run_for(2.0)  # by then directories have their first marks, and nothing is recorded unasked
        yield cluster


@pytest.fixture
def sharing(cluster: ControlCluster) -> ControlCluster:
    """All replicas of `clicks` share one host on each broker."""
    cluster.ask(cluster.admin.alter_cluster_settings({OWN_REPLICAS_MAX: 0}))
    cluster.create_topic("clicks", SIX)
    cluster.until(cluster.has_spare_hosts)
    return cluster


def hosts(cluster: ControlCluster, broker_id: int) -> list[HostStandIn]:
    """Those that live."""
    return [
        each
        for each in cluster.hosts
        if each.spec.broker_id == broker_id and each.process is not None and each.process.is_alive
    ]


def shared_host(cluster: ControlCluster, broker_id: int) -> HostStandIn:
    (found,) = [each for each in hosts(cluster, broker_id) if each.room == SHARED]
    return found


def all_led(cluster: ControlCluster) -> bool:
    return all(cluster.partition(number=number).leader != NO_LEADER for number in range(6))


def all_assigned(cluster: ControlCluster) -> bool:
    return all(cluster.is_assigned("clicks", number) for number in range(6))


def test_the_first_few_replicas_of_a_broker_have_a_process_each(cluster: ControlCluster) -> None:
    cluster.create_topic("clicks", SIX)
    cluster.until(cluster.has_spare_hosts)
    for broker_id in (1, 2, 3):
        rooms = Counter(each.room for each in hosts(cluster, broker_id))
        assert rooms == {OWN: 4, SHARED: 1, SPARE: 1}
        assert len(shared_host(cluster, broker_id).replicas) == 2


def test_an_own_host_ends_by_itself_with_its_replica(cluster: ControlCluster) -> None:
    """Ray tells every driver of a process that is killed, as of a crash."""
    cluster.create_topic("clicks", ((1, 2, 3),))
    processes = [cluster.replica(broker_id).host.process for broker_id in (1, 2, 3)]
    cluster.ask(cluster.admin.delete_topic("clicks"))
    cluster.until(lambda: not any(each.is_alive for each in processes if each is not None))
    assert [each.why_ended for each in processes if each is not None] == ["exited"] * 3


def test_an_own_host_that_is_told_twice_ends_by_itself_too(cluster: ControlCluster) -> None:
    """The second order may meet a stream that has just ended."""
    cluster.create_topic("clicks", ((1, 2, 3),))
    process = cluster.replica(1).host.process
    assert process is not None
    replicas = cluster.brokers[1]._replicas
    (session,) = replicas.all()
    told = [cluster.processes[1].run(replicas.stop(session, is_kept=False)) for _ in range(2)]
    cluster.until(lambda: all(each.done() for each in told) and not process.is_alive)
    assert process.why_ended == "exited"


def test_a_host_that_dies_while_it_is_told_to_end_is_lost_at_once(cluster: ControlCluster) -> None:
    """Whoever told it hears of the end of its stream first, and asked the ended stream again and again."""
    cluster.openings_hang = True
    new = NewTopic("clicks", assignment=((1, 2, 3),))
    cluster.controller_processes[-1].run(cluster.admin.create_topic(new))
    cluster.until(lambda: any(each.spec.broker_id == 1 for each in cluster.stand_ins))
    host = next(each.host for each in cluster.stand_ins if each.spec.broker_id == 1)
    host.is_deaf = True
    (partition,) = host.replicas
    replicas = cluster.brokers[1]._replicas
    waiting = cluster.processes[1].run(replicas.make_way(partition, "the test says so"))
    cluster.world.run_for(0.1)
    assert host.process is not None
    host.process.kill()
    assert cluster.until(waiting.done) < 0.5
    assert replicas.hosts.holding(partition) is None


def test_an_own_host_that_does_not_end_is_killed(cluster: ControlCluster) -> None:
    cluster.create_topic("clicks", ((1, 2, 3),))
    host = cluster.replica(2).host
    host.lingers = True
    process = host.process
    assert process is not None
    cluster.ask(cluster.admin.delete_topic("clicks"))
    assert 2.0 < cluster.until(lambda: not process.is_alive) < 3.0
    assert process.why_ended.startswith("killed by broker-2")


def test_a_topic_may_choose(cluster: ControlCluster) -> None:
    cluster.create_topic("clicks", SIX)
    for name, room in (("apart", OWN), ("together", SHARED)):
        new = NewTopic(name, assignment=((1, 2, 3),), settings={"replica.host": room})
        cluster.ask(cluster.admin.create_topic(new))
        cluster.until(lambda name=name: cluster.is_assigned(name, 0))
        assert cluster.replica(1, name).host.room == room


@pytest.mark.parametrize(("before", "after"), [("own", "shared"), ("shared", "own")])
def test_a_topic_moves_to_other_hosts_one_replica_at_a_time(cluster: ControlCluster, before: str, after: str) -> None:
    new = NewTopic("clicks", assignment=((1, 2, 3),), settings={"replica.host": before})
    cluster.ask(cluster.admin.create_topic(new))
    cluster.until(lambda: cluster.is_assigned("clicks", 0))
    cluster.until(cluster.has_spare_hosts)
    epoch = cluster.partition().leader_epoch
    moved: list[int] = []
    cluster.ask(cluster.admin.alter_topic_settings("clicks", {"replica.host": after}))
    while len(moved) < 3:
        there = {each: cluster.replica(each) for each in (1, 2, 3)}
        cluster.until(lambda there=there: any(cluster.replica(each) is not there[each] for each in there))
        (broker_id,) = [each for each in there if cluster.replica(each) is not there[each]]
        assert there[broker_id].is_stopped
        assert cluster.partition().leader not in (broker_id, NO_LEADER)
        moved.append(broker_id)
        cluster.until(lambda: cluster.is_assigned("clicks", 0))
        cluster.propose(cluster.leader(), tuple(sorted({*cluster.partition().isr, broker_id})))
    assert set(moved) == {1, 2, 3}
    assert moved[2] == 1  # it led
    assert all(cluster.replica(each).host.room == after for each in (1, 2, 3))
    assert cluster.partition().leader_epoch > epoch
    described = cluster.admin.describe_replicas("clicks")
    cluster.until(lambda: all(each.host == after for each in cluster.admin.describe_replicas("clicks")))
    assert len(described) == 3
    cluster.world.run_for(10.0)
    assert sum(each.key.topic_id == cluster.state.topic("clicks").id for each in cluster.stand_ins) == 6


def test_all_that_share_a_host_are_lost_with_it_and_come_back(sharing: ControlCluster) -> None:
    host = shared_host(sharing, 1)
    led = [number for number in range(6) if sharing.partition(number=number).leader == 1]
    assert led
    assert host.process is not None
    host.process.kill()
    assert sharing.until(lambda: all(sharing.partition(number=number).leader != 1 for number in led)) < 0.2
    assert all_led(sharing)
    sharing.until(lambda: all_assigned(sharing))
    assert shared_host(sharing, 1) is not host
    assert {each.spec.incarnation for each in host.replicas.values()}.isdisjoint(
        each.spec.incarnation for each in shared_host(sharing, 1).replicas.values()
    )


def test_one_that_fails_leaves_its_host_without_the_others(sharing: ControlCluster) -> None:
    failing = sharing.replica(2, partition=0)
    others = [sharing.replica(2, partition=number) for number in range(1, 6)]
    failing.fail(damaged=False)
    sharing.until(lambda: sharing.replica(2, partition=0) is not failing and all_assigned(sharing))
    assert failing.is_stopped
    assert sharing.replica(2, partition=0).host is failing.host
    assert [sharing.replica(2, partition=number) for number in range(1, 6)] == others
    assert failing.is_running


def test_a_host_that_stands_still_is_killed_once_and_followed(sharing: ControlCluster) -> None:
    host = shared_host(sharing, 3)
    assert host.process is not None
    host.process.pause()
    sharing.until(lambda: all(sharing.partition(number=number).leader != 3 for number in range(6)), 4.0)
    assert not host.process.is_alive
    sharing.until(lambda: all_assigned(sharing))


def test_a_shared_host_that_does_not_let_go_of_a_replica_is_killed(sharing: ControlCluster) -> None:
    """An operator's word: that copy goes. The host does not answer, but goes on with its signs of life."""
    host = shared_host(sharing, 2)
    process = host.process
    assert process is not None
    host.is_deaf = True
    sharing.replica(2).fail(damaged=False)
    sharing.until(lambda: not process.is_alive, 5.0)
    sharing.until(lambda: all_assigned(sharing))


def test_a_clean_stop_closes_all_logs_and_leaves_no_process(sharing: ControlCluster) -> None:
    sharing.ask(sharing.controller.shutdown(), 10.0)
    sharing.world.run_for(1.0)
    assert not any(hosts(sharing, broker_id) for broker_id in (1, 2, 3))

    async def take_all(env: SimEnvironment) -> None:
        for number in range(6):
            env.disk.lock_directory(f"/data/clicks-{number}").release()

    taken = sharing.machines[1].start("taker", take_all)
    sharing.until(lambda: not taken.is_alive)
    assert DirectoryLocked.__name__ not in taken.why_ended


def test_a_broker_that_was_started_again_finds_its_hosts(sharing: ControlCluster) -> None:
    host = shared_host(sharing, 1)
    epochs = [sharing.partition(number=number).leader_epoch for number in range(6)]
    sharing.processes[1].kill()
    sharing.start_broker(1)
    sharing.world.run_for(3.0)
    assert shared_host(sharing, 1) is host
    assert [sharing.partition(number=number).leader_epoch for number in range(6)] == epochs
    assert sharing.brokers[1]._replicas.hosts.wanted() == 0


def test_what_a_deleted_topic_had_leaves_the_shared_host(sharing: ControlCluster) -> None:
    sharing.ask(sharing.admin.delete_topic("clicks"))
    sharing.until(lambda: not sharing.state.deleted)
    for broker_id in (1, 2, 3):
        assert shared_host(sharing, broker_id).replicas == {}
        assert not any(each.replicas for each in sharing.brokers[broker_id]._replicas.hosts.all())

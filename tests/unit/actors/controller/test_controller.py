"""The controller with real brokers: who leads after what, and what a restart, or a second controller, changes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.metadata_log.rules import quorum
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import DirectoryMarked
from raylog.errors import (
    ControllerFenced,
    ControllerNotReady,
    RemoteFailed,
    StaleBrokerEpoch,
    StalePartitionEpoch,
)
from raylog.storage.directory.doubts import REBOOTED
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(7, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


# --- replicas -----------------------------------------------------------------------------------------------------


def test_a_topic_comes_up_with_all_its_replicas_assigned(cluster: ControlCluster) -> None:
    cluster.create_topic()
    partition = cluster.partition()
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2, 3))
    for broker_id in (1, 2, 3):
        assigned = cluster.replica(broker_id).assigned
        assert assigned is not None
        assert (assigned.topic, assigned.leader, assigned.controller_epoch) == ("clicks", 1, cluster.controller.epoch)
        assert (broker_id, cluster.replica(broker_id).spec.incarnation) in assigned.isr


def test_a_killed_leader_is_followed_within_a_tenth_of_a_second(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill(cluster.replica(1))

    def is_led_by_2() -> bool:
        assigned = cluster.replica(2).assigned
        return assigned is not None and assigned.leader == 2

    assert cluster.until(is_led_by_2) < 0.1
    assert cluster.partition().isr == (2, 3)
    assert cluster.partition().leader_epoch == 1


def test_a_killed_replica_is_started_again_as_a_later_incarnation(cluster: ControlCluster) -> None:
    cluster.create_topic()
    before = cluster.replica(2)
    cluster.kill(before)
    cluster.until(lambda: cluster.replica(2) is not before and cluster.replica(2).assigned is not None)
    after = cluster.replica(2)
    assert after.spec.incarnation > before.spec.incarnation
    assert after.assigned is not None
    assert [broker for broker, _ in after.assigned.isr] == [1, 3]


def test_a_stopped_leader_is_killed_and_followed(cluster: ControlCluster) -> None:
    cluster.create_topic()
    stopped = cluster.replica(1)
    assert stopped.process is not None
    stopped.process.pause()
    assert 1.0 < cluster.until(lambda: cluster.partition().leader == 2) < 2.0
    assert not stopped.process.is_alive
    cluster.until(lambda: cluster.replica(1) is not stopped and cluster.replica(1).assigned is not None)


def test_a_short_pause_costs_nothing(cluster: ControlCluster) -> None:
    cluster.create_topic()
    process = cluster.replica(1).process
    assert process is not None
    process.pause(1.0)
    cluster.world.run_for(3.0)
    assert process.is_alive
    assert cluster.partition().leader_epoch == 0


def test_a_replica_that_keeps_failing_is_started_ever_more_slowly(cluster: ControlCluster) -> None:
    cluster.create_topic()
    began = len(cluster.stand_ins)
    cluster.openings_fail = True
    cluster.kill(cluster.replica(3))
    cluster.world.run_for(12.0)
    assert 6 <= len(cluster.stand_ins) - began <= 11  # 0, 0.1, 0.3, 0.7, 1.5, 3.1, 6.3, 11.3 s
    cluster.openings_fail = False
    cluster.until(lambda: cluster.is_assigned("clicks", 0))


def test_a_host_that_cannot_be_started_is_asked_for_ever_more_slowly(cluster: ControlCluster) -> None:
    cluster.create_topic()
    began = len(cluster.launcher.started)
    cluster.launcher.refuses = True
    cluster.kill(cluster.replica(3))  # the spare host takes it, and another one is to stand ready
    cluster.world.run_for(12.0)
    assert 6 <= len(cluster.launcher.started) - began <= 11
    assert cluster.is_assigned("clicks", 0)
    cluster.launcher.refuses = False
    cluster.until(cluster.has_spare_hosts)


def test_a_replica_that_never_says_hello_is_ended_and_started_again(cluster: ControlCluster) -> None:
    cluster.create_topic()
    before = cluster.replica(3)
    cluster.openings_hang = True
    cluster.kill(before)
    cluster.until(lambda: cluster.replica(3) is not before)
    silent = cluster.replica(3)
    assert silent.process is not None
    cluster.openings_hang = False
    cluster.until(lambda: cluster.replica(3) is not silent, 40.0)
    cluster.until(lambda: cluster.replica(3).assigned is not None)
    assert silent.is_stopped
    process = silent.process
    cluster.until(lambda: not process.is_alive)


def test_what_a_broker_was_to_start_is_started_again_when_the_broker_is_back(cluster: ControlCluster) -> None:
    """A broker that is killed forgets what waits for a process, and the controller has to notice."""
    cluster.create_topic()
    cluster.launcher.refuses = True
    first = cluster.replica(3)
    cluster.kill(first)  # the spare host takes it
    cluster.until(lambda: cluster.replica(3) is not first and cluster.replica(3).assigned is not None)
    second = cluster.replica(3)
    cluster.kill(second)
    cluster.world.run_for(1.0)
    assert cluster.replica(3) is second
    cluster.processes[3].kill()
    cluster.launcher.refuses = False
    cluster.start_broker(3)
    assert cluster.until(lambda: cluster.replica(3) is not second and cluster.is_assigned("clicks", 0)) < 10.0


def test_a_host_that_never_says_hello_is_given_up(cluster: ControlCluster) -> None:
    began = len(cluster.launcher.started)
    cluster.launcher.hangs = True
    cluster.create_topic()  # takes the spare host of each broker
    cluster.until(lambda: len(cluster.launcher.started) >= began + 3)
    silent = cluster.launcher.started[began:]
    cluster.launcher.hangs = False
    cluster.until(lambda: all(spec in cluster.launcher.stopped for spec in silent), 40.0)
    cluster.until(cluster.has_spare_hosts)


def test_a_damaged_replica_leaves_the_isr(cluster: ControlCluster) -> None:
    cluster.create_topic()
    damaged = cluster.replica(2)
    damaged.fail(damaged=True)
    cluster.until(lambda: cluster.replica(2) is not damaged)
    assert cluster.partition().isr == (1, 3)


def test_an_unproven_replica_is_no_member_until_it_has_caught_up(cluster: ControlCluster) -> None:
    cluster.create_topic()
    key = cluster.replica(2).key
    cluster.unproven[key] = REBOOTED
    cluster.kill(cluster.replica(2))
    cluster.until(lambda: cluster.state.replicas[key].unproven == REBOOTED)
    assert cluster.partition().isr == (1, 3)


# --- brokers ------------------------------------------------------------------------------------------------------


def test_a_lost_machine_is_fenced_after_its_lease(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.machines[1].crash()
    assert 1.1 < cluster.until(lambda: cluster.partition().leader == 2) < 2.0
    assert cluster.state.brokers[1].fenced
    assert cluster.live_brokers() == {2, 3}


def test_a_machine_that_comes_back_is_the_same_broker(cluster: ControlCluster) -> None:
    cluster.create_topic()
    before = cluster.replica(1)
    cluster.machines[1].crash()
    cluster.until(lambda: cluster.partition().leader == 2)
    cluster.machines[1].restart()
    cluster.start_broker(1)
    cluster.until(lambda: cluster.replica(1) is not before and cluster.replica(1).assigned is not None)
    assert cluster.live_brokers() == {1, 2, 3}


def test_a_broker_that_was_silent_for_less_than_its_lease_keeps_its_leaders(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.processes[1].pause(1.0)
    cluster.world.run_for(3.0)
    assert cluster.partition().leader_epoch == 0


def test_a_broker_that_slept_through_its_lease_registers_again_and_kills_nobody(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.processes[1].pause(4.0)
    cluster.until(lambda: cluster.partition().leader == 2)
    cluster.until(lambda: 1 in cluster.live_brokers())
    cluster.world.run_for(1.0)
    process = cluster.replica(1).process
    assert process is not None
    assert process.is_alive
    assert len(cluster.stand_ins) == 3


def test_a_killed_broker_costs_no_election_if_it_is_back_in_time(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.processes[1].kill()
    cluster.start_broker(1)
    cluster.world.run_for(5.0)
    partition = cluster.partition()
    assert (partition.leader, partition.leader_epoch, partition.isr) == (1, 0, (1, 2, 3))
    assert len(cluster.stand_ins) == 3
    assert cluster.live_brokers() == {1, 2, 3}


def test_a_controller_that_slept_fences_nobody(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.controller_processes[-1].pause(4.0)
    cluster.world.run_for(8.0)
    assert cluster.live_brokers() == {1, 2, 3}
    assert cluster.partition().leader_epoch == 0


def test_brokers_that_join_later_become_voters_until_there_are_three() -> None:
    with World(3, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.start_broker(1)
        cluster.start_controller(form_on=(1,))
        cluster.until(cluster.serves)
        assert cluster.admin.describe_cluster().voters == (1,)
        cluster.start_broker(2)
        cluster.world.run_for(3.0)
        assert cluster.admin.describe_cluster().voters == (1,)
        cluster.start_broker(3)
        cluster.until(lambda: cluster.admin.describe_cluster().voters == (1, 2, 3))


def test_a_voter_whose_disk_was_replaced_votes_again_once_the_log_says_so(cluster: ControlCluster) -> None:
    cluster.create_topic()
    machine = cluster.machines[2]
    machine.crash()
    machine.disk = FaultyDisk()
    machine.restart()
    cluster.start_broker(2)
    now = cluster.specs[2].claim
    assert now is not None
    cluster.until(lambda: (2, now.directory_id) in cluster.controller.reign.writer.voters)
    assert cluster.admin.describe_cluster().voters == (1, 2, 3)
    end = cluster.controller.reign.writer.tail.end_offset
    cluster.until(lambda: cluster.brokers[3].version >= end)  # until then 1 and 3 are the only ones who say so
    cluster.processes[1].kill()  # so 2 is needed
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(cluster.serves)
    assert cluster.state.brokers[2].directory_id == now.directory_id


# --- controllers --------------------------------------------------------------------------------------------------


def recorded_but_marks(cluster: ControlCluster) -> list[Message]:
    """All but the marks of directories, which rise with each controller."""
    return [each for each in cluster.state.to_records() if not isinstance(each, DirectoryMarked)]


def test_a_new_controller_finds_everything_as_it_was(cluster: ControlCluster) -> None:
    cluster.create_topic(replicas=((1, 2, 3), (2, 3, 1)))
    epoch, before = cluster.controller.epoch, recorded_but_marks(cluster)
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and cluster.controller.epoch > epoch)
    cluster.world.run_for(5.0)
    assert recorded_but_marks(cluster) == before
    assert len(cluster.stand_ins) == 6
    assert cluster.live_brokers() == {1, 2, 3}
    cluster.create_topic("views")


def test_a_long_log_becomes_a_snapshot_that_a_new_controller_starts_from(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(quorum, "_MIN_SNAPSHOT_BYTES", 2_000)
    cluster.create_topic()
    for bytes_kept in range(60):
        cluster.ask(cluster.admin.alter_topic_settings("clicks", {"retention.bytes": bytes_kept}))
    assert cluster.controller.reign.writer.tail.start_offset > 30
    epoch, before = cluster.controller.epoch, cluster.state.to_records()
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and cluster.controller.epoch > epoch)
    assert cluster.state.to_records() == before
    assert cluster.admin.describe_topic("clicks").settings == (("retention.bytes", "59"),)


def test_what_a_replica_lost_without_a_controller_is_found_by_the_next(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill_controller()
    cluster.world.run_for(0.5)
    cluster.kill(cluster.replica(1))
    cluster.world.run_for(0.5)
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and cluster.partition().leader == 2)


def test_a_broker_lost_without_a_controller_is_fenced_by_the_next(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill_controller()
    cluster.machines[1].crash()
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and cluster.partition().leader == 2)


def test_of_two_controllers_the_older_is_fenced(cluster: ControlCluster) -> None:
    cluster.create_topic()
    older = cluster.controller
    cluster.start_controller()
    cluster.until(lambda: cluster.controller is not older and cluster.serves())
    cluster.until(older.stopped.done)
    assert isinstance(older.stopped.result(), ControllerFenced)
    with pytest.raises(ControllerNotReady):
        _ = older.admin
    cluster.until(lambda: cluster.live_brokers() == {1, 2, 3})
    cluster.create_topic("views")


def test_a_controller_without_a_majority_refuses_everybody(cluster: ControlCluster) -> None:
    cluster.kill_controller()
    cluster.machines[1].crash()
    cluster.machines[2].crash()
    before = len(cluster.controllers)
    cluster.start_controller()
    cluster.until(lambda: len(cluster.controllers) > before)
    cluster.world.run_for(3.0)
    with pytest.raises(ControllerNotReady):
        _ = cluster.admin
    cluster.machines[1].restart()
    cluster.start_broker(1)
    cluster.until(cluster.serves)


def test_all_of_it_comes_back_from_the_disks(cluster: ControlCluster) -> None:
    cluster.create_topic(replicas=((1, 2, 3), (2, 3, 1)))
    cluster.kill_controller()
    for machine in cluster.machines.values():
        for process in list(machine.processes):
            process.kill()
    before = len(cluster.stand_ins)
    for broker_id in cluster.machines:
        cluster.start_broker(broker_id)
    cluster.start_controller()
    cluster.until(lambda: len(cluster.stand_ins) == before + 6)
    cluster.until(lambda: cluster.partition().leader != NO_LEADER and cluster.is_assigned("clicks", 1))


# --- ISR proposals ------------------------------------------------------------------------------------------------


def test_a_leader_may_shrink_the_isr_and_grow_it_again(cluster: ControlCluster) -> None:
    cluster.create_topic()
    leader = cluster.leader()
    cluster.propose(leader, (1, 2))
    assert cluster.partition().isr == (1, 2)
    cluster.until(lambda: leader.assigned is not None and leader.assigned.partition_epoch == 2)
    cluster.propose(leader, (1, 2, 3))
    assert cluster.partition().isr == (1, 2, 3)


def test_a_proposal_for_an_older_state_is_refused_as_such(cluster: ControlCluster) -> None:
    cluster.create_topic()
    with pytest.raises(RemoteFailed) as refused:
        cluster.propose(cluster.leader(), (1, 2), partition_epoch=0)
    assert isinstance(refused.value.error, StalePartitionEpoch)


def test_a_proposal_in_the_name_of_another_broker_is_refused(cluster: ControlCluster) -> None:
    cluster.create_topic()
    with pytest.raises(RemoteFailed) as refused:
        cluster.propose(cluster.leader(), (1, 2), leader=2)
    assert isinstance(refused.value.error, StaleBrokerEpoch)


def test_without_a_controller_a_proposal_is_refused_as_retriable(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill_controller()
    cluster.world.run_for(1.0)
    with pytest.raises(RemoteFailed) as refused:
        cluster.propose(cluster.leader(), (1, 2))
    assert isinstance(refused.value.error, ControllerNotReady)

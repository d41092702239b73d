"""What people ask of the controller, carried out by real brokers: topics, reassignments, draining, a clean shutdown."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator, Sequence

import pytest

from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.controller import Controller
from raylog.actors.controller.replica_removal import ReplicaRemoval
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import ProducerIdBlock, TopicRemoved
from raylog.errors import (
    BrokerInUse,
    ControllerFenced,
    PolicyViolation,
    TooManyBytesInFlight,
    TopicExists,
    TopicStillStarting,
    UnknownTopic,
)
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, DIRECTORY, ControlCluster


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(7, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def test_a_topic_is_refused_by_its_type(cluster: ControlCluster) -> None:
    cluster.create_topic()
    assert isinstance(cluster.refusal(cluster.admin.create_topic(NewTopic("clicks"))), TopicExists)
    assert isinstance(cluster.refusal(cluster.admin.delete_topic("views")), UnknownTopic)
    assert cluster.admin.list_topics() == ("clicks",)


def test_records_are_deleted_where_the_policy_says_so(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.admin.check_deletable(["clicks", "views"])  # the second one is unknown, which the leaders' search will say
    cluster.ask(cluster.admin.alter_topic_settings("clicks", {"cleanup.policy": "compact"}))
    with pytest.raises(PolicyViolation, match="clicks"):
        cluster.admin.check_deletable(["views", "clicks"])
    cluster.ask(cluster.admin.alter_topic_settings("clicks", {"cleanup.policy": "compact,delete"}))
    cluster.admin.check_deletable(["clicks"])


def test_a_topic_whose_replicas_do_not_come_up_exists_and_starts_later(cluster: ControlCluster) -> None:
    cluster.openings_fail = True
    error = cluster.refusal(cluster.admin.create_topic(NewTopic("clicks"), timeout=3.0))
    assert isinstance(error, TopicStillStarting)
    assert cluster.admin.list_topics() == ("clicks",)
    cluster.openings_fail = False
    cluster.until(lambda: cluster.partition().leader != NO_LEADER)


def test_a_new_topic_is_led_though_one_of_its_replicas_does_not_come_up(cluster: ControlCluster) -> None:
    started = cluster.launcher.started
    cluster.launcher.refuses = True
    topic = NewTopic("clicks", assignment=((1, 2, 3),))
    task = cluster.controller_processes[-1].run(cluster.admin.create_topic(topic))
    cluster.until(lambda: len(started) >= 3)
    cluster.launcher.refuses = False
    cluster.processes[3].pause(1.4)
    cluster.until(task.done)
    assert cluster.partition().leader in (1, 2)


def test_a_deleted_topic_leaves_nothing_behind(cluster: ControlCluster) -> None:
    cluster.create_topic()
    stand_ins = [cluster.replica(each) for each in (1, 2, 3)]
    cluster.ask(cluster.admin.delete_topic("clicks"))
    assert cluster.admin.list_topics() == ()
    cluster.until(lambda: not cluster.state.deleted)
    assert all(each.is_stopped for each in stand_ins)
    for machine in cluster.machines.values():
        assert not [path for path in machine.disk.files() if "clicks" in path]
    cluster.create_topic()


def test_a_topic_deleted_while_a_broker_is_away_is_removed_there_later(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.machines[3].crash()
    cluster.until(lambda: cluster.live_brokers() == {1, 2})
    cluster.ask(cluster.admin.delete_topic("clicks"))
    cluster.world.run_for(3.0)
    assert cluster.state.deleted
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(cluster.serves)
    cluster.machines[3].restart()
    cluster.start_broker(3)
    cluster.until(lambda: cluster.serves() and not cluster.state.deleted)
    assert not [path for path in cluster.machines[3].disk.files() if "clicks" in path]


def test_the_preferred_leader_leads_again_after_a_while(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill(cluster.replica(1))
    cluster.until(lambda: cluster.partition().leader == 2 and cluster.is_assigned("clicks", 0))
    cluster.propose(cluster.leader(), (2, 3, 1))
    assert 4.0 < cluster.until(lambda: cluster.partition().leader == 1) < 7.0


def test_a_reassigned_replica_is_started_there_and_removed_here() -> None:
    with World(5, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=4)
        cluster.form()
        cluster.create_topic()
        cluster.ask(cluster.admin.reassign({("clicks", 0): (1, 2, 4)}))
        assert [each.partition for each in cluster.admin.list_reassignments()] == [0]
        key = ReplicaKey(cluster.state.topic("clicks").id, 0, 4)
        cluster.until(lambda: key in cluster.replicas and cluster.is_assigned("clicks", 0))
        removed = cluster.replica(3)
        cluster.propose(cluster.leader(), (1, 2, 3, 4))
        cluster.until(lambda: cluster.partition().replicas == (1, 2, 4))
        cluster.until(lambda: not [path for path in cluster.machines[3].disk.files() if "clicks" in path])
        assert removed.is_stopped
        assert cluster.admin.list_reassignments() == ()


def test_a_replica_that_is_wanted_again_before_it_was_removed_registers_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """Its process never ended, but its registration went with the record that took it away."""

    async def not_yet(_self: ReplicaRemoval, _removal: object) -> bool:
        return False

    with World(5, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=4)
        cluster.form()
        cluster.create_topic()
        monkeypatch.setattr(ReplicaRemoval, "_try", not_yet)
        key = (cluster.state.topic("clicks").id, 0, 3)
        before = cluster.replica(3)
        cluster.ask(cluster.admin.reassign({("clicks", 0): (1, 2, 4)}))
        cluster.until(lambda: (*key[:2], 4) in cluster.replicas and cluster.is_assigned("clicks", 0))
        cluster.propose(cluster.leader(), (1, 2, 3, 4))
        cluster.until(lambda: cluster.partition().replicas == (1, 2, 4))
        assert key not in cluster.state.replicas
        assert before.is_running
        cluster.ask(cluster.admin.reassign({("clicks", 0): (1, 2, 3)}))
        cluster.until(lambda: key in cluster.state.replicas and cluster.is_assigned("clicks", 0))
        assert cluster.replica(3).spec.incarnation > before.spec.incarnation
        cluster.propose(cluster.leader(), (1, 2, 3))


def test_who_waits_for_a_change_hears_what_ended_the_controller(cluster: ControlCluster) -> None:
    """Not that it came true: that is of the state with what was not committed, and never may be."""
    cluster.create_topic()
    controller, process = cluster.controller, cluster.controller_processes[-1]
    changes = controller.reign.changes
    for broker_id in (1, 2, 3):
        cluster.processes[broker_id].pause()

    async def change() -> bool:
        changes.submit([ProducerIdBlock(7)])
        waiting = asyncio.ensure_future(changes.until(lambda: changes.state.next_producer_id == 7, 30.0))
        await asyncio.sleep(1.0)
        controller.reign.writer.fence(controller.epoch + 1)
        return await waiting

    waiting = process.run(change())
    cluster.until(waiting.done)
    assert isinstance(waiting.exception(), ControllerFenced)


def test_a_replica_moved_away_from_an_absent_broker_is_removed_when_it_is_back() -> None:
    with World(6, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=4)
        cluster.form()
        cluster.create_topic()
        cluster.machines[3].crash()
        cluster.until(lambda: 3 not in cluster.live_brokers())
        cluster.ask(cluster.admin.reassign({("clicks", 0): (1, 2, 4)}))
        key = ReplicaKey(cluster.state.topic("clicks").id, 0, 4)
        cluster.until(lambda: key in cluster.replicas and cluster.replicas[key].assigned is not None)
        cluster.until(lambda: cluster.leader().assigned == cluster.replicas[key].assigned)
        cluster.propose(cluster.leader(), (1, 2, 4))
        cluster.until(lambda: cluster.partition().replicas == (1, 2, 4))
        cluster.kill_controller()  # it knew that there is something to remove
        cluster.start_controller()
        cluster.until(cluster.serves)
        cluster.machines[3].restart()
        cluster.start_broker(3)
        cluster.until(lambda: 3 in cluster.live_brokers())
        cluster.until(lambda: not [path for path in cluster.machines[3].disk.files() if "clicks" in path])


def test_a_broker_is_drained_and_then_removed() -> None:
    with World(8, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=4)
        cluster.form()
        cluster.create_topic()
        drain = cluster.controller_processes[-1].run(cluster.admin.drain_broker(1))
        cluster.until(lambda: cluster.partition().leader == 2)
        key = ReplicaKey(cluster.state.topic("clicks").id, 0, 4)
        cluster.until(lambda: key in cluster.replicas and cluster.is_assigned("clicks", 0))
        cluster.propose(cluster.leader(), tuple(sorted({*cluster.partition().isr, 4})))
        cluster.until(drain.done)
        drain.result()
        assert isinstance(cluster.refusal(cluster.admin.remove_broker(1)), BrokerInUse)
        cluster.processes[1].kill()
        cluster.until(lambda: 1 not in cluster.live_brokers())
        cluster.ask(cluster.admin.remove_broker(1))
        assert [each.broker for each in cluster.admin.list_brokers()] == [2, 3, 4]
        assert 1 not in cluster.admin.describe_cluster().voters


def test_the_only_voter_is_not_removed_and_runs_on() -> None:
    with World(9, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=2)
        for broker_id in cluster.machines:
            cluster.start_broker(broker_id)
        cluster.start_controller(form_on=(1,))
        cluster.until(lambda: cluster.serves() and len(cluster.live_brokers()) == 2)
        with pytest.raises(BrokerInUse, match="not drained"):
            cluster.admin.check_removable(2)
        cluster.processes[2].pause(20.0)  # nobody who could take over the vote
        cluster.until(lambda: 2 not in cluster.live_brokers())
        cluster.ask(cluster.admin.drain_broker(1, wait=False))
        cluster.world.run_for(5.0)
        with pytest.raises(BrokerInUse, match="votes"):
            cluster.admin.check_removable(1)
        cluster.until(lambda: cluster.admin.describe_cluster().voters == (2,), 60.0)
        cluster.admin.check_removable(1)


def test_who_gives_up_waiting_for_a_commit_takes_nothing_from_the_others(cluster: ControlCluster) -> None:
    changes = cluster.controller.reign.changes

    async def give_up() -> int:
        given_up = asyncio.ensure_future(changes.commit([ProducerIdBlock(7)]))
        other = asyncio.ensure_future(changes.commit(()))
        await asyncio.sleep(0)
        given_up.cancel()
        return await other

    assert cluster.ask(give_up()) == changes.version
    cluster.until(lambda: cluster.brokers[1].state.next_producer_id == 7)
    assert cluster.serves()


def test_a_removal_that_cannot_be_written_down_yet_is_tried_again(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.create_topic()
    changes, refusals = cluster.controller.reign.changes, [TooManyBytesInFlight(1, 2, 3) for _ in range(3)]
    submit = changes.submit

    def sometimes(records: Sequence[Message]) -> asyncio.Future[int]:
        if refusals and any(isinstance(record, TopicRemoved) for record in records):
            raise refusals.pop()
        return submit(records)

    monkeypatch.setattr(changes, "submit", sometimes)
    cluster.ask(cluster.admin.delete_topic("clicks"))
    cluster.until(lambda: not cluster.state.deleted)
    assert not refusals
    assert cluster.serves()


def test_numbers_of_brokers_are_never_given_twice(cluster: ControlCluster) -> None:
    assert cluster.ask(cluster.admin.allocate_broker_ids(2, above=3)) == 4
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(cluster.serves)
    assert cluster.ask(cluster.admin.allocate_broker_ids(1, above=3)) == 6


def test_producer_ids_are_never_given_twice(cluster: ControlCluster) -> None:
    blocks = [cluster.ask(cluster.admin.allocate_producer_ids(10)) for _ in range(2)]
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(cluster.serves)
    blocks.append(cluster.ask(cluster.admin.allocate_producer_ids(10)))
    assert blocks == [(0, 10), (10, 20), (20, 30)]


def test_an_orderly_restart_tells_of_no_lost_replica(cluster: ControlCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create_topic()
    cluster.ask(cluster.controller.shutdown())
    cluster.until(lambda: not any(process.is_alive for process in cluster.processes.values()))
    cluster.until(lambda: not cluster.controller_processes[-1].is_alive)
    with caplog.at_level(logging.INFO):
        for broker_id in cluster.machines:
            cluster.start_broker(broker_id)
        cluster.start_controller()
        cluster.until(lambda: cluster.serves() and cluster.is_assigned("clicks", 0))
        cluster.world.run_for(5.0)
    assert [each.getMessage() for each in caplog.records if each.levelno >= logging.WARNING] == []


def test_a_log_that_was_made_just_now_is_in_its_brokers_directory(cluster: ControlCluster) -> None:
    cluster.ask(cluster.admin.create_topic(NewTopic("clicks", assignment=((1, 2, 3),))))
    found = cluster.admin.describe_broker_logs(1).logs
    assert [(each.topic, each.partition) for each in found if each.topic == "clicks"] == [("clicks", 0)]


def test_what_is_described_includes_what_replicas_report(cluster: ControlCluster) -> None:
    cluster.log_ends[ReplicaKey(b"", 0, 1)] = (0, 0)
    cluster.create_topic()
    cluster.world.run_for(1.0)
    assert [each.size_bytes for each in cluster.admin.describe_replicas("clicks")] == [100, 100, 100]
    assert all(each.total_bytes > 0 for each in cluster.admin.list_brokers())
    assert cluster.admin.describe_topic("clicks").partitions[0].log_end_offset == 0


def test_a_clean_shutdown_stops_all_and_loses_nobody(cluster: ControlCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.create_topic()
    with caplog.at_level(logging.WARNING):
        controller = cluster.controller
        cluster.ask(controller.shutdown())
        cluster.until(lambda: not any(process.is_alive for process in cluster.processes.values()))
    assert all(each.is_stopped for each in cluster.stand_ins)
    assert "is lost" not in caplog.text
    assert not cluster.brokers[1].failed.done()
    for broker_id in cluster.machines:
        assert f"{DIRECTORY}/broker.json" in cluster.machines[broker_id].disk.files()
        cluster.start_broker(broker_id)
    cluster.start_controller()
    cluster.until(lambda: cluster.controller is not controller and cluster.serves())
    cluster.until(lambda: len(cluster.stand_ins) == 6 and cluster.partition().leader != NO_LEADER)


def test_a_controller_that_ends_by_itself_says_why(cluster: ControlCluster) -> None:
    controller: Controller = cluster.controller
    controller._stop(RuntimeError("a bug"))
    cluster.until(controller.stopped.done)
    assert isinstance(controller.stopped.result(), RuntimeError)
    assert not controller.is_serving

"""Coordinators are placed, watched and replaced by the real controller; only their processes are stand-ins."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

import pytest

from raylog.actors.cluster.coordinator_state import LAST_EPOCH, CoordinatorState
from raylog.actors.cluster.descriptions import CoordinatorDescription
from raylog.actors.cluster.placement.coordinator_placement import place_coordinator
from raylog.actors.cluster.state import ClusterState
from raylog.actors.controller.coordinator_grants import CLOCKS_APART_SECONDS, GRANT_SECONDS
from raylog.actors.kernel.stream_interface import Request
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.protocol.coordinator_messages import EnsureCoordinators, FindTopicById, TopicFoundById
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import CoordinatorPlaced
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.errors import ControllerNotReady, InvalidPartitions, InvalidRequest, RemoteFailed
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster
from tests.unit.actors.coordinator_stand_ins import COORDINATORS, CoordinatorHostStandIn, CoordinatorStandIn


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def ensure(cluster: ControlCluster, topic: str = OFFSETS_TOPIC) -> None:
    """As a client asks for it."""
    asked_at_a_broker(cluster, EnsureCoordinators(topic))


def asked_at_a_broker(cluster: ControlCluster, message: Message) -> Message:
    refusals: list[RemoteFailed] = []
    answers: list[Message] = []

    async def ask(env: SimEnvironment) -> None:
        stream = await env.dial(cluster.brokers[2].endpoints[-1], "client", refuse_all)
        while True:
            try:
                answers.append((await stream.request(message, timeout=5.0)).message)
            except RemoteFailed as error:
                if isinstance(error.error, ControllerNotReady):
                    continue  # its own registration is not through yet
                refusals.append(error)
            return

    process = cluster.head.start("client", ask)
    cluster.until(lambda: not process.is_alive)
    if refusals:
        raise refusals[0]
    return answers[0]


def coordinator(cluster: ControlCluster, partition: int = 0) -> CoordinatorState:
    """As brokers tell it to clients."""
    state = cluster.brokers[1].state
    return state.coordinators[state.topic(OFFSETS_TOPIC).id, partition]


def all_serve(cluster: ControlCluster) -> bool:
    known = cluster.brokers[1].state.coordinators
    return len(known) == COORDINATORS and all(each.is_serving for each in known.values())


def started(cluster: ControlCluster) -> None:
    ensure(cluster)
    cluster.until(lambda: all_serve(cluster))


def is_replaced(cluster: ControlCluster, epoch: int = 1) -> bool:
    return coordinator(cluster).epoch == epoch and coordinator(cluster).is_serving


def test_who_asks_for_coordinators_gets_the_topic_and_one_for_each_of_its_partitions(cluster: ControlCluster) -> None:
    started(cluster)
    assert cluster.admin.list_topics() == ()
    assert cluster.admin.describe_topic(OFFSETS_TOPIC).replication_factor == 3
    placed = [coordinator(cluster, partition) for partition in range(COORDINATORS)]
    assert [each.epoch for each in placed] == [0, 0, 0]
    assert len({each.producer_id for each in placed}) == COORDINATORS
    assert sorted(each.broker_id for each in placed) == [1, 2, 3]


def test_to_ask_again_changes_nothing(cluster: ControlCluster) -> None:
    started(cluster)
    version = cluster.controller.reign.changes.version
    ensure(cluster)
    assert cluster.controller.reign.changes.version == version


def test_a_topic_without_coordinators_is_refused(cluster: ControlCluster) -> None:
    with pytest.raises(RemoteFailed) as refused:
        ensure(cluster, "clicks")
    assert isinstance(refused.value.error, InvalidRequest)


def test_a_coordinated_topic_keeps_its_number_of_partitions(cluster: ControlCluster) -> None:
    started(cluster)
    refusal = cluster.refusal(cluster.admin.create_partitions(OFFSETS_TOPIC, 6))
    assert isinstance(refusal, InvalidPartitions)


def test_a_killed_coordinator_is_replaced_under_a_higher_epoch(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    kill(before)
    assert cluster.until(lambda: is_replaced(cluster)) < 2.5
    assert coordinator(cluster).producer_id == before.order.producer_id
    assert [coordinator(cluster, other).epoch for other in (1, 2)] == [0, 0]


def test_the_shell_may_notice_its_end_earlier_and_another_process_serves_at_once(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    cluster.coordinators.refuses = True
    kill(before)
    cluster.controller.coordinators_ended(before.host.spec, before.host.run_name)
    assert cluster.until(lambda: is_replaced(cluster)) < 0.3
    assert coordinator(cluster).broker_id != before.host.spec.broker_id


def test_one_that_serves_elsewhere_comes_back_beside_its_leader_in_the_end(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    home = before.host.spec.broker_id
    cluster.coordinators.refuses = True
    kill(before)
    cluster.controller.coordinators_ended(before.host.spec, before.host.run_name)
    cluster.until(lambda: is_replaced(cluster))
    cluster.coordinators.refuses = False
    cluster.until(lambda: home in cluster.controller.reign.coordinators.hosts.running())
    cluster.world.run_for(10.0)
    assert is_replaced(cluster, 1), "a leader may have to move once more"
    assert coordinator(cluster).broker_id != home
    cluster.until(lambda: is_replaced(cluster, 2))
    assert coordinator(cluster).broker_id == home == cluster.brokers[1].state.partitions[coordinator(cluster).id].leader
    cluster.world.run_for(30.0)
    assert is_replaced(cluster, 2)
    assert [coordinator(cluster, other).epoch for other in (1, 2)] == [0, 0]


def test_one_that_ends_by_itself_is_opened_again_in_the_same_process(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    before.end("it was fenced")
    assert cluster.until(lambda: is_replaced(cluster)) < 0.5
    assert cluster.coordinators.newest(0).host is before.host
    assert [coordinator(cluster, other).epoch for other in (1, 2)] == [0, 0]


def test_a_slow_record_of_one_does_not_make_its_process_pass_for_silent(cluster: ControlCluster) -> None:
    """The disks are slow while one that was opened anew reports that it serves: its neighbours go on."""
    started(cluster)
    before = cluster.coordinators.newest(0)
    hosts = [each for each in cluster.coordinators.hosts if each.is_running]
    count = len(cluster.coordinators.all)
    before.end("it was fenced")
    cluster.until(lambda: len(cluster.coordinators.all) > count)
    for machine in cluster.machines.values():
        machine.slow_disk(12_000)
    cluster.world.run_for(2.2)
    for machine in cluster.machines.values():
        machine.slow_disk(1.0)
    cluster.until(lambda: is_replaced(cluster))
    assert all(each.is_running for each in hosts)
    assert [coordinator(cluster, other).epoch for other in (1, 2)] == [0, 0]


def test_one_that_its_process_has_lost_is_opened_again(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    before.host.coordinators.remove(before)
    assert cluster.until(lambda: is_replaced(cluster)) < 0.5


def test_a_process_that_was_killed_is_started_again_and_stands_ready(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0).host
    kill(cluster.coordinators.newest(0))
    cluster.until(lambda: is_replaced(cluster))
    cluster.until(lambda: before.spec.broker_id in cluster.controller.reign.coordinators.hosts.running())
    assert len([each for each in cluster.coordinators.hosts if each.is_running]) == 3


def test_coordinators_of_groups_begin_anew_with_other_settings_of_the_cluster(cluster: ControlCluster) -> None:
    started(cluster)
    assert cluster.coordinators.newest(0).order.assignors == ()
    cluster.ask(cluster.admin.alter_cluster_settings({"group.assignors": "a.b"}))
    assert cluster.until(lambda: is_replaced(cluster)) < 1.0
    assert cluster.coordinators.newest(0).order.assignors == ("a.b",)
    cluster.ask(cluster.admin.alter_cluster_settings({"group.assignors": "a.b"}))
    cluster.world.run_for(2.0)
    assert is_replaced(cluster), "nothing has changed"


def test_a_stopped_coordinator_is_replaced_and_ends_when_it_goes_on(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    assert before.host.process is not None
    before.host.process.pause(5.0)
    assert cluster.until(lambda: is_replaced(cluster)) < 2.5
    cluster.until(lambda: not before.is_running)


def test_with_its_machine_a_coordinator_moves_to_another(cluster: ControlCluster) -> None:
    started(cluster)
    gone = coordinator(cluster, 1).broker_id
    cluster.machines[gone].crash()
    cluster.until(lambda: coordinator(cluster, 1).epoch >= 1 and coordinator(cluster, 1).is_serving, limit=30.0)
    assert coordinator(cluster, 1).broker_id != gone


def test_a_new_controller_leaves_those_that_live_alone(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.controller_processes[-1].kill()
    kill(cluster.coordinators.newest(2))
    cluster.start_controller()
    cluster.until(lambda: coordinator(cluster, 2).epoch == 1 and coordinator(cluster, 2).is_serving)
    cluster.world.run_for(5.0)
    assert [coordinator(cluster, partition).epoch for partition in range(COORDINATORS)] == [0, 0, 1]


def test_one_that_a_controller_did_not_come_to_start_is_started_by_the_next(cluster: ControlCluster) -> None:
    cluster.coordinators.refuses = True
    ensure(cluster)
    cluster.world.run_for(3.0)
    cluster.controller_processes[-1].kill()
    cluster.coordinators.refuses = False
    cluster.start_controller()
    cluster.until(lambda: all_serve(cluster))


def test_without_a_process_none_is_placed_and_no_epoch_is_spent(cluster: ControlCluster) -> None:
    cluster.coordinators.refuses = True
    ensure(cluster)
    cluster.world.run_for(20.0)
    assert not cluster.brokers[1].state.coordinators
    cluster.coordinators.refuses = False
    cluster.until(lambda: all_serve(cluster))
    assert coordinator(cluster).epoch == 0


def test_one_that_keeps_ending_is_tried_again_ever_more_slowly(cluster: ControlCluster) -> None:
    started(cluster)

    def end() -> None:
        for each in [each for each in cluster.coordinators.all if each.is_running and each.order.partition == 0]:
            each.end("it cannot read its partition")
        if not cluster.controller.reign.coordinators._is_stopped:
            cluster.world.after(0.2, end)

    end()
    cluster.world.run_for(20.0)
    assert 3 < coordinator(cluster).epoch < 15
    cluster.until(lambda: not described(cluster).serving)
    assert described(cluster).reason == "it cannot read its partition"
    assert described(cluster).attempts > 3


def test_until_it_has_replayed_clients_do_not_hear_of_it(cluster: ControlCluster) -> None:
    cluster.coordinators.is_serving = False
    ensure(cluster)
    cluster.until(lambda: len(cluster.coordinators.all) == COORDINATORS)
    cluster.world.run_for(5.0)
    assert not coordinator(cluster).is_serving
    assert coordinator(cluster).epoch == 0
    cluster.coordinators.newest(0).is_serving = True
    cluster.until(lambda: coordinator(cluster).is_serving)


def test_snapshots_hold_coordinators(cluster: ControlCluster) -> None:
    started(cluster)
    copy = ClusterState()
    for record in cluster.state.to_records():
        copy.apply(record, 0)
    assert copy.coordinators == cluster.state.coordinators


def test_before_its_epochs_run_out_a_coordinator_gets_another_producer_id(cluster: ControlCluster) -> None:
    started(cluster)
    state, live = cluster.state, cluster.controller.reign.changes.live
    last = coordinator(cluster)
    state.apply(CoordinatorPlaced(*last.id, last.broker_id, last.producer_id, LAST_EPOCH - 1, -1, 4), 0)
    (placed,) = place_coordinator(state, live, last.id, (1, 2, 3))
    state.apply(placed, 0)
    assert (state.coordinators[last.id].epoch, state.coordinators[last.id].retired_id) == (LAST_EPOCH, -1)
    for record in place_coordinator(state, live, last.id, (1, 2, 3)):
        state.apply(record, 0)
    after = state.coordinators[last.id]
    assert (after.epoch, after.retired_id, after.term) == (0, last.producer_id, 6)
    assert after.producer_id not in {each.producer_id for each in cluster.brokers[1].state.coordinators.values()}


def test_one_that_is_taken_for_lost_gets_no_lease_until_another_is_placed(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    supervisor = cluster.controller.reign.coordinators
    supervisor._lost((before.order.topic_id, 0), "the test says so")
    stream = supervisor.hosts._sessions[before.host.spec.broker_id].stream
    with pytest.raises(StopIteration) as answered:
        supervisor.heartbeat(before.host.heartbeat(), stream).send(None)
    assert before.sign()[:3] in answered.value.value.refused
    cluster.until(lambda: is_replaced(cluster))


def granted_ms(cluster: ControlCluster, stand_in: CoordinatorStandIn) -> int:
    """What a heartbeat of its process is granted now."""
    supervisor = cluster.controller.reign.coordinators
    stream = supervisor.hosts._sessions[stand_in.host.spec.broker_id].stream
    with pytest.raises(StopIteration) as answered:
        supervisor.heartbeat(stand_in.host.heartbeat(), stream).send(None)
    granted: int = answered.value.value.granted_ms
    return granted


def test_under_a_majority_only_may_coordinators_answer_from_memory(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.world.run_for(2.0)
    beside = cluster.coordinators.newest(0)
    assert 700 < granted_ms(cluster, beside) <= 1000 * GRANT_SECONDS
    others = [machine for broker_id, machine in cluster.machines.items() if broker_id != beside.host.spec.broker_id]
    cluster.world.network.partition([cluster.head], others)
    cluster.world.run_for(GRANT_SECONDS)
    assert beside.host.spec.broker_id in cluster.controller.reign.coordinators.hosts.running()
    assert granted_ms(cluster, beside) == 0
    cluster.world.network.heal()
    cluster.until(lambda: granted_ms(cluster, cluster.coordinators.newest(0)) > 0)


def test_one_whose_process_may_live_is_replaced_only_when_its_grant_is_over(cluster: ControlCluster) -> None:
    """Another process says hello for its broker. Nobody knows what has become of the former one."""
    started(cluster)
    cluster.world.run_for(2.0)
    before = cluster.coordinators.newest(0)
    spec = before.host.spec
    other = CoordinatorHostStandIn(spec, cluster.coordinators.all, is_serving=True)
    cluster.coordinators.hosts.append(other)
    other.process = cluster.machines[spec.broker_id].start("another run", other.run, cluster)
    cluster.until(lambda: cluster.controller.reign.coordinators.hosts.run_of(spec.broker_id) == other.run_name)
    assert 0.5 < cluster.until(lambda: is_replaced(cluster)) < GRANT_SECONDS + CLOCKS_APART_SECONDS + 0.3


def test_one_that_ray_takes_for_dead_without_being_sure_is_waited_for(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.world.run_for(2.0)
    before = cluster.coordinators.newest(0)
    cluster.coordinators.refuses = True
    cluster.controller.coordinators_ended(before.host.spec, "")
    assert 0.5 < cluster.until(lambda: is_replaced(cluster)) < GRANT_SECONDS + CLOCKS_APART_SECONDS + 0.3


def test_the_end_of_a_former_process_is_not_that_of_the_present_one(cluster: ControlCluster) -> None:
    started(cluster)
    before = cluster.coordinators.newest(0)
    cluster.controller.coordinators_ended(before.host.spec, "a former run")
    cluster.world.run_for(2.0)
    assert is_replaced(cluster, 0)


def test_one_that_came_up_too_late_is_granted_nothing(cluster: ControlCluster) -> None:
    """It was given up already, and the next one is about to be placed."""
    started(cluster)
    before = cluster.coordinators.newest(0)
    supervisor = cluster.controller.reign.coordinators
    supervisor._watched[before.order.topic_id, 0].is_lost("it was not up in time")
    stream = supervisor.hosts._sessions[before.host.spec.broker_id].stream
    with pytest.raises(StopIteration) as answered:
        supervisor.heartbeat(before.host.heartbeat(), stream).send(None)
    assert before.sign()[:3] in answered.value.value.refused


def test_a_controller_that_reaches_no_broker_looks_for_no_places(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.world.network.isolate(cluster.head)
    cluster.world.run_for(5.0)
    assert not cluster.controller.reign.changes.live.brokers
    assert cluster.controller_processes[-1].is_alive
    assert cluster.controller.is_serving
    cluster.world.network.heal()
    cluster.until(lambda: len(cluster.live_brokers()) == 3)


def test_a_shutdown_ends_them_all_and_waits_for_that(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.ask(cluster.controller.shutdown(), 8.0)
    assert all(each.was_stopped and not each.is_running for each in cluster.coordinators.hosts)


def test_the_controller_alone_says_that_a_topic_is_gone(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.create_topic("clicks")
    question = FindTopicById(cluster.state.topic("clicks").id, cluster.controller.reign.changes.version)
    assert asked_at_a_broker(cluster, question) == TopicFoundById("clicks")
    cluster.ask(cluster.admin.delete_topic("clicks"))
    assert asked_at_a_broker(cluster, question) == TopicFoundById("")
    newer = FindTopicById(b"n" * 16, cluster.controller.reign.changes.version + 1)
    with pytest.raises(ControllerNotReady, match="Another one has taken over"):  # it does not say that it is gone
        cluster.ask(cluster.controller._on_topic_sought(cast(Request, None), newer))


def test_one_that_does_not_come_up_is_described_with_the_reason_and_the_attempts(cluster: ControlCluster) -> None:
    started(cluster)
    assert all(each.serving for each in cluster.admin.describe_cluster().coordinators)
    cluster.coordinators.refuses = True
    for host in cluster.coordinators.hosts:
        assert host.process is not None
        host.process.kill()
    cluster.until(lambda: described(cluster).attempts >= 3, 30.0)
    assert not described(cluster).serving
    assert "the test says so" in described(cluster).reason
    cluster.coordinators.refuses = False
    cluster.until(lambda: described(cluster).serving)
    assert (described(cluster).attempts, described(cluster).reason) == (0, "")


def test_one_whose_partition_has_no_leader_is_not_started_and_says_so(cluster: ControlCluster) -> None:
    started(cluster)
    cluster.openings_fail = True
    for replica in list(cluster.replicas.values()):
        cluster.kill(replica)
    for stand_in in list(cluster.coordinators.all):
        stand_in.end("the test says so")
    cluster.until(lambda: "no leader" in described(cluster).reason)
    before = len(cluster.coordinators.all)
    cluster.world.run_for(5.0)
    assert len(cluster.coordinators.all) == before
    cluster.openings_fail = False
    cluster.until(lambda: all(each.serving for each in cluster.admin.describe_cluster().coordinators), 40.0)


def described(cluster: ControlCluster) -> CoordinatorDescription:
    return cluster.admin.describe_cluster().coordinators[0]


def kill(stand_in: CoordinatorStandIn) -> None:
    """Kill its process, and so all that are in it."""
    assert stand_in.host.process is not None
    stand_in.host.process.kill()

"""A broker with real controllers: its directory, its replicas' processes, and what clients are told."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from dataclasses import replace

import pytest

from raylog.actors.cluster.election.replica_registration import replica_lost
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.controller import sessions
from raylog.actors.kernel.stream_interface import Request
from raylog.actors.protocol.control_messages import (
    EndReplica,
    GetMetadata,
    Metadata,
    RemoveReplica,
    ReplicaLoss,
    StopBroker,
)
from raylog.actors.protocol.host_messages import OWN, HostHello
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.start_messages import ReplicaStart, StartReplicas
from raylog.errors import (
    ControllerNotReady,
    InvalidRequest,
    MessageUnknown,
    MetadataNotReady,
    RaylogError,
    RemoteFailed,
    ReplicaNotFree,
    StaleIncarnation,
    WrongCluster,
)
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.directory.partition_directory import PARTITION_FILE, QUARANTINE_FILE
from raylog.storage.disk.checkpoints import write_checkpoint
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, CLUSTER_ID, DIRECTORY, ControlCluster


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(11, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        world.run_for(2.0)  # by then directories have their first marks, and nothing is recorded unasked
        yield cluster


def refuse(request: Request) -> None:
    raise MessageUnknown(0, 0)


class Client:
    """A process that holds a stream to a broker."""

    def __init__(self, cluster: ControlCluster, broker_id: int) -> None:
        self._cluster = cluster
        self._broker_id = broker_id
        self._process = cluster.head.start("client", self._main)

    async def _main(self, env: SimEnvironment) -> None:
        self._env = env
        await asyncio.sleep(1e6)

    async def _ask(self, message: Message) -> Message:
        endpoint = self._cluster.brokers[self._broker_id].endpoints[-1]
        stream = await self._env.dial(endpoint, "client", refuse)
        try:
            return (await stream.request(message, timeout=40.0)).message
        except RemoteFailed as error:
            raise error.error or error from None

    def begin(self, message: Message) -> asyncio.Task[Message]:
        self._cluster.world.run_for(0.001)
        return self._process.run(self._ask(message))

    def ask(self, message: Message) -> Message:
        """What it answers, or raises."""
        task = self.begin(message)
        self._cluster.until(task.done, 60.0)
        return task.result()

    def metadata(self, *topics: str, newer_than: int = -1, wait_ms: int = 0) -> Metadata:
        answer = self.ask(GetMetadata(topics, newer_than, wait_ms))
        assert isinstance(answer, Metadata)
        return answer


def files_of(cluster: ControlCluster, broker_id: int, part: str = "clicks") -> list[str]:
    return [path for path in cluster.machines[broker_id].disk.files() if part in path]


# --- clients ------------------------------------------------------------------------------------------------------


def test_any_broker_tells_who_leads_and_where(cluster: ControlCluster) -> None:
    cluster.create_topic(replicas=((2, 1, 3),))
    for broker_id in (1, 2, 3):
        metadata = Client(cluster, broker_id).metadata("clicks", "no-such-topic")
        assert metadata.cluster_id == CLUSTER_ID
        ((name, topic_id, partitions, *_),) = metadata.topics
        assert (name, topic_id) == ("clicks", cluster.state.topic("clicks").id)
        assert partitions == ((0, 2, 0, (2, 1, 3), (2, 1, 3), ("unix:/host",), "node-2"),)
        assert [broker.broker_id for broker in metadata.brokers] == [1, 2, 3]


def test_at_one_version_all_brokers_hold_one_state(cluster: ControlCluster) -> None:
    cluster.create_topic(replicas=((1, 2, 3), (2, 3, 1)))
    cluster.kill(cluster.replica(1))
    cluster.world.run_for(5.0)
    first, *others = cluster.brokers.values()
    assert first.is_caught_up
    for other in others:
        assert other.version == first.version
        assert other.state.to_records() == first.state.to_records() == cluster.state.to_records()


def test_a_client_may_wait_for_a_newer_version(cluster: ControlCluster) -> None:
    cluster.create_topic()
    client = Client(cluster, 1)
    version = client.metadata().version
    waiting = client.begin(GetMetadata((), version, 20_000))
    cluster.world.run_for(2.0)
    assert not waiting.done()
    cluster.kill(cluster.replica(1))
    assert cluster.until(waiting.done) < 0.5
    newer = waiting.result()
    assert isinstance(newer, Metadata)
    assert newer.version > version


def test_an_older_version_than_the_one_that_is_waited_for_wakes_nobody(cluster: ControlCluster) -> None:
    """A broker that is a moment behind the others is no reason to leave it."""
    cluster.create_topic()
    client = Client(cluster, 1)
    ahead = client.metadata().version + 1
    waiting = client.begin(GetMetadata((), ahead, 20_000, ahead))
    cluster.kill(cluster.replica(1))
    cluster.until(waiting.done)
    told = waiting.result()
    assert isinstance(told, Metadata)
    assert (told.version > ahead, told.since) == (True, ahead)


def test_a_client_that_waits_in_vain_is_answered_in_time(cluster: ControlCluster) -> None:
    client = Client(cluster, 1)
    version = client.metadata().version
    began = cluster.world.now
    assert client.metadata(newer_than=version, wait_ms=700).version == version
    assert 0.7 <= cluster.world.now - began < 1.0


def test_a_broker_without_a_controller_still_answers_clients(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill_controller()
    cluster.world.run_for(3.0)
    assert [topic.name for topic in Client(cluster, 3).metadata().topics] == ["clicks"]


def test_a_broker_tells_clients_nothing_before_a_controller_has_told_it_all(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill_controller()
    cluster.processes[3].kill()
    cluster.start_broker(3)
    cluster.world.run_for(2.0)
    client = Client(cluster, 3)
    with pytest.raises(MetadataNotReady, match="Broker 3"):
        client.metadata()
    began = cluster.world.now
    with pytest.raises(MetadataNotReady):
        client.metadata(wait_ms=700)
    assert 0.7 <= cluster.world.now - began < 1.0
    waiting = client.begin(GetMetadata(("clicks",), -1, 20_000))
    cluster.world.run_for(0.1)
    cluster.start_controller()
    cluster.until(waiting.done)
    told = waiting.result()
    assert isinstance(told, Metadata)
    assert [topic.name for topic in told.topics] == ["clicks"]
    assert told.version == cluster.brokers[3].version


def test_a_stranger_to_the_controller_gives_no_orders(cluster: ControlCluster) -> None:
    cluster.create_topic()
    topic_id = cluster.state.topic("clicks").id
    client = Client(cluster, 1)
    orders: tuple[Message, ...] = (
        StartReplicas((ReplicaStart("clicks", topic_id, 0, 1 << 60, ()),)),
        EndReplica(topic_id, 0, 1 << 60),
        RemoveReplica("clicks", topic_id, 0),
        StopBroker(),
    )
    for order in orders:
        with pytest.raises(ControllerNotReady):
            client.ask(order)
    assert not cluster.replica(1).is_stopped


def test_what_a_broker_does_not_know_is_refused_as_such(cluster: ControlCluster) -> None:
    with pytest.raises(MessageUnknown):
        Client(cluster, 1).ask(Done())


# --- processes ----------------------------------------------------------------------------------------------------


def test_only_a_replica_that_said_hello_may_propose(cluster: ControlCluster) -> None:
    cluster.create_topic()
    leader = cluster.leader()
    assert leader.process is not None

    async def propose_over_another_stream(env: SimEnvironment) -> None:
        stream = await env.dial(leader.host.spec.broker, "replica", refuse)
        await stream.request(leader.proposal((1, 2)), timeout=3.0)

    task = leader.process.run(propose_over_another_stream(leader.process.environment))
    cluster.until(task.done)
    error = task.exception()
    assert isinstance(error, RemoteFailed)
    assert isinstance(error.error, InvalidRequest)


def test_of_two_incarnations_of_one_replica_the_later_counts(cluster: ControlCluster) -> None:
    """An older one that was held up says hello after the later one: it is refused, and ended."""
    cluster.create_topic()
    present = cluster.replica(2)
    refusals: list[RaylogError | None] = []

    async def main(env: SimEnvironment) -> None:
        stream = await env.dial(present.host.spec.broker, "replica", refuse)
        await stream.request(HostHello(1, pids[0], ("unix:/older",), OWN), timeout=2.0)
        try:
            await stream.request(replace(present.hello(), incarnation=1), timeout=2.0)
        except RemoteFailed as error:
            refusals.append(error.error)
        await asyncio.sleep(1e6)

    process = cluster.machines[2].start("older", main)
    pids = [process.pid]
    cluster.until(lambda: not process.is_alive)
    assert isinstance(refusals[0], StaleIncarnation)
    assert cluster.replica(2) is present
    assert present.process is not None
    assert present.process.is_alive


def test_a_process_that_holds_the_directory_is_killed_for_its_successor(cluster: ControlCluster) -> None:
    """It never said hello, so only the lock tells of it."""
    cluster.create_topic()
    path = cluster.replica(3).spec.directory
    cluster.openings_fail = True
    cluster.kill(cluster.replica(3))
    cluster.world.run_for(0.2)

    async def hold(env: SimEnvironment) -> None:
        env.disk.lock_directory(path)
        await asyncio.sleep(1e6)

    holder = cluster.machines[3].start("holder", hold)
    cluster.openings_fail = False
    cluster.until(lambda: not holder.is_alive)
    cluster.until(lambda: cluster.is_assigned("clicks", 0))


def test_a_report_is_repeated_until_a_controller_has_heard_it(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.controller_processes[-1].pause(1.2)
    cluster.kill(cluster.replica(1))
    cluster.world.run_for(0.5)
    cluster.kill_controller()
    cluster.start_controller()
    cluster.until(lambda: cluster.serves() and cluster.partition().leader == 2)


def test_a_loss_is_told_once_while_the_controller_cannot_commit_it(
    cluster: ControlCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It decides on each loss that it is told, and a thousand at once take it a quarter of a second."""
    cluster.create_topic()
    told: list[ReplicaLoss] = []

    def count(state: ClusterState, live: Liveness, broker_id: int, loss: ReplicaLoss) -> list[Message]:
        told.append(loss)
        return replica_lost(state, live, broker_id, loss)

    monkeypatch.setattr(sessions, "replica_lost", count)
    for broker_id in (2, 3):
        cluster.processes[broker_id].pause(1.2)
    cluster.kill(cluster.replica(1))
    cluster.world.run_for(1.0)
    assert len(told) == 1
    cluster.until(lambda: cluster.partition().leader == 2 and cluster.is_assigned("clicks", 0))


# --- the directory ------------------------------------------------------------------------------------------------


def test_a_quarantined_replica_is_set_aside_and_begins_anew(cluster: ControlCluster) -> None:
    cluster.create_topic()
    replica = cluster.replica(3)
    cluster.machines[3].disk.write_file(f"{replica.spec.directory}/{QUARANTINE_FILE}", b"damaged")
    cluster.kill(replica)
    cluster.until(lambda: cluster.replica(3) is not replica and cluster.is_assigned("clicks", 0))
    kept = [path for path in files_of(cluster, 3) if QUARANTINE_FILE in path]
    assert len(kept) == 1
    assert kept[0].startswith(f"{DIRECTORY}/clicks-0@set-aside-")


def aside_of(cluster: ControlCluster, broker_id: int) -> list[str]:
    return [path for path in files_of(cluster, broker_id) if QUARANTINE_FILE in path]


def damage(cluster: ControlCluster, broker_id: int) -> None:
    """Its log has to be fetched anew."""
    replica = cluster.replica(broker_id)
    cluster.machines[broker_id].disk.write_file(f"{replica.spec.directory}/{QUARANTINE_FILE}", b"damaged")
    cluster.kill(replica)
    cluster.until(lambda: cluster.replica(broker_id) is not replica and cluster.is_assigned("clicks", 0))


def test_of_a_replica_that_is_damaged_again_and_again_all_is_kept(cluster: ControlCluster) -> None:
    cluster.create_topic()
    for number in range(4):
        damage(cluster, 3)
        cluster.until(lambda number=number: len(aside_of(cluster, 3)) == number + 1)
    assert not [path for path in files_of(cluster, 3) if "@removed-" in path]


def test_what_is_left_of_an_earlier_topic_of_that_name_makes_room(cluster: ControlCluster) -> None:
    disk = cluster.machines[2].disk
    disk.make_directory(f"{DIRECTORY}/clicks-0")
    write_checkpoint(disk, f"{DIRECTORY}/clicks-0/{PARTITION_FILE}", 1, {"topic_id": "ab" * 16})
    disk.write_file(f"{DIRECTORY}/clicks-0/00000000000000000000.log", b"old")
    cluster.create_topic()
    assert not [path for path in files_of(cluster, 2) if path == f"{DIRECTORY}/clicks-0/00000000000000000000.log"]


def test_a_replica_that_the_state_wants_is_not_removed(cluster: ControlCluster) -> None:
    cluster.create_topic()
    orders = cluster.brokers[2]._orders
    order = RemoveReplica("clicks", cluster.state.topic("clicks").id, 0)
    task = cluster.processes[2].run(orders.remove(order))
    cluster.until(task.done)
    assert isinstance(task.exception(), ReplicaNotFree)
    assert not cluster.replica(2).is_stopped


def test_a_directory_that_nobody_knows_is_left_alone(cluster: ControlCluster, caplog: pytest.LogCaptureFixture) -> None:
    cluster.processes[2].kill()
    disk = cluster.machines[2].disk
    disk.make_directory(f"{DIRECTORY}/strange-7")
    write_checkpoint(disk, f"{DIRECTORY}/strange-7/{PARTITION_FILE}", 1, {"topic_id": "cd" * 16})
    with caplog.at_level(logging.WARNING):
        cluster.start_broker(2)
        cluster.world.run_for(3.0)
    assert "Nobody knows of strange-7" in caplog.text
    assert files_of(cluster, 2, "strange-7")


def test_a_removal_that_was_interrupted_is_finished_at_the_next_start(cluster: ControlCluster) -> None:
    cluster.processes[2].kill()
    disk = cluster.machines[2].disk
    disk.make_directory(f"{DIRECTORY}/clicks-0@removed-5")
    disk.write_file(f"{DIRECTORY}/clicks-0@removed-5/{PARTITION_FILE}", b"x")
    cluster.start_broker(2)
    cluster.until(lambda: not files_of(cluster, 2))


def test_a_broker_remembers_nothing_of_a_topic_that_is_gone(cluster: ControlCluster) -> None:
    cluster.create_topic()
    cluster.kill(cluster.replica(2))
    cluster.until(lambda: bool(cluster.brokers[2]._replicas._ended))
    cluster.until(lambda: cluster.is_assigned("clicks", 0))
    cluster.ask(cluster.admin.delete_topic("clicks"))
    cluster.until(lambda: not cluster.state.deleted)
    for broker in cluster.brokers.values():
        assert not broker._replicas._ended
        assert not broker._orders._turns
        assert not broker._orders._prepared


def test_a_directory_of_another_cluster_is_refused() -> None:
    with World(1, settings=CALM) as world:
        cluster = ControlCluster(world, brokers=1)
        disk = cluster.machines[1].disk
        DataDirectory.open(DIRECTORY, BrokerIdentity("another", 1), disk, claim=Claim("d")).close()
        cluster.start_broker(1)
        with pytest.raises(AssertionError, match=WrongCluster.__name__):
            world.run_for(1.0)
        world.failures.clear()

"""Several replicas in one process: each opens, fails and ends by itself, and they end together (rule 35)."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream
from raylog.actors.protocol.control_messages import NO_LEADER, Assign, ReplicaAddress
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import (
    OWN,
    SHARED,
    SPARE,
    HostHeartbeat,
    HostHello,
    OpenReplicas,
    ReplicaFailed,
    ReplicaHello,
    ReplicaToOpen,
    StopHost,
    StopReplica,
)
from raylog.actors.protocol.messages import NO_PARTITION, NO_TOPIC, Message
from raylog.actors.protocol.replica_spec import HostSpec
from raylog.actors.protocol.replication_messages import NO_EPOCH, Append, Appended, Fetch
from raylog.actors.replica.host import ReplicaHost
from raylog.actors.replica.hosted_log import HostedLog
from raylog.errors import MessageUnknown, NotLeader, RaylogError, RemoteFailed
from raylog.storage.directory.partition_directory import CLEAN_SHUTDOWN_FILE
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.log.flushing import Checkpoint
from raylog.storage.log.job import Job
from tests.simulator.clients.clients import refuse
from tests.simulator.world.machines import Machine, Process
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM

TOPIC_ID = b"sixteen bytes id"


def openings(*partitions: int, incarnation: int = 1, room: str = SHARED) -> OpenReplicas:
    rows = (ReplicaToOpen("topic", TOPIC_ID, each, incarnation, (), f"/data/topic-{each}") for each in partitions)
    return OpenReplicas(room, tuple(rows))


@dataclass
class HostWorld:
    """A machine with a host on it, and a scripted broker."""

    world: World
    machine: Machine = field(init=False)
    broker: Process = field(init=False)
    host: Process = field(init=False)
    core: ReplicaHost | None = None
    broker_endpoint: Endpoint | None = None
    stream: Stream | None = None
    host_hellos: list[HostHello] = field(default_factory=list)
    hellos: dict[tuple[int, int], ReplicaHello] = field(default_factory=dict)  # by partition and incarnation
    failures: list[ReplicaFailed] = field(default_factory=list)
    beats: list[HostHeartbeat] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.machine = self.world.add_machine("machine")
        self.start_broker()
        self.host = self.machine.start("host", self._host_main)
        self.until(lambda: self.stream is not None)

    def start_broker(self) -> None:
        self.broker_endpoint, self.stream = None, None
        self.broker = self.machine.start("broker", self._broker_main)
        self.until(lambda: self.broker_endpoint is not None)

    async def _broker_main(self, env: Environment) -> None:
        _, endpoints = await env.listen("broker", "broker", self._take)
        self.broker_endpoint = endpoints[0]
        await asyncio.Event().wait()

    def _take(self, request: Request) -> Answer:
        message = request.message
        if isinstance(message, HostHello):
            self.host_hellos.append(message)
            self.stream = request.stream
        elif isinstance(message, ReplicaHello):
            self.hellos[message.partition, message.incarnation] = message
        elif isinstance(message, ReplicaFailed):
            self.failures.append(message)
        elif isinstance(message, HostHeartbeat):
            self.beats.append(message)
        return None

    async def _host_main(self, env: Environment) -> None:
        assert self.broker_endpoint is not None
        self.core = ReplicaHost(env, HostSpec("cluster", 1, 77, "node", self.broker_endpoint), self.host_pid())
        await self.core.run()

    def host_pid(self) -> int:
        return 4711

    # --- orders ---------------------------------------------------------------------------------------------------

    def ask_host(self, message: Message, seconds: float = 5.0) -> asyncio.Task[Response]:
        async def ask() -> Response:
            assert self.stream is not None
            return await self.stream.request(message, timeout=seconds)

        return self.broker.run(ask())

    def order(self, message: Message) -> None:
        task = self.ask_host(message)
        self.until(task.done)
        task.result()

    def open(self, *partitions: int, incarnation: int = 1, room: str = SHARED) -> None:
        for partition in partitions:
            self.order(openings(partition, incarnation=incarnation, room=room))
        self.until(lambda: all((each, incarnation) in self.hellos for each in partitions))

    def lead(self, *partitions: int, incarnation: int = 1) -> None:
        endpoints = self.host_hellos[-1].endpoints
        for partition in partitions:
            me, address = (1, incarnation), ReplicaAddress(1, incarnation, endpoints)
            version = epoch = incarnation
            self.order(Assign("topic", TOPIC_ID, partition, version, 1, epoch, 0, (me,), (address,), 1, (), 1))

    # --- a client -------------------------------------------------------------------------------------------------

    def ask(
        self, message: Message, partition: int, payload: bytes = b"", topic_id: bytes = TOPIC_ID
    ) -> Response | RaylogError:
        client = self.world.add_machine(f"client-{len(self.world.machines)}").start("client", _idle)

        async def ask() -> Response:
            endpoint = Endpoint.parse(self.host_hellos[-1].endpoints[-1])
            stream = await client.environment.dial(endpoint, "client", refuse)
            return await stream.request(message, payload, topic_id=topic_id, partition=partition, timeout=5.0)

        task = client.run(ask())
        self.until(task.done)
        error = task.exception()
        if isinstance(error, RemoteFailed) and error.error is not None:
            return error.error
        return task.result()

    def append(self, partition: int, value: bytes = b"value") -> int | RaylogError:
        answer = self.ask(Append(NO_EPOCH, -1, 1_000), partition, bytes(encode_batch([value], timestamps=1)))
        if isinstance(answer, RaylogError):
            return answer
        assert isinstance(answer.message, Appended)
        return answer.message.base_offset

    def until(self, predicate: Callable[[], object], limit: float = 20.0) -> None:
        assert self.world.run_until_idle_or(lambda: bool(predicate()), limit), "it did not happen in time"


async def _idle(_: Environment) -> None:
    await asyncio.Event().wait()


@pytest.fixture
def it() -> Iterator[HostWorld]:
    with World(5, settings=CALM) as world:
        yield HostWorld(world)


def test_requests_go_to_the_replica_that_they_name(it: HostWorld) -> None:
    it.open(0, 1, 2)
    it.lead(0, 2)
    assert [it.append(0), it.append(0), it.append(2)] == [0, 1, 0]
    waiting, absent = it.append(1), it.append(7)
    assert isinstance(waiting, NotLeader)
    assert isinstance(absent, NotLeader)
    assert (absent.leader, absent.partition) == (NO_LEADER, 7)
    fetch = Fetch(0, NO_EPOCH, -1, 1, 1 << 20, 0, False, "")
    assert isinstance(it.ask(fetch, NO_PARTITION, topic_id=NO_TOPIC), MessageUnknown)


def test_a_replica_that_was_stopped_can_be_opened_again_at_once_in_the_same_process(it: HostWorld) -> None:
    it.open(0, 1)
    it.lead(0, 1)
    assert it.append(0) == 0
    it.order(StopReplica(TOPIC_ID, 0, 1))
    assert isinstance(it.append(0), NotLeader)
    it.open(0, incarnation=2)
    assert it.hellos[0, 2].log_end_offset == 1
    it.lead(0, incarnation=2)
    assert [it.append(0), it.append(1)] == [1, 0]
    assert it.failures == []


@pytest.mark.parametrize("is_kept", [True, False])
def test_only_a_log_that_is_kept_is_closed_cleanly(it: HostWorld, is_kept: bool) -> None:
    """To sync what is then removed would take seconds for a large log, and the time of its host."""
    it.open(0, 1)
    it.lead(0, 1)
    it.append(0)
    it.order(StopReplica(TOPIC_ID, 0, 1, is_kept))
    assert it.machine.disk.new_process().exists(f"/data/topic-0/{CLEAN_SHUTDOWN_FILE}") == is_kept
    it.open(0, incarnation=2)
    assert it.hellos[0, 2].log_end_offset == 1


def test_an_order_for_an_earlier_incarnation_means_nothing(it: HostWorld) -> None:
    it.open(0, incarnation=5)
    it.lead(0, incarnation=5)
    it.order(StopReplica(TOPIC_ID, 0, 4))
    it.order(StopReplica(TOPIC_ID, 9, 5))
    assert it.append(0) == 0


def test_one_that_fails_leaves_the_others_alone(it: HostWorld) -> None:
    it.open(0, 1)
    it.lead(0, 1)
    it.machine.fail_disk("", "/topic-0/", seconds=3.0)
    it.append(0)
    it.until(lambda: it.failures)
    assert [(each.partition, each.incarnation, each.error) for each in it.failures] == [(0, 1, "DiskFailed")]
    assert it.append(1) == 0
    it.until(lambda: it.core is not None and len(it.core.hosted()) == 1)
    assert it.host.is_alive


def test_one_that_cannot_be_opened_says_so_and_can_be_tried_again(it: HostWorld) -> None:
    it.open(1)
    it.machine.fail_disk("", "/topic-0/", seconds=1.0)
    it.order(openings(0))
    it.until(lambda: it.failures)
    it.world.run_for(2.0)
    it.open(0, incarnation=2)
    assert (0, 1) not in it.hellos


def test_a_host_of_one_ends_with_its_replica_and_a_shared_one_stays(it: HostWorld) -> None:
    assert it.host_hellos[0].room == SPARE
    it.open(0, room=OWN)
    it.order(StopReplica(TOPIC_ID, 0, 1))
    it.until(lambda: not it.host.is_alive)


def test_a_shared_host_stays_without_any(it: HostWorld) -> None:
    it.open(0)
    it.order(StopReplica(TOPIC_ID, 0, 1))
    it.world.run_for(5.0)
    assert it.host.is_alive


def test_all_logs_are_closed_before_the_order_to_end_is_answered(it: HostWorld) -> None:
    it.open(0, 1, 2)
    it.lead(0, 1, 2)
    for partition in (0, 1, 2):
        it.append(partition)
    it.order(StopHost())
    disk = it.machine.disk.new_process()
    for partition in (0, 1, 2):
        disk.lock_directory(f"/data/topic-{partition}").release()
    it.until(lambda: not it.host.is_alive)


def test_a_new_broker_hears_of_all_that_run_and_of_who_failed_meanwhile(it: HostWorld) -> None:
    it.open(0, 1, 2)
    it.lead(0, 1, 2)
    it.broker.kill()
    it.machine.fail_disk("", "/topic-2/", seconds=2.0)
    it.append(2)
    it.world.run_for(1.0)
    it.hellos.clear()
    it.start_broker()
    it.until(lambda: len(it.hellos) == 2 and it.failures)
    assert set(it.hellos) == {(0, 1), (1, 1)}
    assert it.host_hellos[-1].room == SHARED
    assert [each.partition for each in it.failures] == [2]
    assert it.append(0) == 0


def test_a_heartbeat_tells_only_what_has_changed(it: HostWorld) -> None:
    it.open(0, 1)
    it.lead(0, 1)
    it.world.run_for(2.0)
    it.beats.clear()
    it.world.run_for(2.0)
    assert len(it.beats) >= 5
    assert not any(each.marks for each in it.beats)
    it.append(1)
    it.world.run_for(1.0)
    assert {marks.partition for each in it.beats for marks in each.marks} == {1}


def test_the_lock_goes_after_the_last_work_on_the_files(it: HostWorld) -> None:
    """A thread that still works when its replica is stopped would write into what the next one has opened."""
    it.open(0)
    it.lead(0)
    assert it.core is not None
    (replica,) = it.core.hosted()
    hosted = replica._hosted
    assert hosted is not None
    it.machine.slow_disk(200.0)
    seen: list[bool] = []

    def work() -> None:
        """As a truncation: it has to come before the next opening."""
        seen.append((0, 2) not in it.hellos and replica.over.done())

    async def begin() -> None:
        hosted.off_loop(work)

    it.host.run(begin())
    it.world.run_for(0.001)
    stopping = it.ask_host(StopReplica(TOPIC_ID, 0, 1), 300.0)
    it.until(lambda: seen, 30.0)
    assert seen == [False]
    it.machine.slow_disk(1.0)
    it.until(stopping.done, 300.0)
    assert replica.over.done()
    it.open(0, incarnation=2)


def test_few_checkpoints_of_a_host_are_written_at_once_and_all_in_the_end(it: HostWorld) -> None:
    """A thousand of them stood before the epochs of new leaders in the queue for the disk's threads."""
    partitions = range(8)
    it.open(*partitions)
    it.lead(*partitions)
    assert it.core is not None
    under_way, most, written = 0, 0, set()

    def watch(hosted: HostedLog) -> None:
        carry_out = hosted.carry_out

        async def counted(job: Job[Any]) -> Any:
            nonlocal under_way, most
            if not isinstance(job, Checkpoint):
                return await carry_out(job)
            under_way += 1
            most = max(most, under_way)
            await asyncio.sleep(0.5)  # as a busy disk does
            done = await carry_out(job)
            under_way -= 1
            written.add(hosted.name.partition)
            return done

        hosted.carry_out = counted  # type: ignore[method-assign]

    for replica in it.core.hosted():
        assert replica._hosted is not None
        watch(replica._hosted)
    for partition in partitions:
        assert it.append(partition) == 0
    it.until(lambda: written == set(partitions), 60.0)
    assert most == 2

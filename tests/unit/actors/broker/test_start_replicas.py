"""Starts of many replicas in one message: their directories, their hosts, and what one of them may spoil (rule 26)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from itertools import chain

import pytest

from raylog.actors.broker.replica_hosts import ReplicaOrder
from raylog.actors.kernel.stream_interface import Request, Response
from raylog.actors.protocol.host_messages import OWN, SHARED, OpenReplicas
from raylog.actors.protocol.start_messages import ReplicaStart, StartReplicas, StartsUnderWay, StartUnderWay
from raylog.storage.directory.partition_directory import PARTITION_FILE, QUARANTINE_FILE
from raylog.storage.disk.checkpoints import write_checkpoint
from tests.simulator.world.machines import Machine, SimEnvironment
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, DIRECTORY, ControlCluster, HostStandIn

TOPIC_ID = b"sixteen bytes id"
INCARNATION = 1 << 60
MANY = 60


def start(partition: int, room: str = SHARED, *, incarnation: int = INCARNATION) -> ReplicaStart:
    return ReplicaStart("clicks", TOPIC_ID, partition, incarnation, (("replica.host", room),))


def path(partition: int) -> str:
    return f"{DIRECTORY}/clicks-{partition}"


def refusals(outcomes: Sequence[StartUnderWay]) -> dict[int, str]:
    """Return the names of the errors, by the place in the message."""
    return {number: each.refused.name for number, each in enumerate(outcomes) if each.refused is not None}


class OneBroker:
    """A broker with a shared host that has one replica, and with a spare one. Its controller orders what a test says.

    No host says that it has opened a replica: the controller would have it ended, for no record wants it.
    """

    def __init__(self, world: World) -> None:
        self.cluster = ControlCluster(world)
        self.cluster.form()
        self.cluster.openings_hang = True
        self.machine: Machine = self.cluster.machines[1]
        self.operations: list[tuple[str, str]] = []  # of all processes on the disk of the broker
        self.openings: list[list[int]] = []  # partitions of each message to a host
        self.start(start(1_000))
        self.cluster.until(self.cluster.has_spare_hosts)
        self.openings.clear()
        self._watch_disk()

    def _watch_disk(self) -> None:
        check = self.machine.check_disk

        def seen(operation: str, where: str) -> None:
            self.operations.append((operation, where))
            check(operation, where)

        self.machine.check_disk = seen  # type: ignore[method-assign, assignment]

    def begin(self, *starts: ReplicaStart) -> asyncio.Task[Response]:
        session = self.cluster.controller.reign.sessions.get(1)
        assert session is not None
        stream = session.stream

        async def ask() -> Response:
            return await stream.request(StartReplicas(starts), timeout=8.0)

        return self.cluster.controller_processes[-1].run(ask())

    def outcomes(self, asked: asyncio.Task[Response]) -> tuple[StartUnderWay, ...]:
        self.cluster.until(asked.done)
        answer = asked.result().message
        assert isinstance(answer, StartsUnderWay)
        return answer.outcomes

    def start(self, *starts: ReplicaStart) -> tuple[StartUnderWay, ...]:
        return self.outcomes(self.begin(*starts))

    @property
    def opened(self) -> set[int]:
        """Return the partitions that hosts were told to open."""
        return set(chain.from_iterable(self.openings))

    def syncs(self) -> int:
        return self.operations.count(("sync_directory", DIRECTORY))

    def names(self) -> set[str]:
        return {name for name in self.machine.disk.list_directory(DIRECTORY) if name.startswith("clicks-")}


@pytest.fixture
def it(monkeypatch: pytest.MonkeyPatch) -> Iterator[OneBroker]:
    with World(11, settings=CALM) as world:
        openings: list[list[int]] = []
        handle = HostStandIn._handle

        def seen(host: HostStandIn, env: SimEnvironment, request: Request) -> object:
            if isinstance(request.message, OpenReplicas):
                openings.append([each.partition for each in request.message.replicas])
            return handle(host, env, request)

        monkeypatch.setattr(HostStandIn, "_handle", seen)
        broker = OneBroker(world)
        broker.openings = openings
        openings.clear()
        yield broker


def test_many_are_one_sync_and_one_message_to_their_host(it: OneBroker) -> None:
    outcomes = it.start(*(start(number) for number in range(MANY)))
    assert outcomes == (StartUnderWay(True),) * MANY
    it.cluster.until(lambda: bool(it.openings), 1.0)
    assert it.openings == [list(range(MANY))]
    assert it.syncs() == 1


def test_outcomes_are_in_the_order_of_the_starts(it: OneBroker) -> None:
    """Whatever takes longer: some need a process of their own, one an old lock, and one has a copy set aside."""
    it.machine.disk.make_directory(path(4))
    lock = it.machine.disk.new_process().lock_directory(path(4))
    it.cluster.world.after(0.5, lock.release)
    partitions = [9, 4, 3, 8, 1, 2]
    outcomes = it.start(*(start(number, OWN if number % 2 else SHARED) for number in partitions))
    assert [each.has_place for each in outcomes] == [False, True, False, True, False, True]
    assert refusals(outcomes) == {}


def test_directories_that_were_made_together_survive_a_power_cut(it: OneBroker) -> None:
    for host in it.cluster.hosts:  # what a host syncs in them would make their names durable too
        if host.process is not None:
            host.process.pause()
    it.start(*(start(number) for number in range(MANY)))
    it.machine.crash()
    assert it.names() >= {f"clicks-{number}" for number in range(MANY)}


def test_where_their_names_cannot_be_synced_all_are_refused_and_none_is_opened(it: OneBroker) -> None:
    it.machine.fail_disk("sync_directory", DIRECTORY, seconds=0.5)
    outcomes = it.start(*(start(number) for number in range(4)))
    assert refusals(outcomes) == dict.fromkeys(range(4), "DiskFailed")
    it.cluster.world.run_for(1.0)
    assert it.opened == set()
    assert refusals(it.start(*(start(number) for number in range(4)))) == {}


def test_a_directory_in_use_fails_alone_and_the_others_do_not_wait_for_it(it: OneBroker) -> None:
    it.machine.disk.make_directory(path(3))
    lock = it.machine.disk.new_process().lock_directory(path(3))
    asked = it.begin(*(start(number) for number in range(8)))
    it.cluster.until(lambda: len(it.opened) == 7, 1.0)
    assert not asked.done()
    outcomes = it.outcomes(asked)
    assert refusals(outcomes) == {3: "ReplicaNotFree"}
    assert [each.has_place for each in outcomes] == [number != 3 for number in range(8)]
    assert it.opened == {*range(8)} - {3}
    lock.release()
    assert it.start(start(3, incarnation=INCARNATION + 1)) == (StartUnderWay(True),)


def test_a_disk_that_fails_for_one_directory_fails_that_start_alone(it: OneBroker) -> None:
    it.machine.fail_disk("make_directory", path(2), seconds=0.5)
    assert refusals(it.start(*(start(number) for number in range(5)))) == {2: "DiskFailed"}
    it.cluster.until(lambda: it.opened == {0, 1, 3, 4}, 1.0)


def test_a_quarantined_directory_is_set_aside_alone_under_its_lock(it: OneBroker) -> None:
    disk = it.machine.disk
    for number in range(4):
        disk.make_directory(path(number))
        write_checkpoint(disk, f"{path(number)}/{PARTITION_FILE}", 1, {"topic_id": TOPIC_ID.hex()})
    disk.write_file(f"{path(2)}/{QUARANTINE_FILE}", b"damaged")
    assert refusals(it.start(*(start(number) for number in range(5)))) == {}
    aside = {name for name in it.names() if "@" in name}
    assert [name.partition("@set-aside-")[0] for name in aside] == ["clicks-2"]
    assert it.names() - aside >= {f"clicks-{number}" for number in range(5)}
    moves = [each for each in it.operations if each[0] in ("lock_directory", "rename")]
    moves = [each for each in moves if each[1].startswith(path(2))]
    assert [operation for operation, _ in moves[:2]] == ["lock_directory", "rename"]


def test_an_older_incarnation_is_refused_alone(it: OneBroker) -> None:
    starts = start(0), start(1), start(0, incarnation=INCARNATION - 1), start(2), start(1)
    outcomes = it.start(*starts)
    assert refusals(outcomes) == {2: "StaleIncarnation"}
    refused = outcomes[2].refused
    assert refused is not None
    assert refused.arguments == ("clicks", 0, 1, INCARNATION - 1, INCARNATION)
    it.cluster.until(lambda: bool(it.openings), 1.0)
    assert it.openings == [[0, 1, 2]]  # what is asked for twice is opened once


def test_of_two_incarnations_in_a_message_the_newest_runs(it: OneBroker) -> None:
    assert refusals(it.start(start(0), start(1), start(0, incarnation=INCARNATION + 1))) == {}
    partition = TOPIC_ID, 0
    hosts = it.cluster.brokers[1]._replicas.hosts
    assert hosts.present(partition) == INCARNATION + 1
    it.cluster.until(lambda: sum(each.count(0) for each in it.openings) == 2, 2.0)
    opened = [each.spec for each in it.cluster.stand_ins if each.spec.id == partition]
    assert [each.incarnation for each in opened] == [INCARNATION, INCARNATION + 1]


def test_a_host_that_is_lost_in_the_turn_of_its_orders_is_told_nothing(it: OneBroker) -> None:
    hosts = it.cluster.brokers[1]._replicas.hosts
    holder = hosts.holding((TOPIC_ID, 1_000))
    assert holder is not None

    async def open_and_lose() -> None:
        for number in range(3):
            hosts.open(ReplicaOrder("clicks", TOPIC_ID, number, INCARNATION, (), path(number), SHARED, False))
        assert all(hosts.holding((TOPIC_ID, number)) is holder for number in range(3))
        hosts.kill(holder, "the test says so")

    task = it.cluster.processes[1].run(open_and_lose())
    it.cluster.until(task.done)
    task.result()
    it.cluster.world.run_for(1.0)
    assert it.opened == set()
    assert [hosts.present((TOPIC_ID, number)) for number in range(3)] == [None] * 3
    assert refusals(it.start(*(start(number, incarnation=INCARNATION + 1) for number in range(3)))) == {}
    it.cluster.until(lambda: it.opened == {0, 1, 2}, 2.0)


def test_a_host_that_dies_of_many_openings_gives_them_all_up(it: OneBroker) -> None:
    it.start(*(start(number) for number in range(MANY)))
    hosts = it.cluster.brokers[1]._replicas.hosts
    holder = hosts.holding((TOPIC_ID, 0))
    assert holder is not None
    it.cluster.until(lambda: len(it.opened) == MANY, 1.0)
    process = next(each.process for each in it.cluster.hosts if each.spec.incarnation == holder.incarnation)
    assert process is not None
    process.kill()
    it.cluster.until(lambda: all(hosts.present((TOPIC_ID, number)) is None for number in range(MANY)), 1.0)
    again = it.start(*(start(number, incarnation=INCARNATION + 1) for number in range(MANY)))
    assert refusals(again) == {}
    it.cluster.until(lambda: all(hosts.has_place((TOPIC_ID, number)) for number in range(MANY)), 5.0)

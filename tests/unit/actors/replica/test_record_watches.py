"""A watch over many partitions of a host: told once, of what there is to read and of what is not led there."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator

import pytest

from raylog.actors.kernel.stream_interface import Response, Stream
from raylog.actors.protocol.control_messages import Assign, ReplicaAddress
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.host_messages import StopReplica
from raylog.actors.protocol.replication_messages import RecordsArrived, WatchedPartition, WatchRecords
from raylog.errors import RaylogError, RemoteFailed, TooManyWatches
from tests.simulator.clients.clients import refuse
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM
from tests.unit.actors.replica.test_host import TOPIC_ID, HostWorld


class Watcher:
    """A client with one stream to the host."""

    def __init__(self, it: HostWorld) -> None:
        self.it = it
        self.client: Process = it.world.add_machine("watcher").start("client", self._idle)
        self.stream: Stream | None = None
        dialled = self.client.run(self._dial())
        it.until(dialled.done)
        dialled.result()

    async def _idle(self, _: object) -> None:
        await asyncio.Event().wait()

    async def _dial(self) -> None:
        endpoint = Endpoint.parse(self.it.host_hellos[-1].endpoints[-1])
        self.stream = await self.client.environment.dial(endpoint, "client", refuse)

    def ask(self, message: WatchRecords) -> asyncio.Task[Response]:
        async def ask() -> Response:
            assert self.stream is not None
            return await self.stream.request(message, timeout=60.0)

        return self.client.run(ask())

    def watch(
        self, *added: tuple[int, int], removed: tuple[int, ...] = (), number: int = 1, epoch: int = 1,
        wait_ms: int = 10_000,
    ) -> asyncio.Task[Response]:  # fmt: skip
        """Begin to wait for these (partition, offset)."""
        partitions = tuple(WatchedPartition(TOPIC_ID, partition, epoch, offset) for partition, offset in added)
        gone = tuple((TOPIC_ID, each) for each in removed)
        task = self.ask(WatchRecords(number, partitions, gone, False, wait_ms))
        self.it.world.run_for(0.05)
        return task

    def told(self, task: asyncio.Task[Response]) -> list[int]:
        self.it.until(task.done)
        message = task.result().message
        assert isinstance(message, RecordsArrived)
        return [partition for _, partition in message.partitions]


@pytest.fixture
def it() -> Iterator[HostWorld]:
    with World(5, settings=CALM) as world:
        found = HostWorld(world)
        found.open(0, 1, 2)
        found.lead(0, 1, 2)
        found.world.run_for(1.0)
        yield found


def test_what_arrives_is_told_once(it: HostWorld) -> None:
    watcher = Watcher(it)
    waiting = watcher.watch((0, 0), (1, 0), (2, 0))
    assert not waiting.done()
    it.append(1)
    assert watcher.told(waiting) == [1]
    again = watcher.watch()
    it.append(1)
    it.world.run_for(1.0)
    assert not again.done()
    it.append(0)
    assert watcher.told(again) == [0]
    assert watcher.told(watcher.watch((0, 0))) == [0]  # it is there already


def test_what_is_not_led_here_is_worth_a_fetch(it: HostWorld) -> None:
    watcher = Watcher(it)
    assert watcher.told(watcher.watch((0, 0), (7, 0))) == [7]
    assert watcher.told(watcher.watch((1, 0), epoch=5)) == [1]
    waiting = watcher.watch((2, 0))
    it.order(StopReplica(TOPIC_ID, 2, 1))
    assert watcher.told(waiting) == [2]
    waiting = watcher.watch()
    endpoints = it.host_hellos[-1].endpoints
    other = ReplicaAddress(2, 1, endpoints)
    members = ((1, 1), (2, 1))
    it.order(
        Assign("topic", TOPIC_ID, 0, 2, 2, 2, 0, members, (ReplicaAddress(1, 1, endpoints), other), 2, (), 1)
    )
    assert watcher.told(waiting) == [0]


def test_a_newer_message_has_the_answer_before_it_given_and_changes_the_watch(it: HostWorld) -> None:
    watcher = Watcher(it)
    first = watcher.watch((0, 0), (1, 0))
    second = watcher.watch((2, 0), removed=(0,))
    assert watcher.told(first) == []
    it.append(0)
    it.world.run_for(1.0)
    assert not second.done()
    it.append(2)
    assert watcher.told(second) == [2]


def test_an_answer_comes_when_its_time_is_over(it: HostWorld) -> None:
    watcher = Watcher(it)
    assert watcher.told(watcher.watch((0, 0), wait_ms=500)) == []
    waiting = watcher.watch()
    it.append(0)
    assert watcher.told(waiting) == [0]


def test_nothing_is_left_of_a_watch_that_was_ended_or_whose_stream_is_gone(it: HostWorld) -> None:
    watcher = Watcher(it)
    assert it.core is not None
    watches = it.core._watches
    waiting = watcher.watch((0, 0), (1, 0))
    over = watcher.ask(WatchRecords(1, (), (), False, 0, is_over=True))
    assert watcher.told(over) == watcher.told(waiting) == []
    assert len(watches) == 0
    watcher.watch((0, 0), (1, 0))
    assert len(watches) == 1
    watcher.client.kill()
    it.until(lambda: len(watches) == 0)
    it.append(0)


def test_a_stream_has_a_bounded_number_of_watches(it: HostWorld) -> None:
    watcher = Watcher(it)
    tasks = [watcher.ask(WatchRecords(number, (), (), False, 60_000)) for number in range(257)]
    it.until(tasks[-1].done)
    error = tasks[-1].exception()
    assert isinstance(error, RemoteFailed)
    refused: RaylogError | None = error.error
    assert isinstance(refused, TooManyWatches)

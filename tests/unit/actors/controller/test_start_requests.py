"""Starts of many replicas in few messages: what goes together, and what becomes of each (rule 26)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from itertools import chain
from typing import TypeAlias

import pytest

from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.start_requests import StartRequests
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Answer, Request, Response, Stream
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.remote_errors import failure_of
from raylog.actors.protocol.start_messages import (
    ReplicaStart,
    StartRefused,
    StartReplicas,
    StartsUnderWay,
    StartUnderWay,
)
from raylog.errors import (
    AnswerUnexpected,
    RemoteFailed,
    ReplicaNotFree,
    RequestTimedOut,
    StaleIncarnation,
    StreamClosed,
    StreamNotOpen,
)
from tests.simulator.clients.clients import refuse
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM, ControlCluster
from tests.unit.actors.transaction_stand_ins import OneProcess

TOPIC_ID = b"sixteen bytes id"
Outcome: TypeAlias = StartUnderWay | BaseException
Starting: TypeAlias = asyncio.Task[list[Outcome]]


def start(partition: int) -> ReplicaStart:
    return ReplicaStart("clicks", TOPIC_ID, partition, 1, ())


def under_way(message: StartReplicas) -> StartsUnderWay:
    """All begin; a place in a shared host is found by every third one."""
    return StartsUnderWay(tuple(StartUnderWay(each.partition % 3 == 0) for each in message.starts))


def places(outcomes: Sequence[Outcome]) -> list[bool]:
    return [outcome.has_place for outcome in outcomes if isinstance(outcome, StartUnderWay)]


class ScriptedBroker:
    """A broker that keeps what it is asked, and answers as the test says."""

    def __init__(self, world: World, name: str) -> None:
        self.messages: list[StartReplicas] = []
        self.answer: Callable[[StartReplicas], Answer | Awaitable[Answer]] = lambda asked: Response(under_way(asked))
        self.endpoint: Endpoint | None = None
        self.process: Process = world.add_machine(name).start(name, self._main, name)
        assert world.run_until_idle_or(lambda: self.endpoint is not None, 5.0)

    async def _main(self, env: Environment, name: str) -> None:
        _, endpoints = await env.listen(name, "broker", self._take)
        self.endpoint = endpoints[-1]
        await asyncio.Event().wait()

    def _take(self, request: Request) -> Answer | Awaitable[Answer]:
        assert isinstance(request.message, StartReplicas)
        self.messages.append(request.message)
        return self.answer(request.message)

    @property
    def partitions(self) -> list[list[int]]:
        """Return what each message was to start."""
        return [[each.partition for each in message.starts] for message in self.messages]

    def keeps_silent(self) -> None:
        self.answer = lambda _: asyncio.get_running_loop().create_future()


class Controller:
    """A process that has replicas started on two brokers."""

    def __init__(self, world: World) -> None:
        self.brokers = ScriptedBroker(world, "broker-1"), ScriptedBroker(world, "broker-2")
        self.one = OneProcess(world)
        self.requests = self.one.make(StartRequests)
        self.streams = [self.one.do(self._dial(broker)) for broker in self.brokers]

    async def _dial(self, broker: ScriptedBroker) -> Stream:
        assert broker.endpoint is not None
        return await self.one.env.dial(broker.endpoint, "controller", refuse)

    def begin(self, *partitions: int, broker: int = 0) -> Starting:
        return self.one.begin(self.started([(broker, each) for each in partitions]))

    async def started(self, starts: Sequence[tuple[int, int]]) -> list[Outcome]:
        """Begin all in one turn: broker and partition of each."""
        sent = (
            self.requests.send(self.streams[broker], start(partition), asyncio.get_running_loop().create_future())
            for broker, partition in starts
        )
        return list(await asyncio.gather(*sent, return_exceptions=True))

    def outcomes(self, starting: Starting) -> list[Outcome]:
        self.one.until(starting.done)
        return starting.result()


@pytest.fixture
def it() -> Iterator[Controller]:
    with World(7, settings=CALM) as world:
        yield Controller(world)


def test_what_starts_in_one_turn_is_a_message_to_each_broker(it: Controller) -> None:
    outcomes = it.one.do(it.started([(0, 3), (1, 4), (0, 5), (1, 6), (0, 9)]))
    assert [broker.partitions for broker in it.brokers] == [[[3, 5, 9]], [[4, 6]]]
    assert places(outcomes) == [True, False, False, True, True]
    it.outcomes(it.begin(7))
    assert it.brokers[0].partitions == [[3, 5, 9], [7]]


@pytest.mark.parametrize(("count", "sizes"), [(64, [64]), (65, [64, 1]), (200, [64, 64, 64, 8])])
def test_a_message_has_sixty_four_starts_at_most(it: Controller, count: int, sizes: list[int]) -> None:
    outcomes = it.outcomes(it.begin(*range(count)))
    assert [len(each) for each in it.brokers[0].partitions] == sizes
    assert list(chain(*it.brokers[0].partitions)) == list(range(count))
    assert places(outcomes) == [number % 3 == 0 for number in range(count)]


def test_each_hears_its_own_outcome_though_a_later_message_is_answered_first(it: Controller) -> None:
    async def slowly(asked: StartReplicas) -> Answer:
        await asyncio.sleep(1.0 if asked.starts[0].partition == 0 else 0.1)
        return Response(under_way(asked))

    it.brokers[0].answer = slowly
    outcomes = it.outcomes(it.begin(*range(100)))
    assert places(outcomes) == [number % 3 == 0 for number in range(100)]


def test_one_that_is_refused_leaves_the_others_of_its_message_alone(it: Controller) -> None:
    errors = ReplicaNotFree("clicks", 1, "pid 7 holds its directory"), StaleIncarnation("clicks", 2, 1, 1, 5)
    failures = [failure_of(error) for error in errors]
    known = [StartUnderWay(False, StartRefused(each.name, each.text, each.arguments)) for each in failures]
    unknown = StartUnderWay(False, StartRefused("ErrorOfTomorrow", "It is too early.", ()))
    told = StartsUnderWay((StartUnderWay(True), *known, unknown, StartUnderWay(False)))
    it.brokers[0].answer = lambda _: Response(told)
    first, not_free, stale, new, last = it.outcomes(it.begin(*range(5)))
    assert places([first, last]) == [True, False]
    assert [type(each) for each in (not_free, stale, new)] == [ReplicaNotFree, StaleIncarnation, RemoteFailed]
    assert str(not_free) == str(errors[0])
    assert str(stale) == str(errors[1])
    assert isinstance(new, RemoteFailed)
    assert new.name == "ErrorOfTomorrow"


def test_with_a_broker_that_goes_away_all_of_its_starts_fail_at_once(it: Controller) -> None:
    for broker in it.brokers:
        broker.keeps_silent()
    gone, stays = it.begin(*range(100)), it.begin(100, 101, broker=1)
    it.one.until(lambda: [len(broker.messages) for broker in it.brokers] == [2, 1])
    began = it.one.world.now
    it.brokers[0].process.kill()
    assert [type(each) for each in it.outcomes(gone)] == [StreamClosed] * 100
    assert it.one.world.now - began < 0.5  # not when the order times out
    assert not stays.done()
    assert [type(each) for each in it.outcomes(it.begin(1, 2))] == [StreamNotOpen] * 2
    assert [type(each) for each in it.outcomes(stays)] == [RequestTimedOut] * 2


@pytest.mark.parametrize("answer", [StartsUnderWay((StartUnderWay(True),)), Done()])
def test_an_answer_that_does_not_fit_fails_all_and_starts_none(it: Controller, answer: Message) -> None:
    it.brokers[0].answer = lambda _: Response(answer)
    assert [type(each) for each in it.outcomes(it.begin(1, 2))] == [AnswerUnexpected] * 2


@pytest.mark.parametrize("broker_goes_away", [False, True])
def test_one_that_does_not_wait_any_more_takes_nothing_from_the_others(it: Controller, broker_goes_away: bool) -> None:
    async def later(asked: StartReplicas) -> Answer:
        await asyncio.sleep(1.0)
        return Response(under_way(asked))

    it.brokers[0].answer = later
    impatient, patient = it.begin(1), it.begin(3, 4)
    it.one.until(lambda: bool(it.brokers[0].messages))
    assert it.brokers[0].partitions == [[1, 3, 4]]
    it.one.make(impatient.cancel)
    if broker_goes_away:
        it.brokers[0].process.kill()
        assert [type(each) for each in it.outcomes(patient)] == [StreamClosed] * 2
    else:
        assert places(it.outcomes(patient)) == [True, False]


# --- a whole controller -------------------------------------------------------------------------------------------

MANY = 200


@pytest.fixture
def cluster() -> Iterator[ControlCluster]:
    with World(17, settings=CALM) as world:
        cluster = ControlCluster(world)
        cluster.form()
        yield cluster


def orders_of(cluster: ControlCluster, broker_id: int) -> list[list[tuple[bytes, int]]]:
    """Return a list that grows with each message that has replicas started on this broker."""
    messages: list[list[tuple[bytes, int]]] = []
    orders = cluster.brokers[broker_id]._orders
    carry_out = orders.carry_out

    async def seen(order: Message) -> Answer:
        if isinstance(order, StartReplicas):
            messages.append([(each.topic_id, each.partition) for each in order.starts])
        return await carry_out(order)

    orders.carry_out = seen  # type: ignore[method-assign]
    return messages


def running_on(cluster: ControlCluster, broker_id: int) -> int:
    return sum(key.broker_id == broker_id for key in cluster.controller.reign.changes.live.replicas)


def test_many_replicas_of_a_topic_are_started_with_few_messages(cluster: ControlCluster) -> None:
    messages = orders_of(cluster, 1)
    shared = NewTopic("many", assignment=((1,),) * MANY, settings={"replica.host": "shared"})
    cluster.ask(cluster.admin.create_topic(shared))
    cluster.until(lambda: running_on(cluster, 1) == MANY)
    assert sorted(chain(*messages)) == [(cluster.state.topic("many").id, number) for number in range(MANY)]
    assert max(map(len, messages)) <= 64
    assert len(messages) <= MANY // 8


def test_a_broker_that_goes_away_while_many_start_holds_up_no_start(cluster: ControlCluster) -> None:
    cluster.openings_hang = True
    messages = orders_of(cluster, 1)
    shared = NewTopic("many", assignment=((1,),) * MANY, settings={"replica.host": "shared"})
    cluster.controller_processes[-1].run(cluster.admin.create_topic(shared))
    cluster.until(lambda: sum(map(len, messages)) >= 64)
    supervisor = cluster.controller.reign.supervisor
    cluster.processes[1].kill()
    assert cluster.until(lambda: not supervisor._order.underway and not supervisor._starting) < 1.0
    cluster.openings_hang = False
    for host in cluster.hosts:
        if host.spec.broker_id == 1 and host.process is not None:
            host.process.kill()
    cluster.start_broker(1)
    cluster.until(lambda: running_on(cluster, 1) == MANY, 60.0)


def test_a_directory_in_use_holds_up_no_start_but_its_own(cluster: ControlCluster) -> None:
    """Its broker waits some seconds for whoever holds it, and answers a whole message at once."""
    cluster.world.run_for(2.0)
    disk = cluster.machines[1].disk
    disk.make_directory("/data/many-0")
    disk.new_process().lock_directory("/data/many-0")
    shared = NewTopic("many", assignment=((1,),) * MANY, settings={"replica.host": "shared"})
    cluster.controller_processes[-1].run(cluster.admin.create_topic(shared))
    assert cluster.until(lambda: running_on(cluster, 1) == MANY - 1) < 1.0

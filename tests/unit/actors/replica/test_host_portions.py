"""What a host is told of many replicas at once: it obeys in portions, and the newest assignment counts (rule 35)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import groupby

import pytest

from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response
from raylog.actors.protocol.control_messages import Assign, ReplicaAddress
from raylog.actors.protocol.host_messages import OpenReplicas
from raylog.actors.protocol.messages import NO_PARTITION, NO_TOPIC, Message
from raylog.actors.protocol.replication_messages import LATEST, ListedOffsets, ListOffsets
from raylog.actors.replica.host import ReplicaHost
from raylog.actors.replica.hosted_replica import HostedReplica
from raylog.errors import RaylogError, RemoteFailed, ReplicaNotFree
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM
from tests.unit.actors.replica.test_host import TOPIC_ID, HostWorld, openings

PORTION = 16
MANY = 100
REPLICAS = range(40)


def assignment(it: HostWorld, partition: int, version: int = 1, epoch: int = 1) -> Assign:
    """Let the replica of this host lead."""
    me, address = (1, 1), ReplicaAddress(1, 1, it.host_hellos[-1].endpoints)
    return Assign("topic", TOPIC_ID, partition, version, 1, epoch, 0, (me,), (address,), 1, (), 1)


def core(it: HostWorld) -> ReplicaHost:
    assert it.core is not None
    return it.core


def hosted(it: HostWorld, partition: int) -> HostedReplica:
    return next(each for each in core(it).hosted() if each.spec.partition == partition)


def epoch_of(it: HostWorld, partition: int) -> int:
    assigned = hosted(it, partition)._replica
    assert assigned is not None
    assert assigned._assigned is not None
    return assigned._assigned.leader_epoch


@dataclass
class Watched:
    """What replicas obeyed, in order, and the turns of the loop in between."""

    it: HostWorld
    turn: int = 0
    obeyed: list[tuple[int, int, int]] = field(default_factory=list)  # the turn, the partition, its leader epoch
    failing: set[int] = field(default_factory=set)

    def __post_init__(self) -> None:
        for replica in core(self.it).hosted():
            replica.assign = self._seen(replica.assign)  # type: ignore[method-assign, assignment]

    def _seen(self, assign: Callable[[Assign], None]) -> Callable[[Assign], None]:
        def seen(assigned: Assign) -> None:
            self.obeyed.append((self.turn, assigned.partition, assigned.leader_epoch))
            if assigned.partition in self.failing:
                raise ReplicaNotFree("topic", assigned.partition, "the test says so")
            assign(assigned)

        return seen

    def do(self, work: Callable[[], Awaitable[None]]) -> None:
        """Do it in the process of the host, as what comes over the line to its broker."""

        async def counted() -> None:
            counting = asyncio.get_running_loop().create_task(self._count())
            await work()
            counting.cancel()

        task = self.it.host.run(counted())
        self.it.until(task.done)
        task.result()

    async def _count(self) -> None:
        while True:
            self.turn += 1
            await asyncio.sleep(0)

    def hear(self, message: Message) -> Answer | Awaitable[Answer]:
        assert self.it.stream is not None
        return core(self.it)._from_broker(Request(message, bytearray(), TOPIC_ID, -1, self.it.stream, 1, 0))

    @property
    def portions(self) -> list[int]:
        """Return how many obeyed in each turn in which any did."""
        return [len(list(each)) for _, each in groupby(turn for turn, _, _ in self.obeyed)]


@pytest.fixture
def it() -> Iterator[HostWorld]:
    with World(5, settings=CALM) as world:
        it = HostWorld(world)
        it.order(openings(*REPLICAS))
        it.until(lambda: len(it.hellos) == len(REPLICAS))
        yield it


def later_ones(answers: Sequence[Answer | Awaitable[Answer]]) -> list[LaterAnswer]:
    return [each for each in answers if isinstance(each, LaterAnswer)]


def test_assignments_of_one_turn_are_obeyed_in_portions(it: HostWorld) -> None:
    watched = Watched(it)

    async def flood() -> None:
        answers = [watched.hear(assignment(it, number % 40, epoch=1 + number // 40)) for number in range(MANY)]
        later = later_ones(answers)
        assert answers[:PORTION] == [None] * PORTION
        assert len(later) == MANY - PORTION
        assert not any(each.done() for each in later)
        assert [await each for each in later] == [None] * len(later)

    watched.do(flood)
    assert watched.portions == [16, 16, 16, 16, 16, 16, 4]
    assert [(partition, epoch) for _, partition, epoch in watched.obeyed] == [
        (number % 40, 1 + number // 40) for number in range(MANY)
    ]


def test_each_is_answered_when_it_is_obeyed_and_not_before(it: HostWorld) -> None:
    watched = Watched(it)
    obeyed_then: list[int] = []

    async def flood() -> None:
        later = later_ones([watched.hear(assignment(it, number)) for number in REPLICAS])
        for each in later[:-1]:
            each.when_over(lambda *_: obeyed_then.append(len(watched.obeyed)))
        await later[-1]

    watched.do(flood)
    assert obeyed_then == list(range(PORTION + 1, len(REPLICAS)))


def test_other_requests_are_served_between_portions(it: HostWorld) -> None:
    """A client hears of the end of a log while many still wait for their turn."""
    it.lead(0)
    it.world.run_for(1.0)
    watched = Watched(it)
    waiting: list[int] = []  # at each answer

    def ask_in_each_turn() -> None:
        assert it.stream is not None
        asked = ListOffsets(LATEST, False, ((TOPIC_ID, 0, 1),))
        answer = core(it).handle(Request(asked, bytearray(), NO_TOPIC, NO_PARTITION, it.stream, 1, 0))
        assert isinstance(answer, Response)
        assert isinstance(answer.message, ListedOffsets)
        assert [found[1:3] for found in answer.message.found] == [(0, 0)]
        waiting.append(MANY - len(watched.obeyed))
        if waiting[-1]:
            asyncio.get_running_loop().call_soon(ask_in_each_turn)

    async def flood() -> None:
        later = later_ones([watched.hear(assignment(it, 1 + number % 39)) for number in range(MANY)])
        asyncio.get_running_loop().call_soon(ask_in_each_turn)
        await later[-1]
        await asyncio.sleep(0)

    watched.do(flood)
    assert waiting == [68, 52, 36, 20, 4, 0]


def test_after_a_flood_one_is_obeyed_at_once_again(it: HostWorld) -> None:
    watched = Watched(it)

    async def flood() -> None:
        await later_ones([watched.hear(assignment(it, number)) for number in REPLICAS])[-1]
        for _ in range(3):
            await asyncio.sleep(0)
        assert watched.hear(assignment(it, 5, epoch=2)) is None
        assert epoch_of(it, 5) == 2

    watched.do(flood)


@pytest.mark.parametrize("epochs", [(2, 3), (3, 2)])
def test_the_newest_assignment_of_a_replica_wins(it: HostWorld, epochs: tuple[int, int]) -> None:
    """One that comes while others wait does not overtake them; one that is older is not obeyed after a newer one."""
    watched = Watched(it)

    async def flood() -> None:
        for number in range(1, 1 + 2 * PORTION):
            watched.hear(assignment(it, number))
        first = watched.hear(assignment(it, 0, version=epochs[0], epoch=epochs[0]))
        await asyncio.sleep(0)
        second = watched.hear(assignment(it, 0, version=epochs[1], epoch=epochs[1]))
        for each in later_ones([first, second]):
            await each

    watched.do(flood)
    assert [epoch for _, partition, epoch in watched.obeyed if partition == 0] == list(epochs)
    assert epoch_of(it, 0) == 3


def test_one_that_cannot_obey_fails_alone(it: HostWorld) -> None:
    watched = Watched(it)
    watched.failing = {3, 20, 35}
    failed: list[int] = []

    async def flood() -> None:
        answers: list[Answer | Awaitable[Answer]] = []
        for number in REPLICAS:
            try:
                answers.append(watched.hear(assignment(it, number)))
            except RaylogError:
                failed.append(number)
                answers.append(None)
        for number, answer in enumerate(answers):
            if isinstance(answer, LaterAnswer):
                try:
                    await answer
                except ReplicaNotFree:
                    failed.append(number)

    watched.do(flood)
    assert failed == [3, 20, 35]
    assert watched.portions == [16, 16, 8]
    assert all(epoch_of(it, number) == 1 for number in REPLICAS if number not in failed)


def test_an_assignment_of_a_replica_that_is_not_here_is_answered_and_holds_up_no_other(it: HostWorld) -> None:
    """Its replica may have been stopped while it waited for its turn."""
    watched = Watched(it)

    async def flood() -> None:
        partitions = [90, *range(20), 91, *range(20, 40)]
        answers = [watched.hear(assignment(it, number)) for number in partitions]
        assert answers[0] is None
        assert isinstance(answers[21], LaterAnswer)
        assert [await each for each in later_ones(answers)] == [None] * (len(partitions) - PORTION)

    watched.do(flood)
    assert watched.portions == [15, 15, 10]
    assert all(epoch_of(it, number) == 1 for number in REPLICAS)


def test_all_that_were_told_over_the_line_lead(it: HostWorld) -> None:
    tasks = [it.ask_host(assignment(it, number)) for number in REPLICAS]
    it.until(lambda: all(each.done() for each in tasks))
    assert [each.exception() for each in tasks] == [None] * len(tasks)
    assert [it.append(number) for number in (0, 15, 16, 39)] == [0, 0, 0, 0]


def test_openings_before_one_that_is_refused_are_begun(it: HostWorld) -> None:
    new, held, behind = openings(50), openings(0, incarnation=2), openings(51)
    rows = new.replicas + openings(1).replicas + held.replicas + behind.replicas  # 1 is asked for a second time
    task = it.ask_host(OpenReplicas(new.room, rows))
    it.until(task.done)
    error = task.exception()
    assert isinstance(error, RemoteFailed)
    assert isinstance(error.error, ReplicaNotFree)
    assert error.error.partition == 0
    it.until(lambda: (50, 1) in it.hellos)
    it.world.run_for(1.0)
    assert {each.spec.partition for each in core(it).hosted()} == {*REPLICAS, 50}
    assert (0, 2) not in it.hellos

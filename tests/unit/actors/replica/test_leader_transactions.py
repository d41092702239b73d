"""Batches that wait at a leader for their coordinator's word: each is told what became of it, and nothing else."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from types import SimpleNamespace
from typing import Any, cast

from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Response
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.replication_messages import AppendTransactional, OpenTransactions
from raylog.actors.protocol.transaction_messages import AddPartition
from raylog.actors.replica.hosted_log import PartitionName
from raylog.actors.replica.parked_appends import LeaderTransactions
from raylog.errors import (
    BatchTooLarge,
    ConcurrentTransaction,
    LeadershipLost,
    NotEnoughReplicas,
    OutOfOrderSequence,
    RaylogError,
)
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import read_header
from raylog.storage.segment.producer_state import ProducerStates

PRODUCER = 7
TOGETHER = (("t", b"t" * 16, 1), ("u", b"u" * 16, 0))
ASKED = AppendTransactional(-1, -1, 1000, "mover", TOGETHER)


class Leader:
    """A log that takes batches, but for what the test says; the coordinator answers at `joined`."""

    def __init__(self) -> None:
        self._tasks: list[asyncio.Task[None]] = []
        self.appended: list[int] = []
        self.refusals: dict[int, RaylogError] = {}
        self.waits_for_replicas: dict[int, list[LaterAnswer]] = {}  # by sequence, each append of it
        self.joined: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.asked: list[AddPartition] = []
        hosted = SimpleNamespace(
            log=SimpleNamespace(producers=ProducerStates()),
            name=PartitionName("t", b"t" * 16, 0),
            start=self._start,
            calls=SimpleNamespace(join=self._join),
        )
        self.transactions = LeaderTransactions(cast(Any, hosted))

    def _start(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.append(task)
        return task

    async def _join(self, asked: AddPartition) -> None:
        self.asked.append(asked)
        await self.joined

    async def over(self) -> None:
        await asyncio.gather(*self._tasks)

    def send(self, sequence: int) -> LaterAnswer:
        batch = encode_batch(
            [b"v"], timestamps=1, producer_id=PRODUCER, producer_epoch=0, base_sequence=sequence, transactional=True
        )
        owed = self.transactions.append(batch, ASKED, lambda: self._append(sequence))
        assert isinstance(owed, LaterAnswer)
        return owed

    def _append(self, sequence: int) -> Answer | LaterAnswer:
        self.appended.append(sequence)
        if sequence in self.refusals:
            raise self.refusals[sequence]
        if sequence in self.waits_for_replicas:
            self.waits_for_replicas[sequence].append(owed := LaterAnswer())
            return owed
        return Response(Done())

    def replicated(self, sequence: int) -> None:
        for owed in self.waits_for_replicas[sequence]:
            owed.give(Response(Done()))


async def result(owed: LaterAnswer) -> Answer | RaylogError:
    assert owed.done(), "nobody has answered"
    try:
        return await owed
    except RaylogError as error:
        return error


def run(work: Callable[[Leader], Coroutine[Any, Any, None]]) -> None:
    async def main() -> None:
        await work(Leader())

    asyncio.run(main())


def test_the_coordinator_hears_where_else_the_transaction_begins() -> None:
    async def work(leader: Leader) -> None:
        leader.send(0), leader.send(1)
        leader.joined.set_result(None)
        await leader.over()
        assert leader.asked == [AddPartition("mover", PRODUCER, 0, "t", b"t" * 16, 0, TOGETHER)]

    run(work)


def test_what_waits_for_its_replicas_is_answered_when_they_have_it() -> None:
    async def work(leader: Leader) -> None:
        leader.waits_for_replicas[0] = []
        first, second = leader.send(0), leader.send(1)
        leader.joined.set_result(None)
        await leader.over()
        assert leader.appended == [0, 1]
        assert second.done()
        assert not first.done()
        leader.replicated(0)
        assert await result(first) == Response(Done())

    run(work)


def test_what_was_appended_is_not_told_of_what_is_wrong_with_the_next() -> None:
    async def work(leader: Leader) -> None:
        leader.waits_for_replicas[0] = []
        leader.refusals[1] = BatchTooLarge(2_000_000, 1_000_000)
        owed = [leader.send(sequence) for sequence in (0, 1, 2)]
        again = leader.send(0)
        leader.joined.set_result(None)
        await leader.over()
        assert leader.appended == [0, 1, 0], "nothing behind a refused batch is taken"
        assert not owed[0].done()
        leader.replicated(0)
        assert await result(owed[0]) == await result(again) == Response(Done())
        assert isinstance(await result(owed[1]), BatchTooLarge)
        assert isinstance(await result(owed[2]), OutOfOrderSequence)

    run(work)


def test_what_may_be_tried_again_is_tried_again_from_there_on() -> None:
    async def work(leader: Leader) -> None:
        refusal = leader.refusals[1] = NotEnoughReplicas("t", 0, 1, 2)
        owed = [leader.send(sequence) for sequence in (0, 1, 2)]
        leader.joined.set_result(None)
        await leader.over()
        assert [await result(each) for each in owed] == [Response(Done()), refusal, refusal]

    run(work)


def test_the_coordinators_refusal_is_everybodys() -> None:
    async def work(leader: Leader) -> None:
        owed = [leader.send(sequence) for sequence in (0, 1)]
        leader.joined.set_exception(refusal := ConcurrentTransaction("mover"))
        await leader.over()
        assert [await result(each) for each in owed] == [refusal, refusal]
        assert not leader.appended

    run(work)


def test_nothing_that_waits_is_appended_after_the_leadership() -> None:
    async def work(leader: Leader) -> None:
        owed = leader.send(0)
        leader.transactions.end(lost := LeadershipLost("t", 0, 4))
        assert await result(owed) is lost
        leader.joined.set_result(None)
        await leader.over()
        assert not leader.appended

    run(work)


def test_what_has_no_marker_yet_is_told() -> None:
    async def work(leader: Leader) -> None:
        producers = leader.transactions._hosted.log.producers
        for producer_id, epoch in ((7, 3), (8, 0)):
            batch = encode_batch(
                [b"v"], timestamps=1, producer_id=producer_id, producer_epoch=epoch, base_sequence=0, transactional=True
            )
            producers.apply(read_header(batch), 50)
        ended = encode_marker(Marker(MarkerType.ABORT, 9), 8, 1, 60)
        producers.apply_marker(read_header(ended), Marker(MarkerType.ABORT, 9), 60)
        assert leader.transactions.still_open() == OpenTransactions(((7, 3, 0, 50, -1),))

    run(work)

"""Batches that become columns keep their places, whatever each of them takes."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import replace
from typing import Any

import pytest

from raylog.actors.link.rules.topic_cache import TopicView
from raylog.api.kafka import column_conversion
from raylog.api.kafka.column_conversion import AT_ONCE, ColumnConversion, LargeConversions
from raylog.api.kafka.rules.batch_conversion import as_columns, columns_memory
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.errors import CorruptBatch
from raylog.storage.format.record_batch import Bytes, read_header
from tests.unit.storage.batches import Record, written_by_aiokafka

COLUMNS, AS_PRODUCED = (TopicView("t", b"t" * 16, (), batch_format=each) for each in ("columns", "as-produced"))
SMALL = written_by_aiokafka([Record(0, 5, None, b"small")])
LARGE = written_by_aiokafka([Record(0, 5, None, bytes(column_conversion.CONVERTED_ON_LOOP))])


class Threads:
    """Beside the loop: what is given to it is done when a test says so."""

    def __init__(self) -> None:
        self.waiting: list[tuple[asyncio.Future[Bytes], Callable[[], Bytes]]] = []

    def off_loop(self, work: Callable[[], Bytes]) -> Awaitable[Bytes]:
        done: asyncio.Future[Bytes] = asyncio.get_running_loop().create_future()
        self.waiting.append((done, work))
        return done

    def do(self, place: int) -> None:
        done, work = self.waiting[place]
        try:
            done.set_result(work())
        except CorruptBatch as error:
            done.set_exception(error)


class Sending:
    """A connection whose batches are sent as soon as they have their form."""

    def __init__(self) -> None:
        self.threads = Threads()
        self.budget = MemoryBudget()
        large = LargeConversions(self.threads.off_loop, self.budget)
        self.conversion = ColumnConversion(large, self.budget.account())
        self.sent: list[tuple[int, Bytes]] = []
        self.refused: list[int] = []
        self.tasks: list[asyncio.Task[None]] = []

    def send(self, batch: Bytes, topic: TopicView = COLUMNS, partition: int = 0) -> asyncio.Task[None]:
        task = asyncio.ensure_future(self._send(len(self.tasks), batch, topic, partition))
        self.tasks.append(task)
        return task

    async def _send(self, number: int, batch: Bytes, topic: TopicView, partition: int) -> None:
        try:
            stored = await self.conversion.stored(("t", partition), read_header(batch), batch, topic)
        except CorruptBatch:
            self.refused.append(number)
        else:
            self.sent.append((number, stored))

    @property
    def order(self) -> list[int]:
        return [number for number, _ in self.sent]


async def settle() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


def run(test: Callable[[], Coroutine[Any, Any, None]]) -> None:
    asyncio.run(test())


def test_small_batches_and_those_of_other_topics_go_at_once() -> None:
    async def test() -> None:
        sending = Sending()
        coroutine = sending.conversion.stored(("t", 0), read_header(SMALL), SMALL, COLUMNS)
        with pytest.raises(StopIteration) as returned:
            coroutine.send(None)
        assert returned.value.value == as_columns(SMALL)
        coroutine = sending.conversion.stored(("t", 0), read_header(LARGE), LARGE, AS_PRODUCED)
        with pytest.raises(StopIteration) as returned:
            coroutine.send(None)
        assert returned.value.value is LARGE

    run(test)


@pytest.mark.parametrize("done", [(0, 1), (1, 0)])
def test_batches_of_a_partition_keep_their_order(done: tuple[int, int]) -> None:
    async def test() -> None:
        sending = Sending()
        for batch, topic in ((LARGE, COLUMNS), (SMALL, COLUMNS), (LARGE, COLUMNS), (SMALL, AS_PRODUCED)):
            sending.send(batch, topic)
        sending.send(SMALL, partition=1)
        await settle()
        assert sending.order == [4]
        for place in done:
            sending.threads.do(place)
            await settle()
        assert sending.order == [4, 0, 1, 2, 3]
        expected = [as_columns(SMALL), as_columns(LARGE), as_columns(SMALL), as_columns(LARGE), SMALL]
        assert [stored for _, stored in sending.sent] == expected
        assert not sending.conversion.under_way

    run(test)


def test_one_that_is_damaged_is_refused_in_its_turn_and_the_others_go_on() -> None:
    async def test() -> None:
        damaged = bytearray(LARGE)
        damaged[-1] ^= 1
        sending = Sending()
        for batch in (LARGE, damaged, SMALL):
            sending.send(batch)
        await settle()
        sending.threads.do(1)
        await settle()
        assert (sending.order, sending.refused) == ([], [])
        sending.threads.do(0)
        await settle()
        assert (sending.order, sending.refused) == ([0, 2], [1])

    run(test)


def test_a_connection_that_ends_leaves_nothing_behind() -> None:
    async def test() -> None:
        sending = Sending()
        for _ in range(3):
            sending.send(LARGE)
        await settle()
        for task in sending.tasks:
            task.cancel()
        await settle()
        assert all(task.cancelled() for task in sending.tasks)
        assert not sending.conversion.under_way

    run(test)


# --- memory -----------------------------------------------------------------------------------------------------------


def test_a_conversion_and_its_columns_count_until_they_are_appended() -> None:
    async def test() -> None:
        sending = Sending()
        work = columns_memory(read_header(LARGE), LARGE, COLUMNS.max_batch_bytes)
        assert work > 2 * len(LARGE)
        sending.send(LARGE)
        sending.send(LARGE, partition=1)
        await settle()
        assert sending.budget.held == 2 * work
        sending.threads.do(0)
        await settle()
        ((_, columns),) = sending.sent
        assert sending.budget.held == work + len(columns)
        sending.threads.do(1)
        await settle()
        for _, columns in sending.sent:
            sending.conversion.let_go(columns)
        assert sending.budget.held == 0

    run(test)


def test_batches_that_stay_as_they_are_count_nothing_more() -> None:
    async def test() -> None:
        sending = Sending()
        sending.send(LARGE, AS_PRODUCED)
        large_for_its_topic = replace(COLUMNS, max_batch_bytes=100)
        sending.send(SMALL, large_for_its_topic)
        await settle()
        assert sending.order == [0, 1]
        assert sending.budget.held == 0

    run(test)


def test_a_few_are_converted_at_once_of_all_connections_and_the_others_follow_in_their_order() -> None:
    async def test() -> None:
        sending = Sending()
        for partition in range(AT_ONCE + 2):
            sending.send(LARGE, partition=partition)
        await settle()
        assert len(sending.threads.waiting) == AT_ONCE
        for place in range(AT_ONCE + 2):
            sending.threads.do(place)
            await settle()
        assert sending.order == list(range(AT_ONCE + 2))

    run(test)


def test_what_a_gone_client_has_begun_counts_and_takes_its_turn_until_it_is_done() -> None:
    async def test() -> None:
        sending = Sending()
        for partition in range(AT_ONCE + 1):
            sending.send(LARGE, partition=partition)
        await settle()
        for task in sending.tasks[:AT_ONCE]:
            task.cancel()
        await settle()
        work = columns_memory(read_header(LARGE), LARGE, COLUMNS.max_batch_bytes)
        assert sending.budget.held == AT_ONCE * work
        assert len(sending.threads.waiting) == AT_ONCE
        for place in range(AT_ONCE + 1):
            sending.threads.do(place)
            await settle()
        assert sending.order == [AT_ONCE]
        sending.conversion.let_go(sending.sent[0][1])
        assert sending.budget.held == 0

    run(test)

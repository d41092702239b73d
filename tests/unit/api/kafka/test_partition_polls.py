"""Polls of a connection: kept between fetches, and read on where there are nothing but fillers."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from dataclasses import replace
from typing import Any

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replication_messages import Fetch, Fetched
from raylog.api.kafka.partition_polls import MOST_BYTES, Bounds, PartitionPolls, Polled, Question
from raylog.api.kafka.rules.batch_conversion import Visible, as_kafka, visible_batches
from raylog.api.kafka.rules.memory_budget import DEFAULT_MOST_BYTES, FREE_BYTES, MemoryBudget
from raylog.errors import NotLeader, RaylogError
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import Bytes, filler, read_header, stamp

LEADER = PartitionLeader("clicks", b"t" * 16, 0, 1, 7, (Endpoint(path="/nowhere"),), "")
KEY = (b"t" * 16, 0)
HELD = Bounds(1, 1 << 20, 500)
QUESTION = Question(0, 7, -1, False, 12)


class FakeLink:
    """A leader whose answers are given by hand. `asked` has its requests, with what each will be answered by."""

    def __init__(self) -> None:
        self.asked: list[tuple[Fetch, asyncio.Future[Response]]] = []

    async def ask(self, leader: PartitionLeader, message: Fetch, **_: Any) -> Response:
        answer: asyncio.Future[Response] = asyncio.get_running_loop().create_future()
        self.asked.append((message, answer))
        return await answer

    @property
    def offsets(self) -> list[int]:
        return [message.offset for message, _ in self.asked]

    async def answer(self, payload: Bytes = b"", *, high_watermark: int = 100) -> None:
        marks = (high_watermark, high_watermark, 0)
        self.asked[-1][1].set_result(Response(Fetched(0, *marks, 7, None, (), None), payload))
        await settle()

    async def fail(self, error: RaylogError) -> None:
        self.asked[-1][1].set_exception(error)
        await settle()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


async def show(leader: PartitionLeader, data: Bytes, asked: Question) -> Visible:
    return visible_batches(data, lambda batch, _: as_kafka(batch))


def batch(base_offset: int) -> bytearray:
    made = as_kafka(encode_batch([b"a"], timestamps=1_000))
    stamp(made, base_offset, 7)
    return made


class Stage:
    """Polls over a leader in memory."""

    def __init__(self, most_bytes: int = DEFAULT_MOST_BYTES) -> None:
        self.link = FakeLink()
        self.budget = MemoryBudget(most_bytes)
        self.other = self.budget.account()
        self.polls = PartitionPolls(self.link, self.budget.account())  # type: ignore[arg-type] # all of a link that they use

    async def begin(self, question: Question = QUESTION, bounds: Bounds = HELD, partition: int = 0) -> None:
        self.polls.begin(replace(LEADER, partition=partition), question, bounds, show)
        await settle()

    def fill(self) -> None:
        self.other.take(self.budget.most_bytes - self.budget.held)

    async def free(self) -> None:
        self.other.take(-self.other.held)
        await settle()

    def outcome(self) -> Polled:
        found = self.polls.outcome(KEY)
        assert isinstance(found, Polled)
        return found


def run(test: Coroutine[Any, Any, None]) -> None:
    asyncio.run(test)


def test_the_first_poll_is_not_held_and_the_next_is() -> None:
    async def look() -> None:
        stage = Stage()
        await stage.begin()
        assert len(stage.polls.looks()) == 1
        assert stage.polls.looks() == []
        assert stage.polls.marks(KEY) is None
        await stage.link.answer(high_watermark=3)
        assert stage.polls.marks(KEY) == (3, 3, 0)
        await stage.begin()
        assert [message.max_wait_ms for message, _ in stage.link.asked] == [0, 500]
        assert (len(stage.polls.looks()), stage.polls.is_under_way) == (0, True)
        stage.polls.close()

    run(look())


def test_a_poll_is_kept_for_the_same_question_and_for_no_other() -> None:
    async def keep() -> None:
        stage = Stage()
        await stage.begin()
        await stage.begin()
        assert stage.link.offsets == [0]
        await stage.link.answer(batch(0))
        await stage.begin()
        assert stage.link.offsets == [0]
        assert stage.outcome().size == len(batch(0))
        await stage.begin(QUESTION._replace(offset=1))
        assert stage.link.offsets == [0, 1]
        stage.polls.keep_only(())
        assert (len(stage.polls), stage.polls.marks(KEY)) == (0, None)

    run(keep())


def test_a_failure_is_forgotten_by_the_next_fetch() -> None:
    async def fail() -> None:
        stage = Stage()
        await stage.begin()
        await stage.link.fail(NotLeader("clicks", 0, 2, 8))
        assert isinstance(stage.polls.outcome(KEY), NotLeader)
        await stage.begin()
        assert stage.polls.outcome(KEY) is None
        assert stage.link.offsets == [0, 0]
        stage.polls.close()

    run(fail())


def test_fillers_are_passed_over_as_long_as_there_is_something_behind_them() -> None:
    async def read_on() -> None:
        stage = Stage()
        await stage.begin()
        await stage.link.answer(filler(0, 40, 7))
        assert stage.polls.outcome(KEY) is None
        await stage.link.answer(filler(40, 60, 7) + batch(60))
        assert stage.link.offsets == [0, 40]
        (piece,) = stage.outcome().pieces
        assert read_header(piece).base_offset == 60

    run(read_on())


def test_where_there_are_nothing_but_fillers_one_empty_batch_moves_the_client_on() -> None:
    async def read_on() -> None:
        stage = Stage()
        await stage.begin()
        await stage.link.answer(filler(0, 40, 7))
        await stage.link.answer(filler(40, 100, 7))
        (piece,) = stage.outcome().pieces
        header = read_header(piece)
        assert (header.magic, header.record_count, header.next_offset) == (2, 0, 100)
        assert stage.outcome().is_news

    run(read_on())


LARGE = 100_000


def large_batch(base_offset: int, size: int = LARGE) -> bytearray:
    made = as_kafka(encode_batch([bytes(size)], timestamps=1_000))
    stamp(made, base_offset, 7)
    return made


def test_what_polls_have_brought_counts_until_it_is_taken() -> None:
    async def count() -> None:
        stage = Stage()
        stage.polls.begin_fetch()
        await stage.begin()
        await stage.link.answer(large_batch(0))
        size = stage.outcome().size
        assert (stage.budget.held, stage.polls.is_pressed) == (size, False)
        stage.polls.end_fetch()
        assert stage.budget.held == size
        stage.polls.take(KEY)
        assert stage.budget.held == 0

    run(count())


def test_without_room_a_poll_is_let_go_and_comes_again_with_less() -> None:
    async def wait() -> None:
        stage = Stage()
        stage.fill()
        stage.polls.begin_fetch()
        await stage.begin()
        await stage.link.answer(b"".join(large_batch(each) for each in range(10)))
        assert (stage.budget.held, len(stage.link.asked)) == (stage.budget.most_bytes, 1)
        await stage.free()
        message, _ = stage.link.asked[-1]
        assert (message.offset, message.max_bytes, message.max_wait_ms) == (0, 256 * 1024, 0)
        assert stage.budget.held == message.max_bytes
        await stage.link.answer(large_batch(0) + large_batch(1))
        assert stage.budget.held == stage.outcome().size == 2 * len(large_batch(0))

    run(wait())


def test_without_room_the_first_batch_comes_whole() -> None:
    async def wait() -> None:
        stage = Stage()
        stage.fill()
        stage.polls.begin_fetch()
        await stage.begin()
        await stage.link.answer(large_batch(0, size=700_000) + large_batch(1))
        await stage.free()
        message, _ = stage.link.asked[-1]
        assert message.max_bytes == len(large_batch(0, size=700_000))

    run(wait())


def test_a_little_comes_however_much_others_hold() -> None:
    async def read() -> None:
        stage = Stage()
        stage.fill()
        stage.polls.begin_fetch()
        await stage.begin()
        await stage.link.answer(batch(0))
        assert 0 < stage.outcome().size < FREE_BYTES
        assert stage.polls.is_pressed is False

    run(read())


def test_a_fetch_with_something_to_answer_does_not_wait_for_room() -> None:
    async def press() -> None:
        stage = Stage()
        stage.polls.begin_fetch()
        await stage.begin(partition=1)
        await stage.link.answer(large_batch(0))
        await stage.begin()
        stage.fill()
        await stage.link.answer(large_batch(0))
        assert stage.polls.is_pressed
        assert stage.outcome().is_news is False
        assert not stage.budget.is_waited_for
        stage.polls.end_fetch()
        assert stage.budget.held == stage.budget.most_bytes
        stage.other.wait(LARGE, lambda: None)  # what is kept for the next fetch goes
        assert (len(stage.polls), stage.budget.is_waited_for) == (0, False)

    run(press())


def test_one_connection_keeps_no_more_than_its_bound() -> None:
    async def read() -> None:
        stage = Stage()
        stage.polls.begin_fetch()
        size, count = 4_000_000, 0
        while not stage.polls.is_pressed:
            await stage.begin(partition=count)
            await stage.link.answer(large_batch(0, size=size))
            count += 1
        assert count == 5
        assert stage.budget.held < MOST_BYTES

    run(read())


def test_a_poll_that_is_given_up_waits_no_longer_and_holds_nothing() -> None:
    async def give_up() -> None:
        stage = Stage()
        stage.fill()
        stage.polls.begin_fetch()
        for partition in (0, 1):
            await stage.begin(partition=partition)
            await stage.link.answer(large_batch(0))
        assert stage.budget.is_waited_for
        stage.polls.take(KEY)
        stage.other.take(-stage.other.held)  # the other one is granted room,
        stage.polls.close()  # and given up in the same turn
        await settle()
        assert (stage.budget.held, stage.budget.is_waited_for) == (0, False)

    run(give_up())


def test_what_is_being_converted_between_two_fetches_goes_too_when_others_wait() -> None:
    async def let_go() -> None:
        stage = Stage()
        shown: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def show_late(leader: PartitionLeader, data: Bytes, asked: Question) -> Visible:
            await shown
            return await show(leader, data, asked)

        stage.polls.begin(LEADER, QUESTION, HELD, show_late)
        await settle()
        await stage.link.answer(large_batch(0))
        assert stage.budget.held == len(large_batch(0))
        stage.fill()
        granted: list[int] = []
        stage.other.wait(LARGE, lambda: granted.append(1))
        shown.set_result(None)
        await settle()
        assert (granted, len(stage.polls), stage.budget.is_waited_for) == ([1], 0, False)

    run(let_go())

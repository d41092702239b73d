"""The book-keeping of a stream: time-outs that share a timer, answers that are owed, replies without a future."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, cast

import pytest

from raylog.actors.kernel.background import Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response
from raylog.actors.kernel.stream_requests import AnswerCall, Reply, RequestsHeld, RequestsInFlight
from raylog.actors.machine.kept_memory import raw_memory
from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.messages import Done, GivenUp
from raylog.actors.protocol.replication_messages import Appended
from raylog.actors.replica.hosted_log import PartitionName
from raylog.actors.replica.leader import AppendWaits
from raylog.actors.replica.rules.counters import ReplicaCounters
from raylog.errors import AppendTimedOut, RequestTimedOut, StreamClosed, StreamNotOpen, TooManyBytesInFlight
from tests.unit.actors.kernel.test_timers import in_a_process

_DONE = Response(Done())


def on_a_loop(main: Callable[[asyncio.AbstractEventLoop], Awaitable[None]]) -> None:
    async def run(_: Timers) -> None:
        await main(asyncio.get_running_loop())

    in_a_process(run, 30.0)


def _unheard(_: object) -> None:
    """Take what is sent or told."""


def asked(book: RequestsInFlight, number: int, timeout: float) -> Reply:
    future: Reply = asyncio.get_running_loop().create_future()
    book.start(future, number, [b"x"], 1, timeout)
    return future


# --- asking ---


def test_each_request_has_its_own_time_out_though_they_share_a_timer() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        book = RequestsInFlight(loop, 10_000, _unheard, _unheard)
        began = loop.time()
        ends: dict[int, float] = {}
        replies = {number: asked(book, number, seconds) for number, seconds in enumerate((3.0, 1.0, 2.0, 8.0))}
        for number, reply in replies.items():
            reply.add_done_callback(lambda _, number=number: ends.setdefault(number, loop.time() - began))  # type: ignore[misc]
        assert book.answered(2) is replies[2]
        await asyncio.sleep(5.0)
        assert {number: round(end) for number, end in ends.items()} == {1: 1, 0: 3}
        assert isinstance(replies[0].exception(), RequestTimedOut)
        assert len(book) == 3  # the other side still holds those that were given up (rule 31)
        late = book.answered(0)
        assert late is not None
        assert late.done()
        book.fail_all("over")
        assert isinstance(replies[3].exception(), StreamClosed)

    on_a_loop(main)


def test_a_shorter_time_out_that_comes_later_is_kept_too() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        book = RequestsInFlight(loop, 10_000, _unheard, _unheard)
        slow, quick = asked(book, 1, 10.0), asked(book, 2, 0.5)
        await asyncio.sleep(1.0)
        assert isinstance(quick.exception(), RequestTimedOut)
        assert not slow.done()
        book.fail_all("over")

    on_a_loop(main)


class _CountedTimers:
    """A loop that knows how many of its timers are set."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self.handles: list[asyncio.TimerHandle] = []

    def call_at(self, when: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        self.handles.append(self._loop.call_at(when, callback, *args))
        return self.handles[-1]

    def call_later(self, delay: float, callback: Callable[..., object], *args: Any) -> asyncio.TimerHandle:
        self.handles.append(self._loop.call_later(delay, callback, *args))
        return self.handles[-1]

    def set_now(self) -> int:
        return sum(not each.cancelled() and each.when() > self._loop.time() for each in self.handles)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loop, name)


def test_requests_that_wait_for_room_share_that_timer() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        counted = _CountedTimers(loop)
        sent: list[object] = []
        book = RequestsInFlight(cast(asyncio.AbstractEventLoop, counted), 1000, sent.append, _unheard)
        first = asked(book, 1, 20.0)
        waiting = {number: asked(book, number, 1.0 + number / 10) for number in range(2, 52)}
        assert (len(sent), counted.set_now()) == (1, 1)
        began, ends = loop.time(), dict[int, float]()
        for number, reply in waiting.items():
            reply.add_done_callback(lambda _, number=number: ends.setdefault(number, loop.time() - began))  # type: ignore[misc]
        await asyncio.sleep(4.05)
        on_time = {each: 1.0 + each / 10 for each in range(2, 31)}
        assert {number: round(end, 1) for number, end in ends.items()} == on_time
        assert all(isinstance(waiting[each].exception(), TooManyBytesInFlight) for each in ends)
        assert book.answered(1) is first
        assert len(sent) == 2, "the first that still waits has room now"
        await asyncio.sleep(0.1)
        assert isinstance(waiting[31].exception(), RequestTimedOut), "its time began when it was made"
        book.fail_all("over")
        assert isinstance(waiting[51].exception(), StreamNotOpen)

    on_a_loop(main)


def test_a_request_too_large_for_the_room_gives_way_when_its_time_is_over() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        sent: list[object] = []
        book = RequestsInFlight(loop, 2000, sent.append, _unheard)
        asked(book, 1, 20.0)
        large: Reply = loop.create_future()
        book.start(large, 2, [b"x"], 1900, 1.0)
        small = asked(book, 3, 20.0)
        assert len(sent) == 1
        await asyncio.sleep(1.1)
        assert isinstance(large.exception(), TooManyBytesInFlight)
        assert len(sent) == 2
        assert not small.done()
        book.fail_all("over")

    on_a_loop(main)


def test_the_other_side_hears_once_of_all_that_were_cancelled_and_they_count_until_it_answers() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        told: list[GivenUp] = []
        book = RequestsInFlight(loop, 10_000, _unheard, told.append)
        replies = [asked(book, number, 20.0) for number in range(1, 5)]
        replies[0].cancel()
        book.look_for_cancelled()
        replies[2].cancel()
        book.look_for_cancelled()
        assert told == []
        await asyncio.sleep(0)
        assert told == [GivenUp((1, 3))]
        replies[3].cancel()
        book.look_for_cancelled()
        await asyncio.sleep(0)
        assert told == [GivenUp((1, 3)), GivenUp((4,))]
        assert len(book) == 4
        for number in (1, 3, 4):
            assert book.answered(number) is not None
        assert not replies[1].done()
        assert len(book) == 1
        book.fail_all("over")

    on_a_loop(main)


def test_very_many_that_were_cancelled_are_told_in_portions() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        told: list[GivenUp] = []
        book = RequestsInFlight(loop, 10_000_000, _unheard, told.append)
        for reply in [asked(book, number, 20.0) for number in range(1, 2_501)]:
            reply.cancel()
        book.look_for_cancelled()
        await asyncio.sleep(0)
        assert [len(each.requests) for each in told] == [1_000, 1_000, 500]
        assert [number for each in told for number in each.requests] == list(range(1, 2_501))
        book.fail_all("over")

    on_a_loop(main)


def test_a_request_that_was_cancelled_while_it_waited_for_room_is_never_sent() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        sent, told = list[object](), list[GivenUp]()
        book = RequestsInFlight(loop, 2000, sent.append, told.append)
        asked(book, 1, 20.0)
        large: Reply = loop.create_future()
        book.start(large, 2, [b"large"], 1900, 20.0)
        small = asked(book, 3, 20.0)
        large.cancel()
        book.look_for_cancelled()
        await asyncio.sleep(0)
        assert sent == [[b"x"], [b"x"]], "the one behind it has room"
        assert told == []
        assert not small.done()
        book.fail_all("over")

    on_a_loop(main)


def test_a_taker_hears_an_answer_at_once_and_an_error_a_turn_later() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        heard: list[object] = []
        AnswerCall(loop, heard.append).set_result(_DONE)
        assert heard == [_DONE]
        error = StreamClosed("a peer", "it went away")
        AnswerCall(loop, heard.append).set_exception(error)
        assert heard == [_DONE]
        await asyncio.sleep(0)
        assert heard == [_DONE, error]

    on_a_loop(main)


def test_a_taker_that_fails_does_not_fail_the_stream() -> None:
    async def main() -> None:
        loop, told = asyncio.get_running_loop(), list[object]()
        loop.set_exception_handler(lambda _, context: told.append(context["exception"]))
        failure = ZeroDivisionError()

        def fails(_: object) -> None:
            raise failure

        AnswerCall(loop, fails).set_result(_DONE)
        assert told == [failure]

    asyncio.run(main())


# --- answering ---


class Server:
    """A `RequestsHeld` whose answers are written down."""

    def __init__(self, max_owed: int = 8) -> None:
        self.owed: list[LaterAnswer] = []
        self.answers: list[tuple[int, Answer, BaseException | None]] = []
        limits = StreamLimits(max_handlers=1, max_owed=max_owed)
        self.held = RequestsHeld(self._owe, limits, lambda *answer: self.answers.append(answer), lambda _: None)
        self.held.is_internal = True

    def _owe(self, _: Request) -> LaterAnswer:
        self.owed.append(LaterAnswer())
        return self.owed[-1]

    def take(self, number: int) -> None:
        self.held.take(Request(Done(), bytearray(), bytes(16), 0, None, number, 100))  # type: ignore[arg-type]


def test_an_owed_answer_goes_out_in_the_moment_in_which_it_is_given() -> None:
    async def main(_: asyncio.AbstractEventLoop) -> None:
        server = Server()
        server.take(1)
        server.take(2)
        assert server.answers == []
        server.owed[1].give(_DONE)
        assert server.answers == [(2, _DONE, None)]
        error = StreamNotOpen("a peer", "no")
        server.owed[0].fail(error)
        assert server.answers[1] == (1, None, error)
        assert server.held.bytes_held == 0

    on_a_loop(main)


def test_owed_answers_take_no_handlers_place_and_have_a_bound_of_their_own() -> None:
    async def main(_: asyncio.AbstractEventLoop) -> None:
        server = Server()
        for number in range(10):
            server.take(number)
        assert len(server.owed) == 8

    on_a_loop(main)


def test_the_next_begins_when_an_owed_answer_is_given() -> None:
    async def main(_: asyncio.AbstractEventLoop) -> None:
        server = Server(max_owed=1)
        server.take(1)
        server.take(2)
        assert len(server.owed) == 1
        server.owed[0].give(_DONE)
        assert len(server.owed) == 1  # not in the middle of what its giver does
        await asyncio.sleep(0)
        assert len(server.owed) == 2

    on_a_loop(main)


def test_what_is_given_up_is_answered_at_once_and_not_begun() -> None:
    async def main(_: asyncio.AbstractEventLoop) -> None:
        server = Server(max_owed=2)
        for number in (1, 2, 3, 4, 5):
            server.take(number)
        cancelled: list[int] = []
        server.owed[0].when_cancelled(lambda: cancelled.append(1))
        server.held.given_up((1, 4, 77))
        assert cancelled == [1]
        assert sorted(number for number, _, _ in server.answers) == [1, 4]
        assert all(isinstance(failure, StreamNotOpen) for _, _, failure in server.answers)
        assert server.held.bytes_held == 300
        await asyncio.sleep(0)
        assert len(server.owed) == 3, "the third has the place of the first, and the fourth never begins"
        for owed in server.owed[1:]:
            owed.give(_DONE)
        await asyncio.sleep(0)
        server.owed[-1].give(_DONE)
        assert sorted(number for number, _, _ in server.answers) == [1, 2, 3, 4, 5]
        assert server.held.bytes_held == 0

    on_a_loop(main)


def test_a_handler_at_work_goes_on_when_its_request_is_given_up_and_one_that_waits_does_not() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        waits: asyncio.Future[Answer] = loop.create_future()
        done: list[int] = []

        async def work() -> Answer:
            await asyncio.sleep(1.0)
            done.append(1)
            return _DONE

        handlers = iter((work(), waits))
        answers: list[tuple[int, Answer, BaseException | None]] = []
        held = RequestsHeld(lambda _: next(handlers), StreamLimits(), lambda *each: answers.append(each), _unheard)
        held.is_internal = True
        for number in (1, 2):
            held.take(Request(Done(), bytearray(), bytes(16), 0, None, number, 100))  # type: ignore[arg-type]
        held.given_up((1, 2))
        await asyncio.sleep(0)
        assert waits.cancelled()
        ((number, _, failure),) = answers
        assert (number, type(failure)) == (2, StreamNotOpen)
        await asyncio.sleep(2.0)
        assert done == [1]
        assert answers[1] == (1, _DONE, None)

    on_a_loop(main)


def test_an_end_waits_no_more_for_what_is_given_up() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        server = Server()
        server.take(1)
        loop.call_later(0.5, server.held.given_up, (1,))
        began = loop.time()
        await server.held.end(2.0)
        assert round(loop.time() - began, 1) == 0.5

    on_a_loop(main)


@pytest.mark.parametrize("is_given", [True, False])
def test_an_end_waits_for_what_is_owed_and_then_cancels_it(is_given: bool) -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        server = Server()
        server.take(1)
        if is_given:
            loop.call_later(0.5, server.owed[0].give, _DONE)
        began = loop.time()
        await server.held.end(2.0)
        assert round(loop.time() - began, 1) == (0.5 if is_given else 2.0)
        ((number, answer, failure),) = server.answers
        assert (number, answer) == ((1, _DONE) if is_given else (1, None))
        assert isinstance(failure, StreamNotOpen) != is_given
        assert server.owed[0].done()

    on_a_loop(main)


def test_an_owed_answer_can_be_awaited_before_and_after_it_is_given() -> None:
    async def main(loop: asyncio.AbstractEventLoop) -> None:
        given, failed = LaterAnswer(), LaterAnswer()
        loop.call_soon(given.give, _DONE)
        assert await given is _DONE
        assert await given is _DONE
        failed.fail(StreamNotOpen("a peer", "no"))
        with pytest.raises(StreamNotOpen):
            await failed

    on_a_loop(main)


# --- appends that wait ---


def test_waiting_appends_have_their_own_time_outs() -> None:
    async def main(timers: Timers) -> None:
        counters = ReplicaCounters(asyncio.get_running_loop().time)
        waits = AppendWaits(PartitionName("t", bytes(16), 0), timers, counters)
        answer = Appended(0, -1, 0)
        slow, quick = waits.wait(1, 10, answer, 5_000, 0.0), waits.wait(2, 10, answer, 500, 0.0)
        await asyncio.sleep(1.0)
        assert quick.done()
        assert not slow.done()
        with pytest.raises(AppendTimedOut):
            await quick
        later = waits.wait(3, 10, answer, 1_000, 0.0)
        waits.release(1)
        assert await slow == Response(answer)
        await asyncio.sleep(2.0)
        assert later.done()
        assert len(waits) == 0

    in_a_process(main, 30.0)


def test_memory_that_is_not_cleared_is_of_the_size_that_was_asked_for_and_writable() -> None:
    memory = raw_memory(3_000_000)
    assert (type(memory), len(memory)) == (bytearray, 3_000_000)
    memory[:] = b"\x07" * len(memory)
    assert memory.count(7) == len(memory)
    assert raw_memory(0) == b""

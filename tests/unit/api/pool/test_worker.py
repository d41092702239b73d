"""A worker: how it begins, opens its loop again, stops, and what it says of itself."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from random import Random
from typing import Any

import pytest

from raylog.actors.kernel.backoff import Backoff
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.pool.careful_hands import CarefulHands
from raylog.api.pool.handlers import Handler, check_handler
from raylog.api.pool.record_loop import RecordLoop, watched
from raylog.api.pool.rules.fleet import Phase
from raylog.api.pool.rules.load import WorkDone
from raylog.api.pool.rules.poison import Place
from raylog.api.pool.work_meter import WorkMeter
from raylog.api.pool.worker import Loop, Orders, Worker
from raylog.errors import HandlerFailed, RaylogError, RecordUnreadable, RequestTimedOut

RECORD = ConsumerRecord("t", 0, 7, 0, 0, None, b"v", (), 0)


class Script:
    """A loop that does what it is told, run after run."""

    def __init__(self, *runs: Callable[[Worker], None]) -> None:
        self.runs = list(runs)
        self.log: list[str] = []
        self.worker: Worker | None = None
        self.now = 0.0
        self.meter = WorkMeter(lambda: 0.0)

    @contextmanager
    def open(self, handler: Handler, pause: Callable[[float], bool]) -> Iterator[Loop]:
        self.log.append("open")
        try:
            yield self
        finally:
            self.log.append("close")

    def run(self) -> None:
        assert self.worker is not None
        self.runs.pop(0)(self.worker)


def worker_of(script: Script, make: Callable[[], Handler] = lambda: Handler(print)) -> Worker:
    meter = WorkMeter(lambda: script.now)
    backoff = Backoff(0.0, 0.0, Random(1))
    script.meter = meter
    worker = Worker("w1", 3, make, script.open, CarefulHands(lambda _: None), meter, backoff, 30.0)
    script.worker = worker
    return worker


def fail(error: BaseException) -> Callable[[Worker], None]:
    def run(_: Worker) -> None:
        raise error

    return run


def test_it_opens_its_loop_again_after_trouble_and_closes_each() -> None:
    trouble: RaylogError = RequestTimedOut("a leader", 10)
    script = Script(fail(trouble), fail(trouble), lambda worker: worker.stop())
    worker = worker_of(script)
    assert worker.report(Orders()).phase is Phase.STARTING
    worker.run()
    assert script.log == ["open", "close"] * 3
    assert (worker.report(Orders()).phase, worker.is_over) == (Phase.ENDED, True)


def test_it_is_running_while_its_loop_runs_and_stopping_when_it_was_asked_to() -> None:
    phases = []

    def look(worker: Worker) -> None:
        phases.append(worker.report(Orders()).phase)
        worker.stop()
        phases.append(worker.report(Orders()).phase)

    worker_of(Script(look)).run()
    assert phases == [Phase.RUNNING, Phase.STOPPING]


@pytest.mark.parametrize(
    ("error", "phase"),
    [(HandlerFailed("t", 0, 7, 4, "bad"), Phase.HALTED), (SystemExit(3), Phase.ENDED), (ValueError("x"), Phase.ENDED)],
)
def test_it_says_why_it_has_ended(error: BaseException, phase: Phase) -> None:
    script = Script(fail(error))
    worker = worker_of(script)
    worker.run()
    report = worker.report(Orders())
    assert (report.phase, report.came_up, report.version) == (phase, True, 3)
    assert report.error.startswith(type(error).__name__)
    assert script.log == ["open", "close"]


def test_a_handler_that_cannot_be_made_ends_it_before_it_came_up() -> None:
    def make() -> Handler:
        raise OSError("no model")

    worker = worker_of(Script(), make)
    worker.run()
    report = worker.report(Orders())
    assert (report.phase, report.came_up, report.error) == (Phase.ENDED, False, "OSError: no model")


def test_objects_of_a_class_are_closed_in_the_end() -> None:
    closed = []

    class Model:
        def __call__(self, record: ConsumerRecord) -> None: ...

        async def close(self) -> None:
            closed.append(1)

    worker_of(Script(lambda _: None), lambda: Handler(Model)).run()
    assert closed == [1]


@pytest.mark.parametrize("raised", [OSError("no disk"), SystemExit(3)])
def test_a_close_that_fails_does_not_hide_why_the_handler_has_given_up(
    raised: BaseException, caplog: pytest.LogCaptureFixture
) -> None:
    class Model:
        def __call__(self, record: ConsumerRecord) -> None: ...

        def close(self) -> None:
            raise raised

    worker = worker_of(Script(fail(HandlerFailed("t", 0, 7, 4, "bad"))), lambda: Handler(Model))
    worker.run()
    report = worker.report(Orders())
    assert (report.phase, report.error[:13]) == (Phase.HALTED, "HandlerFailed")
    assert raised in [each.exc_info[1] for each in caplog.records if each.exc_info]
    worker = worker_of(Script(lambda _: None), lambda: Handler(Model))
    worker.run()
    assert worker.report(Orders()).error == f"{type(raised).__name__}: {raised}", "nothing came before it"


def test_a_handler_that_does_not_return_ends_it() -> None:
    script = Script()
    seen = []

    def hang(worker: Worker) -> None:
        script.meter.has(1, is_full=True)
        script.now += 29
        seen.append(worker.report(Orders()).phase)
        script.now += 1
        seen.append(worker.report(Orders()).phase)

    script.runs.append(hang)
    worker_of(script).run()
    assert seen == [Phase.RUNNING, Phase.ENDED]


def test_trouble_with_brokers_is_not_taken_for_a_handler_that_hangs() -> None:
    seen: list[Phase] = []

    def trouble(_: Worker) -> None:
        script.meter.has(4, is_full=True)
        raise RequestTimedOut("a leader", 10)

    def look(worker: Worker) -> None:
        script.now += 31
        seen.append(worker.report(Orders()).phase)

    script = Script(trouble, look)
    worker_of(script).run()
    assert seen == [Phase.RUNNING]


def test_a_stop_before_it_runs_is_obeyed() -> None:
    script = Script()
    worker = worker_of(script)
    worker.stop()
    worker.run()
    assert (script.log, worker.is_over) == ([], True)


# --- records one by one -----------------------------------------------------------------------------------------------


class FakeParallelConsumer:
    def __init__(self) -> None:
        self.told = {
            "records_done": 0, "attempts_failed": 0, "records_given_up": 0, "records_held": 0, "records_running": 0,
        }  # fmt: skip
        self.steps: list[dict[str, int]] = []

    def run(self, timeout_ms: float | None = None) -> None:
        assert timeout_ms
        self.told |= self.steps.pop(0)

    def metrics(self) -> dict[str, Any]:
        return self.told

    def positions(self) -> dict[TopicPartition, int | None]:
        return {TopicPartition("t", 0): 9, TopicPartition("t", 1): None}


def test_a_record_loop_measures_while_there_is_more_than_it_can_do() -> None:
    now = [0.0]
    meter = WorkMeter(lambda: now[0])
    consumer = FakeParallelConsumer()
    consumer.steps = [
        {"records_held": 500, "records_running": 4, "records_done": 0},
        {"records_held": 480, "records_running": 4, "records_done": 20, "attempts_failed": 2},
        {"records_held": 3, "records_running": 3, "records_done": 497},
        {"records_held": 0, "records_running": 0, "records_done": 500, "records_given_up": 1},
    ]

    def pause(_: float) -> bool:
        now[0] += 1
        return not consumer.steps

    seen = []
    loop = RecordLoop(consumer, 4, meter, pause)
    look = loop.look

    def looked() -> None:
        look()
        seen.append(meter.read())

    loop.look = looked  # type: ignore[method-assign]
    loop.run()
    assert [each.done for each in seen] == [
        WorkDone(0, 0.0, 4), WorkDone(20, 1.0, 4), WorkDone(497, 2.0, 3), WorkDone(497, 2.0, 0),
    ]  # fmt: skip
    assert seen[2].positions == {}
    assert seen[3].positions == {TopicPartition("t", 0): 9}
    assert (seen[3].handled, seen[3].failed, seen[3].put_aside, seen[3].partitions) == (500, 2, 1, 2)
    consumer.steps = [{"records_done": 5}]
    RecordLoop(consumer, 4, meter, lambda _: not consumer.steps).run()
    assert meter.read().handled == 505, "those of the consumer before count"


def test_careful_hands_let_one_record_through_at_a_time() -> None:
    told: list[Place] = []
    hands = CarefulHands(told.append)
    hands.orders(is_careful=True, poison=frozenset({("t", 0, 8)}))
    inside, most = [], [0]
    gate = threading.Barrier(2, timeout=20)

    def function(record: ConsumerRecord) -> None:
        inside.append(record)
        most[0] = max(most[0], len(inside))
        inside.remove(record)

    handle = watched(Handler(function), hands)

    def work() -> None:
        gate.wait()
        for _ in range(50):
            handle(RECORD)

    threads = [threading.Thread(target=work) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(20)
    assert (most, len(told)) == ([1], 100)
    with pytest.raises(RecordUnreadable):
        handle(RECORD._replace(offset=8))


def test_coroutines_have_careful_hands_too() -> None:
    told: list[Place] = []
    hands = CarefulHands(told.append)
    seen = []

    async def function(record: ConsumerRecord) -> None:
        seen.append(len(told))

    handle = watched(Handler(function), hands)

    async def work() -> None:
        await handle(RECORD)
        hands.orders(is_careful=True, poison=frozenset())
        await asyncio.gather(handle(RECORD), handle(RECORD))

    asyncio.run(work())
    assert seen == [0, 1, 2]


class OneCall(ThreadPoolExecutor):
    """Has one thread, and no patience with a second call that waits for it."""

    def __init__(self) -> None:
        super().__init__(1)
        self._calls = 0

    def submit(self, *call: Any, **named: Any) -> Future[Any]:
        assert self._calls == 0, "it would wait for a thread"
        self._calls += 1
        future = super().submit(*call, **named)
        future.add_done_callback(self._done)
        return future

    def _done(self, _: Future[Any]) -> None:
        self._calls -= 1


def test_many_careful_coroutines_wait_for_each_other_without_threads_also_if_one_is_cancelled() -> None:
    told: list[Place] = []
    hands = CarefulHands(told.append)
    hands.orders(is_careful=True, poison=frozenset())
    inside: list[int] = []
    order = []

    async def work() -> None:
        asyncio.get_running_loop().set_default_executor(OneCall())
        entered, gate = asyncio.Event(), asyncio.Event()

        async def function(record: ConsumerRecord) -> None:
            inside.append(record.offset)
            entered.set()
            await gate.wait()
            assert inside.pop() == record.offset
            assert not inside
            order.append(record.offset)

        handle = watched(Handler(function), hands)
        tasks = [asyncio.ensure_future(handle(RECORD._replace(offset=offset))) for offset in range(16)]
        await asyncio.wait_for(entered.wait(), 20)
        tasks[1].cancel()
        gate.set()
        ends = await asyncio.wait_for(asyncio.gather(*tasks, return_exceptions=True), 20)
        assert [type(end) for end in ends if end is not None] == [asyncio.CancelledError]

    asyncio.run(work())
    assert order == [0, *range(2, 16)]
    assert told == [("t", 0, offset) for offset in order]


def test_what_handles_nothing_is_refused() -> None:
    class Nothing:
        pass

    for wrong in (3, Nothing):
        with pytest.raises(TypeError):
            check_handler(wrong)
    check_handler(print)

"""Many workers for the records of a group's partitions, with a real coordinator behind a make-believe cluster."""

from __future__ import annotations

import asyncio
import gc
import json
import sys
import threading
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer import consumer_core
from raylog.api.parallel import parallel_consumer as parallel_module
from raylog.api.parallel.dead_letters import DeadLetters
from raylog.api.parallel.parallel_consumer import ParallelConsumer
from raylog.errors import (
    ClusterUnreachable,
    ConsumerClosed,
    DeadLetterFailed,
    GroupRequired,
    HandlerFailed,
    HandlerTimedOut,
    InvalidConfig,
    RecordTooLarge,
    RecordUnreadable,
    UnknownConfig,
    UnknownTopic,
    WaitRefused,
)
from tests.streams.test_group_consumer import Cluster

ALL = [TopicPartition("t", number) for number in range(4)]


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> Iterator[Cluster]:
    made = Cluster()

    async def release(self: ClientRuntime, link: object) -> None:
        """Release nothing: there is one link for all."""

    monkeypatch.setattr(consumer_core, "open_link", lambda *_: made.link)
    monkeypatch.setattr(ClientRuntime, "release_link", release)
    yield made
    made.close()


class Seen:
    """A handler that writes down what it was given; `gate` holds up those that it is asked to."""

    def __init__(self) -> None:
        self.places: list[tuple[int, int]] = []
        self.values: list[Any] = []
        self.held: set[tuple[int, int]] = set()
        self.waiting: list[tuple[int, int]] = []
        self.gate = threading.Event()

    def __call__(self, record: ConsumerRecord) -> None:
        place = (record.partition, record.offset)
        if place in self.held:
            self.waiting.append(place)
            assert self.gate.wait(20.0)
        self.values.append(record.value)
        self.places.append(place)


def parallel(handler: Any, **settings: Any) -> ParallelConsumer:
    chosen: Any = {
        "group_id": "g", "auto_offset_reset": "earliest", "session_timeout_ms": 6000, "workers": 4,
        "auto_commit_interval_ms": 50, "retry_pause_ms": 1, **settings,
    }  # fmt: skip
    return ParallelConsumer("t", handler=handler, **chosen)


def committed(cluster: Cluster) -> list[int]:
    with cluster.consumer("t") as reader:
        found = reader.committed_offsets(ALL)
    return [-1 if found[each] is None else found[each].offset for each in ALL]  # type: ignore[union-attr]


def until(condition: Callable[[], object], seconds: float = 15.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not come true in time"
        time.sleep(0.005)


class InBackground:
    """`run` in a thread of its own."""

    def __init__(self, consumer: ParallelConsumer) -> None:
        self.error: BaseException | None = None
        self._consumer = consumer
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        try:
            self._consumer.run()
        except BaseException as error:  # noqa: BLE001 (the test looks at it)
            self.error = error

    def end(self) -> None:
        self._consumer.stop()
        self.join()

    def join(self) -> None:
        self._thread.join(20.0)
        assert not self._thread.is_alive()


@pytest.mark.parametrize("order", ["key", "partition", "unordered"])
def test_each_record_is_handled_and_committed(cluster: Cluster, order: str) -> None:
    cluster.fill(300)
    seen = Seen()
    with parallel(seen, order=order, window=50, consumer_timeout_ms=300) as consumer:
        consumer.run()
        assert consumer.metrics()["records_done"] == 1200
    assert sorted(seen.places) == [(partition, offset) for partition in range(4) for offset in range(300)]
    assert committed(cluster) == [300] * 4
    if order == "partition":
        for number in range(4):
            assert [offset for partition, offset in seen.places if partition == number] == list(range(300))


def test_coroutines_are_handled_many_at_once(cluster: Cluster) -> None:
    cluster.fill(50)
    at_once, most, seen = 0, 0, []

    async def handle(record: ConsumerRecord) -> None:
        nonlocal at_once, most
        at_once += 1
        most = max(most, at_once)
        await asyncio.sleep(0.01)
        at_once -= 1
        if record.offset == 7 and record.partition == 1 and (1, 7) not in seen:
            seen.append((1, 7))
            raise ValueError("once")
        seen.append((record.partition, record.offset))

    with parallel(handle, workers=64, consumer_timeout_ms=300) as consumer:
        consumer.run()
    assert len(set(seen)) == 200 == len(seen) - 1
    assert 32 < most <= 64
    assert committed(cluster) == [50] * 4


def test_what_is_committed_is_contiguous_and_what_is_behind_comes_again(cluster: Cluster) -> None:
    cluster.fill(20)
    seen = Seen()
    seen.held = {(0, 5)}
    consumer = parallel(seen)
    running = InBackground(consumer)
    until(lambda: len(seen.places) == 79)
    until(lambda: committed(cluster) == [5, 20, 20, 20])
    running.end()
    consumer.close(timeout_ms=300)  # which leaves what hangs to the group
    seen.gate.set()
    again = Seen()
    with parallel(again, consumer_timeout_ms=300) as successor:
        successor.run()
    assert sorted(again.places) == [(0, offset) for offset in range(5, 20)]
    assert committed(cluster) == [20] * 4


def test_a_window_bounds_how_far_it_runs_ahead(cluster: Cluster) -> None:
    cluster.fill(100)
    seen = Seen()
    seen.held = {(0, 0)}
    with parallel(seen, window=10) as consumer:
        running = InBackground(consumer)
        until(lambda: len(seen.places) == 309)
        time.sleep(0.1)
        assert len([each for each in seen.places if each[0] == 0]) == 9
        seen.gate.set()
        until(lambda: len(seen.places) == 400)
        running.end()
    assert committed(cluster) == [100] * 4


def test_a_partition_that_moves_waits_for_what_is_worked_on_and_is_committed(cluster: Cluster) -> None:
    cluster.fill(10)
    seen = Seen()
    seen.held = {(number, 3) for number in range(4)}
    with parallel(seen, workers=8) as consumer:
        running = InBackground(consumer)
        until(lambda: len(seen.waiting) == 4 and len(seen.places) == 36)
        other_seen = Seen()
        with parallel(other_seen) as other:
            other_running = InBackground(other)
            time.sleep(0.3)
            assert other_seen.places == []
            seen.gate.set()
            until(lambda: len(seen.places) == 40)
            until(lambda: committed(cluster) == [10] * 4)
            cluster.fill(5)
            until(lambda: len(seen.places) + len(other_seen.places) == 60)
            other_running.end()
        assert other_seen.places
        running.end()
    assert len(set(seen.places + other_seen.places)) == 60  # each once: nobody was at a record of another
    assert consumer.metrics()["results_thrown_away"] == 0


def test_what_is_done_too_late_is_thrown_away(cluster: Cluster) -> None:
    cluster.fill(10)
    seen = Seen()
    seen.held = {(number, 3) for number in range(4)}
    with parallel(seen, workers=8, revoke_timeout_ms=100) as consumer:
        running = InBackground(consumer)
        until(lambda: len(seen.places) == 36)
        with parallel(Seen()) as other:
            other_running = InBackground(other)
            until(lambda: other.metrics()["records_done"] == 14)  # of two partitions, from offset 3 on
            seen.gate.set()
            until(lambda: consumer.metrics()["results_thrown_away"] == 2)
            other_running.end()
        running.end()
    assert committed(cluster) == [10] * 4


def test_a_record_that_fails_for_good_ends_the_run_and_is_not_committed(cluster: Cluster) -> None:
    cluster.fill(5)

    def handle(record: ConsumerRecord) -> None:
        if (record.partition, record.offset) == (1, 2):
            raise ValueError("not this one")

    with pytest.raises(HandlerFailed) as caught, parallel(handle, retries=2, consumer_timeout_ms=300) as consumer:
        consumer.run()
    error = caught.value
    assert (error.topic, error.partition, error.offset, error.attempts) == ("t", 1, 2, 3)
    assert isinstance(error.__cause__, ValueError)
    assert committed(cluster)[1] == 2


def test_it_may_be_skipped(cluster: Cluster) -> None:
    cluster.fill(5)

    def handle(record: ConsumerRecord) -> None:
        raise ValueError("none of them")

    with parallel(handle, retries=0, when_exhausted="skip", consumer_timeout_ms=300) as consumer:
        consumer.run()
        assert consumer.metrics()["records_given_up"] == 20
    assert committed(cluster) == [5] * 4


class FakeLetters:
    """A stand-in for `DeadLetters`, whose producer needs a cluster."""

    topic = "dead"
    may_succeed_later = staticmethod(DeadLetters.may_succeed_later)

    def __init__(self, *refusals: Exception) -> None:
        self.refusals = list(refusals)
        self.written: list[tuple[int, int, bytes | None, type[BaseException], int]] = []

    def write(self, record: ConsumerRecord, error: BaseException, attempts: int) -> None:
        if self.refusals:
            raise self.refusals.pop()
        self.written.append((record.partition, record.offset, record.value, type(error), attempts))

    def close(self, seconds: float) -> None:
        """Close nothing: there is nothing to close."""


def test_a_dead_letter_has_the_bytes_that_nobody_could_read(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.do(lambda: cluster.link.add_topic("dead", 1))
    cluster.do(lambda: cluster.logs[0].append(b"1", b"{", b"3"))
    letters = FakeLetters(ClusterUnreachable("somewhere", 1, "nobody answers"))
    monkeypatch.setattr(parallel_module, "DeadLetters", lambda *_: letters)
    seen = Seen()
    with parallel(
        seen, value_deserializer=json.loads, dead_letter_topic="dead", consumer_timeout_ms=300, longest_retry_pause_ms=5
    ) as consumer:
        consumer.run()
    assert sorted(seen.values) == [1, 3]
    assert letters.written == [(0, 1, b"{", RecordUnreadable, 1)]
    assert committed(cluster)[0] == 3


def test_one_that_cannot_be_put_aside_ends_the_run(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    cluster.do(lambda: cluster.link.add_topic("dead", 1))
    cluster.do(lambda: cluster.logs[0].append(b"{"))
    letters = FakeLetters(RecordTooLarge("dead", 2, 1))
    monkeypatch.setattr(parallel_module, "DeadLetters", lambda *_: letters)
    settings: Any = {"value_deserializer": json.loads, "dead_letter_topic": "dead"}
    with pytest.raises(DeadLetterFailed) as caught, parallel(Seen(), **settings) as consumer:
        consumer.run()
    assert isinstance(caught.value.__cause__, RecordTooLarge)
    assert committed(cluster)[0] in (-1, 0)


def test_a_handler_that_hangs_is_named_with_its_member(cluster: Cluster) -> None:
    cluster.fill(5)
    seen = Seen()
    seen.held = {(2, 1)}
    with parallel(seen, max_poll_interval_ms=400) as consumer:
        with pytest.raises(HandlerTimedOut) as caught:
            consumer.run()
        seen.gate.set()
    error = caught.value
    assert (error.group, error.topic, error.partition, error.offset) == ("g", "t", 2, 1)
    assert (len(error.member), error.epoch > 0, error.elapsed_ms >= 400) == (32, True, True)


def test_slow_handlers_cost_no_membership(cluster: Cluster) -> None:
    """All of them together are slower than max_poll_interval_ms; none is by itself."""
    cluster.fill(8)
    with parallel(lambda _: time.sleep(0.1), workers=1, max_poll_interval_ms=500) as consumer:
        running = InBackground(consumer)
        until(lambda: consumer.metrics()["records_done"] == 8)
        member = consumer._consumer.group_metadata()
        until(lambda: consumer.metrics()["records_done"] == 16)
        assert consumer._consumer.group_metadata() == member
        running.end()
        consumer.close(drain=False)


def test_a_function_that_returns_a_coroutine_is_found_out(cluster: Cluster) -> None:
    cluster.fill(1)

    class Later:
        def __call__(self, record: ConsumerRecord) -> Any:
            async def later() -> None:
                """Do it later; nobody awaits it."""

            return later()

    with pytest.raises(HandlerFailed, match="async def"), parallel(Later()) as consumer:
        consumer.run()


def test_a_handler_that_ends_the_program_does(cluster: Cluster) -> None:
    cluster.fill(1)
    with pytest.raises(SystemExit), parallel(lambda _: sys.exit(3)) as consumer:
        consumer.run()
    assert committed(cluster) == [0] * 4


def test_a_handler_may_stop_and_must_not_close(cluster: Cluster) -> None:
    cluster.fill(1)
    refused: list[BaseException] = []

    def handle(record: ConsumerRecord) -> None:
        try:
            consumer.close()
        except WaitRefused as error:
            refused.append(error)
        consumer.stop()

    with parallel(handle) as consumer:
        consumer.run()
    assert refused
    assert consumer.metrics()["records_held"] == 0  # what was taken was finished
    with pytest.raises(ConsumerClosed):
        consumer.run()
    consumer.close()


def test_one_that_is_dropped_ends_its_workers(cluster: Cluster) -> None:
    before = threading.active_count()
    consumer = parallel(Seen(), workers=3)
    consumer.run(timeout_ms=50)
    assert threading.active_count() == before + 3
    del consumer
    gc.collect()
    until(lambda: threading.active_count() == before)


def test_one_that_was_interrupted_while_it_took_records_only_closes(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.fill(5)
    with parallel(Seen()) as consumer:
        with monkeypatch.context() as patch:
            patch.setattr(consumer._work, "take", _interrupt)
            with pytest.raises(KeyboardInterrupt):
                consumer.run(timeout_ms=5000)
        with pytest.raises(ConsumerClosed):
            consumer.run()
    assert committed(cluster) == [-1] * 4


def _interrupt(found: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize(
    ("settings", "error"),
    [
        ({"handler": 5}, InvalidConfig),
        ({"order": "keys"}, InvalidConfig),
        ({"workers": 0}, InvalidConfig),
        ({"group_id": None}, GroupRequired),
        ({"enable_auto_commit": True}, InvalidConfig),
        ({"revoke_timeout_ms": 300_000}, InvalidConfig),
        ({"windows": 5}, UnknownConfig),
        ({"dead_letter_topic": "t"}, InvalidConfig),
        ({"dead_letter_topic": "nowhere"}, UnknownTopic),
    ],
)
def test_what_cannot_be_is_refused_at_once(cluster: Cluster, settings: Any, error: type[Exception]) -> None:
    with pytest.raises(error):
        parallel(**{"handler": Seen(), **settings})

"""A worker's loop over lists, tables and transactions, with clients in memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from contextlib import closing, suppress
from random import Random
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.actors.kernel.backoff import Backoff
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.rules.column_batches import ColumnBatch
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.api.pool.careful_hands import CarefulHands
from raylog.api.pool.handlers import Handler
from raylog.api.pool.piece_loop import PieceLoop
from raylog.api.pool.rules.pool_options import PoolOptions
from raylog.api.pool.work_meter import WorkMeter
from raylog.errors import (
    BufferFull,
    ClusterUnreachable,
    FencedMember,
    HandlerFailed,
    ProducerFenced,
    RaylogError,
    RecordTooLarge,
    UnknownTopic,
)
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import check_batch, stamp
from tests.unit.api.pool.fake_clients import FakeConsumer, FakeLog, FakeProducer, fenced

A, B = TopicPartition("t", 0), TopicPartition("t", 1)


class World:
    """A loop with its fakes. It stops once all is committed, or after so many pauses."""

    def __init__(self, log: FakeLog, handler: Any, pauses: int = 100, **options: Any) -> None:
        self.log = log
        self.options = PoolOptions.parse({"takes": "batch", "retries": 2, **options})
        self.hands_told: list[Any] = []
        self.hands = CarefulHands(self.hands_told.append)
        self.consumer = FakeConsumer(log)
        self.producer = FakeProducer(log)
        self.now = 0.0
        self.meter = WorkMeter(lambda: self.now)
        self.waited: list[float] = []
        self.decoders: tuple[Deserializer | None, Deserializer | None] = (None, None)
        self._handler = handler
        self._left = pauses

    def run(self) -> None:
        backoff = Backoff(0.1, 30.0, Random(1))
        consumer: Any = self.consumer
        producer: Any = self.producer
        with closing(Handler(self._handler)) as handler:
            PieceLoop(
                consumer, producer, handler, self.options, "group", self.decoders, self.hands, self.meter,
                self.pause, backoff,
            ).run()  # fmt: skip

    def pause(self, seconds: float) -> bool:
        if seconds:
            self.waited.append(seconds)
        self._left -= 1
        return self._left < 0 or (seconds == 0 and self.log.is_done)


def numbers(records: list[ConsumerRecord]) -> list[int]:
    return [int(each.value) for each in records]


def test_lists_are_handled_in_order_and_committed_after_that() -> None:
    log, seen = FakeLog({0: 10, 1: 3}), list[int]()

    def handle(records: list[ConsumerRecord]) -> None:
        assert sum(log.committed.values()) == len(seen), "committed after it was handled, not before"
        seen.extend(numbers(records))

    world = World(log, handle)
    world.run()
    assert [each for each in seen if each < 100] == list(range(10))
    assert [each for each in seen if each >= 100] == [100, 101, 102]
    assert log.committed == {A: 10, B: 3}
    assert world.meter.read().handled == 13


def test_what_fails_is_tried_again_after_growing_pauses() -> None:
    log, tries = FakeLog({0: 2}), []

    def handle(records: list[ConsumerRecord]) -> None:
        tries.append(numbers(records))
        if len(tries) < 3:
            raise ValueError("not yet")

    world = World(log, handle)
    world.run()
    assert tries == [[0, 1]] * 3
    assert log.is_done
    assert [0.05 <= world.waited[0] <= 0.1, 0.1 <= world.waited[1] <= 0.2, len(world.waited)] == [True, True, 2]
    assert world.meter.read().failed == 2


@pytest.mark.parametrize(
    ("takes", "exactly_once"), [("batch", False), ("batch", True), ("record", True), ("arrow", False), ("arrow", True)]
)
def test_the_record_that_fails_is_found_and_put_aside_alone(takes: str, exactly_once: bool) -> None:
    log, seen = FakeLog({0: 9, 1: 4}), Counter[int]()

    def handle(given: Any, out: Any = None) -> None:
        values = _values(given)
        if {3, 5, 101}.intersection(values):
            raise ValueError("bad")
        seen.update(values)
        if out is not None:
            for each in values:
                out.send("results", b"%d" % each)

    world = World(log, handle, takes=takes, dead_letter_topic="dead", exactly_once=exactly_once)
    if takes == "arrow":
        world.consumer.poll_batches = poll_batches_of(world.consumer)  # type: ignore[attr-defined]
    world.run()
    assert log.is_done
    dead = [(value, dict(headers)) for topic, value, headers in log.sent if topic == "dead"]
    assert sorted(int(value) for value, _ in dead) == [3, 5, 101]
    assert {headers["dead-letter.reason"] for _, headers in dead} == {b"bad"}
    good = {*range(9), *range(100, 104)} - {3, 5, 101}
    assert set(seen) == good
    if exactly_once:
        assert sorted(int(value) for topic, value, _ in log.sent if topic == "results") == sorted(good), "each once"
    counts = world.meter.read()
    assert (counts.handled, counts.put_aside) == (13, 3)


def _values(given: Any) -> list[int]:
    if isinstance(given, ConsumerRecord):
        return [int(given.value)]
    if isinstance(given, list):
        return numbers(given)
    return [int(each) for each in given["value"].to_pylist()]


def poll_batches_of(consumer: FakeConsumer) -> Callable[[float, int], list[ColumnBatch]]:
    def poll_batches(timeout_ms: float, max_bytes: int) -> list[ColumnBatch]:
        assert max_bytes
        return [_batch(place, records) for place, records in consumer.poll(timeout_ms).items()]

    return poll_batches


def _batch(place: TopicPartition, records: list[ConsumerRecord]) -> ColumnBatch:
    data = encode_batch(
        [each.value for each in records], timestamps=[each.timestamp for each in records],
        keys=[each.key for each in records],
    )  # fmt: skip
    stamp(data, records[0].offset, 0)
    return ColumnBatch(place, check_batch(data), data, records[0].offset)


def test_without_a_dead_letter_topic_it_halts_or_skips() -> None:
    def handle(records: list[ConsumerRecord]) -> None:
        if 2 in numbers(records):
            raise ValueError("bad")

    log = FakeLog({0: 6})
    with pytest.raises(HandlerFailed) as caught:
        World(log, handle).run()
    assert (caught.value.offset, caught.value.attempts) == (2, 3)
    assert log.committed == {A: 2}, "up to the record that fails, and no further"
    log = FakeLog({0: 6})
    World(log, handle, when_exhausted="skip").run()
    assert log.is_done


def test_records_that_cannot_be_read_go_aside_without_a_retry() -> None:
    log, seen = FakeLog({0: 4}), list[Any]()
    world = World(log, lambda records: seen.extend(each.value for each in records), dead_letter_topic="dead")

    def decode(data: bytes) -> int:
        if data == b"1":
            raise ValueError("no number")
        return int(data) * 10

    world.decoders = (None, Deserializer(decode, takes_context=False))
    world.run()
    assert seen == [0, 20, 30]
    assert [value for _, value, _ in log.sent] == [b"1"]
    assert world.waited == []


def test_poison_is_put_aside_unseen_and_careful_hands_tell_of_each_record_before() -> None:
    log, seen = FakeLog({0: 4}), list[int]()
    world = World(log, lambda records: seen.extend(numbers(records)), dead_letter_topic="dead")
    world.hands.orders(is_careful=True, poison=frozenset({("t", 0, 2)}))
    world.run()
    assert seen == [0, 1, 3]
    assert world.hands_told == [("t", 0, 0), ("t", 0, 1), ("t", 0, 3)]
    assert [value for _, value, _ in log.sent] == [b"2"]


def test_a_table_that_is_tried_again_in_careful_times_is_not_told_of_as_its_first_record() -> None:
    log, seen = FakeLog({0: 4}), list[int]()

    def handle(table: Any) -> None:
        if not world.hands.is_careful:
            world.hands.orders(is_careful=True, poison=frozenset())
            raise ValueError("not yet")
        seen.extend(_values(table))

    world = World(log, handle, takes="arrow")
    world.consumer.poll_batches = poll_batches_of(world.consumer)  # type: ignore[attr-defined]
    world.run()
    assert (seen, world.hands_told) == ([0, 1, 2, 3], [])


def test_a_member_that_was_fenced_ends_the_loop_and_the_next_begins_at_what_is_committed() -> None:
    log, seen = FakeLog({0: 8}), Counter[int]()
    log.failures = [fenced()]
    with pytest.raises(FencedMember):
        World(log, lambda records: seen.update(numbers(records))).run()
    assert log.committed == {}
    World(log, lambda records: seen.update(numbers(records))).run()
    assert log.is_done
    assert seen == Counter({**dict.fromkeys(range(4), 2), **dict.fromkeys(range(4, 8), 1)}), "at least once"


def test_exactly_once_results_and_offsets_are_seen_together() -> None:
    log = FakeLog({0: 8})
    log.failures = [fenced()]

    def handle(records: list[ConsumerRecord], out: Any) -> None:
        for each in records:
            out.send("results", each.value)

    world = World(log, handle, exactly_once=True)
    with pytest.raises(FencedMember):
        world.run()
    assert log.sent == []
    World(log, handle, exactly_once=True).run()
    assert [int(value) for _, value, _ in log.sent] == list(range(8))


TROUBLE: list[RaylogError] = [
    BufferFull(10, 20, 30), ClusterUnreachable("a:1", 10, "nobody"), ProducerFenced(7, 1, 2),
]  # fmt: skip


@pytest.mark.parametrize("trouble", TROUBLE)
@pytest.mark.parametrize("is_wrapped", [False, True])
@pytest.mark.parametrize("takes", ["record", "batch"])
def test_trouble_of_the_outputs_ends_the_loop_and_is_no_failure_of_the_handler(
    trouble: RaylogError, is_wrapped: bool, takes: str
) -> None:
    log = FakeLog({0: 4})

    def handle(given: Any, out: Any) -> None:
        for each in _values(given):
            try:
                out.send("results", b"%d" % each)
            except RaylogError as error:
                if is_wrapped:
                    raise ValueError("could not send") from error
                raise

    world = World(log, handle, takes=takes, exactly_once=True, retries=0)
    world.producer.refusals = [trouble]
    with pytest.raises(type(trouble)):
        world.run()
    assert (log.committed, log.sent, world.producer.aborts, world.meter.read().failed) == ({}, [], 1, 0)
    World(log, handle, takes=takes, exactly_once=True, retries=0).run()
    assert [int(value) for _, value, _ in log.sent] == list(range(4))


@pytest.mark.parametrize("refusal", [UnknownTopic("results"), RecordTooLarge("results", 20, 10)])
def test_what_the_handler_should_not_have_sent_is_its_own_failure(refusal: RaylogError) -> None:
    log = FakeLog({0: 1})
    world = World(
        log, lambda records, out: out.send("results", b"x"), exactly_once=True, retries=0, dead_letter_topic="dead"
    )
    world.producer.refusals = [refusal]
    world.run()
    assert (log.is_done, [topic for topic, _, _ in log.sent]) == (True, ["dead"])


def test_trouble_that_a_handler_has_dealt_with_is_forgotten_by_its_next_call() -> None:
    log = FakeLog({0: 2})

    def handle(record: ConsumerRecord, out: Any) -> None:
        if record.offset == 1:
            raise ValueError("bad")
        with suppress(BufferFull):
            out.send("results", record.value)

    world = World(log, handle, takes="record", exactly_once=True, retries=0, dead_letter_topic="dead")
    world.producer.refusals = [TROUBLE[0], TROUBLE[0]]  # as one of two, and alone
    world.run()
    assert (log.is_done, [value for _, value, _ in log.sent]) == (True, [b"1"])


def test_a_stop_is_obeyed_in_a_pause_and_commits_nothing_that_is_not_done() -> None:
    log = FakeLog({0: 4})

    def fail(records: list[ConsumerRecord]) -> None:
        raise ValueError

    World(log, fail, pauses=3, retries=None).run()
    assert log.committed == {}


def test_with_nothing_in_hand_it_tells_how_far_it_has_read() -> None:
    log = FakeLog({0: 2, 9: 1})
    log.records[B] = []
    world = World(log, lambda _: None, pauses=3)
    log.committed[B] = -1  # so that it goes on
    world.run()
    counts = world.meter.read()
    assert counts.positions == {A: 2, B: 0}, "but not of a partition that it does not know"
    assert counts.partitions == 3


@pytest.mark.parametrize("kind", ["function", "class", "coroutine", "class with a coroutine"])
def test_handlers_are_functions_classes_and_coroutine_functions(kind: str) -> None:
    log, seen = FakeLog({0: 5}), list[int]()

    def function(records: list[ConsumerRecord]) -> None:
        seen.extend(numbers(records))

    async def coroutine(records: list[ConsumerRecord]) -> None:
        function(records)

    class Plain:
        def __call__(self, records: list[ConsumerRecord]) -> None:
            function(records)

    class Waiting:
        async def __call__(self, records: list[ConsumerRecord]) -> None:
            function(records)

    handlers: dict[str, Any] = {
        "function": function, "class": Plain, "coroutine": coroutine, "class with a coroutine": Waiting,
    }  # fmt: skip
    World(log, handlers[kind]).run()
    assert seen == list(range(5))


@settings(max_examples=100)
@given(
    st.dictionaries(st.integers(0, 3), st.integers(0, 20), min_size=1),
    st.sets(st.integers(0, 320)),
    st.booleans(),
    st.sampled_from(["batch", "record"]),
    st.integers(0, 2),
)
def test_whatever_fails_each_record_is_handled_or_put_aside(
    counts: dict[int, int], bad: set[int], exactly_once: bool, takes: str, retries: int
) -> None:
    if takes == "record":
        exactly_once = True
    log = FakeLog(counts)

    def handle(given: Any, out: Any = None) -> None:
        for each in _values(given):
            if each in bad:
                raise ValueError(each)
            if out is not None:
                out.send("results", b"%d" % each)

    options = {"takes": takes, "exactly_once": exactly_once, "retries": retries, "dead_letter_topic": "dead"}
    World(log, handle, pauses=10_000, **options).run()
    assert log.is_done
    there = {100 * number + offset for number, count in counts.items() for offset in range(count)}
    assert sorted(int(value) for topic, value, _ in log.sent if topic == "dead") == sorted(there & bad)
    if exactly_once:
        assert sorted(int(value) for topic, value, _ in log.sent if topic == "results") == sorted(there - bad)

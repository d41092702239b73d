"""Handing out: decoded once, in order, with positions that are true, also through errors and interruptions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.consumer.rules import fetch_collector
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.api.consumer.rules.fetch_collector import FetchCollector, Interceptor
from raylog.api.consumer.rules.fetched import Chunk, Failed, Located, RecordRun
from raylog.api.consumer.rules.positions import UNKNOWN, Positions
from raylog.errors import NoOffsetReset, NotAssigned, RecordUnreadable, UnknownTopic
from raylog.storage.format.record_batch import read_header
from tests.unit.api.fake_link import ModelLog

P0, P1 = TopicPartition("t", 0), TopicPartition("t", 1)


class FakeConsumer:
    """Positions and a collector; chunks are put in by hand."""

    def __init__(
        self, *, value: Callable[[bytes], Any] | None = None, interceptors: tuple[Interceptor, ...] = ()
    ) -> None:
        self.positions = Positions()
        self.refetched: list[TopicPartition] = []
        self.suspicions: list[int] = []
        self.halted: list[TopicPartition] = []
        values = None if value is None else Deserializer(value, takes_context=False)
        self.collector = FetchCollector(self.positions, self, None, values, interceptors)
        self.positions.assign([P0, P1], None)
        for partition in (P0, P1):
            self.positions.seek(partition, 0)

    def refetch(self, partition: TopicPartition, suspicions: int = 0) -> None:
        self.suspicions.append(suspicions)
        self.refetched.append(partition)

    def halt(self, partition: TopicPartition) -> None:
        self.halted.append(partition)

    def put(self, partition: TopicPartition, log: ModelLog, *, position: int = 0, data: bytes | None = None) -> None:
        generation = self.positions[partition].generation
        data = b"".join(log.batches) if data is None else data
        self.collector.accept(Chunk(partition, generation, position, log.end, data, None))

    def fail(self, partition: TopicPartition, error: Exception, *, is_final: bool) -> None:
        self.collector.fail(Failed(partition, self.positions[partition].generation, error, is_final))


def log_of(*batches: int, name: str = "") -> ModelLog:
    """Batches of so many records, with values that count."""
    log, count = ModelLog(), 0
    for size in batches:
        log.append(*[f"{name}{each}".encode() for each in range(count, count + size)])
        count += size
    return log


def values(records: list[ConsumerRecord]) -> list[Any]:
    return [record.value for record in records]


# --- polling ----------------------------------------------------------------------------------------------------------


def test_a_batch_that_is_spread_over_polls_is_decoded_once(monkeypatch: pytest.MonkeyPatch) -> None:
    made = []

    def counting(*arguments: Any) -> RecordRun:
        made.append(arguments)
        return RecordRun(*arguments)

    monkeypatch.setattr(fetch_collector, "RecordRun", counting)
    consumer = FakeConsumer()
    consumer.put(P0, log_of(10, 5))
    found = []
    for most in (3, 3, 3, 3, 3, 3):
        polled = consumer.collector.poll(most)
        found += values(polled.get(P0, []))
        assert consumer.collector.position(P0) == len(found)
    assert found == [b"%d" % each for each in range(15)]
    assert len(made) == 2
    assert consumer.collector.handed_out == 15


def test_partitions_take_turns() -> None:
    consumer = FakeConsumer()
    consumer.put(P0, log_of(100))
    consumer.put(P1, log_of(100))
    turns = [list(consumer.collector.poll(10)) for _ in range(6)]
    assert turns == [[P0], [P1]] * 3
    assert {p: len(found) for p, found in consumer.collector.poll(110).items()} == {P0: 70, P1: 40}


def test_records_have_all_their_fields() -> None:
    log = ModelLog()
    log.new_epoch()
    log.append(b"v", None, keys=[None, b"k"])
    consumer = FakeConsumer()
    consumer.put(P0, log)
    first, second = consumer.collector.poll(9)[P0]
    assert first == ConsumerRecord("t", 0, 0, 1_700_000_000_000, 0, None, b"v", (), 1)
    assert (second.key, second.value, second.offset) == (b"k", None, 1)
    assert type(first) is ConsumerRecord


def test_a_position_within_a_batch_skips_what_is_before() -> None:
    consumer = FakeConsumer()
    consumer.positions.seek(P0, 7)
    consumer.put(P0, log_of(10), position=7)
    assert values(consumer.collector.poll(9)[P0]) == [b"7", b"8", b"9"]


def test_what_was_fetched_for_an_older_position_is_not_seen() -> None:
    consumer = FakeConsumer()
    consumer.put(P0, log_of(3))
    old = consumer.positions[P0].generation
    consumer.collector.drop(P0)
    consumer.positions.seek(P0, 2)
    consumer.collector.accept(Chunk(P0, old, 0, 3, b"".join(log_of(3).batches), None))
    assert consumer.collector.poll(9) == {}
    assert consumer.collector.held_bytes == 0
    consumer.put(P0, log_of(3), position=2)
    assert values(consumer.collector.poll(9)[P0]) == [b"2"]


def test_what_is_located_behind_chunks_counts_when_they_are_handed_out() -> None:
    consumer = FakeConsumer()
    consumer.put(P0, log_of(3))
    consumer.collector.accept(Located(P0, consumer.positions[P0].generation, 1))
    assert consumer.collector.position(P0) == 0
    assert len(consumer.collector.poll(9)[P0]) == 3
    assert consumer.collector.poll(9) == {}
    assert consumer.collector.position(P0) == 1
    consumer.positions.seek_to(P0, -2)
    assert consumer.collector.position(P0) == UNKNOWN
    consumer.collector.accept(Located(P0, consumer.positions[P0].generation, 5))
    assert consumer.collector.position(P0) == 5


def test_a_chunk_that_comes_twice_counts_once_and_one_that_is_missing_is_fetched_again() -> None:
    """As Ctrl-C may have it, between two steps of taking in what has come."""
    log = log_of(3, 3, 3)
    consumer = FakeConsumer()
    generation = consumer.positions[P0].generation
    chunks = [Chunk(P0, generation, 3 * number, 3 * number + 3, data, None) for number, data in enumerate(log.batches)]
    for chunk in (chunks[0], chunks[0], chunks[2]):
        consumer.collector.accept(chunk)
    assert values(consumer.collector.poll(9)[P0]) == [b"0", b"1", b"2"]
    assert consumer.collector.poll(9) == {}
    assert consumer.refetched == [P0]
    assert consumer.positions[P0].generation != generation
    consumer.put(P0, log, position=3, data=b"".join(log.batches[1:]))
    assert values(consumer.collector.poll(9)[P0]) == [b"%d" % each for each in range(3, 9)]


def test_paused_partitions_give_nothing_and_lose_nothing() -> None:
    consumer = FakeConsumer()
    consumer.put(P0, log_of(4))
    assert values(consumer.collector.poll(1)[P0]) == [b"0"]
    consumer.positions[P0].is_paused = True
    consumer.collector.pause(P0)
    consumer.put(P0, log_of(2), position=0)
    assert consumer.collector.poll(9) == {}
    consumer.positions[P0].is_paused = False
    consumer.collector.resume(P0)
    assert values(consumer.collector.poll(3)[P0]) == [b"1", b"2", b"3"]


# --- iterating --------------------------------------------------------------------------------------------------------


def pieces(consumer: FakeConsumer) -> list[Any]:
    found = []
    while (piece := consumer.collector.next_piece()) is not None:
        found += values(list(piece.records))
    return found


@pytest.mark.parametrize("value", [None, bytes])
def test_positions_are_true_while_a_program_iterates(value: Callable[[bytes], Any] | None) -> None:
    consumer = FakeConsumer(value=value)
    consumer.put(P0, log_of(3, 600))
    seen = 0
    while (piece := consumer.collector.next_piece()) is not None:
        for record in piece.records:
            assert record.offset == seen
            seen += 1
            assert consumer.collector.position(P0) == seen
    assert seen == 603 == consumer.collector.handed_out


@pytest.mark.parametrize("value", [None, bytes])
def test_what_an_iterating_program_has_not_taken_is_there_for_polls(value: Callable[[bytes], Any] | None) -> None:
    consumer = FakeConsumer(value=value)
    consumer.put(P0, log_of(10))
    piece = consumer.collector.next_piece()
    assert piece is not None
    assert [next(piece.records).offset for _ in range(4)] == [0, 1, 2, 3]
    assert values(consumer.collector.poll(3)[P0]) == [b"4", b"5", b"6"]
    assert list(piece.records) == []
    (batch,) = consumer.collector.poll_batches(1)
    assert (batch.values, list(batch.offsets), len(batch)) == ([b"7", b"8", b"9"], [7, 8, 9], 3)


@pytest.mark.parametrize("value", [None, bytes])
def test_a_cut_ends_an_iteration_and_loses_nothing(value: Callable[[bytes], Any] | None) -> None:
    consumer = FakeConsumer(value=value)
    consumer.put(P0, log_of(10))
    piece = consumer.collector.next_piece()
    assert piece is not None
    assert next(piece.records).offset == 0
    consumer.collector.cut()
    assert next(piece.records, None) is None
    assert consumer.collector.position(P0) == 1
    assert pieces(consumer) == [b"%d" % each for each in range(1, 10)]


def test_a_seek_or_a_pause_ends_what_is_iterated_at_once() -> None:
    consumer = FakeConsumer()
    consumer.put(P0, log_of(10))
    piece = consumer.collector.next_piece()
    assert piece is not None
    next(piece.records)
    consumer.positions[P0].is_paused = True
    consumer.collector.pause(P0)
    assert list(piece.records) == []
    assert consumer.collector.next_piece() is None
    consumer.positions[P0].is_paused = False
    consumer.collector.resume(P0)
    piece = consumer.collector.next_piece()
    assert piece is not None
    assert next(piece.records).offset == 1
    consumer.collector.drop(P0)
    consumer.positions.seek(P0, 0)
    assert list(piece.records) == []


# --- columns ----------------------------------------------------------------------------------------------------------


def test_batches_come_whole_and_as_many_as_asked_for() -> None:
    consumer = FakeConsumer()
    log = log_of(5, 5, 5)
    consumer.put(P0, log)
    size = read_header(log.batches[0]).size
    assert [len(batch) for batch in consumer.collector.poll_batches(1)] == [5]
    assert consumer.collector.position(P0) == 5
    found = consumer.collector.poll_batches(2 * size)
    assert [(batch.topic, batch.partition, batch.first_offset, batch.next_offset) for batch in found] == [
        ("t", 0, 5, 10),
        ("t", 0, 10, 15),
    ]
    assert found[0].keys == [None] * 5
    assert found[0].timestamps == [1_700_000_000_000] * 5
    assert list(found[0].headers) == [()] * 5
    assert consumer.collector.poll_batches(1) == []


# --- what cannot be read ----------------------------------------------------------------------------------------------


def test_damaged_bytes_are_fetched_again_and_then_an_error() -> None:
    log = log_of(3, 3)
    damaged = bytearray(b"".join(log.batches))
    damaged[-1] ^= 1
    consumer = FakeConsumer()
    consumer.put(P0, log, data=bytes(damaged))
    assert values(consumer.collector.poll(9)[P0]) == [b"0", b"1", b"2"]
    assert consumer.refetched == [P0]
    for turn in range(2, 9):
        consumer.put(P0, log, position=3, data=bytes(damaged)[len(log.batches[0]) :])
        assert consumer.collector.poll(9) == {}
        assert consumer.refetched == [P0] * turn
    assert consumer.suspicions == [*range(1, 9)]  # the leader is told, after longer and longer pauses
    consumer.put(P0, log, position=3, data=bytes(damaged)[len(log.batches[0]) :])
    for _ in range(2):
        with pytest.raises(RecordUnreadable) as raised:
            consumer.collector.poll(9)
        assert (raised.value.offset, raised.value.next_offset) == (3, 4)
    assert consumer.halted == [P0]
    consumer.collector.drop(P0)
    consumer.positions.seek(P0, 0)
    consumer.put(P0, log)
    assert len(consumer.collector.poll(9)[P0]) == 6


@pytest.mark.parametrize("is_iterating", [False, True])
def test_a_deserializer_that_raises_stops_at_its_record(is_iterating: bool) -> None:
    consumer = FakeConsumer(value=int)
    log = ModelLog()
    log.append(b"1", None, b"3", b"four", b"5")
    consumer.put(P0, log)
    found = pieces_until_error(consumer) if is_iterating else values(consumer.collector.poll(9)[P0])
    assert found == [1, None, 3]
    assert consumer.collector.position(P0) == 3
    for _ in range(2):
        with pytest.raises(RecordUnreadable, match="ValueError") as raised:
            consumer.collector.poll(9)
        assert isinstance(raised.value.__cause__, ValueError)
        assert (raised.value.offset, raised.value.next_offset) == (3, 4)
    consumer.collector.drop(P0)
    consumer.positions.seek(P0, raised.value.next_offset)
    consumer.put(P0, log, position=4)
    assert values(consumer.collector.poll(9)[P0]) == [5]


def pieces_until_error(consumer: FakeConsumer) -> list[Any]:
    found = []
    try:
        while (piece := consumer.collector.next_piece()) is not None:
            found += values(list(piece.records))
    except RecordUnreadable:
        return found
    raise AssertionError("It did not stop.")


@pytest.mark.parametrize("error", [ValueError, KeyboardInterrupt])
def test_an_interceptor_that_raises_costs_no_record(error: type[BaseException]) -> None:
    raising = [True]

    def intercept(records: list[ConsumerRecord]) -> list[ConsumerRecord]:
        if raising[0] and records[0].partition == 1:
            raise error("not now")
        return [record for record in records if record.value != b"1"]

    consumer = FakeConsumer(interceptors=(intercept,))
    logs = {P0: log_of(3), P1: log_of(3)}
    for partition, log in logs.items():
        consumer.put(partition, log)
    with pytest.raises(error):
        consumer.collector.poll(9)
    raising[0] = False
    for partition in consumer.refetched:
        consumer.put(partition, logs[partition])
    found = {}
    for _ in range(3):
        found.update(consumer.collector.poll(9))
    assert {partition: values(records) for partition, records in found.items()} == {
        P0: [b"0", b"2"],
        P1: [b"0", b"2"],
    }
    assert consumer.collector.position(P0) == 3


def test_errors_are_raised_after_what_there_is_and_final_ones_again_and_again() -> None:
    consumer = FakeConsumer()
    consumer.put(P0, log_of(2))
    consumer.fail(P0, UnknownTopic("t"), is_final=False)
    consumer.fail(P1, NoOffsetReset("t", 1, "no reason"), is_final=True)
    assert len(consumer.collector.poll(9)[P0]) == 2
    for error in (UnknownTopic, NoOffsetReset, NoOffsetReset):
        with pytest.raises(error):
            consumer.collector.poll(9)
    with pytest.raises(NoOffsetReset):
        consumer.collector.check(P1)
    consumer.collector.drop(P1)
    consumer.positions.seek(P1, 0)
    assert consumer.collector.poll(9) == {}
    with pytest.raises(NotAssigned):
        consumer.collector.check(TopicPartition("t", 5))

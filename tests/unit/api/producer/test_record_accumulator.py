"""The accumulator: order, bounds, waking, and threads that send at once."""

from __future__ import annotations

import threading
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.producer.buffer.record_accumulator import (
    OPEN,
    PORTION,
    RECORD_BYTES,
    TELL_NOTHING,
    TELL_SEALED,
    BufferPool,
    Clocks,
    PartitionQueue,
    RecordAccumulator,
)
from raylog.api.producer.rules.producer_batch import Columns, Outcome, ProducerBatch


class Clock:
    def __init__(self) -> None:
        self.wall = 1000.0
        self.monotonic = 5.0


class World:
    def __init__(self, limit: int = 1 << 20, batch_size: int = 1 << 16) -> None:
        self.clock = Clock()
        self.pool = BufferPool(limit)
        self.woken = 0
        clocks = Clocks(lambda: self.clock.wall, lambda: self.clock.monotonic, lambda _: time.sleep(0))
        self.accumulator = RecordAccumulator(self.pool, batch_size, 120.0, clocks, self._wake)
        self.queue = self.accumulator.queue("clicks", 0)

    def _wake(self) -> None:
        self.woken += 1

    def take_all(self, queue: PartitionQueue | None = None) -> list[ProducerBatch]:
        queue = queue or self.queue
        assert self.accumulator.seal_open(queue)
        return [self.accumulator.take(queue) for _ in range(len(queue.sealed))]


def columns_of(batch: ProducerBatch) -> Columns:
    assert isinstance(batch.content, Columns)
    return batch.content


@given(st.lists(st.tuples(st.none() | st.binary(max_size=40), st.none() | st.binary(max_size=3000)), max_size=60))
def test_records_come_out_as_they_went_in(records: list[tuple[bytes | None, bytes | None]]) -> None:
    world = World(limit=1 << 22, batch_size=4000)
    futures = [world.accumulator.append(world.queue, key, value) for key, value in records]
    batches = world.take_all()
    found = [pair for each in map(columns_of, batches) for pair in zip(each.keys or [], each.values, strict=True)]
    assert found == records
    offset = 0
    for batch in batches:
        batch.resolve(Outcome(offset))
        world.accumulator.let_go(batch)
        offset += batch.count
    assert [future.result(0).offset for future in futures if future is not None] == list(range(len(records)))
    assert world.pool.free == world.pool.limit
    assert not world.accumulator.unresolved


@given(st.lists(st.integers(0, 5000), min_size=1, max_size=80), st.integers(1, 3))
def test_never_more_is_held_than_there_is_room_for(sizes: list[int], partitions: int) -> None:
    world = World(limit=20_000, batch_size=3000)
    held = 0
    for number, size in enumerate(sizes):
        queue = world.accumulator.queue("clicks", number % partitions)
        if world.accumulator.append(queue, None, bytes(size)) is not None:
            held += size + RECORD_BYTES
        assert held <= world.pool.limit
        assert world.pool.free >= 0
    for queue in world.accumulator.queues():
        for batch in world.take_all(queue):
            world.accumulator.let_go(batch)
    assert world.pool.free == world.pool.limit


def test_a_full_buffer_takes_nothing_and_has_the_open_batch_sent() -> None:
    world = World(limit=1000, batch_size=1 << 16)
    assert world.accumulator.append(world.queue, None, bytes(700)) is not None
    before = world.woken
    assert world.accumulator.append(world.queue, None, bytes(700)) is None
    assert world.woken > before
    (batch,) = world.take_all()
    assert batch.count == 1
    world.accumulator.let_go(batch)
    assert world.accumulator.append(world.queue, None, bytes(700)) is not None


def test_a_portion_is_given_back_when_its_batch_goes() -> None:
    world = World()
    world.accumulator.append(world.queue, None, b"value")
    assert world.pool.free == world.pool.limit - PORTION
    (batch,) = world.take_all()
    assert world.pool.free == world.pool.limit - batch.size
    assert batch.size == 5 + RECORD_BYTES


def test_the_loop_is_told_of_a_first_record_and_not_of_the_next() -> None:
    world = World()
    world.accumulator.append(world.queue, None, b"one")
    assert world.woken == 1
    world.accumulator.append(world.queue, None, b"two")
    assert world.woken == 1
    assert list(world.accumulator.told) == [world.queue]


def test_timestamps_are_runs() -> None:
    world = World()
    for value, wall in [(b"a", 1000.0), (b"b", 1000.0004), (b"c", 1000.0011), (b"d", 1000.0025)]:
        world.clock.wall = wall
        world.accumulator.append(world.queue, None, value)
    world.accumulator.append(world.queue, None, b"e", (), 77)
    world.accumulator.append(world.queue, None, b"f")
    (batch,) = world.take_all()
    assert [batch.timestamp_of(place) for place in range(6)] == [1000000, 1000000, 1000001, 1000002, 77, 1000002]


def test_headers_stay_with_their_record() -> None:
    world = World()
    world.accumulator.append(world.queue, None, b"plain")
    world.accumulator.append(world.queue, None, b"marked", (("name", b"x"),))
    (batch,) = world.take_all()
    assert columns_of(batch).headers == [None, (("name", b"x"),)]


def test_a_batch_of_a_bulk_send_goes_behind_what_is_open() -> None:
    world = World()
    world.accumulator.append(world.queue, None, b"before")
    world.accumulator.append_batch(world.queue, Columns(None, [b"bulk"], None, 5), 100)
    world.accumulator.append(world.queue, None, b"after")
    values = [columns_of(batch).values for batch in world.take_all()]
    assert values == [[b"before"], [b"bulk"], [b"after"]]


def test_an_interrupt_while_sealing_is_made_good_by_the_next_caller(monkeypatch: pytest.MonkeyPatch) -> None:
    world = World()
    world.accumulator.append(world.queue, None, b"one")

    def interrupted(_self: ProducerBatch, _content: Columns) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(ProducerBatch, "seal", interrupted)
        with pytest.raises(KeyboardInterrupt):
            world.accumulator.seal_open(world.queue)
    assert OPEN in world.queue.gate
    world.accumulator.append(world.queue, None, b"two")
    values = [value for batch in world.take_all() for value in columns_of(batch).values]
    assert values == [b"one", b"two"]


def test_threads_that_send_at_once() -> None:
    world = World(limit=1 << 26, batch_size=5000)
    count, threads = 3000, 4
    results: list[list[tuple[bytes, object]]] = [[] for _ in range(threads)]

    def send(number: int) -> None:
        for place in range(count):
            value = b"%d.%d" % (number, place)
            results[number].append((value, world.accumulator.append(world.queue, None, value)))

    running = [threading.Thread(target=send, args=(number,)) for number in range(threads)]
    for thread in running:
        thread.start()
    taken: list[ProducerBatch] = []
    while any(thread.is_alive() for thread in running):
        if world.accumulator.seal_open(world.queue):
            taken += [world.accumulator.take(world.queue) for _ in range(len(world.queue.sealed))]
    taken += world.take_all()
    log = [value for batch in taken for value in columns_of(batch).values]
    offset = 0
    for batch in taken:
        batch.resolve(Outcome(offset))
        offset += batch.count
    for sent in results:
        offsets = [future.result(0).offset for _, future in sent]  # type: ignore[attr-defined]
        assert [log[each] for each in offsets] == [value for value, _ in sent]
        assert offsets == sorted(offsets)


def test_a_thread_at_the_gate_seals_for_the_loop_when_it_comes_next() -> None:
    world = World()
    world.accumulator.append(world.queue, None, b"one")
    del world.queue.gate[OPEN]
    assert not world.accumulator.seal_open(world.queue)
    world.queue.gate[OPEN] = None
    before = world.woken
    world.accumulator.append(world.queue, None, b"two")
    assert [columns_of(batch).values for batch in world.queue.sealed] == [[b"one"]]
    assert world.woken > before
    assert [columns_of(batch).values for batch in world.take_all()] == [[b"one"], [b"two"]]


def test_the_loop_is_not_told_what_it_does_not_want_to_hear() -> None:
    world = World(batch_size=1000)
    world.queue.quiet = TELL_SEALED
    world.accumulator.append(world.queue, None, bytes(500))
    assert world.woken == 0
    world.accumulator.append(world.queue, None, bytes(500))
    assert world.woken == 1
    world.queue.quiet = TELL_NOTHING
    world.accumulator.append(world.queue, None, bytes(500))
    assert world.woken == 1

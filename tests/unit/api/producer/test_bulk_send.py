"""Bulk sends: the same records in the same partitions and order as one by one, whatever the sizes."""

from __future__ import annotations

import os
import struct
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.api.producer import bulk_send
from raylog.api.producer.rules.bulk_partitioning import partitions_of, split
from raylog.api.producer.rules.partitioners import partition_of_key
from raylog.errors import (
    BulkSendFailed,
    InvalidBatch,
    InvalidTimestamp,
    RecordTooLarge,
    ResultNotReady,
    UnknownPartition,
)
from tests.unit.api.producer_cluster import TOPIC, producer_of


@pytest.fixture
def patch(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    return monkeypatch


@given(st.lists(st.binary(max_size=12), max_size=80), st.integers(1, 300), st.booleans())
def test_keys_go_where_they_go_one_by_one(keys: list[bytes], partitions: int, known: bool) -> None:
    numbers = {key: partition_of_key(key, partitions) for key in keys[::2]} if known else {}
    expected = [partition_of_key(key, partitions) for key in keys]
    assert list(partitions_of(keys, partitions, numbers)) == expected
    assert all(number == partition_of_key(key, partitions) for key, number in numbers.items())


@pytest.mark.parametrize("length", [None, 9])
def test_keys_that_come_once_are_not_remembered(length: int | None) -> None:
    keys = [b"%d" % number for number in range(10**8, 10**8 + 5000)]
    if length is None:
        keys = [key + b"x" * (place % 3) for place, key in enumerate(keys)]
    numbers: dict[bytes, int] = {}
    assert list(partitions_of(keys, 7, numbers)) == [partition_of_key(key, 7) for key in keys]
    assert not numbers


def test_the_cache_has_a_bound() -> None:
    numbers: dict[bytes, int] = {}
    for start in range(0, 200_000, 10_000):
        keys = [b"%d" % number for number in range(start, start + 10_000)] * 2
        keys.sort()
        partitions_of(keys, 7, numbers)
        assert len(numbers) <= 50_000
    assert numbers


@given(st.lists(st.integers(0, 9), max_size=50), st.booleans())
def test_splitting_keeps_the_order(parts: list[int], packed: bool) -> None:
    for count in (max(parts, default=0) + 1, 10):
        found = split(range(len(parts)), bytes(parts) if packed else parts, count)
        assert found == [[place for place, part in enumerate(parts) if part == number] for number in range(count)]


@pytest.mark.parametrize("partitions", [1, 3, 9])
@pytest.mark.parametrize("batch_size", [200, 3_000, 2**19])
def test_records_arrive_in_order_and_positions_fit(patch: pytest.MonkeyPatch, partitions: int, batch_size: int) -> None:
    values = [b"%d" % number + bytes(number % 300) for number in range(1_000)]
    keys: list[bytes | None] = [b"key-%d" % (number % 40) if number % 10 else None for number in range(1_000)]
    stamps = list(range(5_000, 6_000))
    headers = [[("n", b"%d" % number)] if number % 3 == 0 else None for number in range(1_000)]
    with producer_of(patch, partitions, batch_size=batch_size) as (producer, link):
        result = producer.send_many(TOPIC, values, keys, stamps, headers).result(10)
        assert result.record_count == 1_000
        assert sum(each.record_count for each in result.ranges) == 1_000
        for partition in range(partitions):
            rows = link.records(partition)
            places = [values.index(value) for _, value in rows if value is not None]
            assert places == sorted(places)
            assert [key for key, _ in rows] == [keys[place] for place in places]
            got_stamps = [stamp for batch in link.batches[partition] for stamp in batch.timestamps]
            assert got_stamps == [stamps[place] for place in places]
            got = [each for batch in link.batches[partition] for each in batch.headers]
            assert [list(each) for each in got] == [headers[place] or [] for place in places]
            assert all(keys[p] is None or partition_of_key(keys[p] or b"", partitions) == partition for p in places)
        for batch in (batch for batches in link.batches for batch in batches):
            assert batch.header.size <= batch_size + 200 or len(batch) == 1


@pytest.fixture
def small_chunks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of ten records, so that a batch is made of many pieces."""
    monkeypatch.setattr(bulk_send, "_CHUNK", 10)
    monkeypatch.setattr(bulk_send, "_CHUNK_PER_PARTITION", 1)


@pytest.mark.parametrize("stamps", [None, [5, 5, 9] * 1_000])
def test_pieces_of_many_chunks_fill_batches(
    patch: pytest.MonkeyPatch, small_chunks: None, stamps: list[int] | None
) -> None:
    keys = [b"key-%d" % (number % 40) for number in range(3_000)]
    values = [b"%d" % number + bytes(700 if number % 500 == 3 else 7) for number in range(3_000)]
    headers = None if stamps is None else [[("n", b"%d" % each)] if each > 2_000 else None for each in range(3_000)]
    with producer_of(patch, 3, batch_size=4_000) as (producer, link):
        result = producer.send_many(TOPIC, values, keys, stamps, headers).result(10)
        assert sum(each.record_count for each in result.ranges) == 3_000
        records = dict(zip(values, keys, strict=True))
        for partition, batches in enumerate(link.batches):
            rows = link.records(partition)
            mine = [value for value in values if partition_of_key(records[value], 3) == partition]
            assert rows == [(records[value], value) for value in mine]
            sizes = [batch.header.size for batch in batches]
            assert all(size <= 4_200 + (headers is not None) * 400 for size in sizes)
            assert sum(sizes) / len(sizes) > 3_000
            got = [stamp for batch in batches for stamp in batch.timestamps]
            assert stamps is None or got == [stamps[values.index(value)] for value in mine]
            names = [list(some) for batch in batches for some in batch.headers]
            assert headers is None or names == [headers[values.index(value)] or [] for value in mine]


def test_a_gathered_batch_that_fails_tells_the_places_of_its_records(
    patch: pytest.MonkeyPatch, small_chunks: None
) -> None:
    with producer_of(patch, 3, batch_size=2_000, max_in_flight=1) as (producer, link):
        link.errors.append(InvalidTimestamp("too old"))
        values = [b"%04d" % number for number in range(1_000)]
        keys = [b"key-%d" % (number % 40) for number in range(1_000)]
        future = producer.send_many(TOPIC, values, keys)
        assert isinstance(future.exception(10), BulkSendFailed)
        (failure,) = future.failures()
        assert len(failure.positions) > 50
        kept = set(link.all_values())
        assert [values[place] for place in failure.positions] == [value for value in values if value not in kept]


def test_what_is_gathered_is_bounded_for_all_partitions_together(patch: pytest.MonkeyPatch, small_chunks: None) -> None:
    values, keys = [bytes(500)] * 1_000, [b"%d" % number for number in range(1_000)]
    with producer_of(patch, 50, batch_size=100_000, max_request_size=1_000, buffer_memory=65_536) as (producer, link):
        producer.send_many(TOPIC, values, keys).result(10)
        sizes = [batch.header.size for batches in link.batches for batch in batches]
        assert len(sizes) > 500, "no more than a quarter of the buffer is gathered: 31 records"


def test_without_keys_batches_go_to_several_partitions(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 3, batch_size=16_384) as (producer, link):
        producer.send_many(TOPIC, [bytes(100)] * 20_000).result(30)
        assert min(len(link.values(partition)) for partition in range(3)) > 1_000


def test_a_partition_may_be_given_and_columns_may_be_empty(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch) as (producer, link):
        assert producer.send_many(TOPIC, []).result(1).ranges == ()
        producer.send_many(TOPIC, (b"a", None), partition=2).result(10)
        assert link.values(2) == [b"a", None]
        with pytest.raises(UnknownPartition):
            producer.send_many(TOPIC, [b"a"], partition=3)


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({"values": [b"a", "text"]}, TypeError),
        ({"values": [b"a"], "keys": ["text"]}, TypeError),
        ({"values": b"bytes"}, TypeError),
        ({"values": [b"a", b"b"], "keys": [b"k"]}, ValueError),
        ({"values": [b"a"], "timestamps": [1, 2]}, ValueError),
        ({"values": [b"a"], "timestamps": [1.5]}, TypeError),
        ({"values": [b"a"], "timestamps": -1}, TypeError),
        ({"values": [b"a"], "headers": [[("name", 5)]]}, TypeError),
    ],
)
def test_what_is_wrong_is_said_before_anything_is_taken(
    patch: pytest.MonkeyPatch, arguments: dict[str, Any], error: type
) -> None:
    with producer_of(patch) as (producer, link):
        with pytest.raises(error):
            producer.send_many(TOPIC, **arguments)
        producer.flush(10)
        assert link.all_values() == []


def test_failures_tell_which_records(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1, batch_size=1_000, max_in_flight=1) as (producer, link):
        link.errors.append(InvalidTimestamp("too old"))
        values = [b"%03d" % number * 30 for number in range(30)]
        future = producer.send_many(TOPIC, values)
        with pytest.raises(BulkSendFailed, match="too old"):
            future.result(10)
        (failure,) = future.failures()
        assert isinstance(failure.error, InvalidTimestamp)
        assert link.values(0) == [value for place, value in enumerate(values) if place not in failure.positions]
        assert isinstance(future.exception(), BulkSendFailed)


def test_a_record_that_is_too_large_fails_alone(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 2) as (producer, link):
        future = producer.send_many(TOPIC, [b"a", bytes(2**21), b"b"], keys=[b"k"] * 3)
        assert isinstance(future.exception(10), BulkSendFailed)
        (failure,) = future.failures()
        assert list(failure.positions) == [1]
        assert isinstance(failure.error, RecordTooLarge)
        assert link.all_values() == [b"a", b"b"]


def test_waiting_has_an_end(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        link.hold()
        future = producer.send_many(TOPIC, [b"a"])
        assert not future.done()
        with pytest.raises(ResultNotReady):
            future.result(0.01)
        producer.close(0.01)
        assert future.done()


pa = pytest.importorskip("pyarrow")


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("batch_size", [2_000, 2**19])
def test_arrow_tables_are_the_same_records(patch: pytest.MonkeyPatch, partitions: int, batch_size: int) -> None:
    values = [os.urandom(number % 90) if number % 7 else None for number in range(2_000)]
    keys = [b"key-%d" % (number % 50) if number % 11 else None for number in range(2_000)]
    columns = {"value": pa.array(values, pa.binary()), "key": pa.array(keys, pa.binary()), "timestamp": range(2_000)}
    table = pa.table(columns)
    table = pa.concat_tables([table.slice(0, 700), table.slice(700)])
    with producer_of(patch, partitions, batch_size=batch_size) as (producer, link):
        assert producer.send_arrow(TOPIC, table).result(10).record_count == 2_000
        found = {}
        for partition in range(partitions):
            last = -1
            for batch in link.batches[partition]:
                for stamp, key, value in zip(batch.timestamps, batch.keys, batch.values, strict=True):
                    assert stamp > last
                    last = stamp
                    found[stamp] = (key, value)
                    assert key is None or partition_of_key(key, partitions) == partition
        assert found == dict(enumerate(zip(keys, values, strict=True)))


def test_arrow_text_headers_and_wrong_columns(patch: pytest.MonkeyPatch) -> None:
    with producer_of(patch, 1) as (producer, link):
        pair = pa.struct({"key": pa.string(), "value": pa.binary()})
        headers = pa.array([[{"key": "a", "value": b"1"}], None], pa.list_(pair))
        batch = pa.record_batch({"value": ["text", "more"], "headers": headers})
        producer.send_arrow(TOPIC, batch, partition=0).result(10)
        assert link.values(0) == [b"text", b"more"]
        assert [list(each) for each in link.batches[0][0].headers] == [[("a", b"1")], []]
        for wrong in (pa.table({"key": [b"k"]}), pa.table({"value": [1.5]}), pa.table({"value": [b"v"], "other": [1]})):
            with pytest.raises(TypeError):
                producer.send_arrow(TOPIC, wrong)
        assert producer.send_arrow(TOPIC, pa.table({"value": pa.array([], pa.binary())})).result(1).ranges == ()


def test_arrow_nulls_above_bytes_are_nulls(patch: pytest.MonkeyPatch) -> None:
    """Arrow leaves the bytes of a field there where its struct is null: no length tells of them."""
    parts = [pa.array([b"k1", b"k2", b"k3", b"k4"]), pa.array([b"AAAA", b"BB", b"CCC", b"D"])]
    rows = pa.StructArray.from_arrays(parts, names=["key", "value"], mask=pa.array([False, True, False, True]))
    whole = pa.table({"row": rows}).flatten().rename_columns(["key", "value"])
    with producer_of(patch, 1) as (producer, link):
        for table in (whole, whole.slice(1), whole.select(["value"])):
            producer.send_arrow(TOPIC, table).result(10)
        first, rest = [(b"k1", b"AAAA")], [(None, None), (b"k3", b"CCC"), (None, None)]
        assert link.records(0) == [*first, *rest, *rest, *((None, value) for _, value in first + rest)]


def test_arrow_columns_that_contradict_themselves_are_not_sent(patch: pytest.MonkeyPatch) -> None:
    falling = pa.py_buffer(struct.pack("3i", 0, 9, 4))
    wrong = pa.Array.from_buffers(pa.binary(), 2, [None, falling, pa.py_buffer(b"AAAABBBBB")])
    with producer_of(patch, 1) as (producer, link):
        future = producer.send_arrow(TOPIC, pa.table({"value": wrong}))
        with pytest.raises(BulkSendFailed, match="shorter than nothing"):
            future.result(10)
        (failure,) = future.failures()
        assert isinstance(failure.error, InvalidBatch)
        assert link.all_values() == []


@given(st.integers(0, 2**32))
@settings(max_examples=20, deadline=None)
def test_sizes_are_guessed_well_enough(seed: int) -> None:
    from random import Random

    from raylog.api.producer.bulk_send import _record_size
    from raylog.api.producer.rules.producer_batch import Columns

    random = Random(seed)
    values = [bytes(random.choice([1, 10, 500])) for _ in range(random.randint(1, 3000))]
    assert 17 < _record_size(Columns(None, values, None, 5)) <= 517

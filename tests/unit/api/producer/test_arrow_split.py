"""Splitting by Arrow makes the pieces that splitting Python's objects makes."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.producer import bulk_send
from raylog.api.producer.rules.arrow_split import split_joined
from raylog.api.producer.rules.bulk_partitioning import split
from raylog.api.producer.rules.joined_columns import JoinedColumns, join_records
from raylog.api.producer.rules.partitioners import partition_of_key
from raylog.api.producer.rules.producer_batch import Columns
from tests.unit.api.producer_cluster import TOPIC, producer_of

_items = st.none() | st.binary(max_size=20)


def _split_one_by_one(
    keys: list[bytes | None], values: list[bytes | None], parts: bytes, partitions: int
) -> list[JoinedColumns]:
    columns = zip(split(keys, parts, partitions), split(values, parts, partitions), strict=True)
    return [join_records(Columns(*some, None, 1_000)) for some in columns]


@given(st.lists(st.tuples(_items, _items, st.integers(0, 4)), max_size=60), st.integers(5, 256))
def test_pieces_are_the_same(records: list[tuple[bytes | None, bytes | None, int]], partitions: int) -> None:
    keys, values = [each[0] for each in records], [each[1] for each in records]
    parts = bytes(each[2] for each in records)
    assert split_joined(keys, values, 1_000, parts, partitions) == _split_one_by_one(keys, values, parts, partitions)


@pytest.mark.parametrize("size", [8, 3_000])
def test_bulk_sends_are_split_by_it(monkeypatch: pytest.MonkeyPatch, size: int) -> None:
    """Where records are large the other way takes over, for they have to be cut in smaller pieces."""
    calls: list[list[JoinedColumns]] = []

    def watched(*columns: object) -> list[JoinedColumns]:
        calls.append(split_joined(*columns))  # type: ignore[arg-type]
        return calls[-1]

    monkeypatch.setattr(bulk_send, "_WORTH_ARROW", 1)
    monkeypatch.setattr(bulk_send, "_arrow_split", lambda: watched)
    keys = [b"key-%d" % (number % 40) for number in range(1_000)]
    values = [b"%0*d" % (size, number) for number in range(1_000)]
    with producer_of(monkeypatch, 3, batch_size=20_000) as (producer, link):
        assert producer.send_many(TOPIC, values, keys).result(10).record_count == 1_000
        for partition in range(3):
            places = [place for place, key in enumerate(keys) if partition_of_key(key, 3) == partition]
            assert link.records(partition) == [(keys[place], values[place]) for place in places]
    assert bool(calls) == (size == 8)


def test_a_wrong_key_is_refused_before_anything_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bulk_send, "_WORTH_ARROW", 1)
    with producer_of(monkeypatch, 3) as (producer, link):
        with pytest.raises(TypeError):
            producer.send_many(TOPIC, [b"v"] * 100, [b"k"] * 99 + ["text"])
        producer.flush(10)
        assert not any(link.records(partition) for partition in range(3))

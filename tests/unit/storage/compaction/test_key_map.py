"""The compactor's map from keys to newest offsets, and the memory that all compactions share."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.errors import CompactionMemoryTooSmall
from raylog.storage.compaction.key_map import SLOT_BYTES, KeyMap, MemoryBudget, bytes_for


@given(st.lists(st.lists(st.binary(max_size=3), min_size=1, max_size=20), max_size=20))
def test_it_answers_like_a_dictionary(batches: list[list[bytes]]) -> None:
    distinct = {key for batch in batches for key in batch}
    keys = KeyMap(bytes_for(max(1, len(distinct))))
    expected: dict[bytes, int] = {}
    offset = 0
    for batch in batches:
        offsets = range(offset, offset + len(batch))
        keys.put_all(batch, offsets)
        expected.update(zip(batch, offsets, strict=True))
        offset += len(batch)
    assert len(keys) == len(expected)
    asked = [*expected, b"not there", b"nor this"]
    assert keys.newest_of_all(asked) == [expected.get(key, -1) for key in asked]


def test_it_holds_as_many_keys_as_the_memory_was_asked_for() -> None:
    keys = KeyMap(bytes_for(10_000))
    assert keys.room >= 10_000
    assert keys.memory_bytes <= bytes_for(10_000)
    assert keys.memory_bytes / 10_000 <= SLOT_BYTES / 0.8 + 0.01
    many = [b"key-%d" % number for number in range(10_000)]
    keys.put_all(many, range(10_000))
    assert keys.newest_of_all(many) == list(range(10_000))


def test_a_filler_of_the_map_knows_when_it_is_full() -> None:
    keys = KeyMap(bytes_for(3))
    room = keys.room
    keys.put_all([b"a", b"b"], [1, 2])
    assert keys.room == room - 2
    keys.put_all([b"a", b"b"], [3, 4])
    assert keys.room == room - 2


def test_the_budget_is_shared_and_given_back() -> None:
    budget = MemoryBudget(1000)
    with budget.grant(wanted=700, least=100) as first:
        assert first == 700
        with budget.grant(wanted=700, least=100) as second:
            assert second == 300
            with pytest.raises(CompactionMemoryTooSmall), budget.grant(wanted=700, least=100):
                pass
    assert budget.free_bytes == 1000


def test_the_budget_is_given_back_after_a_failure_too() -> None:
    budget = MemoryBudget(1000)
    with pytest.raises(RuntimeError), budget.grant(wanted=10, least=10):
        raise RuntimeError
    assert budget.free_bytes == 1000

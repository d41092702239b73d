"""murmur2 against Java's own vectors, against another implementation, and one key against many."""

from __future__ import annotations

import pytest
from aiokafka.partitioner import murmur2 as aiokafka_murmur2
from hypothesis import example, given
from hypothesis import strategies as st

from raylog.storage.format.murmur2 import (
    murmur2,
    murmur2_of_equal,
    partition_of_hash,
    partitions_of_equal,
    partitions_of_joined,
)

# From the unit tests of Kafka's Java client (UtilsTest), there as signed numbers.
_JAVA = {
    b"21": -973932308,
    b"foobar": -790332482,
    b"a-little-bit-long-string": -985981536,
    b"a-little-bit-longer-string": -1486304829,
    b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
    b"abc": 479470107,
}


@pytest.mark.parametrize(("key", "hashed"), _JAVA.items())
def test_equals_java(key: bytes, hashed: int) -> None:
    assert murmur2(key) == hashed & 0xFFFFFFFF
    assert murmur2_of_equal([key, key]) == [hashed & 0xFFFFFFFF] * 2


@given(st.binary(max_size=400))
@example(b"")
@example(b"\xff" * 300)
def test_equals_another_implementation(key: bytes) -> None:
    assert murmur2(key) == aiokafka_murmur2(key) & 0xFFFFFFFF


@given(st.integers(0, 21).flatmap(lambda size: st.lists(st.binary(min_size=size, max_size=size), max_size=9)))
def test_many_at_once_equal_one_by_one(keys: list[bytes]) -> None:
    assert murmur2_of_equal(keys) == [murmur2(key) for key in keys]


def test_many_at_once_beyond_one_integer() -> None:
    keys = [b"key-%06d" % number for number in range(10_000)]
    assert murmur2_of_equal(keys) == [murmur2(key) for key in keys]


@pytest.mark.parametrize("partitions", [1, 3, 7])
def test_partition_as_in_java(partitions: int) -> None:
    for hashed in _JAVA.values():
        assert partition_of_hash(hashed & 0xFFFFFFFF, partitions) == (hashed & 0x7FFFFFFF) % partitions


@pytest.mark.parametrize("partitions", [1, 3, 256])
@pytest.mark.parametrize(("length", "count"), [(0, 5), (7, 9_000), (8, 4_096), (3, 0)])
def test_partitions_of_many_keys(partitions: int, length: int, count: int) -> None:
    keys = [(b"%08d" % number)[8 - length :] for number in range(count)]
    expected = bytes(partition_of_hash(murmur2(key), partitions) for key in keys)
    assert partitions_of_equal(keys, partitions) == expected
    assert partitions_of_joined(memoryview(b"".join(keys)), count, length, partitions) == expected

"""Tasks of a read: each offset once, in equal shares of bytes."""

from __future__ import annotations

import itertools
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.read_plan import bytes_per_offset, share_out, task_count, total_bytes
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.config import MIB

ID = bytes(16)
logs = st.lists(st.tuples(st.integers(0, 5_000), st.sampled_from([0.1, 1.0, 7.5, 100.0, 3000.0])), max_size=6)


def ranges_of(sizes: list[tuple[int, float]]) -> tuple[list[OffsetRange], dict[TopicPartition, float]]:
    ranges = [OffsetRange("t", ID, number, 5 * number, 5 * number + size) for number, (size, _) in enumerate(sizes)]
    return ranges, {TopicPartition("t", number): weight for number, (_, weight) in enumerate(sizes)}


@given(logs, st.integers(1, 40))
def test_tasks_hold_each_offset_once_and_in_order(sizes: list[tuple[int, float]], tasks: int) -> None:
    ranges, weights = ranges_of(sizes)
    parts = share_out(ranges, weights, tasks)
    assert len(parts) == min(tasks, sum(size for size, _ in sizes))
    assert all(piece.size > 0 for part in parts for piece in part.pieces)
    assert all(part.pieces for part in parts)
    for whole in ranges:
        own = [piece for part in parts for piece in part.pieces if piece.partition == whole.partition]
        if whole.size == 0:
            assert own == []
        else:
            assert (own[0].start, own[-1].end) == (whole.start, whole.end)
            assert all(one.end == two.start for one, two in itertools.pairwise(own))


@given(logs, st.integers(1, 10))
def test_tasks_have_about_as_many_bytes(sizes: list[tuple[int, float]], tasks: int) -> None:
    ranges, weights = ranges_of(sizes)
    parts = share_out(ranges, weights, tasks)
    share = total_bytes(ranges, weights) / max(1, tasks)
    largest_record = max([max(1.0, weight) for _, weight in sizes], default=0.0)
    few = 2 * largest_record * tasks + 4 * len(sizes) * tasks  # cuts are between records, and bytes are rounded
    assert all(part.bytes <= share + few for part in parts)


def test_a_large_partition_is_read_by_many_tasks_and_small_ones_by_one() -> None:
    ranges, weights = ranges_of([(1000, 100.0), (10, 100.0), (10, 100.0), (1000, 100.0)])
    parts = share_out(ranges, weights, 4)
    assert [[(each.partition, each.size) for each in part.pieces] for part in parts] == [
        [(0, 505)],
        [(0, 495), (1, 10)],
        [(2, 10), (3, 495)],
        [(3, 505)],
    ]


def test_how_many_tasks_there_are() -> None:
    assert task_count(0, cpus=2) == 1
    assert task_count(MIB, cpus=2) == 1
    assert task_count(12 * MIB, cpus=2) == 3
    assert task_count(100 * MIB, cpus=2) == 4
    assert task_count(1000 * MIB, cpus=2) == 16
    assert task_count(1000 * MIB, cpus=64) == 128


def test_sizes_are_those_that_leaders_tell() -> None:
    def replica(partition: int, role: str, size: int, first: int, end: int) -> Any:
        return SimpleNamespace(
            topic="t", partition=partition, role=role, size_bytes=size, log_start_offset=first, log_end_offset=end
        )

    told = [
        replica(0, "leader", 1000, 10, 110),
        replica(0, "follower", 5, 0, 1),
        replica(1, "leader", -1, -1, -1),
        replica(2, "leader", 0, 7, 7),
    ]
    assert bytes_per_offset(told) == {TopicPartition("t", 0): 10.0}

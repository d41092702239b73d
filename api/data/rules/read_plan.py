"""The tasks of a read: ranges of offsets, shared out by their bytes. Decides; touches nothing.

    partitions  |------0------|--1--|---------2---------|      laid side by side, each as long as its bytes
    tasks       |---a---|---b---|---c---|---d---|---e---|      cut at equal distances

What must stay true: the tasks together hold each offset of the ranges once, in order within a partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from raylog.actors.cluster.descriptions import ReplicaDescription
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.config import KIB, MIB

_TASK_BYTES: Final = 64 * MIB  # what a task reads where there is much
_LEAST_TASK_BYTES: Final = 4 * MIB  # below it a task costs more than it saves
_RECORD_BYTES: Final = KIB  # where nobody has told of a log's size
_TASKS_PER_CPU: Final = 2


@dataclass(frozen=True)
class ReadPart:
    """The ranges of one task, in order, and about how many bytes of logs they are."""

    pieces: tuple[OffsetRange, ...]
    bytes: int


def bytes_per_offset(replicas: Iterable[ReplicaDescription]) -> dict[TopicPartition, float]:
    """Return how large records are in each log, by what its leader has reported last."""
    return {
        TopicPartition(each.topic, each.partition): each.size_bytes / (each.log_end_offset - each.log_start_offset)
        for each in replicas
        if each.role == "leader" and each.size_bytes > 0 and each.log_end_offset > each.log_start_offset >= 0
    }


def total_bytes(ranges: Iterable[OffsetRange], sizes: Mapping[TopicPartition, float]) -> int:
    return sum(_bytes(each, sizes) for each in ranges)


def task_count(total: int, cpus: int) -> int:
    """Return how many tasks read so many bytes where nobody has said it."""
    busy = min(_TASKS_PER_CPU * cpus, total // _LEAST_TASK_BYTES)
    return max(1, busy, -(-total // _TASK_BYTES))


def share_out(
    ranges: Sequence[OffsetRange], sizes: Mapping[TopicPartition, float], tasks: int
) -> list[ReadPart]:
    """Return that many tasks of about as many bytes; fewer where there are fewer offsets. Without offsets: none."""
    waiting = [each for each in ranges if each.size > 0]
    tasks = min(tasks, sum(each.size for each in waiting))
    parts = []
    for left in range(tasks, 0, -1):
        part, waiting = _first_part(waiting, sizes, left)
        parts.append(part)
    return parts


def _first_part(
    waiting: list[OffsetRange], sizes: Mapping[TopicPartition, float], tasks: int
) -> tuple[ReadPart, list[OffsetRange]]:
    """The first of so many tasks, and what is left for the others: at least an offset for each."""
    if tasks == 1:
        return _part(waiting, sizes), []
    share = total_bytes(waiting, sizes) / tasks
    spare = sum(each.size for each in waiting) - tasks + 1  # offsets that this one may take
    taken: list[OffsetRange] = []
    for number, each in enumerate(waiting):
        fits = max(0 if taken else 1, round(share / _size(each, sizes)))
        count = min(each.size, fits, spare)
        if count > 0:
            taken.append(replace(each, end=each.start + count))
        if count < each.size:
            return _part(taken, sizes), [replace(each, start=each.start + count), *waiting[number + 1 :]]
        share -= _bytes(each, sizes)
        spare -= count
    raise AssertionError("the last offsets belong to the tasks that follow")


def _part(pieces: list[OffsetRange], sizes: Mapping[TopicPartition, float]) -> ReadPart:
    return ReadPart(tuple(pieces), total_bytes(pieces, sizes))


def _size(each: OffsetRange, sizes: Mapping[TopicPartition, float]) -> float:
    return max(1.0, sizes.get(each.place, _RECORD_BYTES))


def _bytes(each: OffsetRange, sizes: Mapping[TopicPartition, float]) -> int:
    return round(each.size * _size(each, sizes))

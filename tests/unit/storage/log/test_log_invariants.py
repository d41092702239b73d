"""What a log says of itself when something in it is broken, and that it says nothing when all is well."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.leader_epochs import EpochStart
from tests.unit.storage.small_log import append, new_log


def log_in_segments() -> PartitionLog:
    log, _ = new_log({"segment.bytes": 300})
    for _ in range(6):
        append(log, b"x" * 100)
    log.flush()
    log.advance_high_watermark(5)
    log.delete_records(1)
    assert len(log.segments) > 2
    return log


def test_a_sound_log_has_nothing_to_say() -> None:
    assert list(log_in_segments().broken_invariants()) == []


def high_watermark_behind_the_end(log: PartitionLog) -> None:
    log.marks.high_watermark = log.log_end_offset + 1


def start_above_the_high_watermark(log: PartitionLog) -> None:
    log.marks.log_start_offset = log.high_watermark + 1


def recovery_point_behind_the_end(log: PartitionLog) -> None:
    log.marks.recovery_point = log.log_end_offset + 1


def start_before_the_first_segment(log: PartitionLog) -> None:
    for segment in log.segments.sealed[:2]:
        log.segments.remove(segment)


def hole_between_segments(log: PartitionLog) -> None:
    log.segments.remove(log.segments[1])


def segment_that_is_not_sealed(log: PartitionLog) -> None:
    log.segments.add(log.new_segment(log.log_end_offset))


def other_active_segment(log: PartitionLog) -> None:
    log.segments.active = log.segments[0]


def epochs_out_of_order(log: PartitionLog) -> None:
    log.epochs._history += [EpochStart(log.epochs.latest, 2)]


def epoch_behind_the_end(log: PartitionLog) -> None:
    log.epochs._history += [EpochStart(log.epochs.latest + 1, log.log_end_offset + 1)]


def flush_that_never_began(log: PartitionLog) -> None:
    log.flushes.is_over()


def files_kept_for_no_flush(log: PartitionLog) -> None:
    log.flushes._let_go.append(log.segments[0])


@pytest.mark.parametrize(
    ("break_it", "said"),
    [
        (high_watermark_behind_the_end, "not in order"),
        (start_above_the_high_watermark, "not in order"),
        (recovery_point_behind_the_end, "recovery point 7"),
        (start_before_the_first_segment, "the log starts at 1"),
        (hole_between_segments, "the next is"),
        (segment_that_is_not_sealed, "is not the last one"),
        (other_active_segment, "not the one that grows"),
        (epochs_out_of_order, "follows"),
        (epoch_behind_the_end, "begins behind the log's end 6"),
        (flush_that_never_began, "more flushes have ended"),
        (files_kept_for_no_flush, "no flush is under way"),
    ],
)
def test_a_broken_log_says_what_is_broken(break_it: Callable[[PartitionLog], None], said: str) -> None:
    log = log_in_segments()
    break_it(log)
    assert said in "; ".join(log.broken_invariants())

"""Flushes: when one is due, what it proves, and what may happen to the log while it is under way."""

from __future__ import annotations

from random import Random

import pytest

from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.small_log import (
    EPOCH,
    NOW_MS,
    append,
    contents,
    new_disk,
    new_log,
    open_log,
)


def survives_power_cuts(disk: FaultyDisk, expected: list[bytes]) -> bool:
    """Whether these batches are there after any power cut."""
    for seed in range(30):
        clone = disk.clone()
        clone.crash_machine(Random(seed))
        if contents(open_log(clone))[: len(expected)] != expected:
            return False
    return True


# --- when -------------------------------------------------------------------------------------------------------------


def test_by_default_only_a_roll_asks_for_a_flush() -> None:
    log, _ = new_log()
    for _ in range(100):
        append(log)
    assert not log.flush_due(NOW_MS + 10**10)
    log.roll()
    assert log.flush_due(NOW_MS)
    log.flush()
    assert not log.flush_due(NOW_MS + 10**10)


def test_flush_messages_counts_records() -> None:
    log, _ = new_log({"flush.messages": 5})
    append(log, b"1", b"2", b"3", b"4")
    assert not log.flush_due(NOW_MS)
    append(log, b"5")
    assert log.flush_due(NOW_MS)
    log.flush()
    append(log, b"6")
    assert not log.flush_due(NOW_MS)


def test_flush_ms_counts_from_the_first_record_that_waits() -> None:
    log, _ = new_log({"flush.ms": 1_000})
    assert not log.flush_due(NOW_MS + 10**6)
    append(log)
    append(log, now_ms=NOW_MS + 900)
    assert not log.flush_due(NOW_MS + 999)
    assert log.flush_due(NOW_MS + 1_000)
    log.flush()
    assert not log.flush_due(NOW_MS + 10**6)


def test_with_fsync_every_record_asks_for_a_flush_at_once() -> None:
    log, _ = new_log({"flush.policy": "fsync"})
    assert not log.flush_due(NOW_MS)
    append(log)
    assert log.flush_due(NOW_MS)
    flush = log.plan_flush()
    assert not log.flush_due(NOW_MS)
    append(log)
    assert log.flush_due(NOW_MS)
    flush.work()
    flush.apply()
    assert (log.recovery_point, log.flush_due(NOW_MS)) == (1, True)


# --- what it proves ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("ordered_names", [True, False])
def test_what_was_flushed_survives_a_power_cut_without_any_checkpoint(ordered_names: bool) -> None:
    disk = new_disk(ordered_names=ordered_names)
    log = open_log(disk, {"segment.bytes": 300})
    log.begin_epoch(EPOCH)
    for _ in range(6):
        append(log, b"x" * 100)
    assert log.flush() == log.recovery_point == 6
    flushed = contents(log)
    append(log, b"not flushed")
    assert survives_power_cuts(disk, flushed)


def test_a_flush_proves_what_was_there_when_it_began() -> None:
    log, _ = new_log()
    append(log)
    flush = log.plan_flush()
    append(log)
    log.roll()
    append(log)
    flush.work()
    flush.apply()
    assert log.recovery_point == 1


def test_a_flush_that_was_not_finished_proves_nothing() -> None:
    log, _ = new_log()
    append(log)
    log.plan_flush().work()
    assert log.recovery_point == 0


def test_a_flush_that_a_truncation_has_overtaken_proves_nothing_and_is_due_again() -> None:
    log, disk = new_log({"flush.policy": "fsync"})
    for _ in range(3):
        append(log)
    flush = log.plan_flush()
    log.truncate_to(1, NOW_MS)
    append(log, b"another")
    append(log, b"another")
    flush.work()
    flush.apply()
    assert log.recovery_point == 0
    assert log.flush_due(NOW_MS)
    log.flush()
    assert log.recovery_point == 3
    assert survives_power_cuts(disk, contents(log))


def test_a_flush_that_ends_first_does_not_take_the_names_of_one_that_is_under_way_for_synced() -> None:
    """Two at a time: the first was to sync the directory and is still at it, the second one reports all as safe."""
    disk = new_disk(ordered_names=False)
    log = open_log(disk)
    log.begin_epoch(EPOCH)
    append(log, b"first")
    log.flush()
    log.roll()
    append(log, b"second")
    slow = log.plan_flush()
    append(log, b"third")
    quick = log.plan_flush()
    quick.work()
    quick.apply()
    assert log.recovery_point == 3
    assert survives_power_cuts(disk, contents(log))
    slow.work()
    slow.apply()
    assert log.recovery_point == 3


# --- what may happen meanwhile ----------------------------------------------------------------------------------------


def replicated_in_segments() -> tuple[PartitionLog, FaultyDisk]:
    log, disk = new_log({"segment.bytes": 300, "retention.bytes": 0, "file.delete.delay.ms": 0})
    for _ in range(8):
        append(log, b"x" * 100)
    log.advance_high_watermark(8)
    return log, disk


def test_segments_that_are_truncated_away_under_a_flush_do_not_make_it_fail() -> None:
    """Their files were closed under its hands, which looked like a failed sync and took the replica offline."""
    log, _ = replicated_in_segments()
    flush = log.plan_flush()
    log.truncate_to(3, NOW_MS)
    flush.work()
    flush.apply()
    assert append(log).first_offset == 3


def test_segments_that_retention_removes_under_a_flush_do_not_make_it_fail() -> None:
    log, _ = replicated_in_segments()
    flush = log.plan_flush()
    assert log.delete_old_segments(NOW_MS)
    assert log.remove_deleted_files(NOW_MS) > 0
    flush.work()
    flush.apply()
    assert log.recovery_point == 8


def test_a_log_that_begins_again_under_a_flush_is_not_taken_for_flushed() -> None:
    log, disk = replicated_in_segments()
    flush = log.plan_flush()
    log.restart_at(2)
    log.begin_epoch(EPOCH)
    append(log, b"after")
    flush.work()
    flush.apply()
    assert log.recovery_point == 2
    log.close()
    assert open_files(disk) == []


def test_no_file_stays_open_once_the_last_flush_is_over() -> None:
    log, disk = replicated_in_segments()
    flushes = [log.plan_flush(), log.plan_flush()]
    log.truncate_to(2, NOW_MS)
    held = len(open_files(disk))
    for flush in flushes:
        flush.work()
        flush.apply()
    assert len(open_files(disk)) < held
    assert len(open_files(disk)) == len(log.segments)
    log.close()
    assert open_files(disk) == []


def open_files(disk: FaultyDisk) -> list[str]:
    return sorted(file.path for file in disk._open)

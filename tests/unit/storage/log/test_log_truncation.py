"""Cutting the end of a log: what goes with it, and what a crash in the middle leaves (rules 9 to 11)."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import DiskBusy, LogDamaged, OutOfOrderSequence
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.compaction.progress import CompactionProgress
from raylog.storage.format.control_records import MarkerType
from raylog.storage.format.record_batch import read_header
from raylog.storage.log.job import StepJob
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from raylog.storage.segment.segment import LOG_SUFFIX
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.compacted_log import compact
from tests.unit.storage.small_log import (
    DIRECTORY,
    EPOCH,
    NOW_MS,
    append,
    contents,
    end_transaction,
    from_producer,
    new_disk,
    new_log,
    open_log,
)

SMALL: dict[str, int | str] = {"segment.bytes": 400, "index.interval.bytes": 0}


def log_of(batches: int, *, records: int = 2, overrides: dict[str, int | str] | None = None) -> PartitionLog:
    log, _ = new_log(SMALL if overrides is None else overrides)
    for number in range(batches):
        append(log, *[b"value %d" % number] * records)
    return log


@pytest.mark.parametrize("offset", range(22))
def test_what_is_left_ends_at_or_before_the_offset_at_a_batch(offset: int) -> None:
    log = log_of(10)
    before = contents(log)
    log.advance_high_watermark(15)
    end = min(20, offset // 2 * 2)
    assert log.truncate_to(offset, NOW_MS) == log.log_end_offset == end
    assert contents(log) == before[: end // 2]
    assert log.high_watermark == min(15, end)
    log.begin_epoch(EPOCH)
    assert append(log, b"next").first_offset == end
    assert [read_header(each).base_offset for each in contents(log)] == [*range(0, end, 2), end]


def test_look_ups_know_nothing_of_what_is_gone() -> None:
    log = log_of(0)
    for number in range(12):
        append(log, b"value", now_ms=NOW_MS + number)
    log.truncate_to(7, NOW_MS)
    for number in range(3):
        append(log, b"again", now_ms=NOW_MS + 100 + number)
    log.advance_high_watermark(10)
    assert [log.offset_for_timestamp(NOW_MS + wait) for wait in (6, 7, 101)] == [
        (NOW_MS + 6, 6),
        (NOW_MS + 100, 7),
        (NOW_MS + 101, 8),
    ]
    for offset in range(10):
        assert read_header(log.read(offset, 1, Isolation.LOG_END).data).base_offset == offset


def test_epochs_that_wrote_nothing_of_what_is_left_go_too() -> None:
    log = log_of(2)
    for epoch in (5, 8):
        log.begin_epoch(epoch)
        append(log, b"one")
    log.truncate_to(5, NOW_MS)
    assert list(log.epochs.history) == [(3, 0), (5, 4)]
    log.truncate_to(4, NOW_MS)
    assert list(log.epochs.history) == [(3, 0)]


def test_producers_go_back_to_what_they_had_sent() -> None:
    log, _ = new_log(SMALL)
    for sequence in range(8):
        log.append_as_leader(from_producer(sequence), EPOCH, NOW_MS)
    log.truncate_to(5, NOW_MS)
    for sequence in range(5):
        assert log.append_as_leader(from_producer(sequence), EPOCH, NOW_MS) == (sequence, sequence, True, -1)
    with pytest.raises(OutOfOrderSequence):
        log.append_as_leader(from_producer(7), EPOCH, NOW_MS)
    assert log.append_as_leader(from_producer(5), EPOCH, NOW_MS).first_offset == 5


def log_of_producers() -> PartitionLog:
    """Of ten batches in many segments, from producers that take turns, and with transactions."""
    log, _ = new_log(SMALL)
    for number in range(10):
        log.append_as_leader(from_producer(number // 2, producer=7 + number % 2), EPOCH, NOW_MS)
    log.append_as_leader(from_producer(0, producer=9, transactional=True), EPOCH, NOW_MS)
    end_transaction(log, MarkerType.ABORT, producer=9)
    log.advance_high_watermark(8)
    return log


def known(log: PartitionLog) -> list[str]:
    return [repr(log.producers.get(number)) for number in range(7, 10)]


@pytest.mark.parametrize("offset", range(1, 12))
@pytest.mark.parametrize("has_snapshots", [False, True])
def test_a_cut_beside_the_owner_leaves_what_a_cut_at_once_leaves(offset: int, has_snapshots: bool) -> None:
    expected, log = log_of_producers(), log_of_producers()
    expected.truncate_to(offset, NOW_MS)
    if not has_snapshots:
        log.directory.remove_snapshots(keep=())
    planned = log.plan_truncation(offset, NOW_MS)
    assert planned.has_work
    planned.work()
    assert log.log_end_offset == 12
    cut_in_steps(log, planned)
    assert log.log_end_offset == offset
    assert known(log) == known(expected)
    assert log.last_stable_offset == expected.last_stable_offset
    assert log.producers.open_transactions() == expected.producers.open_transactions()
    assert contents(log) == contents(expected)


def cut_in_steps(log: PartitionLog, planned: StepJob) -> None:
    """Carry out all steps of a cut, each with its work."""
    planned.run()
    if log.cut is not None:
        log.cut.run()


def test_what_was_prepared_for_an_earlier_log_is_not_used() -> None:
    expected, log = log_of_producers(), log_of_producers()
    expected.truncate_to(3, NOW_MS)
    early = log.plan_truncation(3, NOW_MS)
    early.work()
    log.truncate_to(6, NOW_MS)
    cut_in_steps(log, early)
    assert log.log_end_offset == 3
    assert known(log) == known(expected)


def test_a_cut_is_prepared_anew_where_files_went_meanwhile() -> None:
    expected, log = log_of_producers(), log_of_producers()
    expected.truncate_to(9, NOW_MS)
    planned = log.plan_truncation(9, NOW_MS)
    path = log.segments.containing(8).path(LOG_SUFFIX)
    log.disk.rename(path, path + ".away")
    planned.work()
    log.disk.rename(path + ".away", path)
    cut_in_steps(log, planned)
    assert log.log_end_offset == 9
    assert known(log) == known(expected)


def test_a_cut_is_given_up_while_its_files_are_away() -> None:
    log = log_of_producers()
    path = log.segments.containing(8).path(LOG_SUFFIX)
    log.disk.rename(path, path + ".away")
    with pytest.raises(DiskBusy):
        log.plan_truncation(9, NOW_MS).run()
    assert (log.log_end_offset, log.cut, log.offline_because) == (12, None, None)


def test_nothing_waits_for_the_disk_where_nothing_is_cut() -> None:
    log = log_of_producers()
    assert [log.plan_truncation(offset, NOW_MS).has_work for offset in (12, 20)] == [False] * 2


def disk_of(log: PartitionLog) -> FaultyDisk:
    assert isinstance(log.disk, FaultyDisk)
    return log.disk


# --- between the steps ------------------------------------------------------------------------------------------------


def half_cut(log: PartitionLog, offset: int | None) -> StepJob:
    """Cut the log in memory only; None: throw it away. Returns the rest."""
    (log.plan_restart(5) if offset is None else log.plan_truncation(offset, NOW_MS)).run()
    assert log.cut is not None
    return log.cut


@pytest.mark.parametrize("offset", [None, *range(12)])
def test_what_is_appended_waits_for_the_files(offset: int | None) -> None:
    log = log_of_producers()
    half_cut(log, offset)
    assert list(log.broken_invariants()) == []
    log.begin_epoch(EPOCH + 1)
    assert log.cut is None
    end = log.log_end_offset
    append(log, b"of the next leader")
    left = contents(log)
    disk_of(log).crash_process()
    assert contents(open_log(disk_of(log), SMALL)) == left
    assert end == (5 if offset is None else offset)


@pytest.mark.parametrize("offset", [None, 0, 4, 9])
@pytest.mark.parametrize("epoch", [None, EPOCH + 1])
def test_a_role_waits_for_the_files(offset: int | None, epoch: int | None) -> None:
    log = log_of_producers()
    rest = half_cut(log, offset)
    start = log.plan_role_start(epoch)
    assert start.has_work
    start.work()
    rest.work()  # it may be both that carry it out
    start.run()
    assert log.cut is None
    rest.run()
    assert log.epochs.latest == (epoch or (EPOCH if offset else -1))


@pytest.mark.parametrize("offset", [None, 0, 4, 9])
def test_a_close_in_between_finishes_the_cut(offset: int | None) -> None:
    log = log_of_producers()
    half_cut(log, offset)
    end, left = log.log_end_offset, contents(log)
    log.close()
    log = open_log(disk_of(log), SMALL)
    assert (log.opened_after, log.log_end_offset, contents(log)) == (OpenedAfter.CLEAN_CLOSE, end, left)


@pytest.mark.parametrize("offset", [None, 0, 4, 9])
def test_marks_that_are_written_in_between_do_not_undo_the_cut(offset: int | None) -> None:
    log = log_of_producers()
    log.flush()
    half_cut(log, offset)
    log.checkpoint()
    log.flush()
    disk_of(log).crash_process()
    again = open_log(disk_of(log), SMALL)
    assert again.log_end_offset == (5 if offset is None else 12 if offset else 0)


def test_a_cut_that_was_given_up_leaves_the_log_as_it_was() -> None:
    log = log_of_producers()
    before = contents(log)
    log.plan_truncation(4, NOW_MS).work()
    planned = log.plan_truncation(4, NOW_MS)
    planned.work()
    planned.apply()
    planned.work()  # the marks
    assert contents(log) == before
    append(log, b"more")
    disk_of(log).crash_process()
    assert len(contents(open_log(disk_of(log), SMALL))) == len(before) + 1


@pytest.mark.parametrize("is_leading", [False, True])
def test_a_restart_that_was_given_up_is_taken_back_before_anything_is_appended(is_leading: bool) -> None:
    """The disk says already that all goes: an opening would carry that out."""
    log = log_of_producers()
    before = contents(log)
    log.plan_restart(40).work()
    if is_leading:
        log.plan_role_start(EPOCH + 1).run()
    append(log, b"acknowledged")
    disk_of(log).crash_process()
    assert len(contents(open_log(disk_of(log), SMALL))) == len(before) + 1


@pytest.mark.parametrize("offset", [None, 4])
def test_files_that_cannot_be_cut_take_the_log_offline(offset: int | None) -> None:
    log = log_of_producers()
    rest = half_cut(log, offset)
    disk_of(log).fail_next("sync_directory", error=DiskBusy("no handle is free"))
    with pytest.raises(DiskBusy):
        rest.run()
    assert isinstance(log.offline_because, DiskBusy)


@pytest.mark.parametrize("offset", [None, 3, 8])
def test_a_flush_that_is_under_way_does_not_meet_a_closed_file(offset: int | None) -> None:
    log = log_of_producers()
    log.plan_copy("why", NOW_MS).run()
    flush = log.plan_flush()
    half_cut(log, offset).run()
    flush.work()
    flush.apply()
    assert not log.flushes.is_letting_go
    assert log.recovery_point <= log.log_end_offset


@pytest.mark.parametrize("offset", [None, 4])
def test_blocks_are_free_before_the_files_are_closed(offset: int | None) -> None:
    """The owner's thread closes them, and would have to wait for that."""
    log = log_of_producers()
    flush = log.plan_flush()
    half_cut(log, offset).run()
    held = disk_of(log).used_bytes()
    flush.work()
    flush.apply()
    assert disk_of(log).used_bytes() == held


def test_a_copy_that_nobody_waits_for_is_not_made_of_a_log_that_was_cut() -> None:
    log = log_of_producers()
    late = log.plan_copy("why", NOW_MS)
    half_cut(log, 4)
    with pytest.raises(FileNotFoundError):
        late.run()


def test_a_transaction_whose_marker_is_gone_is_open_again() -> None:
    log, _ = new_log(SMALL)
    for number in range(4):
        append(log, b"filling %d" % number, b"x" * 60)
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    end_transaction(log, MarkerType.ABORT)
    log.advance_high_watermark(log.log_end_offset)
    assert log.aborted_between(0, 10, NOW_MS) == [(7, 8, 9, 10)]
    log.truncate_to(9, NOW_MS)
    assert log.aborted_between(0, 10, NOW_MS) == []
    assert (log.last_stable_offset, log.high_watermark) == (8, 9)
    end_transaction(log, MarkerType.COMMIT)
    log.advance_high_watermark(10)
    assert (log.aborted_between(0, 10, NOW_MS), log.last_stable_offset) == ([], 10)


def test_a_cut_inside_the_batch_across_the_logs_start_leaves_an_empty_log_at_its_start() -> None:
    """Cutting that batch alone would let the log end before it begins."""
    log = log_of(4, records=10)
    log.advance_high_watermark(40)
    log.delete_records(25)
    assert log.truncate_to(27, NOW_MS) == 25
    assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (25, 25, 25)
    assert log.read(25, 100, Isolation.LOG_END).data == b""


def test_a_log_that_begins_again_keeps_nothing_of_the_old_one() -> None:
    log = log_of(6)
    log.advance_high_watermark(12)
    for offset in (30, 4, 0):
        log.restart_at(offset)
        assert (log.log_start_offset, log.high_watermark, log.log_end_offset) == (offset, offset, offset)
        assert (log.epochs.history, log.size_bytes, len(log.segments)) == ((), 0, 1)
        log.begin_epoch(1)
        assert append(log, b"new").first_offset == offset


# --- crashes ----------------------------------------------------------------------------------------------------------


@pytest.mark.thorough
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("ordered_names", [False, True])
@pytest.mark.parametrize("offset", [3, 8, 13])
def test_killed_at_every_step_a_truncation_leaves_a_log_cut_there_or_less(
    offset: int, ordered_names: bool, power_cut: bool
) -> None:
    start = new_disk(ordered_names=ordered_names)
    log = open_log(start, SMALL)
    log.begin_epoch(EPOCH)
    for number in range(8):
        append(log, b"value %d" % number, b"x" * 30)
    log.flush()
    log.advance_high_watermark(14)
    log.checkpoint()
    before = contents(log)
    start.crash_process()
    left = offset // 2
    for point in crash_points(start, lambda disk: open_log(disk, SMALL).truncate_to(offset, NOW_MS)):
        for seed in range(3 if power_cut else 1):
            disk = point.disk.clone()
            if power_cut:
                disk.crash_machine(Random(seed))
            log = open_log(disk, SMALL)
            found = contents(log)
            assert found == before[: len(found)]
            assert len(found) >= left
            assert log.truncate_to(offset, NOW_MS) == left * 2
            assert contents(log) == before[:left]


def test_marks_go_down_as_far_as_the_cut_and_not_only_to_the_offset() -> None:
    """The offset lay inside a batch that was flushed: a crash after the cut found less than the recovery point."""
    start = new_disk()
    log = open_log(start)
    log.begin_epoch(EPOCH)
    append(log, b"one", b"two")
    log.flush()
    log.checkpoint()
    start.crash_process()
    for point in crash_points(start, lambda disk: open_log(disk).truncate_to(1, NOW_MS)):
        log = open_log(point.disk)
        assert log.log_end_offset in (0, 2)


def test_what_is_written_over_a_cut_is_not_taken_for_flushed() -> None:
    log, disk = new_log()
    for number in range(6):
        append(log, b"value %d" % number)
    log.flush()
    log.checkpoint()
    kept = contents(log)[:3]
    log.truncate_to(3, NOW_MS)
    for _ in range(3):
        append(log, b"another value")
    for seed in range(20):
        clone = disk.clone()
        clone.crash_machine(Random(seed))
        assert contents(open_log(clone))[:3] == kept


def test_compaction_progress_does_not_outlive_what_was_compacted() -> None:
    """A crash between the cut and the note of it would let new tombstones count as old ones."""
    settings: dict[str, int | str] = {**SMALL, "cleanup.policy": "compact"}
    log, start = new_log(settings)
    for _ in range(8):
        append(log, b"a", b"b")
    log.roll()
    log.advance_high_watermark(16)
    assert compact(log, NOW_MS, MemoryBudget(), force=True) is not None
    assert CompactionProgress.load(start, DIRECTORY).cleaned_to == 16
    start.crash_process()

    def truncate(disk: FaultyDisk) -> None:
        open_log(disk, settings).truncate_to(5, NOW_MS)

    for point in crash_points(start, truncate):
        log = open_log(point.disk, settings)
        assert CompactionProgress.load(point.disk, DIRECTORY).cleaned_to <= log.log_end_offset


def test_a_damaged_batch_at_the_cut_is_damage() -> None:
    log, disk = new_log()
    for _ in range(4):
        append(log, b"value")
    size = len(contents(log)[0])
    disk.flip_bit(f"{DIRECTORY}/{0:020d}.log", (2 * size + 9) * 8)
    with pytest.raises(LogDamaged):
        log.truncate_to(3, NOW_MS)
    assert log.offline_because is not None
    assert disk.exists(f"{DIRECTORY}/quarantine")

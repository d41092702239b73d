"""Cutting the end of a log: what goes with it, and what a crash in the middle leaves (rules 9 to 11)."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import LogDamaged, OutOfOrderSequence
from raylog.storage.compaction.key_map import MemoryBudget
from raylog.storage.compaction.progress import CompactionProgress
from raylog.storage.format.control_records import MarkerType
from raylog.storage.format.record_batch import read_header
from raylog.storage.log import truncation
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
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


def no_replay(*_: object) -> None:
    raise AssertionError("it was read once more")


@pytest.mark.parametrize("offset", range(1, 12))
@pytest.mark.parametrize("has_snapshots", [False, True])
def test_a_cut_that_was_prepared_reads_nothing_again(
    offset: int, has_snapshots: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    expected, log = log_of_producers(), log_of_producers()
    expected.truncate_to(offset, NOW_MS)
    if not has_snapshots:
        log.directory.remove_snapshots(keep=())
    planned = log.plan_truncation(offset, NOW_MS)
    assert planned.has_work
    planned.work()
    assert log.log_end_offset == 12
    monkeypatch.setattr(truncation, "replay", no_replay)
    assert planned.apply() == offset
    assert known(log) == known(expected)
    assert log.last_stable_offset == expected.last_stable_offset
    assert log.producers.open_transactions() == expected.producers.open_transactions()


def test_what_was_prepared_for_another_cut_or_an_earlier_log_is_not_used() -> None:
    expected, log = log_of_producers(), log_of_producers()
    expected.truncate_to(3, NOW_MS)
    other, early = log.plan_truncation(9, NOW_MS), log.plan_truncation(3, NOW_MS)
    other.work()
    early.work()
    other._offset = 6
    other.apply()
    assert (log.log_end_offset, early.apply()) == (6, 3)
    assert known(log) == known(expected)


def test_a_cut_goes_on_where_files_went_while_it_was_prepared() -> None:
    expected, log = log_of_producers(), log_of_producers()
    expected.truncate_to(9, NOW_MS)
    planned = log.plan_truncation(9, NOW_MS)
    assert planned.has_work
    path = log.segments.containing(8).path(LOG_SUFFIX)
    log.disk.rename(path, path + ".away")
    planned.work()
    log.disk.rename(path + ".away", path)
    assert planned.apply() == 9
    assert known(log) == known(expected)


def test_nothing_is_to_be_prepared_where_nothing_is_read() -> None:
    log = log_of_producers()
    assert [log.plan_truncation(offset, NOW_MS).has_work for offset in (0, 12, 20)] == [False] * 3


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

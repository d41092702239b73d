"""Which old segments go: by age, by size, because their records were deleted; and which never do."""

from __future__ import annotations

from random import Random

import pytest

from raylog.config import TopicConfig
from raylog.errors import DiskReadOnly, OffsetOutOfRange
from raylog.storage.format.record_batch import NO_TIMESTAMP, read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from raylog.storage.log.retention import SegmentFacts, expired_segments
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.small_log import (
    DIRECTORY,
    EPOCH,
    NOW_MS,
    append,
    contents,
    from_producer,
    new_disk,
    new_log,
    open_log,
)

HOUR_MS = 3_600_000
ALL = 10**9


def three_segments(newest: int = NOW_MS) -> list[SegmentFacts]:
    """Of 100 bytes and 10 offsets each, an hour apart."""
    return [SegmentFacts(at * 10, at * 10 + 10, 100, newest - (2 - at) * HOUR_MS) for at in range(3)]


def expired(
    segments: list[SegmentFacts], start: int = 0, keep_from: int = ALL, active_size: int = 50, **settings: object
) -> list[int]:
    config = TopicConfig.parse({name.replace("_", "."): value for name, value in settings.items()})  # type: ignore[misc]
    total = sum(each.size for each in segments) + active_size
    return [each.base_offset for each in expired_segments(segments, total, config, NOW_MS, start, keep_from)]


# --- by age -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention_ms", "gone"),
    [(-1, []), (2 * HOUR_MS, []), (2 * HOUR_MS - 1, [0]), (HOUR_MS, [0]), (HOUR_MS - 1, [0, 10]), (0, [0, 10])],
)
def test_a_segment_goes_when_its_newest_record_is_over_retention_ms_old(retention_ms: int, gone: list[int]) -> None:
    assert expired(three_segments(), retention_ms=retention_ms) == gone


def test_only_a_prefix_goes() -> None:
    first, second, third = three_segments(NOW_MS - 10 * HOUR_MS)
    young = second._replace(largest_timestamp=NOW_MS)
    assert expired([first, young, third], retention_ms=HOUR_MS) == [0]


def test_a_segment_of_nothing_but_compacted_away_offsets_is_old() -> None:
    empty = SegmentFacts(0, 10, 61, NO_TIMESTAMP)
    assert expired([empty], retention_ms=HOUR_MS) == [0]
    assert expired([empty], retention_ms=-1) == []


# --- by size ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("retention_bytes", "gone"),
    [(-1, []), (350, []), (251, []), (250, [0]), (151, [0]), (150, [0, 10]), (50, [0, 10, 20]), (0, [0, 10, 20])],
)
def test_the_oldest_go_while_at_least_retention_bytes_stay(retention_bytes: int, gone: list[int]) -> None:
    """350 bytes in all. The log never shrinks below `retention.bytes` by deleting."""
    assert expired(three_segments(), retention_ms=-1, retention_bytes=retention_bytes) == gone


# --- because their records were deleted -------------------------------------------------------------------------------


@pytest.mark.parametrize(("start", "gone"), [(0, []), (9, []), (10, [0]), (29, [0, 10]), (30, [0, 10, 20])])
@pytest.mark.parametrize("policy", ["", "delete", "compact", "compact,delete"])
def test_a_segment_below_the_log_start_goes_whatever_the_policy(start: int, gone: list[int], policy: str) -> None:
    assert expired(three_segments(), start, retention_ms=-1, cleanup_policy=policy) == gone


def test_a_compacted_log_keeps_its_old_records_unless_it_deletes_too() -> None:
    old = three_segments(NOW_MS - 1_000 * HOUR_MS)
    assert expired(old, cleanup_policy="compact", retention_bytes=0) == []
    assert expired(old, cleanup_policy="", retention_bytes=0) == []
    assert expired(old, cleanup_policy="compact,delete") == [0, 10, 20]


# --- what never goes --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("keep_from", "gone"), [(0, []), (9, []), (10, [0]), (19, [0]), (20, [0, 10]), (30, [0, 10, 20])]
)
def test_nothing_goes_that_is_not_replicated_and_decided(keep_from: int, gone: list[int]) -> None:
    assert expired(three_segments(), keep_from=keep_from, retention_bytes=0) == gone
    assert expired(three_segments(NOW_MS - ALL), keep_from=keep_from, retention_ms=0) == gone


def log_of_five(overrides: dict[str, int | str] | None = None) -> tuple[PartitionLog, FaultyDisk]:
    """Five batches, each in a segment of its own, an hour apart; all replicated."""
    log, disk = new_log(overrides)
    for number in range(5):
        append(log, b"value %d" % number, now_ms=NOW_MS + number * HOUR_MS)
        if number < 4:
            log.roll()
    log.advance_high_watermark(5)
    return log, disk


LATER = NOW_MS + 5 * HOUR_MS


def test_an_open_transaction_keeps_all_that_follows() -> None:
    log, _ = new_log({"retention.ms": 0})
    append(log, b"first")
    log.roll()
    log.append_as_leader(from_producer(0, transactional=True), EPOCH, NOW_MS)
    log.roll()
    append(log, b"last")
    log.advance_high_watermark(3)
    assert [each.base_offset for each in log.delete_old_segments(LATER)] == [0]
    assert (log.log_start_offset, log.last_stable_offset) == (1, 1)


def test_the_growing_segment_is_never_deleted_by_size() -> None:
    log, _ = log_of_five({"retention.bytes": 0})
    assert [each.base_offset for each in log.delete_old_segments(NOW_MS)] == [0, 1, 2, 3]
    assert (log.log_start_offset, log.log_end_offset) == (4, 5)
    assert log.delete_old_segments(NOW_MS) == []


def test_an_idle_log_gives_up_its_last_segment_too_once_all_in_it_is_too_old() -> None:
    log, disk = log_of_five({"retention.ms": HOUR_MS})
    assert len(log.delete_old_segments(NOW_MS + 100 * HOUR_MS)) == 5
    assert (log.log_start_offset, log.log_end_offset, log.size_bytes) == (5, 5, 0)
    assert append(log, b"next").first_offset == 5
    disk.crash_process()
    again = open_log(disk)
    assert (again.log_start_offset, again.log_end_offset) == (5, 6)


def test_each_deletion_says_why() -> None:
    log, _ = log_of_five({"retention.ms": 3 * HOUR_MS})
    log.delete_records(1)
    reasons = {each.base_offset: each.reason for each in log.delete_old_segments(LATER)}
    assert "below the log start offset 1" in reasons[0]
    assert "retention.ms=10800000" in reasons[1]


# --- the files --------------------------------------------------------------------------------------------------------


def test_deleted_files_wait_for_their_readers_and_then_go() -> None:
    log, disk = log_of_five({"retention.ms": HOUR_MS, "file.delete.delay.ms": 1_000})
    piece = log.slice(0, ALL, Isolation.LOG_END)
    assert piece is not None
    held = disk.open(piece.path)
    before = held.read_at(piece.length, piece.position)
    log.delete_old_segments(LATER)
    deleted = [path for path in disk.files() if path.endswith(".deleted")]
    assert len([path for path in deleted if path.endswith(".log.deleted")]) == 4
    assert log.remove_deleted_files(LATER + 999) == 0
    assert held.read_at(piece.length, piece.position) == before
    assert log.remove_deleted_files(LATER + 1_000) == len(deleted)
    assert not [path for path in disk.files() if path.endswith(".deleted")]
    held.close()


def test_what_is_deleted_can_not_be_read_any_more() -> None:
    log, _ = log_of_five({"retention.ms": HOUR_MS})
    log.delete_old_segments(LATER)
    with pytest.raises(OffsetOutOfRange) as raised:
        log.read(3, ALL)
    assert (raised.value.start, raised.value.end) == (4, 5)
    assert log.offset_for_timestamp(0) == (NOW_MS + 4 * HOUR_MS, 4)


def test_deleted_records_do_not_come_back() -> None:
    log, disk = log_of_five()
    log.delete_records(3)
    for ending in ("process crash", "machine crash", "clean close"):
        if ending == "clean close":
            log.close()
        elif ending == "machine crash":
            disk.crash_machine(Random(1))
        else:
            disk.crash_process()
        log = open_log(disk)
        assert log.log_start_offset == 3
        with pytest.raises(OffsetOutOfRange):
            log.read(2, ALL, Isolation.LOG_END)


def test_records_are_deleted_inside_a_batch_and_the_rest_of_it_stays() -> None:
    log, _ = new_log()
    append(log, b"one", b"two", b"three", b"four")
    log.advance_high_watermark(4)
    assert log.delete_records(2) == 2
    assert read_header(log.read(2, ALL).data).base_offset == 0  # whole batches: the reader skips what is before
    assert log.offset_for_timestamp(0) == (NOW_MS, 2)


@pytest.mark.parametrize("ordered_names", [True, False])
def test_a_power_cut_in_the_middle_of_a_deletion_leaves_a_log_that_opens(ordered_names: bool) -> None:
    """Any of the deleted segments may be back, torn, or with a gap to the next: none of them is missed."""
    start = new_disk(ordered_names=ordered_names)
    settings = {"retention.ms": HOUR_MS, "file.delete.delay.ms": 0}
    log = open_log(start, settings)
    log.begin_epoch(EPOCH)
    for number in range(5):
        append(log, b"value %d" % number, now_ms=NOW_MS + number * HOUR_MS)
        if number < 4:
            log.roll()
    log.advance_high_watermark(5)
    log.flush()
    log.checkpoint()
    kept = contents(log)[4:]
    start.crash_process()

    def delete(disk: FaultyDisk) -> None:
        log = open_log(disk, settings)
        log.delete_old_segments(LATER)
        log.remove_deleted_files(LATER)

    opened = 0
    for point in crash_points(start, delete):
        for seed in range(5):
            disk = point.disk.clone()
            disk.crash_machine(Random(seed))
            log = open_log(disk, settings)
            assert log.opened_after in (OpenedAfter.MACHINE_CRASH, OpenedAfter.CLEAN_CLOSE)
            assert contents(log)[-1:] == kept
            assert log.log_start_offset in (0, 4)
            opened += 1
    assert opened > 100


def test_a_deletion_that_is_refused_half_way_leaves_a_log_that_a_clean_close_describes() -> None:
    """A segment that was out of sight in memory but still on disk was taken for damage at the next opening."""
    for number in range(1, 6):
        log, disk = log_of_five({"retention.ms": HOUR_MS})
        renames = 0

        def refuse(operation: str, path: str, number: int = number, disk: FaultyDisk = disk) -> None:
            nonlocal renames
            renames += operation == "rename" and ".log" in path and "checkpoint" not in path
            if operation == "rename" and renames == number:
                renames += 1
                disk.fail_next("rename", path, DiskReadOnly("Read-only file system."))

        disk.on_operation = refuse
        if number <= 4:
            with pytest.raises(DiskReadOnly):
                log.delete_old_segments(LATER)
        disk.on_operation = None
        log.close()
        again = open_log(disk, {"retention.ms": HOUR_MS})
        assert again.opened_after is OpenedAfter.CLEAN_CLOSE
        again.advance_high_watermark(5)
        again.delete_old_segments(LATER)
        assert again.log_start_offset == 4
        assert again.segments.bases() == [4]


def test_nothing_of_a_deletion_is_left_after_an_opening() -> None:
    log, disk = log_of_five({"retention.ms": HOUR_MS})
    log.delete_old_segments(LATER)
    disk.crash_process()
    open_log(disk, {"retention.ms": HOUR_MS})
    stems = {path.rpartition("/")[2].partition(".")[0] for path in disk.files() if path.startswith(f"{DIRECTORY}/0")}
    assert stems == {f"{4:020d}"}

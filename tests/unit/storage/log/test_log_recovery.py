"""Opening a log: the table at the top of `log/recovery.py`, row by row, and what is made again (rule 14)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from random import Random

import pytest

from raylog.errors import LogDamaged
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import MarkerType
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from raylog.storage.segment import batch_scan
from raylog.storage.segment.segment import file_name
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
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

SETTINGS: dict[str, int | str] = {"segment.bytes": 500, "index.interval.bytes": 0}
DERIVED = (".index", ".timeindex", ".txnindex", ".snapshot")


def filled(*, flushed: int = 0, replicated: int = 0, batches: int = 12) -> tuple[PartitionLog, FaultyDisk]:
    """Segments of two batches; all that is `flushed` or `replicated` is so in the checkpoint."""
    log, disk = new_log(SETTINGS)
    for number in range(batches):
        append(log, b"value %2d" % number, b"x" * 40)
        if number + 1 == flushed:
            log.flush()
    log.advance_high_watermark(replicated * 2)
    log.checkpoint()
    assert len(log.segments) > 3
    return log, disk


def path_of(log: PartitionLog, at: int, kind: str = ".log") -> str:
    return f"{DIRECTORY}/{file_name(log.segments.bases()[at], kind)}"


def cut(disk: FaultyDisk, path: str, size: int) -> None:
    file = disk.open(path)
    file.truncate(size)
    file.close()


def overwrite(disk: FaultyDisk, path: str, position: int, data: bytes) -> None:
    file = disk.open(path)
    file.write_at(data, position)
    file.close()


def expect_damage(disk: FaultyDisk, says: str = "") -> None:
    """The log is refused now, and from then on."""
    for _ in range(2):
        with pytest.raises(LogDamaged, match=says or None):
            open_log(disk, SETTINGS)
    assert disk.exists(f"{DIRECTORY}/quarantine")


# --- closed cleanly: the marker lists every segment's size; nothing is scanned ----------------------------------------


def test_after_a_clean_close_nothing_is_scanned() -> None:
    log, disk = filled(batches=60)
    end = log.log_end_offset
    log.close()
    reads: list[str] = []
    disk.on_operation = lambda operation, path: reads.append(path) if operation == "read_at" else None
    log = open_log(disk, SETTINGS)
    assert (log.opened_after, log.log_end_offset) == (OpenedAfter.CLEAN_CLOSE, end)
    assert len(reads) < 10
    assert set(reads) == {path_of(log, -1)}


def test_a_clean_close_keeps_all_marks() -> None:
    log, disk = filled()
    log.advance_high_watermark(9)
    log.delete_records(5)
    log.close()
    log = open_log(disk, SETTINGS)
    assert (log.log_start_offset, log.high_watermark, log.recovery_point) == (5, 9, 24)


def test_a_clean_close_survives_a_power_cut() -> None:
    log, disk = filled(replicated=12)
    before = contents(log)
    log.close()
    for seed in range(20):
        clone = disk.clone()
        clone.crash_machine(Random(seed))
        log = open_log(clone, SETTINGS)
        assert log.opened_after is OpenedAfter.CLEAN_CLOSE
        assert (contents(log), log.high_watermark) == (before, 24)


@pytest.mark.parametrize("at", [0, 1, -1])
@pytest.mark.parametrize("change", [-1, 1])
def test_a_size_that_is_not_that_of_the_clean_close_is_damage(at: int, change: int) -> None:
    log, disk = filled()
    path = path_of(log, at)
    log.close()
    cut(disk, path, disk.files()[path] + change)
    expect_damage(disk, "not those of the clean close")


@pytest.mark.parametrize("at", [0, 1, -1])
def test_a_segment_missing_after_a_clean_close_is_damage(at: int) -> None:
    log, disk = filled()
    path = path_of(log, at)
    log.close()
    disk.remove(path)
    expect_damage(disk)


def test_no_segment_at_all_after_a_clean_close_is_damage() -> None:
    log, disk = filled()
    paths = [path_of(log, at) for at in range(len(log.segments))]
    log.close()
    for path in paths:
        disk.remove(path)
    expect_damage(disk, "no segment is left")


def test_the_marker_is_gone_before_anything_is_appended() -> None:
    log, disk = filled()
    log.close()
    open_log(disk, SETTINGS)
    disk.crash_machine(Random(3))
    assert open_log(disk, SETTINGS).opened_after is OpenedAfter.MACHINE_CRASH


# --- its process died: only the growing segment is scanned, only an incomplete last batch is tail ---------------------


def test_after_a_process_crash_everything_is_there_and_only_the_growing_segment_is_scanned() -> None:
    log, disk = filled(batches=60)
    before = contents(log)
    disk.crash_process()
    reads: list[str] = []
    disk.on_operation = lambda operation, path: reads.append(path) if operation == "read_at" else None
    log = open_log(disk, SETTINGS)
    disk.on_operation = None
    assert log.opened_after is OpenedAfter.PROCESS_CRASH
    assert contents(log) == before
    sealed = [path for path in reads if path != path_of(log, -1)]
    assert len(sealed) <= 3 * (len(log.segments) - 1)


def test_after_a_process_crash_the_high_watermark_is_the_last_one_written_down() -> None:
    log, disk = filled(replicated=3)
    log.advance_high_watermark(20)
    disk.crash_process()
    assert open_log(disk, SETTINGS).high_watermark == 6


def test_an_incomplete_last_batch_is_cut_and_said(caplog: pytest.LogCaptureFixture) -> None:
    log, disk = filled(batches=11)
    before = contents(log)
    path = path_of(log, -1)
    disk.crash_process()
    cut(disk, path, disk.files()[path] - 10)
    with caplog.at_level(logging.WARNING):
        log = open_log(disk, SETTINGS)
    assert contents(log) == before[:-1]
    assert "cut at byte" in caplog.text
    assert "process crash" in caplog.text
    append(log, b"in its place")
    disk.crash_process()
    assert len(contents(open_log(disk, SETTINGS))) == len(before)


def test_a_last_batch_that_is_whole_but_wrong_is_damage_while_the_machine_lives() -> None:
    """A process that dies leaves half a batch, never a changed one."""
    log, disk = filled(batches=11)
    path = path_of(log, -1)
    disk.crash_process()
    disk.flip_bit(path, disk.files()[path] * 8 - 20)
    expect_damage(disk, "CRC")


@pytest.mark.parametrize("garbage", [b"\0" * 100, b"\xff" * 100, bytes(range(70))])
def test_what_no_crash_of_a_process_leaves_is_damage(garbage: bytes) -> None:
    log, disk = filled(batches=11)
    path = path_of(log, -1)
    disk.crash_process()
    overwrite(disk, path, disk.files()[path], garbage)
    expect_damage(disk)


def test_a_damaged_length_that_makes_a_batch_run_past_the_end_is_not_taken_for_a_torn_one() -> None:
    """Behind a torn batch there is nothing; here the log goes on."""
    log, disk = filled(batches=12)
    path = path_of(log, -1)
    assert log.log_end_offset - log.segments.active.base_offset == 4  # two batches
    disk.crash_process()
    overwrite(disk, path, 8, b"\0\0\x40\0")
    expect_damage(disk)


def test_a_large_torn_batch_is_told_from_damage_across_the_chunks_that_are_read(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(batch_scan, "SCAN_CHUNK", 128)
    log, disk = new_log()
    append(log, b"small")
    append(log, b"x" * 2_000)
    first, large = contents(log)
    path = path_of(log, -1)
    disk.crash_process()
    for size in range(len(first), len(first) + len(large), 61):
        torn = disk.clone()
        cut(torn, path, size)
        assert contents(open_log(torn)) == [first]
    damaged = disk.clone()
    overwrite(damaged, path, 8, b"\0\1\0\0")
    with pytest.raises(LogDamaged):
        open_log(damaged)


@pytest.mark.parametrize("at", [0, 1, -2])
def test_a_sealed_segment_that_lost_its_end_is_damage(at: int) -> None:
    log, disk = filled()
    path = path_of(log, at)
    for lost in (1, 60, disk.files()[path]):
        broken = disk.clone()
        cut(broken, path, broken.files()[path] - lost)
        expect_damage(broken)


def test_a_missing_segment_is_damage() -> None:
    log, disk = filled()
    for at in range(len(log.segments) - 1):
        broken = disk.clone()
        broken.remove(path_of(log, at))
        expect_damage(broken)


@pytest.mark.parametrize(("flushed", "replicated"), [(11, 0), (0, 11)])
def test_an_end_before_what_was_promised_is_damage_while_the_machine_lives(flushed: int, replicated: int) -> None:
    log, disk = filled(flushed=flushed, replicated=replicated, batches=11)
    path = path_of(log, -1)
    disk.crash_process()
    cut(disk, path, disk.files()[path] - 1)
    expect_damage(disk)


# --- the machine rebooted: all from the recovery point on is scanned --------------------------------------------------


def rebooted(disk: FaultyDisk, change: Callable[[FaultyDisk], None]) -> FaultyDisk:
    """The machine was switched off when everything had reached its disk, and `change` happened to that."""
    clone = disk.clone()
    clone.sync_everything()
    clone.crash_machine(Random(0))
    change(clone)
    return clone


def test_after_a_reboot_the_first_wrong_batch_above_the_recovery_point_and_all_behind_it_go() -> None:
    log, disk = filled(flushed=4, replicated=12)
    before = contents(log)
    bases, size = log.segments.bases(), len(before[0])
    for number in range(4, 12):
        base = max(each for each in bases if each <= number * 2)
        path, position = f"{DIRECTORY}/{file_name(base, '.log')}", (number * 2 - base) // 2 * size

        def change(broken: FaultyDisk, path: str = path, position: int = position) -> None:
            broken.flip_bit(path, (position + 40) * 8)

        broken = rebooted(disk, change)
        log = open_log(broken, SETTINGS)
        assert log.opened_after is OpenedAfter.MACHINE_CRASH
        assert contents(log) == before[:number]
        assert (log.log_end_offset, log.high_watermark, log.recovery_point) == (number * 2, number * 2, 8)
        assert append(log, b"next").first_offset == number * 2
        assert not [path for path in broken.files() if path.endswith(".deleted")]


def test_after_a_reboot_damage_below_the_recovery_point_is_damage() -> None:
    log, disk = filled(flushed=5)
    segment = log.segments.containing(log.recovery_point)
    assert segment.base_offset == log.recovery_point - 2
    expect_damage(rebooted(disk, lambda broken: broken.flip_bit(segment.path(".log"), 50 * 8)))


def test_after_a_reboot_a_hole_above_the_recovery_point_ends_the_log_there() -> None:
    log, disk = filled(flushed=3)
    before = contents(log)
    bases = log.segments.bases()
    path = path_of(log, 2)
    log = open_log(rebooted(disk, lambda broken: broken.remove(path)), SETTINGS)
    assert contents(log) == before[: bases[2] // 2]
    assert log.segments.bases() == bases[:2]


def test_after_a_reboot_a_hole_below_the_recovery_point_is_damage() -> None:
    log, disk = filled(flushed=12)
    path = path_of(log, 1)
    expect_damage(rebooted(disk, lambda broken: broken.remove(path)))


@pytest.mark.parametrize("ordered_names", [True, False])
def test_any_power_cut_leaves_a_prefix_with_all_that_was_flushed(ordered_names: bool) -> None:
    disk = new_disk(ordered_names=ordered_names)
    log = open_log(disk, SETTINGS)
    log.begin_epoch(EPOCH)
    for number in range(20):
        append(log, b"value %d" % number, b"y" * (number * 7 % 60))
        if number == 7:
            log.flush()
    before = contents(log)
    lengths = set()
    for seed in range(150):
        clone = disk.clone()
        clone.crash_machine(Random(seed))
        log = open_log(clone, SETTINGS)
        found = contents(log)
        assert found == before[: len(found)]
        assert len(found) >= 8
        lengths.add(len(found))
        append(log, b"and on")
        clone.crash_process()
        assert len(contents(open_log(clone, SETTINGS))) == len(found) + 1
    assert len(lengths) > 5


@pytest.mark.thorough
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_recovery_killed_at_every_step_is_done_again_with_the_same_result(power_cut: bool) -> None:
    log, start = filled(flushed=4, batches=11)
    before = contents(log)
    path = path_of(log, -1)
    start.crash_process()
    cut(start, path, start.files()[path] - 10)
    start.sync_everything()
    if power_cut:
        start.crash_machine(Random(1))
    for point in crash_points(start, lambda disk: open_log(disk, SETTINGS)):
        for again in (False, True):
            disk = point.disk.clone()
            if again:
                disk.crash_machine(Random(point.operation))
            assert contents(open_log(disk, SETTINGS)) == before[:-1]


# --- an index or snapshot that is not to be believed is made again ----------------------------------------------------


def with_transactions() -> tuple[PartitionLog, FaultyDisk]:
    log, disk = new_log(SETTINGS)
    for number in range(12):
        transaction = from_producer(0, 7, number, count=2, transactional=True)
        log.append_as_leader(transaction, EPOCH, NOW_MS)
        append(log, b"between", now_ms=NOW_MS + number)
        kind = MarkerType.ABORT if number % 2 else MarkerType.COMMIT
        end_transaction(log, kind, 7, number)
    log.append_as_leader(from_producer(0, 8), EPOCH, NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    assert len(log.segments) > 4
    return log, disk


def answers(log: PartitionLog) -> tuple[object, ...]:
    return (
        contents(log),
        log.aborted_between(0, log.log_end_offset, NOW_MS),
        [log.offset_for_timestamp(NOW_MS + wait) for wait in range(15)],
        [log.read(offset, 1, Isolation.LOG_END).next_offset for offset in range(log.log_end_offset)],
        [(entry.epoch, entry.last_sequence, entry.batches) for entry in map(log.producers.get, (7, 8)) if entry],
        log.last_stable_offset,
    )


@pytest.mark.parametrize("kind", DERIVED)
@pytest.mark.parametrize("how", ["missing", "empty", "damaged", "of another segment"])
@pytest.mark.parametrize("closed", [True, False])
def test_derived_files_are_made_again(kind: str, how: str, closed: bool, caplog: pytest.LogCaptureFixture) -> None:
    log, disk = with_transactions()
    expected = answers(log)
    log.checkpoint()
    if closed:
        log.close()
    else:
        disk.crash_process()
    paths = [path for path in disk.files() if path.endswith(kind)]
    assert paths
    whole = {path: disk.read_file(path) for path in paths}
    for path in paths:
        if how == "missing":
            disk.remove(path)
        elif how == "empty":
            cut(disk, path, 0)
        elif how == "damaged":
            disk.flip_bit(path, len(whole[path]) * 4)
        else:
            others = [data for other, data in whole.items() if other != path and len(data) != len(whole[path])]
            disk.write_file(path, (others or [b"nothing like it"])[0])
    with caplog.at_level(logging.INFO):
        log = open_log(disk, SETTINGS)
        assert answers(log) == expected
    assert kind in caplog.text
    log.close()
    caplog.clear()
    assert answers(open_log(disk, SETTINGS)) == expected


def test_an_index_made_again_is_kept() -> None:
    log, disk = filled()
    path = path_of(log, 0, ".index")
    log.close()
    before = disk.read_file(path)
    disk.remove(path)
    log = open_log(disk, SETTINGS)
    contents(log)
    assert disk.read_file(path) == before


def test_an_index_is_not_made_again_from_damaged_batches() -> None:
    log, disk = filled()
    log.close()
    disk.remove(path_of(log, 0, ".index"))
    disk.flip_bit(path_of(log, 0), 100 * 8)
    log = open_log(disk, SETTINGS)
    with pytest.raises(LogDamaged):
        log.read(0, 1, Isolation.LOG_END)
    assert disk.exists(f"{DIRECTORY}/quarantine")


# --- left-overs -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["00000000000000000000.log.deleted", "log-checkpoint.tmp", "00000000000000000000.log.cleaned",
             "00000000000000000000.index.cleaned", "00000000000000000000.index.swap"]
)  # fmt: skip
def test_what_an_interrupted_operation_left_is_removed(name: str) -> None:
    log, disk = filled()
    before = contents(log)
    disk.crash_process()
    disk.write_file(f"{DIRECTORY}/{name}", b"left over")
    assert contents(open_log(disk, SETTINGS)) == before
    assert not disk.exists(f"{DIRECTORY}/{name}")


@pytest.mark.thorough
@pytest.mark.parametrize("power_cut", [False, True])
def test_a_roll_killed_at_every_step_leaves_all_batches(power_cut: bool) -> None:
    log, start = new_log()
    for number in range(4):
        append(log, b"value %d" % number)
    log.flush()
    before = contents(log)
    start.crash_process()

    def roll(disk: FaultyDisk) -> None:
        log = open_log(disk)
        log.roll()
        append(log, b"next")

    for point in crash_points(start, roll):
        if power_cut:
            point.disk.crash_machine(Random(point.operation))
        log = open_log(point.disk)
        assert contents(log)[:4] == before
        assert log.log_end_offset in (4, 5)
        log.begin_epoch(EPOCH)
        append(log, b"and on")
        log.close()
        assert open_log(point.disk).opened_after is OpenedAfter.CLEAN_CLOSE


@pytest.mark.thorough
@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("ordered_names", [True, False])
def test_a_close_killed_at_every_step_loses_nothing(ordered_names: bool, power_cut: bool) -> None:
    start = new_disk(ordered_names=ordered_names)
    log = open_log(start, SETTINGS)
    log.begin_epoch(EPOCH)
    for number in range(8):
        append(log, b"value %d" % number, b"x" * 30)
    log.flush()
    log.advance_high_watermark(16)
    log.checkpoint()
    before = contents(log)
    start.crash_process()
    ways = set()
    for point in crash_points(start, lambda disk: open_log(disk, SETTINGS).close()):
        if power_cut:
            point.disk.crash_machine(Random(point.operation))
        log = open_log(point.disk, SETTINGS)
        assert (contents(log), log.high_watermark) == (before, 16)
        ways.add(log.opened_after)
    assert ways >= {OpenedAfter.CLEAN_CLOSE, OpenedAfter.MACHINE_CRASH if power_cut else OpenedAfter.PROCESS_CRASH}


def test_the_second_life_of_a_log_is_like_the_first() -> None:
    """Indexes, rolls and producers go on after an opening as if nothing had been."""
    straight, _ = new_log(SETTINGS)
    halting, disk = new_log(SETTINGS)
    for number in range(30):
        for log in (straight, halting):
            data = encode_batch([b"v"] * (1 + number % 3), timestamps=NOW_MS + number)
            log.append_as_leader(data, EPOCH, NOW_MS)
        if number % 4 == 1:
            halting.close()
        elif number % 4 == 3:
            disk.crash_process()
        if number % 2:
            halting = open_log(disk, SETTINGS)
    assert contents(halting) == contents(straight)
    assert halting.segments.bases() == straight.segments.bases()
    for mine, other in zip(halting.segments, straight.segments, strict=True):
        assert mine.offset_index.pairs() == other.offset_index.pairs()
        assert mine.largest_timestamp == other.largest_timestamp

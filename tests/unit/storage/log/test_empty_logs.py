"""An empty log has no segment file, and a follower's is registered on disk with its first batch (rules 7, 14)."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import DiskFull, LogDamaged
from raylog.storage.directory.doubts import BLANK, REBOOTED
from raylog.storage.format.record_batch import stamp
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.recovery import OpenedAfter
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.small_log import DIRECTORY, EPOCH, IDENTITY, NOW_MS, append, batch, contents, new_disk, open_log

_CREATOR = 5
_SEGMENT = f"{DIRECTORY}/{0:020d}.log"
_MARKS = f"{DIRECTORY}/log-checkpoint"


def opened(disk: FaultyDisk, incarnation: int = _CREATOR) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, IDENTITY, now_ms=NOW_MS, disk=disk, incarnation=incarnation)


def sent(offset: int, epoch: int = EPOCH) -> bytearray:
    """A batch as a leader sends it."""
    data = batch(b"%d" % offset)
    stamp(data, offset, epoch)
    return data


def follow(log: PartitionLog, count: int) -> None:
    """What a follower does: it begins, writes down what its first batch waits for, and appends."""
    log.plan_role_start(None).run()
    for offset in range(log.log_end_offset, log.log_end_offset + count):
        log.plan_followed_epoch(sent(offset)).run()
        log.append_as_follower(sent(offset), NOW_MS)


def lead(log: PartitionLog, count: int) -> None:
    log.plan_role_start(EPOCH).run()
    for _ in range(count):
        append(log)


# --- the segment's file ---


def test_the_first_batch_makes_the_file() -> None:
    disk = new_disk()
    log = opened(disk)
    lead(log, 0)
    assert _SEGMENT not in disk.files()
    assert contents(log) == []
    append(log)
    assert disk.files()[_SEGMENT]


def test_a_log_without_a_file_is_closed_and_opened_like_any_other() -> None:
    """An earlier version opens it too: the note of a clean close names a segment that is there."""
    disk = new_disk()
    log = opened(disk)
    lead(log, 0)
    log.close()
    assert disk.files()[_SEGMENT] == 0
    log = opened(disk)
    assert (log.opened_after, log.log_end_offset, log.unproven) == (OpenedAfter.CLEAN_CLOSE, 0, "")


@pytest.mark.parametrize("incarnation", [_CREATOR, _CREATOR + 1])
def test_a_log_without_a_file_outlives_its_process(incarnation: int) -> None:
    disk = new_disk()
    lead(opened(disk), 0)
    disk.crash_process()
    log = opened(disk, incarnation)
    assert (log.opened_after, log.log_end_offset, log.unproven) == (OpenedAfter.PROCESS_CRASH, 0, "")
    assert _SEGMENT not in disk.files()
    lead(log, 2)
    log.flush()
    disk.crash_machine(Random(1))
    assert opened(disk).log_end_offset == 2


def test_a_file_that_a_full_disk_refuses_is_made_by_the_next_batch() -> None:
    disk = new_disk()
    log = opened(disk)
    lead(log, 0)
    disk.fail_next("create", ".log", DiskFull("No space."))
    with pytest.raises(DiskFull):
        append(log)
    assert (log.log_end_offset, _SEGMENT in disk.files()) == (0, False)
    append(log)
    assert log.log_end_offset == 1


def test_a_copy_of_an_empty_log_opens() -> None:
    disk = new_disk()
    log = opened(disk)
    lead(log, 0)
    path = log.plan_copy("why", NOW_MS)
    path.work()
    copied = path.apply()
    log.abandon()
    copy = PartitionLog.open(copied, IDENTITY, now_ms=NOW_MS, disk=disk)
    assert copy.log_end_offset == 0


@pytest.mark.parametrize("ordered_names", [True, False])
@pytest.mark.parametrize("begins", [0, 7])
def test_a_power_cut_takes_no_log_for_damaged(begins: int, ordered_names: bool) -> None:
    """Marks that count on batches are never durable without the name of the file that holds those."""
    start = new_disk(ordered_names=ordered_names)
    lead(opened(start), 0)
    start.crash_process()

    def write(disk: FaultyDisk) -> None:
        log = opened(disk)
        if begins:
            log.restart_at(begins)
        lead(log, 3)
        log.advance_high_watermark(log.log_end_offset)
        log.checkpoint()
        log.flush()

    ends = set()
    for point in crash_points(start, write):
        for seed in range(12):
            disk = point.disk.clone()
            disk.crash_machine(Random(seed))
            log = opened(disk)
            ends.add(log.log_end_offset - log.log_start_offset)
            log.abandon()
    assert {0, 3} <= ends


def test_a_power_cut_that_takes_only_the_first_file_leaves_an_empty_log() -> None:
    """The names of later files may be durable before its own, and no mark has counted on any of them."""
    start = new_disk(ordered_names=False)
    lead(opened(start), 0)
    start.crash_process()

    def write(disk: FaultyDisk) -> None:
        lead(open_log(disk, {"segment.bytes": 300}), 6)

    gone = 0
    for point in crash_points(start, write):
        for seed in range(8):
            disk = point.disk.clone()
            disk.crash_machine(Random(seed))
            found = [path for path in disk.files() if path.endswith(".log")]
            if not found or _SEGMENT in found:
                continue
            gone += 1
            log = opened(disk)
            assert (log.log_end_offset, log.unproven) == (0, REBOOTED)
            assert not [path for path in disk.files() if path.endswith(".log")]
            lead(log, 2)
            assert len(contents(log)) == 2
            log.abandon()
    assert gone


def test_a_first_file_that_is_gone_without_a_power_cut_is_damage() -> None:
    disk = new_disk()
    lead(opened(disk), 0)
    disk.crash_process()
    lead(open_log(disk, {"segment.bytes": 300}), 6)
    disk.crash_process()
    disk.remove(_SEGMENT)
    with pytest.raises(LogDamaged, match="a segment is missing"):
        opened(disk)


# --- the registration ---


def test_a_follower_of_a_new_log_begins_without_a_word_on_disk() -> None:
    disk = new_disk()
    log = opened(disk)
    before = disk.operations
    assert not log.plan_role_start(None).has_work
    assert disk.operations == before
    assert log.unproven == BLANK


def test_until_its_first_batch_it_is_known_by_who_created_it() -> None:
    disk = new_disk()
    follow(opened(disk), 0)
    for incarnation in range(_CREATOR + 1, _CREATOR + 4):
        disk.crash_process()
        log = opened(disk, incarnation)
        assert (log.unproven, log.marks.created_as) == (BLANK, _CREATOR)
        follow(log, 0)
    follow(log, 1)
    disk.crash_process()
    log = opened(disk)
    assert (log.unproven, log.marks.created_as, log.log_end_offset) == ("", _CREATOR, 1)


def test_who_is_to_lead_writes_it_down_first() -> None:
    disk = new_disk()
    log = opened(disk)
    follow(log, 0)
    lead(log, 0)
    disk.crash_process()
    assert opened(disk).unproven == ""


def test_a_log_that_nobody_is_known_to_have_created_is_registered_at_once() -> None:
    disk = new_disk()
    log = opened(disk, incarnation=0)
    job = log.plan_role_start(None)
    assert job.has_work
    job.run()
    assert log.unproven == ""


@pytest.mark.parametrize("power_cut", [False, True])
@pytest.mark.parametrize("ordered_names", [True, False])
@pytest.mark.parametrize("begins", [0, 7])
@pytest.mark.parametrize("ahead", [False, True])
def test_no_batch_is_in_a_log_that_is_not_registered(
    power_cut: bool, ordered_names: bool, begins: int, ahead: bool
) -> None:
    """Its next process would be believed to have what it had when it was created."""

    def write(disk: FaultyDisk) -> None:
        log = opened(disk)
        log.plan_role_start(None).run()
        if begins:
            log.restart_at(begins)
        if ahead:
            log.plan_followed_epoch(sent(begins)).run()
        log.append_as_follower(sent(begins), NOW_MS)
        log.flush()

    ends = set()
    for point in crash_points(new_disk(ordered_names=ordered_names), write):
        for seed in range(4 if power_cut else 1):
            disk = point.disk.clone()
            if power_cut:
                disk.crash_machine(Random(seed))
            log = opened(disk, _CREATOR + 1)
            size = log.log_end_offset - log.log_start_offset
            ends.add(size)
            assert log.unproven in (("", REBOOTED) if size else ("", REBOOTED, BLANK))
            log.abandon()
    assert ends == {0, 1}


def test_what_something_else_overtakes_is_written_by_the_append() -> None:
    disk = new_disk()
    log = opened(disk)
    follow(log, 0)
    job = log.plan_followed_epoch(sent(0))
    log.checkpoint()
    job.work()
    job.apply()
    assert log.unproven == BLANK
    log.append_as_follower(sent(0), NOW_MS)
    assert log.unproven == ""
    disk.crash_process()
    assert (opened(disk).unproven, opened_end(disk)) == ("", 1)


def opened_end(disk: FaultyDisk) -> int:
    disk.crash_process()
    return opened(disk).log_end_offset


def test_where_it_cannot_be_written_nothing_is_appended() -> None:
    disk = new_disk()
    log = opened(disk)
    follow(log, 0)
    disk.fail_next("write_at", _MARKS, DiskFull("No space."))
    with pytest.raises(DiskFull):
        log.append_as_follower(sent(0), NOW_MS)
    assert (log.log_end_offset, log.unproven) == (0, BLANK)
    log.append_as_follower(sent(0), NOW_MS)
    assert (log.log_end_offset, log.unproven) == (1, "")


def test_it_is_written_beside_the_loop() -> None:
    disk = new_disk()
    log = opened(disk)
    follow(log, 0)
    log.plan_followed_epoch(sent(0)).run()
    before = disk.operations
    log.append_as_follower(sent(0), NOW_MS)
    assert disk.operations - before <= 3  # the segment's file: made, emptied, written

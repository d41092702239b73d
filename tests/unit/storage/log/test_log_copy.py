"""Copies of logs that are about to be cut: whole, untouched by what becomes of the log, safe from crashes (rule 7)."""

from __future__ import annotations

from random import Random

import pytest

from raylog.errors import DirectoryLocked, SetAsideUnknown, SetAsideUnusable
from raylog.storage.directory.data_directory import BrokerIdentity, Claim, DataDirectory
from raylog.storage.directory.doubts import RESTORED
from raylog.storage.directory.partition_directory import QUARANTINE_FILE
from raylog.storage.directory.set_aside_logs import SetAsideLogs
from raylog.storage.directory.set_aside_names import SET_ASIDE, SetAsideName, parse_name, unclean
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment.segment import LOG_SUFFIX
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.small_log import (
    DIRECTORY,
    EPOCH,
    IDENTITY,
    NOW_MS,
    PARENT,
    append,
    contents,
    from_producer,
    new_disk,
    open_log,
)

SMALL: dict[str, int | str] = {"segment.bytes": 400, "index.interval.bytes": 0}
WHY = unclean(9)
COPY = f"{DIRECTORY}{SET_ASIDE}{NOW_MS}-{WHY}"


def log_on(disk: FaultyDisk, batches: int = 10) -> PartitionLog:
    log = open_log(disk, SMALL)
    log.begin_epoch(EPOCH)
    for number in range(batches):
        append(log, b"value %d" % number, b"and another one")
    log.advance_high_watermark(2 * batches - 2)
    return log


def copied(log: PartitionLog, why: str = WHY, now_ms: int = NOW_MS) -> str:
    return log.plan_copy(why, now_ms).run()


def copies_on(disk: FaultyDisk) -> list[str]:
    return [name for name in disk.list_directory(PARENT) if SET_ASIDE in name]


def opened_copy(disk: FaultyDisk, path: str = COPY) -> PartitionLog:
    return PartitionLog.open(path, IDENTITY, SMALL, now_ms=NOW_MS, disk=disk)


@pytest.mark.parametrize("offset", range(0, 21, 2))
def test_a_copy_keeps_what_the_log_loses(offset: int) -> None:
    disk = new_disk()
    log = log_on(disk)
    before, epochs = contents(log), log.epochs.history
    assert copied(log) == COPY
    truncation = log.plan_truncation(offset, NOW_MS)
    if offset % 4:  # and also where nothing was prepared
        truncation.run()
    else:
        log.truncate_to(offset, NOW_MS)
    log.begin_epoch(EPOCH + 7)
    for _ in range(12):
        append(log, b"of the new leader")
    assert contents(log)[: offset // 2] == before[: offset // 2]
    log.close()
    copy = opened_copy(disk)
    assert contents(copy) == before
    assert copy.epochs.history == epochs
    assert (copy.high_watermark, copy.recovery_point) == (18, 20)


def test_cut_again_and_again_the_log_never_touches_its_copy() -> None:
    disk = new_disk()
    log = log_on(disk)
    before = contents(log)
    copied(log)
    for offset in (18, 13, 7, 1, 0):
        log.truncate_to(offset, NOW_MS)
        log.begin_epoch(EPOCH)
        append(log, b"another value")
        log.truncate_to(offset, NOW_MS)
    assert contents(opened_copy(disk)) == before


def test_throwing_the_log_away_leaves_its_copy() -> None:
    disk = new_disk()
    log = log_on(disk)
    before = contents(log)
    copied(log)
    log.restart_at(1000)
    assert contents(opened_copy(disk)) == before


def test_sealed_segments_take_no_room_twice() -> None:
    disk = new_disk()
    log = log_on(disk, batches=40)
    used = disk.used_bytes()
    assert len(log.segments) > 5
    copied(log)
    assert disk.used_bytes() - used < 2 * 400 + 1500  # the growing segment, and small files


def test_for_one_reason_there_is_one_copy() -> None:
    disk = new_disk()
    log = log_on(disk)
    first = copied(log)
    log.truncate_to(4, NOW_MS)
    assert copied(log, now_ms=NOW_MS + 5) == first
    assert copied(log, unclean(11), NOW_MS - 5) == f"{DIRECTORY}{SET_ASIDE}{NOW_MS + 1}-unclean-11"
    assert len(copies_on(disk)) == 2


def test_a_segment_that_was_replaced_meanwhile_asks_for_a_new_copy() -> None:
    disk = new_disk()
    log = log_on(disk)
    copy = log.plan_copy(WHY, NOW_MS)
    log.advance_high_watermark(20)
    log.delete_records(9)
    log.delete_old_segments(NOW_MS)
    with pytest.raises(FileNotFoundError):
        copy.run()
    assert copies_on(disk) == []
    assert copied(log) == COPY
    assert contents(opened_copy(disk)) == contents(log)


def in_copy(disk: FaultyDisk) -> list[bytes]:
    (name,) = copies_on(disk)
    copy = opened_copy(disk, f"{PARENT}/{name}")
    found = contents(copy)
    copy.close()
    return found


def copy_and_cut(disk: FaultyDisk) -> None:
    log = open_log(disk, SMALL)
    copied(log)
    truncation = log.plan_truncation(5, NOW_MS)
    assert truncation.has_work
    truncation.run()


def test_no_crash_takes_what_is_not_in_a_whole_copy() -> None:
    start = new_disk()
    log = log_on(start)
    before = contents(log)
    log.close()
    random = Random(3)
    for point in crash_points(start, copy_and_cut):
        disk = point.disk
        if point.operation % 2:
            disk.crash_machine(random)
        log = open_log(disk, SMALL)
        is_cut = log.log_end_offset < 20
        assert (in_copy(disk) if is_cut else contents(log)) == before
        log.close()
        if not is_cut:
            copy_and_cut(disk)
            assert in_copy(disk) == before


# --- looking into them, and restoring one -------------------------------------------------------------------------


def data_directory(disk: FaultyDisk) -> DataDirectory:
    return DataDirectory.open(PARENT, BrokerIdentity("cluster", 1), disk, claim=Claim("d"))


def test_what_was_set_aside_is_shown() -> None:
    disk = new_disk()
    logs = SetAsideLogs(data_directory(disk))
    log = log_on(disk)
    log.delete_records(3)
    copied(log)
    log.close()
    disk.write_file(f"{DIRECTORY}/{QUARANTINE_FILE}", b"no checkpoint")
    disk.rename(DIRECTORY, f"{DIRECTORY}{SET_ASIDE}17")
    old, copy = logs.find()
    assert old.said == SetAsideName("orders", 0, 17, "damaged")
    assert (old.log_end_offset, old.last_epoch, old.unusable) == (20, EPOCH, "it is damaged")
    assert copy.said == SetAsideName("orders", 0, NOW_MS, "unclean-9")
    assert (copy.log_start_offset, copy.log_end_offset, copy.last_epoch, copy.unusable) == (3, 20, EPOCH, "")
    assert copy.size_bytes > 400
    assert logs.find("orders", 0) == [old, copy]
    assert logs.find("orders", 1) == logs.find("other") == []


def restored(disk: FaultyDisk, name: str = COPY.rpartition("/")[2]) -> None:
    directory = DataDirectory.open(PARENT, BrokerIdentity("cluster", 1), disk, claim=Claim("d"))
    try:
        SetAsideLogs(directory).restore("orders", b"\xab\xcd", 0, name, NOW_MS + 5)
    finally:
        directory.close()


IDENTIFIED = type(IDENTITY)("cluster", "orders", "abcd", 0)


def with_a_copy(disk: FaultyDisk) -> list[bytes]:
    """A log that was cut after it was copied; what is in the copy."""
    data_directory(disk).close()
    log = PartitionLog.open(DIRECTORY, IDENTIFIED, SMALL, now_ms=NOW_MS, disk=disk)
    log.begin_epoch(EPOCH)
    for number in range(10):
        log.append_as_leader(from_producer(number), EPOCH, NOW_MS)
    before = contents(log)
    copied(log)
    log.truncate_to(4, NOW_MS)
    log.plan_role_start(None).run()
    log.close()
    return before


def reopened(disk: FaultyDisk) -> PartitionLog:
    return PartitionLog.open(DIRECTORY, IDENTIFIED, SMALL, now_ms=NOW_MS, disk=disk)


def test_a_restored_copy_says_so_until_the_controller_has_heard_of_it() -> None:
    disk = new_disk()
    before = with_a_copy(disk)
    restored(disk)
    log = reopened(disk)
    assert contents(log) == before
    assert log.unproven == RESTORED
    log.close()
    log = reopened(disk)
    assert log.unproven == RESTORED
    log.plan_role_start(None).run()
    log.close()
    assert reopened(disk).unproven == ""
    assert copies_on(disk) == [f"orders-0{SET_ASIDE}{NOW_MS + 5}-replaced"]


def test_what_cannot_be_used_is_not_restored() -> None:
    disk = new_disk()
    with_a_copy(disk)
    with pytest.raises(SetAsideUnknown):
        restored(disk, f"orders-0{SET_ASIDE}1-unclean-9")
    disk.write_file(f"{COPY}/{QUARANTINE_FILE}", b"no checkpoint")
    with pytest.raises(SetAsideUnusable, match="damaged"):
        restored(disk)
    disk.remove(f"{COPY}/{QUARANTINE_FILE}")
    disk.rename(COPY, f"{PARENT}/orders-1{SET_ASIDE}5-unclean-9")
    with pytest.raises(SetAsideUnusable, match="orders-1"):
        restored(disk, f"orders-1{SET_ASIDE}5-unclean-9")
    log = reopened(disk)
    assert log.log_end_offset == 4


def test_a_replica_that_runs_is_not_replaced() -> None:
    disk = new_disk()
    with_a_copy(disk)
    log = PartitionLog.open(DIRECTORY, IDENTIFIED, SMALL, now_ms=NOW_MS, disk=disk.new_process())
    with pytest.raises(DirectoryLocked):
        restored(disk)
    log.close()
    restored(disk)


def test_a_crash_while_one_is_restored_loses_neither() -> None:
    start = new_disk()
    before = with_a_copy(start)
    random = Random(5)
    for point in crash_points(start, restored):
        disk = point.disk
        if point.operation % 2:
            disk.crash_machine(random)
        wholes = [path for path in disk.files() if path.endswith(f"{0:020d}{LOG_SUFFIX}")]
        found = []
        for path in wholes:
            log = PartitionLog.open(path.rpartition("/")[0], IDENTIFIED, SMALL, now_ms=NOW_MS, disk=disk)
            found.append(contents(log))
            log.close()
        assert sorted(map(len, found)) == [4, 10]
        assert before in found


@pytest.mark.parametrize(
    ("name", "said"),
    [
        ("a-b-3@set-aside-12-damaged", SetAsideName("a-b", 3, 12, "damaged")),
        ("a.b-0@set-aside-12", SetAsideName("a.b", 0, 12, "damaged")),
        ("a-0@set-aside-12-unclean-5", SetAsideName("a", 0, 12, "unclean-5")),
        ("a-0@set-aside-12-cut-5", SetAsideName("a", 0, 12, "cut-5")),
        ("a-0@removed-12", None),
        ("a-0@set-aside-x", None),
        ("../a-0@set-aside-12", None),
        ("a-0", None),
    ],
)
def test_names_say_when_and_why(name: str, said: SetAsideName | None) -> None:
    assert parse_name(name) == said

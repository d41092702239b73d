"""A disk that is full, not to be written, or broken, at every operation of a log's life: nothing acknowledged is lost,
nothing is there twice, and what can go on goes on.

    full        the call is refused; the same call again succeeds once there is space
    forbidden   likewise
    broken      or read-only since: the log goes offline, and says so to every later call; opened again, it has all it
                acknowledged
"""

from __future__ import annotations

import errno
import os
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random

import pytest

from raylog.errors import DiskError, DiskFailed, DiskFull, DiskReadOnly, LogOffline
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import read_header, split_batches, stamp
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.unit.storage.small_log import (
    DIRECTORY,
    EPOCH,
    IDENTITY,
    NOW_MS,
    append,
    batch,
    bytes_on_disk,
    contents,
    from_producer,
    new_disk,
    new_log,
    open_log,
    refused,
)

CHANGES = frozenset(("create", "make_directory", "truncate", "write_at", "sync", "rename", "remove", "sync_directory"))
SETTINGS = {"segment.bytes": 450, "index.interval.bytes": 0, "file.delete.delay.ms": 0, "retention.bytes": 800}


class Life:
    """One log's life, in steps that are tried again until they succeed. Keeps account of what was acknowledged."""

    def __init__(self, disk: FaultyDisk, make_space: Callable[[], None] = lambda: None) -> None:
        self.disk = disk
        self.make_space = make_space
        self.refusals: Counter[type[DiskError]] = Counter()
        self.acknowledged: list[bytes] = []  # every batch that is in the log for good
        self.epoch = EPOCH
        self.replicated = 0
        self.log: PartitionLog

    def live(self) -> None:
        self.try_until_it_works(self.open)
        for number in range(4):
            self.append(batch(b"value %d" % number, b"x" * 40))
        self.append(from_producer(0, count=2))
        self.append(from_producer(2, transactional=True))
        self.append(encode_marker(Marker(MarkerType.ABORT, 1), 7, 0, NOW_MS), control=True)
        self.replicate()
        self.step(lambda log: log.checkpoint())
        self.step(lambda log: log.flush())
        self.epoch += 1
        self.append(batch(b"of the next epoch"))
        self.follow([b"followed", b"y" * 200, b"z" * 200, b"again"])
        self.truncate()
        self.replicate()
        self.step(lambda log: log.delete_records(3))
        self.step(lambda log: log.delete_old_segments(NOW_MS))
        self.step(lambda log: log.remove_deleted_files(NOW_MS))
        self.step(lambda log: log.update_config({**SETTINGS, "segment.ms": 1_000}))
        self.step(lambda log: log.roll())
        self.append(batch(b"last"))
        self.step(lambda log: log.close())
        self.try_until_it_works(self.open)

    def open(self) -> None:
        self.log = open_log(self.disk, SETTINGS)
        if self.log.epochs.latest < self.epoch:
            self.log.begin_epoch(self.epoch)
        self.log.advance_high_watermark(self.replicated)

    def step(self, call: Callable[[PartitionLog], object]) -> None:
        self.try_until_it_works(lambda: call(self.log))

    def try_until_it_works(self, call: Callable[[], object]) -> None:
        for _ in range(20):
            try:
                call()
                return
            except DiskError as error:
                self.refusals[type(error)] += 1
                if call == self.open:
                    self.make_space()
                    self.disk.crash_process()
                elif self.log.offline_because is None:
                    self.expect_nothing_changed(error)
                    self.make_space()
                else:
                    self.expect_offline()
                    self.make_space()
                    self.disk.crash_process()
                    self.try_until_it_works(self.open)
        raise AssertionError("it never works")

    def expect_nothing_changed(self, error: DiskError) -> None:
        """What is there now is what was acknowledged, also if the process dies at once."""
        assert not isinstance(error, DiskFailed)
        assert self.holds(self.log)
        disk = self.disk.clone()
        disk.capacity = None
        disk.on_operation = None
        assert self.holds(open_log(disk, SETTINGS))

    def expect_offline(self) -> None:
        with pytest.raises(LogOffline):
            self.log.read(self.log.log_start_offset, 100)
        with pytest.raises(LogOffline):
            self.log.append_as_leader(batch(b"no"), self.epoch, NOW_MS)

    def holds(self, log: PartitionLog) -> bool:
        expected = [data for data in self.acknowledged if read_header(data).next_offset > log.log_start_offset]
        return contents(log)[: len(expected)] == expected

    # --- steps that may have happened although they failed ---

    def append(self, data: bytearray, *, control: bool = False) -> None:
        before = self.log.log_end_offset
        self.step(lambda log: log.begin_epoch(self.epoch))

        def once(log: PartitionLog) -> None:
            if log.log_end_offset == before:
                log.append_as_leader(data, self.epoch, NOW_MS, control=control)

        self.step(once)
        assert self.log.log_end_offset == before + read_header(data).last_offset_delta + 1
        self.acknowledged.append(bytes(data))

    def follow(self, values: list[bytes]) -> None:
        self.epoch += 1
        sent = []
        for number, value in enumerate(values):
            data = batch(value)
            stamp(data, self.log.log_end_offset + number, self.epoch)
            sent.append(bytes(data))

        def rest(log: PartitionLog) -> None:
            missing = [data for data in sent if read_header(data).base_offset >= log.log_end_offset]
            log.append_as_follower(b"".join(missing), NOW_MS)

        self.step(rest)
        self.acknowledged += sent

    def truncate(self) -> None:
        """Cut the last three batches; what a refused attempt leaves of them must not matter."""
        gone = self.acknowledged[-3:]
        del self.acknowledged[-3:]
        offset = read_header(gone[0]).base_offset
        self.step(lambda log: log.truncate_to(offset, NOW_MS))
        assert self.log.log_end_offset == offset

    def replicate(self) -> None:
        self.replicated = self.log.log_end_offset
        self.log.advance_high_watermark(self.replicated)


def operations_of_a_life() -> list[tuple[str, str]]:
    disk = new_disk()
    seen: list[tuple[str, str]] = []
    disk.on_operation = lambda operation, path: seen.append((operation, path)) if operation in CHANGES else None
    life = Life(disk)
    life.live()
    assert life.holds(life.log)
    return seen


def fail_at(disk: FaultyDisk, number: int, error: type[DiskError], *, partial: int) -> None:
    """Let the changing operation of this number fail. A sync that finds no space has failed for good."""
    count = 0

    def on_operation(operation: str, path: str) -> None:
        nonlocal count
        count += operation in CHANGES
        if operation in CHANGES and count == number:
            found = DiskFailed if operation.startswith("sync") and error is DiskFull else error
            disk.fail_next(operation, path, found(f"{operation} {path}."), partial=partial)

    disk.on_operation = on_operation


@pytest.mark.thorough
@pytest.mark.parametrize("error", [DiskFull, DiskReadOnly, DiskFailed])
def test_an_error_at_any_operation_loses_and_doubles_nothing(error: type[DiskError]) -> None:
    refusals: Counter[type[DiskError]] = Counter()
    operations = operations_of_a_life()
    for number in range(1, len(operations) + 1):
        disk = new_disk()
        fail_at(disk, number, error, partial=number % 50)
        life = Life(disk)
        life.live()
        assert contents(life.log) == expected_contents(life), operations[number - 1]
        disk.on_operation = None
        life.log.close()
        life.open()
        assert life.log.opened_after is OpenedAfter.CLEAN_CLOSE, operations[number - 1]
        assert contents(life.log) == expected_contents(life), operations[number - 1]
        refusals += life.refusals
    assert sum(refusals.values()) >= len(operations) * 0.9  # cleaning up after a refusal may fail without a word
    assert refusals[error] > 50


def expected_contents(life: Life) -> list[bytes]:
    return [data for data in life.acknowledged if read_header(data).next_offset > life.log.log_start_offset]


@pytest.mark.thorough
@pytest.mark.parametrize("error", [DiskFull, DiskFailed])
def test_an_error_and_then_a_power_cut_lose_nothing_that_was_flushed(error: type[DiskError]) -> None:
    for number in range(1, len(operations_of_a_life()) + 1, 3):
        disk = new_disk()
        log = open_log(disk, SETTINGS)
        log.begin_epoch(EPOCH)
        for at in range(4):
            append(log, b"flushed %d" % at, b"x" * 60)
        flushed = contents(log)
        log.flush()
        fail_at(disk, number, error, partial=number % 40)
        try:
            for at in range(6):
                append(log, b"later %d" % at, b"x" * 60)
                log.flush()
                log.checkpoint()
        except DiskError:
            pass
        disk.on_operation = None
        disk.crash_machine(Random(number))
        assert contents(open_log(disk, SETTINGS))[: len(flushed)] == flushed


@pytest.mark.thorough
def test_a_full_disk_at_every_byte_resumes_when_there_is_space() -> None:
    rehearsal = new_disk()
    Life(rehearsal).live()
    refused_once = 0
    for room in range(0, 4_000, 13):
        disk = new_disk(capacity=room)
        life = Life(disk, make_space=lambda disk=disk: setattr(disk, "capacity", None))  # type: ignore[misc]
        life.live()
        assert contents(life.log) == expected_contents(life), room
        refused_once += life.refusals[DiskFull] > 0
    assert refused_once > 200, refused_once


def test_a_batch_refused_for_want_of_space_leaves_not_a_byte() -> None:
    log, disk = new_log()
    append(log, b"before")
    data = batch(b"x" * 500)
    for room in range(0, len(data), 11):
        disk.capacity = disk.used_bytes() + room
        with refused(log, disk, DiskFull):
            log.append_as_leader(data, EPOCH, NOW_MS)
    disk.capacity = disk.used_bytes() + len(data)
    assert log.append_as_leader(data, EPOCH, NOW_MS).first_offset == 1


def test_readers_go_on_while_the_disk_is_full() -> None:
    log, disk = new_log()
    append(log, b"there")
    disk.capacity = 0
    with pytest.raises(DiskFull):
        append(log, b"not there")
    log.advance_high_watermark(1)
    assert [read_header(data).base_offset for data in split_batches(log.read(0, 1_000).data)] == [0]


def test_deleting_frees_the_space_of_a_full_disk() -> None:
    log, disk = new_log({"segment.bytes": 500, "retention.bytes": 600, "file.delete.delay.ms": 0})
    for number in range(10):
        append(log, b"%d" % number, b"x" * 100)
    log.advance_high_watermark(log.log_end_offset)
    disk.capacity = disk.used_bytes()
    with pytest.raises(DiskFull):
        append(log, b"x")
    assert log.delete_old_segments(NOW_MS)
    assert log.remove_deleted_files(NOW_MS) > 0
    append(log, b"x" * 300)


@pytest.mark.parametrize("kind", [".index", ".timeindex", ".log"])
def test_a_directory_without_room_for_longer_names_keeps_nothing_from_being_deleted(kind: str) -> None:
    """Its names need blocks too, and ext4 refuses a rename that would take one more."""
    log, disk = new_log({"segment.bytes": 500, "retention.bytes": 600, "file.delete.delay.ms": 0})
    for number in range(10):
        append(log, b"%d" % number, b"x" * 100)
    log.advance_high_watermark(log.log_end_offset)
    disk.fail_next("rename", kind, DiskFull("No space is left."))
    gone = log.delete_old_segments(NOW_MS)
    assert len(gone) > 1
    log.remove_deleted_files(NOW_MS)
    left = {int(path.rpartition("/")[2][:20]) for path in disk.files() if path.rpartition("/")[2][0].isdigit()}
    assert left == set(log.segments.bases())
    assert not [path for path in disk.files() if path.endswith(".deleted")]


def test_segments_that_paid_for_a_write_which_failed_all_the_same_are_read_on() -> None:
    log, disk = new_log({"segment.bytes": 500, "retention.bytes": 600, "file.delete.delay.ms": 0})
    for number in range(10):
        append(log, b"%d" % number, b"x" * 100)
    log.advance_high_watermark(log.log_end_offset)
    before = contents(log)
    disk.capacity = 0
    with pytest.raises(DiskFull):
        log.delete_old_segments(NOW_MS)
    assert contents(log) == before
    disk.crash_process()
    disk.capacity = None
    again = open_log(disk, {"segment.bytes": 500, "retention.bytes": 600, "file.delete.delay.ms": 0})
    assert contents(again) == before
    again.advance_high_watermark(again.log_end_offset)
    assert again.delete_old_segments(NOW_MS)


def test_a_last_segment_that_a_full_disk_cannot_seal_does_not_keep_the_others() -> None:
    log, disk = new_log({"segment.bytes": 500, "retention.ms": 1_000, "file.delete.delay.ms": 0})
    for number in range(10):
        append(log, b"%d" % number, b"x" * 100)
    log.advance_high_watermark(log.log_end_offset)
    disk.capacity = disk.used_bytes()
    bases = log.segments.bases()
    assert [each.base_offset for each in log.delete_old_segments(NOW_MS + 2_000)] == bases[:-1]
    assert log.segments.bases() == bases[-1:]
    assert log.remove_deleted_files(NOW_MS + 2_000) > 0
    assert [each.base_offset for each in log.delete_old_segments(NOW_MS + 2_000)] == bases[-1:]


def test_a_write_error_takes_the_log_offline_for_good() -> None:
    log, disk = new_log()
    append(log, b"acknowledged")
    before = contents(log)
    disk.fail_next("write_at", ".log", partial=30)
    with pytest.raises(DiskFailed):
        append(log, b"lost")
    for call in every_call(log):
        with pytest.raises(LogOffline, match="offline"):
            call()
    log.close()
    assert not disk.exists(f"{DIRECTORY}/clean-shutdown")
    again = open_log(disk)
    assert again.opened_after is OpenedAfter.PROCESS_CRASH
    assert contents(again) == before


def every_call(log: PartitionLog) -> Iterator[Callable[[], object]]:
    """Each public call, but those that only look at what is in memory."""
    yield lambda: append(log, b"more")
    yield lambda: log.append_as_follower(b"", NOW_MS)
    yield lambda: log.begin_epoch(EPOCH + 1)
    yield lambda: log.read(0, 100, Isolation.LOG_END)
    yield lambda: log.slice(0, 100, Isolation.LOG_END)
    yield lambda: log.inspect(0)
    yield lambda: log.offset_for_timestamp(NOW_MS)
    yield lambda: log.aborted_between(0, 1, NOW_MS)
    yield lambda: log.delete_records(0)
    yield lambda: log.truncate_to(0, NOW_MS)
    yield lambda: log.restart_at(5)
    yield lambda: log.delete_old_segments(NOW_MS)
    yield lambda: log.remove_deleted_files(NOW_MS)
    yield lambda: log.expire_producers(NOW_MS)
    yield lambda: log.update_config({})
    yield log.roll
    yield log.flush
    yield log.plan_flush
    yield log.checkpoint


def test_a_closed_log_refuses_every_call_and_closing_again_is_nothing() -> None:
    log, disk = new_log()
    log.close()
    before = bytes_on_disk(disk)
    for call in every_call(log):
        with pytest.raises(LogOffline, match="closed"):
            call()
    log.close()
    assert bytes_on_disk(disk) == before


def test_a_failed_sync_is_never_taken_for_done() -> None:
    """The kernel drops the pages it could not write: a second sync succeeds and proves nothing."""
    log, disk = new_log()
    append(log, b"first")
    log.flush()
    append(log, b"second")
    disk.fail_next("sync", ".log")
    with pytest.raises(DiskFailed):
        log.flush()
    assert log.recovery_point == 1
    with pytest.raises(LogOffline):
        log.flush()
    log.close()
    disk.crash_machine(Random(1))
    again = open_log(disk)
    assert again.log_end_offset >= 1  # the second batch's pages may have been dropped, the first one's were synced


def test_a_failed_sync_of_the_directory_takes_the_log_offline() -> None:
    log, disk = new_log()
    append(log, b"first")
    log.roll()
    append(log, b"second")
    disk.fail_next("sync_directory")
    with pytest.raises(DiskFailed):
        log.flush()
    with pytest.raises(LogOffline):
        append(log, b"third")
    assert log.recovery_point == 0


def test_a_sync_that_finds_no_space_is_final_too(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    log = PartitionLog.open(str(tmp_path / "orders-0"), IDENTITY, now_ms=NOW_MS, disk=LocalDisk())
    log.begin_epoch(EPOCH)
    append(log, b"first")

    def no_space(fd: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    with monkeypatch.context() as patch:
        patch.setattr(os, "fdatasync", no_space)
        with pytest.raises(DiskFailed, match="No space"):
            log.flush()
    with pytest.raises(LogOffline):
        log.flush()
    log.close()
    again = PartitionLog.open(str(tmp_path / "orders-0"), IDENTITY, now_ms=NOW_MS, disk=LocalDisk())
    assert (again.log_end_offset, again.recovery_point) == (1, 0)
    again.close()


def test_a_read_error_takes_the_log_offline() -> None:
    log, disk = new_log()
    append(log, b"first")
    disk.fail_next("read_at", ".log")
    with pytest.raises(DiskFailed):
        log.read(0, 100, Isolation.LOG_END)
    with pytest.raises(LogOffline):
        append(log, b"second")
    log.close()
    assert not disk.exists(f"{DIRECTORY}/quarantine")  # the disk is to blame, not the bytes
    assert open_log(disk).log_end_offset == 1


def test_a_file_system_that_turns_read_only_takes_the_log_offline(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An I/O error has made it so: rule 2 counts what it says as one, and the replica ends, so that others lead."""

    def refuse(*_: object) -> int:
        raise OSError(errno.EROFS, os.strerror(errno.EROFS))

    log = PartitionLog.open(str(tmp_path / "orders-0"), IDENTITY, now_ms=NOW_MS, disk=LocalDisk())
    log.begin_epoch(EPOCH)
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", refuse)
        with pytest.raises(DiskFailed, match="Read-only file system"):
            append(log, b"first")
    assert isinstance(log.offline_because, DiskFailed)
    log.close()


def test_a_directory_that_may_not_be_written_refuses_writes_and_goes_on_serving() -> None:
    log, disk = new_log()
    append(log, b"first")
    for operation in CHANGES:
        disk.fail_next(operation, "", DiskReadOnly("Permission denied."), times=1_000)
    with refused(log, disk, DiskReadOnly):
        append(log, b"second")
    with refused(log, disk, DiskReadOnly):
        log.begin_epoch(EPOCH + 1)
    with refused(log, disk, DiskReadOnly):
        log.checkpoint()
    with refused(log, disk, DiskReadOnly):
        log.roll()
    assert log.read(0, 1_000, Isolation.LOG_END).data
    disk.clear_faults()
    assert append(log, b"second").first_offset == 1


def test_a_directory_that_may_not_be_written_cannot_be_opened_and_stays_as_it_is() -> None:
    log, disk = new_log()
    append(log, b"first")
    disk.crash_process()
    before = bytes_on_disk(disk)
    for operation in CHANGES:
        disk.fail_next(operation, "", DiskReadOnly("Permission denied."), times=1_000)
    for _ in range(3):
        with pytest.raises(DiskReadOnly):
            open_log(disk)
    assert bytes_on_disk(disk) == before
    disk.clear_faults()
    assert open_log(disk).log_end_offset == 1


def test_an_opening_that_fails_leaves_no_file_open_and_no_lock() -> None:
    log, disk = new_log(SETTINGS)
    for number in range(8):
        append(log, b"value %d" % number, b"x" * 50)
    disk.crash_process()
    seen = 0
    for number in range(1, 40):  # an opening does not need all it writes: it goes on without an index
        clone = disk.clone()
        fail_at(clone, number, DiskReadOnly, partial=0)
        try:
            open_log(clone, SETTINGS).close()
        except DiskReadOnly:
            seen += 1
        clone.on_operation = None
        assert open_files(clone) == []
        open_log(clone, SETTINGS).close()
        assert open_files(clone) == []
    assert seen > 5


def open_files(disk: FaultyDisk) -> list[str]:
    return sorted(file.path for file in disk._open)

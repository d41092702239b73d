"""Throwing a log away, and what the controller has to hear before it relies on a replica (rule 7)."""

from __future__ import annotations

import random

import pytest

from raylog.errors import DiskFailed, DiskFull, InvalidBatch, InvalidLeaderEpoch, OffsetOutOfRange, StaleLeaderEpoch
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import stamp
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.log.recovery import OpenedAfter
from raylog.storage.segment.leader_epochs import EpochStart
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points

NOW_MS = 1_700_000_000_000
IDENTITY = PartitionIdentity("cluster", "t", "t-id", 0)


def open_log(disk: FaultyDisk, **overrides: str) -> PartitionLog:
    settings = {name.replace("_", "."): value for name, value in overrides.items()}
    return PartitionLog.open("/data/t-0", IDENTITY, {"segment.bytes": 300, **settings}, now_ms=NOW_MS, disk=disk)


def filled(disk: FaultyDisk, batches: int = 10, **overrides: str) -> PartitionLog:
    log = open_log(disk, **overrides)
    log.begin_epoch(1)
    for number in range(batches):
        log.append_as_leader(encode_batch([b"value %d" % number], timestamps=NOW_MS), 1, NOW_MS)
    log.advance_high_watermark(log.log_end_offset)
    log.checkpoint()
    return log


def replicated(offset: int, epoch: int, count: int = 1) -> bytearray:
    batch = encode_batch([b"from the leader"] * count, timestamps=NOW_MS)
    stamp(batch, offset, epoch)
    return batch


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_while_everything_is_thrown_away_leaves_all_or_nothing_and_never_a_claim(power_cut: bool) -> None:
    """A log that came back empty at its old end would pass for a complete one."""
    start = FaultyDisk()
    filled(start).flush()
    start.crash_process()
    ends = set()
    for point in crash_points(start, lambda disk: open_log(disk).truncate_to(0, NOW_MS)):
        if power_cut:
            point.disk.crash_machine(random.Random(f"{point.operation} {point.moment}"))
        log = open_log(point.disk)
        ends.add(log.log_end_offset)
        if log.log_end_offset:
            assert (log.log_start_offset, log.log_end_offset) == (0, 10)
            assert log.read(0, 1, Isolation.LOG_END).data
        else:
            assert (log.high_watermark, log.epochs.history) == (0, ())
    assert ends == {0, 10}


def test_a_reboot_is_not_forgotten_before_the_controller_has_heard_of_it() -> None:
    disk = FaultyDisk()
    filled(disk).plan_role_start(None).run()
    disk.crash_machine(random.Random(1))
    assert open_log(disk).unproven == OpenedAfter.MACHINE_CRASH.value
    disk.crash_process()
    log = open_log(disk)
    assert log.opened_after is OpenedAfter.PROCESS_CRASH
    assert log.unproven == OpenedAfter.MACHINE_CRASH.value
    log.close()
    log = open_log(disk)
    assert log.unproven == OpenedAfter.MACHINE_CRASH.value
    log.plan_role_start(None).run()
    disk.crash_process()
    assert open_log(disk).unproven == ""


def test_a_blank_replica_is_doubtful_until_the_controller_has_heard_of_it() -> None:
    disk = FaultyDisk()
    assert open_log(disk).unproven == OpenedAfter.CREATION.value
    disk.crash_process()
    log = open_log(disk)
    assert log.unproven == OpenedAfter.CREATION.value
    log.plan_role_start(None).run()
    log.begin_epoch(1)
    log.checkpoint()
    disk.crash_process()
    assert open_log(disk).unproven == ""


@pytest.mark.parametrize("seed", range(20))
def test_what_a_failed_sync_has_dropped_is_written_again_before_it_counts(seed: int) -> None:
    """The kernel took those pages for clean: the sync of the next process succeeds and writes nothing (rule 2)."""
    disk = FaultyDisk()
    log = filled(disk, flush_policy="fsync")
    log.plan_role_start(None).run()
    disk.fail_next("sync", ".log")
    with pytest.raises(DiskFailed):
        log.flush()
    disk.crash_process()
    log = open_log(disk, flush_policy="fsync")
    assert (log.log_end_offset, log.recovery_point) == (10, 0)
    assert log.flush() == 10
    log.checkpoint()
    disk.crash_machine(random.Random(seed))
    log = open_log(disk, flush_policy="fsync")
    assert (log.log_end_offset, log.unproven) == (10, "")


@pytest.mark.parametrize("seed", range(20))
def test_the_same_where_the_policy_becomes_fsync_after_the_failed_sync(seed: int) -> None:
    """Under `replicated` nothing of it had been written again, and under `fsync` it counted."""
    disk = FaultyDisk()
    log = filled(disk)
    log.plan_role_start(None).run()
    disk.fail_next("sync", ".log")
    with pytest.raises(DiskFailed):
        log.flush()
    log.close()
    disk.crash_process()
    log = open_log(disk)
    assert not disk.exists("/data/t-0/disk-failed")
    log.update_config({"segment.bytes": 300, "flush.policy": "fsync"})
    assert log.flush() == 10
    log.checkpoint()
    disk.crash_machine(random.Random(seed))
    log = open_log(disk, flush_policy="fsync")
    assert (log.log_end_offset, log.unproven) == (10, "")
    assert log.read(0, 1, Isolation.LOG_END).next_offset == 1


def test_a_failed_disk_is_noted_though_it_refuses_every_sync() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    disk.fail_next("sync", ".log")
    for _ in range(20):
        disk.fail_next("sync")
    with pytest.raises(DiskFailed):
        log.flush()
    assert disk.exists("/data/t-0/disk-failed")


def test_what_was_not_refused_is_not_written_again_at_a_restart() -> None:
    """It would be up to a segment each time a process is killed."""
    disk = FaultyDisk()
    filled(disk).plan_role_start(None).run()
    disk.crash_process()
    disk.fail_next("write_at", ".log")
    assert open_log(disk).log_end_offset == 10


def synced_but_not_marked() -> FaultyDisk:
    """The recovery point on disk is behind what was synced and acknowledged; the bits on disk are what they were."""
    disk = FaultyDisk()
    log = filled(disk, flush_policy="fsync")
    log.plan_role_start(None).run()
    log.flush()
    assert log.recovery_point == 10
    return disk


def test_a_bit_that_flipped_in_what_fsync_had_acknowledged_raises_doubt_when_it_is_cut() -> None:
    """It looks like a torn tail. The replica may be behind what it has acknowledged, so others come first (rule 7)."""
    ends = set()
    start = synced_but_not_marked()
    places = [(path, bit) for path, size in start.files().items() if path.endswith(".log") for bit in range(8 * size)]
    for path, bit in places[::7]:
        disk = start.clone()
        disk.flip_bit(path, bit)
        disk.crash_machine(random.Random(bit))
        log = open_log(disk, flush_policy="fsync")
        ends.add(log.log_end_offset)
        assert log.unproven == (OpenedAfter.MACHINE_CRASH.value if log.log_end_offset < 10 else ""), (path, bit)
    assert ends == set(range(10))


@pytest.mark.parametrize("power_cut", [False, True])
def test_a_crash_in_the_middle_of_that_cut_does_not_hide_it(power_cut: bool) -> None:
    """The next opening finds nothing to cut."""
    start = synced_but_not_marked()
    path = max(path for path in start.files() if path.endswith(".log"))
    start.flip_bit(path, 8 * 50)
    start.crash_machine(random.Random(1))
    for point in crash_points(start, lambda disk: open_log(disk, flush_policy="fsync")):
        if power_cut:
            point.disk.crash_machine(random.Random(f"{point.operation} {point.moment}"))
        log = open_log(point.disk, flush_policy="fsync")
        assert log.log_end_offset == 8
        assert log.unproven == OpenedAfter.MACHINE_CRASH.value


def test_a_last_batch_that_the_file_never_held_raises_no_doubt_with_fsync() -> None:
    """It was not synced, so it was not acknowledged; doubt would keep the partition from its leader for nothing."""
    start = synced_but_not_marked()
    path = max(path for path in start.files() if path.endswith(".log"))
    for missing in range(1, start.files()[path]):
        disk = start.clone()
        file = disk.open(path)
        file.truncate(start.files()[path] - missing)
        file.sync()
        disk.crash_machine(random.Random(missing))
        log = open_log(disk, flush_policy="fsync")
        assert (log.log_end_offset < 10, log.unproven) == (True, "")


def test_what_was_synced_before_it_counted_is_not_doubtful_after_a_reboot() -> None:
    disk = FaultyDisk()
    log = filled(disk, flush_policy="fsync")
    log.plan_role_start(None).run()
    log.flush()
    log.checkpoint()
    disk.crash_machine(random.Random(1))
    assert open_log(disk, flush_policy="fsync").unproven == ""


def reopened_after_power_cut(disk: FaultyDisk) -> PartitionLog:
    disk.crash_machine(random.Random(1))
    return open_log(disk, flush_policy="fsync")


@pytest.mark.parametrize("is_flushed", [False, True])
def test_what_counted_before_the_policy_became_fsync_is_doubtful_until_it_is_synced(is_flushed: bool) -> None:
    disk = FaultyDisk()
    log = filled(disk)
    log.plan_role_start(None).run()
    log.update_config({"segment.bytes": 300, "flush.policy": "fsync"})
    if is_flushed:
        log.flush()
    assert reopened_after_power_cut(disk).unproven == ("" if is_flushed else OpenedAfter.MACHINE_CRASH.value)


@pytest.mark.parametrize("is_flushed", [False, True])
def test_the_same_where_the_policy_changed_while_the_process_was_down(is_flushed: bool) -> None:
    disk = FaultyDisk()
    filled(disk).plan_role_start(None).run()
    disk.crash_process()
    log = open_log(disk, flush_policy="fsync")
    if is_flushed:
        log.flush()
    assert reopened_after_power_cut(disk).unproven == ("" if is_flushed else OpenedAfter.MACHINE_CRASH.value)


def test_a_log_that_was_closed_has_nothing_to_wait_for_when_its_policy_becomes_fsync() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    log.plan_role_start(None).run()
    log.close()
    open_log(disk, flush_policy="fsync")
    assert reopened_after_power_cut(disk).unproven == ""


def test_a_cut_below_what_counted_does_not_hold_the_policy_back_for_ever() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    log.plan_role_start(None).run()
    log.update_config({"segment.bytes": 300, "flush.policy": "fsync"})
    log.truncate_to(5, NOW_MS)
    log.flush()
    assert reopened_after_power_cut(disk).unproven == ""


def test_a_policy_that_a_full_disk_keeps_out_is_written_after_a_later_flush() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    log.plan_role_start(None).run()
    log.update_config({"segment.bytes": 300, "flush.policy": "fsync"})
    disk.fail_next("write_at", "partition.json", DiskFull("No space is left."))
    log.flush()
    assert log.directory.flush_policy == "replicated"
    log.flush()
    assert reopened_after_power_cut(disk).unproven == ""


def test_an_epoch_that_wrote_nothing_does_not_keep_a_follower_from_the_leaders_history() -> None:
    log = filled(FaultyDisk(), batches=1)
    log.begin_epoch(5)
    with pytest.raises(StaleLeaderEpoch):
        log.append_as_follower(replicated(1, 4), NOW_MS)
    assert log.truncate_to(1, NOW_MS) == 1
    assert log.epochs.history == (EpochStart(1, 0),)
    assert log.append_as_follower(replicated(1, 4), NOW_MS) == 2


def test_a_log_that_begins_inside_a_batch_survives_a_crash_before_the_batch_is_there() -> None:
    start = FaultyDisk()
    open_log(start).restart_at(5)
    start.crash_process()
    for point in crash_points(start, lambda disk: open_log(disk).append_as_follower(replicated(0, 1, 8), NOW_MS)):
        log = open_log(point.disk)
        assert log.log_start_offset == 5
        assert log.log_end_offset in (5, 8)
        if log.log_end_offset == 5:
            log.append_as_follower(replicated(0, 1, 8), NOW_MS)
        assert log.read(5, 1, Isolation.LOG_END).next_offset == 8


def test_a_full_disk_leaves_a_log_that_was_to_begin_inside_a_batch_at_its_start() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    log.restart_at(5)
    disk.fail_next("write_at", ".log", DiskFull("No space is left."))
    with pytest.raises(DiskFull):
        log.append_as_follower(replicated(0, 1, 8), NOW_MS)
    assert (log.log_start_offset, log.log_end_offset) == (5, 5)
    assert log.append_as_follower(replicated(0, 1, 8), NOW_MS) == 8


def test_looking_at_a_batch_that_is_not_there_harms_nothing() -> None:
    log = filled(FaultyDisk())
    for offset in (-1, log.log_end_offset):
        with pytest.raises(OffsetOutOfRange):
            log.inspect(offset)
    assert log.inspect(0).base_offset == 0


def test_numbers_that_cannot_be_are_refused_at_the_door() -> None:
    log = filled(FaultyDisk())
    for epoch in (-1, 2**31):
        with pytest.raises(InvalidLeaderEpoch):
            log.begin_epoch(epoch)
    with pytest.raises(OffsetOutOfRange):
        log.restart_at(-1)
    with pytest.raises(InvalidBatch):
        log.append_as_follower(replicated(10, -1), NOW_MS)
    assert log.log_end_offset == 10


def test_the_lock_goes_even_if_a_file_cannot_be_closed(monkeypatch: pytest.MonkeyPatch) -> None:
    disk = FaultyDisk()
    log = filled(disk)

    def refuse() -> None:
        raise InvalidBatch("Closing failed.")

    monkeypatch.setattr(log.segments[0], "close", refuse)
    with pytest.raises(InvalidBatch):
        log.close()
    open_log(disk)


def test_what_is_appended_while_a_policy_is_on_its_way_to_the_disk_is_doubtful_until_it_is_synced() -> None:
    """It counts at once, by the policy from before: all that was synced when the write began is not all."""
    disk = FaultyDisk()
    log = filled(disk)
    log.plan_role_start(None).run()
    log.flush()
    job = log.plan_settings({"segment.bytes": 300, "flush.policy": "fsync"})
    log.append_as_leader(encode_batch([b"meanwhile"], timestamps=NOW_MS), 1, NOW_MS)
    job.work()
    job.apply()
    assert log.config.flush_policy == "fsync"
    assert log.directory.flush_policy == "replicated"
    log.flush()
    assert log.directory.flush_policy == "fsync"


def test_settings_that_newer_ones_have_overtaken_are_not_taken_over() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    job = log.plan_settings({"retention.ms": 5})
    log.update_config({"retention.ms": 7})
    job.work()
    job.apply()
    assert log.config.retention_ms == 7
    assert b'"retention.ms":7' in disk.read_file(log.directory.file("partition.json"))


def test_settings_that_a_full_disk_refuses_change_nothing() -> None:
    disk = FaultyDisk()
    log = filled(disk)
    before = log.config
    disk.fail_next("write_at", "partition.json", DiskFull("No space is left."))
    with pytest.raises(DiskFull):
        log.plan_settings({"retention.ms": 5}).run()
    assert log.config == before
    assert log.offline_because is None

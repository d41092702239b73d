"""What a replica does for its log beside its loop: that it is done, and that the loop's own writes come out on top."""

from __future__ import annotations

import random
from collections.abc import Callable, Iterator

import pytest

from raylog.errors import DiskBusy, DiskFull, LogOffline, OffsetOutOfRange
from raylog.storage.directory.partition_directory import CheckpointWrite, LogCheckpoint, PartitionDirectory
from raylog.storage.log import retention
from raylog.storage.log.flushing import Checkpoint
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from raylog.storage.segment.segment import Segment
from tests.simulator.world.faulty_disk import FaultyDisk
from tests.simulator.world.world import World
from tests.unit.actors.replica_trio import Trio
from tests.unit.actors.tidy_trio import TidyTrio
from tests.unit.storage.small_log import EPOCH, NOW_MS, append, new_log, open_log


@pytest.fixture
def trio() -> Iterator[TidyTrio]:
    with World(1) as world:
        yield TidyTrio(world)
        world.run_for(0.01)


def alone(trio: TidyTrio, **settings: str) -> TidyTrio:
    """One replica, which leads."""
    trio.settings = {"min.insync.replicas": "1", **{name.replace("_", "."): value for name, value in settings.items()}}
    trio.min_insync = 1
    trio.start(1)
    trio.elect(1, (1,))
    trio.world.run_for(1.0)
    return trio


def on_disk(trio: Trio, broker_id: int) -> LogCheckpoint:
    checkpoint: LogCheckpoint = trio.log(broker_id).directory.read_checkpoint()
    return checkpoint


# --- checkpoints ------------------------------------------------------------------------------------------------------


def test_marks_reach_the_disk_within_seconds_and_once(trio: TidyTrio) -> None:
    alone(trio)
    trio.put_rounds(1, 3)
    log = trio.log(1)
    trio.until(lambda: on_disk(trio, 1).high_watermark == 12, 15.0)
    number = log.directory._checkpoints
    trio.world.run_for(60.0)
    assert log.directory._checkpoints == number


def test_a_write_of_marks_that_a_truncation_has_overtaken_is_not_made() -> None:
    log, disk = new_log()
    for _ in range(5):
        append(log, b"v")
    log.advance_high_watermark(5)
    log.flush()
    checkpoint = log.plan_checkpoint()
    log.truncate_to(2, NOW_MS)
    append(log, b"other")
    assert not checkpoint.run()
    assert log.directory.read_checkpoint().recovery_point == 2
    disk.crash_machine(random.Random(1))
    assert open_log(disk).log_end_offset >= 2


def test_a_write_of_marks_that_comes_after_the_end_is_not_made() -> None:
    log, disk = new_log()
    append(log, b"v")
    checkpoint = log.plan_checkpoint()
    log.close()
    again = open_log(disk)
    again.begin_epoch(EPOCH + 1)
    append(again, b"w")
    before = again.directory.read_checkpoint()
    checkpoint.work()
    assert again.directory.read_checkpoint() == before
    with pytest.raises(LogOffline):
        checkpoint.apply()


@pytest.mark.parametrize("seed", range(30))
def test_the_disk_never_says_more_than_the_log_knows_in_whatever_order_marks_are_written(seed: int) -> None:
    rng = random.Random(seed)
    log, disk = new_log()
    begun: list[Checkpoint] = []
    for _ in range(60):
        action = rng.choice(("append", "append", "flush", "begin", "begin", "carry out", "truncate", "delete"))
        if action == "append":
            log.begin_epoch(EPOCH + log.truncations)
            append(log, b"v")
            log.advance_high_watermark(log.log_end_offset - rng.randrange(3))
        elif action == "flush":
            log.flush()
        elif action == "begin":
            begun.append(log.plan_checkpoint())
        elif action == "carry out" and begun:
            begun.pop(rng.randrange(len(begun))).run()
        elif action == "truncate":
            log.truncate_to(max(log.log_start_offset, log.log_end_offset - rng.randrange(4)), NOW_MS)
        elif action == "delete":
            log.delete_records(min(log.log_start_offset + 1, log.high_watermark))
        marks = log.directory.read_checkpoint()
        assert marks.recovery_point <= log.recovery_point
        assert marks.log_start_offset == log.log_start_offset
        assert marks.high_watermark <= log.log_end_offset
    end = log.recovery_point
    disk.crash_machine(rng)
    assert open_log(disk).log_end_offset >= end


# --- retention and deleted files --------------------------------------------------------------------------------------


RETENTION = {"segment_bytes": "1000", "retention_ms": "100000", "file_delete_delay_ms": "1000"}


def test_old_segments_go_and_their_files_later(trio: TidyTrio) -> None:
    alone(trio, **RETENTION)
    trio.put_rounds(1, 20)
    log = trio.log(1)
    trio.until(lambda: log.log_start_offset == 80, 300.0)
    trio.world.run_for(10.0)
    assert len(trio.files(1, ".log")) == 1
    assert not trio.files(1, ".deleted")


def test_retention_keeps_up_where_no_leader_lives_for_a_minute(trio: TidyTrio) -> None:
    """Its clock began anew with each leadership: a log of `retention.bytes` 1 MB grew to 15 MB on all three disks."""
    trio.settings = {"segment.bytes": "1000", "retention.bytes": "5000", "replica.lag.time.max.ms": "2000"}
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    for cycle in range(12):
        leader, successor = 1 + cycle % 3, 1 + (cycle + 1) % 3
        trio.until(lambda: len(trio.isr) == 3)
        trio.put_rounds(leader, 10)
        trio.world.run_for(20.0)
        assert max(trio.log(each).size_bytes for each in (1, 2, 3)) < 8_000, cycle
        process = trio.members[leader].process
        assert process is not None
        process.kill()
        trio.elect(successor, tuple(each for each in (1, 2, 3) if each != leader))
        trio.start(leader)
        trio.assign()
        trio.world.run_for(5.0)
    assert trio.log(successor).log_end_offset == 12 * 10 * 4


def test_followers_let_go_of_what_their_leader_has_deleted_within_seconds(trio: TidyTrio) -> None:
    """They looked once a minute, so their disks kept it for up to two minutes longer."""
    trio.settings = {name.replace("_", "."): value for name, value in RETENTION.items()}
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    trio.put_rounds(1, 10)
    trio.until(lambda: trio.log(1).log_start_offset == 40, 300.0)
    trio.until(lambda: all(len(trio.log(each).segments) == 1 for each in (1, 2, 3)), 4.0)
    trio.until(lambda: all(len(trio.files(each, ".log")) == 1 for each in (1, 2, 3)), 4.0)


def test_a_partition_over_its_bound_is_trimmed_within_seconds(trio: TidyTrio) -> None:
    alone(trio, segment_bytes="1000", retention_bytes="5000")
    trio.put_rounds(1, 30)
    trio.until(lambda: trio.log(1).size_bytes < 8_000, 4.0)


def test_what_is_imported_with_old_timestamps_can_be_read_for_a_minute(trio: TidyTrio) -> None:
    alone(trio, **RETENTION)
    trio.offset_of(trio.append(1, b"of 1970"))
    trio.world.run_for(55.0)
    assert trio.log(1).log_start_offset == 0
    trio.until(lambda: trio.log(1).log_start_offset == 1, 15.0)


def test_retention_that_the_disk_refuses_waits_longer_than_a_round(
    trio: TidyTrio, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(trio, segment_bytes="1000", retention_bytes="5000")
    attempts: list[float] = []

    def refuse(_log: PartitionLog, _now_ms: int, _at_most: int, **_: bool) -> None:
        attempts.append(trio.world.now)
        raise DiskBusy("Not now.")

    trio.put_rounds(1, 30)
    with monkeypatch.context() as patch:
        patch.setattr(retention, "delete_old_segments", refuse)
        trio.world.run_for(60.0)
    assert 3 <= len(attempts) <= 8
    trio.until(lambda: trio.log(1).size_bytes < 8_000, 20.0)


def test_a_follower_whose_clock_is_far_ahead_deletes_nothing(trio: TidyTrio) -> None:
    """Only the leader decides what is too old; or all would delete what one wrong clock takes for old."""
    trio.settings = {name.replace("_", "."): value for name, value in RETENTION.items()}
    trio.start(1, 2)
    trio.elect(1, (1, 2))
    trio.world.run_for(1.0)
    trio.settings["retention.ms"] = str(10**9)
    trio.assign()
    trio.put_rounds(1, 20)
    trio.members[2].machine.jump_wall_clock(10.0**7)
    trio.world.run_for(200.0)
    assert [trio.log(each).log_start_offset for each in (1, 2)] == [0, 0]
    trio.members[1].machine.jump_wall_clock(10.0**7)
    trio.until(lambda: [trio.log(each).log_start_offset for each in (1, 2)] == [80, 80], 200.0)
    trio.until(lambda: len(trio.files(2, ".log")) == 1, 200.0)


def test_after_an_opening_ages_are_looked_up_beside_the_loop(trio: TidyTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(trio, **RETENTION)
    trio.put_rounds(1, 20)
    process = trio.members[1].process
    assert process is not None
    process.kill()
    trio.start(1)
    assert not [segment for segment in trio.log(1).segments.sealed if segment.is_dated]
    found: list[int] = []
    look_up = Segment.find_largest_timestamp

    def note(segment: Segment) -> int:
        found.append(segment.base_offset)
        return look_up(segment)

    monkeypatch.setattr(Segment, "find_largest_timestamp", note)
    monkeypatch.setattr(Segment, "_load_indexes", lambda _: pytest.fail("read on the loop"))
    trio.assign()
    trio.until(lambda: trio.log(1).log_start_offset == 80, 300.0)
    assert len(found) >= 19


def test_retention_waits_for_the_disk_beside_the_loop(trio: TidyTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    alone(trio, **RETENTION)
    process = trio.members[1].process
    assert process is not None
    off_loop, carry_out = process.off_loop, PartitionDirectory.carry_out
    is_beside, starts = False, list[tuple[int, bool]]()

    def beside(work: Callable[[], object]) -> object:
        def note() -> object:
            nonlocal is_beside
            is_beside = True
            try:
                return work()
            finally:
                is_beside = False

        return off_loop(note)

    def write(directory: PartitionDirectory, checkpoint: CheckpointWrite) -> bool:
        starts.append((checkpoint.checkpoint.log_start_offset, is_beside))
        return carry_out(directory, checkpoint)

    trio.put_rounds(1, 20)
    monkeypatch.setattr(process, "off_loop", beside)
    monkeypatch.setattr(PartitionDirectory, "carry_out", write)
    trio.until(lambda: trio.log(1).log_start_offset == 80, 300.0)
    assert on_disk(trio, 1).log_start_offset == 80
    assert (80, True) in starts
    assert all(was_beside for _, was_beside in starts)


def old_log() -> tuple[PartitionLog, FaultyDisk, int]:
    """All but its last segment may go by now."""
    log, disk = new_log({"segment.bytes": 300, "retention.bytes": 300, "file.delete.delay.ms": 0})
    for _ in range(10):
        append(log, b"v" * 100)
    log.flush()
    log.advance_high_watermark(log.log_end_offset)
    return log, disk, log.segments.sealed[-1].base_offset


def test_a_start_that_is_on_disk_ahead_is_not_written_again() -> None:
    log, disk, start = old_log()
    deletion = log.plan_deletion(NOW_MS)
    assert deletion.has_work
    assert log.log_start_offset == 0
    deletion.work()
    assert log.directory.read_checkpoint().log_start_offset >= start
    number = log.directory._checkpoints
    assert deletion.apply()
    assert log.directory._checkpoints == number
    assert log.log_start_offset == log.directory.read_checkpoint().log_start_offset >= start
    assert not log.plan_deletion(NOW_MS).has_work
    disk.crash_machine(random.Random(1))
    assert open_log(disk).log_start_offset >= start


@pytest.mark.parametrize("carried_out", ["not", "before", "after"])
def test_a_start_that_was_overtaken_is_written_again(carried_out: str) -> None:
    log, _disk, _ = old_log()
    deletion = log.plan_deletion(NOW_MS)
    assert deletion.has_work
    if carried_out == "before":
        deletion.work()
        assert log.directory.read_checkpoint().log_start_offset > 0
    log.checkpoint()  # with the start as it is
    assert log.directory.read_checkpoint().log_start_offset == 0
    if carried_out == "after":
        deletion.work()
        assert log.directory.read_checkpoint().log_start_offset == 0
    assert deletion.apply()
    assert log.directory.read_checkpoint().log_start_offset == log.log_start_offset > 0


def test_a_crash_between_the_start_on_disk_and_the_deletion_loses_nothing_else() -> None:
    log, disk, start = old_log()
    end, deletion = log.log_end_offset, log.plan_deletion(NOW_MS)
    assert deletion.has_work
    deletion.work()
    disk.crash_machine(random.Random(1))
    again = open_log(disk)
    assert (again.log_start_offset, again.log_end_offset) == (start, end)


def test_who_decides_is_asked_again_before_anything_is_deleted() -> None:
    log, _, _ = old_log()
    answers = iter([True, False])
    assert not log.plan_deletion(NOW_MS, decides=lambda: next(answers)).run()
    assert log.log_start_offset == 0
    assert log.delete_old_segments(NOW_MS)


@pytest.mark.parametrize("refusals", [1, 2, 100])
def test_on_a_full_disk_segments_pay_for_their_deletion_beside_the_owner(refusals: int) -> None:
    log, disk, start = old_log()
    deletion = log.plan_deletion(NOW_MS)
    indexes = [path for segment in log.segments.sealed for path in segment.index_paths()]
    disk.fail_next("rename", "log-checkpoint", DiskFull("no room"), times=refusals)
    if refusals == 100:
        with pytest.raises(DiskFull):
            deletion.run()
        assert log.log_start_offset == 0
        return
    deletion.work()
    assert log.directory.read_checkpoint().log_start_offset >= start
    assert sum(not disk.exists(path) for path in indexes) == 3 * refusals
    assert deletion.apply()
    assert log.directory.read_checkpoint().log_start_offset == log.log_start_offset


def test_a_log_start_makes_its_room_beside_the_owner() -> None:
    log, disk, start = old_log()
    disk.fail_next("rename", "log-checkpoint", DiskFull("no room"))
    log.plan_log_start(start).run()
    assert log.log_start_offset == log.directory.read_checkpoint().log_start_offset == start


def test_a_time_index_that_is_not_to_be_believed_is_not_needed_for_that() -> None:
    log, disk = new_log({"segment.bytes": 300})
    for number in range(10):
        append(log, b"v", now_ms=NOW_MS + number)
    log.close()
    for path in [path for path in disk.files() if path.endswith(".timeindex")]:
        disk.remove(path)
    log = open_log(disk, {"segment.bytes": 300})
    ages = [segment.find_largest_timestamp() for segment in log.segments.sealed]
    assert ages == [segment.largest_timestamp for segment in log.segments.sealed]
    assert ages == sorted(ages)


def test_a_disk_that_fails_beside_the_loop_takes_the_log_offline(trio: TidyTrio) -> None:
    alone(trio)
    trio.put_rounds(1, 3)
    trio.members[1].machine.fail_disk("rename", "log-checkpoint", seconds=30.0)
    trio.until(lambda: trio.members[1].ending is not None, 30.0)


def test_files_are_removed_beside_the_loop_after_their_segments_are_closed(
    trio: TidyTrio, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(trio, **RETENTION)
    process = trio.members[1].process
    assert process is not None
    events: list[str] = []
    close, off_loop = Segment.close, process.off_loop

    def note_close(segment: Segment) -> None:
        events.append("close")
        close(segment)

    def note(work: Callable[[], object]) -> object:
        events.append(getattr(work, "__qualname__", ""))
        return off_loop(work)

    trio.put_rounds(1, 5)
    monkeypatch.setattr(Segment, "close", note_close)
    monkeypatch.setattr(process, "off_loop", note)
    trio.until(lambda: trio.log(1).log_start_offset == 20, 300.0)
    trio.world.run_for(10.0)
    assert not trio.files(1, ".deleted")
    last_close = len(events) - 1 - events[::-1].index("close")
    assert "FileRemoval.work" in events[last_close:]


def test_what_is_read_while_segments_are_swapped_is_whole(trio: TidyTrio) -> None:
    trio.start(1, 2, 3)
    trio.elect(1, (1, 2, 3))
    trio.world.run_for(1.0)
    newest = trio.put_rounds(1, 15)
    trio.members[1].machine.slow_disk(300.0)
    trio.start_housekeeper(1)
    seen = set()
    for _ in range(200):
        trio.world.run_for(0.5)
        log = trio.log(1)
        assert trio.newest(1) == newest
        assert log.read(0, 1 << 20, Isolation.LOG_END).next_offset > 0
        seen.add(bool(trio.files(1, ".swap")))
    assert seen == {False, True}
    assert len(trio.records(1)) <= 12


# --- idle logs --------------------------------------------------------------------------------------------------------


def test_an_idle_compacted_log_is_planned_for_rarely_and_one_that_is_written_to_soon(
    trio: TidyTrio, monkeypatch: pytest.MonkeyPatch
) -> None:
    alone(trio, cleanup_policy="compact")
    planned: list[float] = []
    plan = PartitionLog.plan_compaction

    def note(log: PartitionLog, now_ms: int) -> object:
        planned.append(trio.world.now)
        return plan(log, now_ms)

    monkeypatch.setattr(PartitionLog, "plan_compaction", note)
    trio.put_rounds(1, 1)
    trio.world.run_for(600.0)
    assert 8 <= len(planned) <= 16
    trio.put_rounds(1, 1)
    seen, now = len(planned), trio.world.now
    trio.until(lambda: len(planned) > seen, 30.0)
    assert planned[-1] - now < 25.0


def test_a_log_that_is_not_compacted_is_never_planned_for(trio: TidyTrio, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(PartitionLog, "plan_compaction", lambda *_: pytest.fail("it is not compacted"))
    alone(trio, **RETENTION)
    trio.put_rounds(1, 5)
    trio.world.run_for(300.0)


def test_an_idle_replica_has_no_task_and_writes_nothing(trio: TidyTrio) -> None:
    alone(trio, retention_ms="-1")
    trio.put_rounds(1, 3)
    trio.world.run_for(60.0)
    replica = trio.members[1].replica
    assert replica is not None
    assert replica._hosted is not None
    written = trio.log(1).directory._checkpoints
    trio.world.run_for(600.0)
    assert not replica._hosted._tasks
    assert trio.log(1).directory._checkpoints == written


def test_what_has_become_too_much_meanwhile_waits_for_the_next_deletion() -> None:
    """Its start was not written ahead, and the owner must not wait for the disk."""
    log, _, start = old_log()
    deletion = log.plan_deletion(NOW_MS)
    deletion.work()
    number = log.directory._checkpoints
    for _ in range(4):
        append(log, b"v" * 100)
    log.advance_high_watermark(log.log_end_offset)
    assert deletion.apply()
    assert log.log_start_offset == start
    assert log.directory._checkpoints == number
    assert log.plan_deletion(NOW_MS).run()
    assert log.log_start_offset > start


def test_a_start_is_moved_by_a_job_and_only_once_it_is_on_disk() -> None:
    log, disk, _ = old_log()
    job = log.plan_log_start(4)
    assert job.has_work
    job.apply()
    assert log.log_start_offset == 0  # nothing was written
    job.work()
    job.apply()
    assert log.log_start_offset == 4
    assert not log.plan_log_start(3).has_work
    disk.crash_machine(random.Random(1))
    assert open_log(disk).log_start_offset == 4


def test_a_start_that_something_else_has_overtaken_does_not_move() -> None:
    log, _, _ = old_log()
    job = log.plan_log_start(4)
    job.work()
    log.checkpoint()
    job.apply()
    assert log.log_start_offset == log.directory.read_checkpoint().log_start_offset == 0


def test_no_job_moves_a_start_past_what_is_replicated() -> None:
    log, _, _ = old_log()
    with pytest.raises(OffsetOutOfRange):
        log.plan_log_start(log.high_watermark + 1)

"""Compaction keeps the newest value of every key, whatever happens to it on the way."""

from __future__ import annotations

import random

import pytest

from raylog.config import ConfigValue
from raylog.errors import (
    CompactionAbandoned,
    CompactionMemoryTaken,
    CompactionMemoryTooSmall,
    CompactionOutdated,
    DiskFailed,
    DiskFull,
    LogDamaged,
    LogOffline,
)
from raylog.storage.compaction.cleaner import CompactionReport, run_compaction
from raylog.storage.compaction.key_map import MemoryBudget, bytes_for
from raylog.storage.compaction.plan import CompactionPlan
from raylog.storage.compaction.progress import CompactionProgress, Pass
from raylog.storage.compaction.swap import remove_drafts
from raylog.storage.format.batch_codec import decode_batch, encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from raylog.storage.format.record_batch import read_header, seal
from raylog.storage.log.compaction import Installation, plan_compaction
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.segment import transaction_index
from raylog.storage.segment.segment import LOG_SUFFIX, file_name
from raylog.storage.segment.transaction_filter import TransactionFilter
from raylog.storage.segment.transaction_index import AbortedTransaction
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.compacted_log import (
    DIRECTORY,
    EPOCH,
    NOW_MS,
    Written,
    committed_records,
    compact,
    live,
    newest,
    open_log,
    write,
    write_transaction,
)

DAY_MS = 86_400_000
BUDGET = MemoryBudget()
_MOST_OPEN = 4  # twice what a simulated disk keeps open


def fill(log: PartitionLog, rounds: int, seed: int = 1, transactions: bool = False) -> list[Written]:
    """Batches of a few keys each, with tombstones, and transactions of which every other aborts."""
    rng = random.Random(seed)
    history: list[Written] = []
    for number in range(rounds):
        records = [
            (b"key-%d" % rng.randrange(12), None if rng.random() < 0.15 else b"value %d" % number) for _ in range(4)
        ]
        if transactions and number % 3 == 0:
            end = MarkerType.COMMIT if number % 2 else MarkerType.ABORT
            history += write_transaction(log, records, producer_id=5, epoch=number, end=end)
        else:
            history += write(log, records)
    return history


def compacted(log: PartitionLog, now_ms: int = NOW_MS) -> CompactionReport:
    report = compact(log, now_ms, BUDGET, force=True)
    assert report is not None
    return report


@pytest.mark.parametrize("transactions", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_the_newest_record_of_every_key_stays_under_its_offset(seed: int, transactions: bool) -> None:
    log = open_log(FaultyDisk())
    history = fill(log, 60, seed, transactions)
    report = compacted(log)
    after = committed_records(log)
    assert newest(after) == newest(history)
    assert set(after) <= set(history)
    assert report.bytes_after < report.bytes_before
    below = [record for record in after if record.offset < report.cleaned_to]
    assert len(below) == len({record.key for record in below})


def test_what_is_compacted_stays_so_after_reopening() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 60, transactions=True)
    compacted(log)
    expected = committed_records(log)
    log.close()
    again = open_log(disk)
    assert committed_records(again) == expected
    disk.crash_process()
    assert committed_records(open_log(disk)) == expected
    assert newest(expected) == newest(history)


def test_what_was_compacted_is_found_when_its_files_have_been_closed() -> None:
    """A compaction opens the new files under other names than they have later."""
    log = open_log(FaultyDisk())
    fill(log, 60)
    log.flush()
    compacted(log)
    fill(log, 20, seed=2)
    log.flush()
    assert len(log.segments.sealed) > _MOST_OPEN
    expected = committed_records(log)
    assert committed_records(log) == expected, "by now all but the last files have been closed and opened again"


def test_a_reader_of_what_was_compacted_away_finds_it_until_it_is_removed() -> None:
    log = open_log(FaultyDisk())
    fill(log, 60)
    log.flush()
    old = list(log.segments.sealed)
    expected = [segment.file.read_at(segment.size, 0) for segment in old]
    assert len(old) > _MOST_OPEN
    compacted(log)
    assert [segment.file.read_at(segment.size, 0) for segment in old] == expected


def test_a_tombstone_stays_for_delete_retention_after_the_pass_that_met_it_and_then_goes() -> None:
    log = open_log(FaultyDisk(), {"delete.retention.ms": DAY_MS})
    write(log, [(b"gone", b"was here"), (b"stays", b"is here")])
    tombstone = write(log, [(b"gone", None)])[0]
    log.roll()
    compacted(log, NOW_MS)
    assert tombstone in committed_records(log)

    fill(log, 4, seed=3)
    log.roll()
    compacted(log, NOW_MS + DAY_MS)
    assert tombstone in committed_records(log)

    fill(log, 4, seed=4)
    log.roll()
    compacted(log, NOW_MS + DAY_MS + 1)
    after = committed_records(log)
    assert tombstone not in after
    assert b"gone" not in newest(after)
    assert newest(after)[b"stays"].value == b"is here"


def test_aborted_records_go_at_once_and_their_marker_later() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    write(log, [(b"a", b"committed before")])
    write_transaction(log, [(b"a", b"never happened")], producer_id=9, epoch=0, end=MarkerType.ABORT)
    write_transaction(log, [(b"b", b"happened")], producer_id=9, epoch=1, end=MarkerType.COMMIT)
    log.roll()
    compacted(log)
    assert [record.value for record in committed_records(log)] == [b"committed before", b"happened"]
    assert len(log.aborted_between(0, log.log_end_offset, NOW_MS)) == 1

    fill(log, 4)
    log.roll()
    compacted(log, NOW_MS + 2 * DAY_MS)
    fill(log, 4)
    log.roll()
    compacted(log, NOW_MS + 4 * DAY_MS)
    assert log.aborted_between(0, log.log_end_offset, NOW_MS) == []
    assert newest(committed_records(log))[b"a"].value == b"committed before"


def test_a_producer_is_still_known_when_all_its_records_are_outdated() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    write_transaction(log, [(b"k", b"1"), (b"k", b"2")], producer_id=4, epoch=3, end=MarkerType.COMMIT)
    write(log, [(b"k", b"3")])
    log.roll()
    before = log.producers.get(4)
    assert before is not None
    compacted(log)
    for name in [name for name in disk.files() if name.endswith(".snapshot")]:
        disk.remove(name)
    disk.crash_process()
    after = open_log(disk).producers.get(4)
    assert after is not None
    assert (after.epoch, after.last_offset) == (before.epoch, before.last_offset)


def test_a_map_that_is_too_small_for_all_cleans_as_far_as_it_reaches_and_goes_on_next_time() -> None:
    log = open_log(FaultyDisk(), {"segment.bytes": 4000})
    history: list[Written] = []
    for number in range(0, 2400, 30):
        history += write(log, [(b"key-%d" % (number % 1800 + at), b"%d" % number) for at in range(40)])
    log.roll()
    ends = []
    while (plan := plan_compaction(log, NOW_MS, force=True)) is not None:
        report = run_compaction(log.directory.disk, plan, MemoryBudget(bytes_for(1024)))
        log.install_compaction(report, NOW_MS)
        ends.append(report.cleaned_to)
        assert newest(committed_records(log)) == newest(history)
    assert len(ends) > 1
    assert ends == sorted(set(ends))
    assert ends[-1] == log.log_end_offset


@pytest.mark.parametrize("payload", [b"not columns at all", b"\x97" + b"\xc6\xff\xff\xff\xff" * 7])
def test_a_batch_that_cannot_be_decoded_stays_whole_and_holds_nothing_up(payload: bytes) -> None:
    """It came in while the topic was not compacted, when nobody looked inside."""
    disk = FaultyDisk()
    log = open_log(disk, {"cleanup.policy": "delete"})
    poison = seal([payload], last_offset_delta=2, base_timestamp=0, max_timestamp=0, record_count=3)
    log.append_as_leader(poison, 1, NOW_MS)
    write(log, [(b"k", b"old"), (b"k", b"new")])
    log.roll()
    log.update_config({"cleanup.policy": "compact", "segment.bytes": 600})
    report = compacted(log)
    assert (report.records_before, report.records_after) == (5, 4)
    assert log.read(0, 1).data == bytes(poison)
    assert decode_batch(log.read(3, 1).data).values == [b"new"]


def test_only_what_is_replicated_and_decided_is_touched() -> None:
    log = open_log(FaultyDisk())
    history = fill(log, 30)
    log.roll()
    high_watermark = log.high_watermark
    log.marks.high_watermark = history[40].offset
    report = compacted(log)
    assert report.cleaned_to <= history[40].offset
    log.marks.high_watermark = high_watermark
    assert newest(committed_records(log)) == newest(history)


def test_young_records_wait_for_min_compaction_lag() -> None:
    log = open_log(FaultyDisk(), {"min.compaction.lag.ms": 1000})
    write(log, [(b"k", b"old")], NOW_MS)
    log.roll()
    write(log, [(b"k", b"young")], NOW_MS + 900)
    log.roll()
    assert plan_compaction(log, NOW_MS + 500, force=True) is None
    plan = plan_compaction(log, NOW_MS + 1001, force=True)
    assert plan is not None
    assert plan.limit == 1


def test_max_compaction_lag_asks_for_a_compaction_that_the_dirty_ratio_does_not() -> None:
    log = open_log(FaultyDisk(), {"max.compaction.lag.ms": 1000, "min.cleanable.dirty.ratio": 1.0})
    fill(log, 30)
    log.roll()
    compacted(log)
    write(log, [(b"k", b"lonely")], NOW_MS)
    assert plan_compaction(log, NOW_MS + 1000) is None
    assert plan_compaction(log, NOW_MS + 1001) is not None


def test_a_log_that_is_clean_is_left_alone() -> None:
    log = open_log(FaultyDisk())
    fill(log, 30)
    compacted(log)
    assert compact(log, NOW_MS, BUDGET) is None


def test_a_compaction_that_a_truncation_has_overtaken_is_refused() -> None:
    log = open_log(FaultyDisk())
    history = fill(log, 30)
    plan = plan_compaction(log, NOW_MS, force=True)
    assert plan is not None
    report = run_compaction(log.directory.disk, plan, BUDGET)
    end = log.truncate_to(history[10].offset, NOW_MS)
    with pytest.raises(CompactionOutdated):
        log.install_compaction(report, NOW_MS)
    assert committed_records(log) == [record for record in history if record.offset < end]


def test_a_compaction_of_other_segments_at_the_same_offsets_is_refused() -> None:
    log = open_log(FaultyDisk())
    write(log, [(b"k", b"old"), (b"j", b"old")])
    log.roll()
    plan = log.plan_compaction(NOW_MS, force=True)
    assert plan is not None
    report = run_compaction(log.directory.disk, plan, BUDGET)
    log.restart_at(0)
    log.begin_epoch(EPOCH)
    history = write(log, [(b"k", b"new"), (b"j", b"new")])
    log.roll()
    with pytest.raises(CompactionOutdated):
        log.install_compaction(report, NOW_MS)
    assert committed_records(log) == history


def test_a_compaction_whose_files_an_opening_has_swept_away_is_refused() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 30)
    plan = log.plan_compaction(NOW_MS, force=True)
    assert plan is not None
    report = run_compaction(disk, plan, BUDGET)
    log.close()
    log = open_log(disk)
    with pytest.raises(CompactionOutdated):
        log.install_compaction(report, NOW_MS)
    assert newest(committed_records(log)) == newest(history)


def test_segments_that_retention_has_taken_meanwhile_are_no_damage() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    fill(log, 30)
    plan = log.plan_compaction(NOW_MS, force=True)
    assert plan is not None
    log.restart_at(1000)
    with pytest.raises(CompactionOutdated):
        run_compaction(disk, plan, BUDGET)
    assert not [path for path in disk.files() if path.endswith(".cleaned")]


def test_a_committed_tombstone_after_an_abort_is_not_taken_for_aborted() -> None:
    """The abort's marker lies in what was clean already, where the walk over the dirty part does not look."""
    log = open_log(FaultyDisk(), {"delete.retention.ms": 0})
    write(log, [(b"k", b"to be deleted")])
    write_transaction(log, [(b"other", b"never happened")], producer_id=9, epoch=0, end=MarkerType.ABORT)
    log.roll()
    compacted(log, NOW_MS)
    write_transaction(log, [(b"k", None)], producer_id=9, epoch=1, end=MarkerType.COMMIT)
    for number in range(1, 5):
        write(log, [(b"more", b"%d" % number)])
        log.roll()
        compacted(log, NOW_MS + number * 1000)
        assert b"k" not in live(committed_records(log))


def test_an_offline_log_plans_no_compaction() -> None:
    log = open_log(FaultyDisk())
    fill(log, 10)
    log.close()
    with pytest.raises(LogOffline):
        log.plan_compaction(NOW_MS)


def test_a_file_that_cannot_be_removed_yet_is_tried_again() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    fill(log, 60)
    compacted(log)
    disk.fail_next("remove", ".deleted", DiskFull("Not now."))
    with pytest.raises(DiskFull):
        log.remove_deleted_files(NOW_MS + DAY_MS)
    assert log.remove_deleted_files(NOW_MS + DAY_MS) > 0
    assert not [path for path in disk.files() if path.endswith(".deleted")]


def test_what_is_appended_after_a_truncation_counts_as_dirty_again() -> None:
    log = open_log(FaultyDisk())
    fill(log, 30)
    report = compacted(log)
    end = log.truncate_to(report.cleaned_to // 2, NOW_MS)
    progress = CompactionProgress.load(log.directory.disk, DIRECTORY)
    assert progress.cleaned_to <= end


def test_progress_keeps_the_time_of_the_first_pass_over_every_offset() -> None:
    progress = CompactionProgress().after(Pass(100, 1000), 50).after(Pass(200, 1040), 50)
    assert progress.removable_below(1050, 50) == 0
    assert progress.removable_below(1051, 50) == 100
    assert progress.removable_below(1091, 50) == 200
    later = progress.after(Pass(300, 1100), 50)
    assert later.passes == (Pass(200, 1040), Pass(300, 1100))


def test_a_full_disk_stops_a_compaction_and_costs_nothing() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 60)
    disk.capacity = disk.used_bytes() + 300
    with pytest.raises(DiskFull):
        compact(log, NOW_MS, BUDGET, force=True)
    disk.capacity = None
    assert newest(committed_records(log)) == newest(history)
    compacted(log)
    assert newest(committed_records(log)) == newest(history)


@pytest.mark.thorough
def test_killed_at_every_step_nothing_is_lost() -> None:
    """The process dies at each disk operation of a compaction, and then perhaps the machine, with several outcomes."""
    start = FaultyDisk()
    log = open_log(start)
    history = fill(log, 8, transactions=True)
    log.roll()
    log.flush()
    log.checkpoint()
    start.crash_process()
    points = 0
    for point in crash_points(start, compact_and_clean_up):
        points += 1
        for outcome in range(3):
            disk = point.disk.clone()
            if outcome:
                disk.crash_machine(random.Random(f"{point.operation} {point.moment} {outcome}"))
            reopened = open_log(disk)
            found = committed_records(reopened)
            assert newest(found) == newest(history), (point.operation, point.moment, outcome)
            assert set(found) <= set(history)
            if outcome == 0:
                compact(reopened, NOW_MS, BUDGET, force=True)
                assert newest(committed_records(reopened)) == newest(history)
    assert points > 100


def compact_and_clean_up(disk: FaultyDisk) -> None:
    log = open_log(disk)
    compact(log, NOW_MS, BUDGET, force=True)
    log.remove_deleted_files(NOW_MS + DAY_MS)


@pytest.mark.thorough
def test_deletion_killed_at_every_step_leaves_a_log_that_goes_on_from_its_start() -> None:
    start = FaultyDisk()
    settings: dict[str, ConfigValue] = {"cleanup.policy": "delete", "retention.ms": 1000, "segment.bytes": 400}
    log = open_log(start, settings)
    history = fill(log, 12)
    log.roll()
    history += write(log, [(b"young", b"v")], NOW_MS + 5000)
    log.flush()
    log.checkpoint()
    start.crash_process()

    def delete(disk: FaultyDisk) -> None:
        dying = open_log(disk, settings)
        dying.advance_high_watermark(dying.log_end_offset)
        assert dying.delete_old_segments(NOW_MS + 5000)
        dying.remove_deleted_files(NOW_MS + DAY_MS)

    for point in crash_points(start, delete):
        for outcome in range(4):
            disk = point.disk.clone()
            if outcome:
                disk.crash_machine(random.Random(f"{point.operation} {point.moment} {outcome}"))
            reopened = open_log(disk, settings)
            found = committed_records(reopened)
            assert found == [record for record in history if record.offset >= reopened.log_start_offset]
            assert found[-1].key == b"young"


def test_a_swap_that_fails_half_way_takes_the_log_offline_and_reopening_finishes_it() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 60)
    plan = plan_compaction(log, NOW_MS, force=True)
    assert plan is not None
    report = run_compaction(disk, plan, BUDGET)
    disk.fail_next("rename", ".deleted")
    disk.fail_next("rename", ".log")
    with pytest.raises(DiskFailed, match="simulated"):
        log.install_compaction(report, NOW_MS)
    with pytest.raises(LogOffline):
        log.read(0, 100)
    disk.clear_faults()
    log.close()
    assert live(committed_records(open_log(disk))) == live(history)


def planned(log: PartitionLog) -> CompactionPlan:
    plan = log.plan_compaction(NOW_MS, force=True)
    assert plan is not None
    return plan


def cleaned_files(disk: FaultyDisk) -> list[str]:
    return [path for path in disk.files() if path.endswith(".cleaned")]


def rounds_of(log: PartitionLog, value: bytes, count: int) -> list[Written]:
    """The same shape whatever the value, so that segments begin and end at the same offsets."""
    return [record for number in range(count) for record in write(log, [(b"key-%d" % (number % 5), value)])]


def test_a_compaction_of_what_stood_at_the_same_offsets_before_is_refused() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = rounds_of(log, b"old", 40)
    log.roll()
    report = run_compaction(disk, planned(log), BUDGET)
    bounds = [(each.base_offset, each.next_offset) for each in log.segments.sealed]
    log.truncate_to(1, NOW_MS)
    history[1:] = rounds_of(log, b"new", 39)
    log.roll()
    assert [(each.base_offset, each.next_offset) for each in log.segments.sealed] == bounds
    assert cleaned_files(disk)
    with pytest.raises(CompactionOutdated):
        log.install_compaction(report, NOW_MS)
    assert committed_records(log) == history


def test_a_compaction_that_ends_after_a_reopening_is_refused() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 30)
    log.roll()
    plan = planned(log)
    log.close()
    again = open_log(disk)
    report = run_compaction(disk, plan, BUDGET)
    with pytest.raises(CompactionOutdated):
        again.install_compaction(report, NOW_MS)
    assert committed_records(again) == history


@pytest.mark.parametrize("kind", [".index.", ".log."])
def test_a_compaction_whose_files_are_gone_is_refused_before_anything_is_renamed(kind: str) -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 30)
    report = run_compaction(disk, planned(log), BUDGET)
    disk.remove(next(path for path in reversed(cleaned_files(disk)) if kind in path))
    before = disk.files()
    with pytest.raises(CompactionOutdated):
        log.install_compaction(report, NOW_MS)
    assert disk.files() == before
    assert committed_records(log) == history


def test_a_file_that_became_shorter_makes_the_compaction_outdated_and_a_broken_one_is_damage() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    fill(log, 30)
    plan = planned(log)
    path = f"{DIRECTORY}/{file_name(plan.segments[0].base_offset, LOG_SUFFIX)}"
    disk.flip_bit(path, 8 * (plan.segments[0].size - 1))
    with pytest.raises(LogDamaged):
        run_compaction(disk, plan, BUDGET)
    disk.open(path).truncate(plan.segments[0].size - 1)
    with pytest.raises(CompactionOutdated):
        run_compaction(disk, plan, BUDGET)


def with_transaction_indexes_lost(disk: FaultyDisk) -> tuple[PartitionLog, list[Written]]:
    log = open_log(disk)
    history = fill(log, 30, transactions=True)
    log.roll()
    log.close()
    for path in [path for path in disk.files() if path.endswith(transaction_index.SUFFIX)]:
        disk.remove(path)
    return open_log(disk), history


def test_transaction_indexes_that_are_lost_are_made_again_by_the_compaction() -> None:
    log, history = with_transaction_indexes_lost(FaultyDisk())
    compacted(log)
    assert newest(committed_records(log)) == newest(history)


def test_damage_that_a_compaction_meets_is_told_and_a_cut_is_not_taken_for_it() -> None:
    disk = FaultyDisk()
    log, _ = with_transaction_indexes_lost(disk)
    plan = planned(log)
    path = f"{DIRECTORY}/{file_name(0, LOG_SUFFIX)}"
    disk.flip_bit(path, 8 * (plan.segments[0].size - 1))
    with pytest.raises(LogDamaged):
        run_compaction(disk, plan, BUDGET)
    disk.open(path).truncate(plan.segments[0].size - 1)
    with pytest.raises(CompactionOutdated):
        run_compaction(disk, plan, BUDGET)


def test_an_abort_whose_marker_lies_behind_the_limit_counts() -> None:
    log = open_log(FaultyDisk(), {"segment.bytes": 100_000})
    history = write(log, [(b"k", b"good")])
    data = encode_batch(
        [b"never"], keys=[b"k"], timestamps=NOW_MS, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True
    )
    log.append_as_leader(data, EPOCH, NOW_MS)
    log.roll()
    log.append_as_leader(encode_marker(Marker(MarkerType.ABORT, 0), 9, 0, NOW_MS), EPOCH, NOW_MS, control=True)
    log.advance_high_watermark(log.log_end_offset)
    compacted(log)
    assert newest(committed_records(log)) == newest(history)


# --- two compactions of one log, installation in steps ----------------------------------------------------------------


def test_a_late_compaction_of_an_earlier_opening_harms_no_newer_one() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 30)
    log.roll()
    stale = planned(log)
    log.close()
    again = open_log(disk)
    plan = planned(again)
    report = run_compaction(disk, plan, BUDGET)
    run_compaction(disk, stale, BUDGET)
    disk.fail_next("open", ".log", DiskFull("No space."))
    with pytest.raises(DiskFull):
        run_compaction(disk, stale, BUDGET)  # and what it removes of its own is not the other's
    again.install_compaction(report, NOW_MS)
    assert newest(committed_records(again)) == newest(history)
    again.close()
    assert newest(committed_records(open_log(disk))) == newest(history)
    assert not cleaned_files(disk)


def test_a_compaction_that_nobody_wants_any_more_stops_and_leaves_nothing() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    fill(log, 60)
    before = disk.files()
    answers = iter([True] * 70)
    with pytest.raises(CompactionAbandoned):
        run_compaction(disk, planned(log), BUDGET, lambda: next(answers, False))
    assert disk.files() == before


def test_drafts_do_not_keep_a_topic_of_the_same_name_from_being_created() -> None:
    disk = FaultyDisk()
    disk.make_directory(DIRECTORY)
    disk.write_file(f"{DIRECTORY}/00000000000000000000.log.ab12.cleaned", b"late")
    log = open_log(disk)
    assert log.log_end_offset == 0
    assert not cleaned_files(disk)


@pytest.mark.parametrize("steps", range(8))
@pytest.mark.parametrize("ending", ["cut", "restart", "close", "crash", "power cut", "go on"])
def test_an_installation_in_steps_may_be_overtaken_at_each(steps: int, ending: str) -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    history = fill(log, 40, transactions=True)
    log.roll()
    log.flush()
    log.checkpoint()
    report = run_compaction(disk, planned(log), BUDGET)
    assert len(report.replaced) > 2
    installation = log.plan_installation(report, NOW_MS)
    for _ in range(steps):
        assert installation.apply() is installation
        assert newest(committed_records(log)) == newest(history)
        installation.work()
    end = log.log_end_offset
    if ending == "cut":
        end = log.truncate_to(report.replaced[0][1] - 1, NOW_MS)
    elif ending == "restart":
        log.restart_at(5)
        history, end = [], 5
    elif ending == "go on":
        history += write(log, [(b"new", b"v")])
        while installation.apply() is not None:
            installation.work()
        end = log.log_end_offset
    if ending in ("cut", "restart"):
        with pytest.raises(CompactionOutdated):
            installation.apply()
    elif ending == "close":
        log.close()
        with pytest.raises(LogOffline):
            installation.apply()
    if ending == "power cut":
        disk.crash_machine(random.Random(steps))
    elif ending != "close":
        disk.crash_process()
    again = open_log(disk)
    assert again.log_end_offset == end
    below = [record for record in history if record.offset < end]
    found = committed_records(again)
    assert set(found) <= set(below)
    if ending != "cut":  # what was compacted for a newer value that is cut now is gone
        assert newest(found) == newest(below)


def begun_installation(disk: FaultyDisk) -> tuple[PartitionLog, Installation, list[Written]]:
    """A log with a first segment that is half in place."""
    log = open_log(disk)
    history = fill(log, 40)
    installation = log.plan_installation(run_compaction(disk, planned(log), BUDGET), NOW_MS)
    assert installation.apply() is installation
    installation.work()
    return log, installation, history


def test_what_settles_an_installation_begins_no_other_segment() -> None:
    disk = FaultyDisk()
    log, installation, history = begun_installation(disk)
    remove_drafts(log.directory)  # as whoever asked for the compaction does, when it has lost it
    log.settle()
    with pytest.raises(CompactionOutdated):
        installation.apply()
    assert newest(committed_records(log)) == newest(history)
    log.close()
    assert newest(committed_records(open_log(disk))) == newest(history)


def test_a_segment_that_stays_half_in_place_keeps_the_log_from_closing_cleanly() -> None:
    disk = FaultyDisk()
    log, installation, _ = begun_installation(disk)
    half = [name for name in disk.list_directory(DIRECTORY) if name.endswith(".swap")]
    for name in half:
        disk.remove(f"{DIRECTORY}/{name}")
    with pytest.raises(FileNotFoundError):
        installation.apply()
    with pytest.raises(DiskFailed, match="half in place"):
        log.close()
    assert not disk.exists(f"{DIRECTORY}/clean-shutdown")


def test_progress_that_a_cut_has_overtaken_stays_unwritten() -> None:
    log = open_log(FaultyDisk())
    fill(log, 30)
    report = run_compaction(log.disk, planned(log), BUDGET)
    installation = log.plan_installation(report, NOW_MS)
    installation.run()
    log.restart_at(3)
    installation._save_progress()
    assert CompactionProgress.load(log.disk, DIRECTORY).cleaned_to <= 3


def test_a_compaction_that_fails_late_leaves_no_files() -> None:
    disk = FaultyDisk()
    log = open_log(disk)
    fill(log, 60)
    before = disk.files()
    plan = planned(log)
    last = file_name(plan.segments[-1].base_offset, LOG_SUFFIX)

    def fail_last(operation: str, path: str) -> None:
        if operation == "open" and path.endswith(last) and cleaned_files(disk):
            raise DiskFull("No space.")

    disk.on_operation = fail_last
    with pytest.raises(DiskFull):
        run_compaction(disk, plan, BUDGET)
    assert disk.files() == before


def test_a_commit_ends_what_an_abort_without_a_marker_left_open() -> None:
    transactions = TransactionFilter([AbortedTransaction(9, 0, 100, 0)])
    data = read_header(
        encode_batch([b"v"], timestamps=0, producer_id=9, producer_epoch=0, base_sequence=0, transactional=True)
    )
    assert transactions.is_aborted(data)
    assert transactions.ends(data, Marker(MarkerType.COMMIT, 1)) == (True, None)
    assert not transactions.is_aborted(data)


def test_memory_that_others_have_just_now_can_be_waited_for() -> None:
    log = open_log(FaultyDisk(), {"segment.bytes": 200_000})
    write(log, [(b"key-%d" % at, b"v") for at in range(3000)])
    log.roll()
    budget = MemoryBudget(bytes_for(4000))
    with budget.grant(bytes_for(2000), 0), pytest.raises(CompactionMemoryTaken) as taken:
        compact(log, NOW_MS, budget, force=True)
    assert taken.value.retriable
    assert compact(log, NOW_MS, budget, force=True) is not None
    assert not CompactionMemoryTooSmall.retriable

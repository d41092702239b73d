"""The history of leader epochs: rules 8 to 10."""

from __future__ import annotations

import random

import pytest

from raylog.errors import DiskFull, LogDamaged, StaleLeaderEpoch
from raylog.storage.disk.checkpoints import write_checkpoint
from raylog.storage.format.record_batch import MAX_OFFSET, NO_LEADER_EPOCH, read_header, split_batches, stamp
from raylog.storage.log.reader import Isolation
from raylog.storage.segment.leader_epochs import FILE_NAME, EpochStart, LeaderEpochs
from tests.simulator.world.faulty_disk import FaultyDisk, crash_points
from tests.unit.storage.small_log import (
    DIRECTORY,
    NOW_MS,
    append,
    batch,
    contents,
    new_disk,
    new_log,
    open_log,
    refused,
)

FOLDER = "/data"


def epochs(*history: tuple[int, int]) -> LeaderEpochs:
    made = LeaderEpochs(new_disk(), FOLDER)
    for epoch, start in history:
        made.assign(epoch, start)
    return made


# --- rule 8: epochs and their starts strictly increase, and are on disk before the first batch ------------------------


def test_epochs_and_their_starts_strictly_increase() -> None:
    history = epochs((1, 0), (4, 10), (5, 20))
    assert history.history == ((1, 0), (4, 10), (5, 20))
    assert history.latest == 5
    for older in (4, 3, 1, 0):
        with pytest.raises(StaleLeaderEpoch):
            history.assign(older, 30)
    history.assign(5, 30)  # again: nothing new
    assert history.history == ((1, 0), (4, 10), (5, 20))


def test_an_epoch_that_wrote_nothing_gives_way_to_its_successor() -> None:
    assert epochs((1, 0), (2, 10), (3, 10), (7, 10)).history == ((1, 0), (7, 10))


def test_no_epoch_is_before_the_first() -> None:
    assert epochs().latest == NO_LEADER_EPOCH
    assert epochs((0, 0)).latest == 0


def test_what_was_written_ahead_is_not_written_again() -> None:
    history = epochs((1, 0))
    write = history.write_ahead(2, 10)
    assert history.latest == 1
    write.carry_out()
    writes = history._writes
    history.assign(2, 10)
    assert history.history == ((1, 0), (2, 10))
    assert history._writes == writes


@pytest.mark.parametrize("came_instead", ["nothing yet", "another offset", "another epoch", "a cut"])
def test_what_was_written_ahead_and_is_not_so_is_written_anew(came_instead: str) -> None:
    disk = new_disk()
    history = LeaderEpochs(disk, FOLDER)
    history.assign(1, 0)
    write = history.write_ahead(2, 10)
    if came_instead == "a cut":
        history.assign(2, 5)
        history.cut_end(5)
    if came_instead != "nothing yet":
        write.carry_out()
    history.assign(3 if came_instead == "another epoch" else 2, 8 if came_instead == "another offset" else 10)
    assert LeaderEpochs.load(disk, FOLDER).history == history.history


def test_an_epoch_that_did_not_come_is_taken_back_before_other_batches_are_appended() -> None:
    disk = new_disk()
    history = LeaderEpochs(disk, FOLDER)
    history.assign(1, 0)
    history.write_ahead(2, 10).carry_out()
    assert LeaderEpochs.load(disk, FOLDER).latest == 2
    history.take_back()
    assert LeaderEpochs.load(disk, FOLDER).history == ((1, 0),)
    writes = history._writes
    history.take_back()
    assert history._writes == writes


def test_an_epoch_without_a_record_goes_from_the_disk_with_the_next_append() -> None:
    """A thousand replicas that led, and follow another one now, wait for no disk (rule 35)."""
    log, disk = new_log()
    append(log, b"v")
    epoch = log.epochs.latest
    log.begin_epoch(epoch + 1)
    writes = log.epochs._writes
    log.truncate_to(log.log_end_offset, NOW_MS)
    assert (log.epochs.latest, log.epochs._writes) == (epoch, writes)
    job = log.plan_followed_epoch(sent(1, epoch))
    assert job.has_work
    job.run()
    writes = log.epochs._writes
    log.append_as_follower(sent(1, epoch), NOW_MS)
    assert log.epochs._writes == writes  # it was written beside the loop
    assert LeaderEpochs.load(disk, DIRECTORY).history == log.epochs.history
    assert not log.epochs.is_stale


def test_a_crash_before_that_finds_the_log_without_the_epoch() -> None:
    log, disk = new_log()
    append(log, b"v")
    epoch = log.epochs.latest
    log.flush()
    log.begin_epoch(epoch + 1)
    log.truncate_to(log.log_end_offset, NOW_MS)
    disk.crash_machine(random.Random(1))
    assert open_log(disk).epochs.latest == epoch


def test_a_pair_is_on_disk_when_it_is_assigned() -> None:
    disk = new_disk()
    history = LeaderEpochs(disk, FOLDER)
    history.assign(3, 5)
    assert LeaderEpochs.load(disk, FOLDER).history == ((3, 5),)


def test_what_cannot_be_written_is_not_assigned() -> None:
    disk = new_disk()
    history = LeaderEpochs(disk, FOLDER)
    history.assign(1, 0)
    disk.capacity = disk.used_bytes()
    with pytest.raises(DiskFull):
        history.assign(2, 10)
    assert (history.latest, history.history) == (1, ((1, 0),))
    disk.capacity = None
    history.assign(2, 10)
    assert LeaderEpochs.load(disk, FOLDER).history == ((1, 0), (2, 10))


def test_an_assignment_killed_anywhere_leaves_the_old_history_or_the_new_one() -> None:
    start = new_disk()
    LeaderEpochs(start, FOLDER).assign(1, 0)

    def assign(disk: FaultyDisk) -> None:
        LeaderEpochs.load(disk, FOLDER).assign(2, 10)

    found = {LeaderEpochs.load(point.disk, FOLDER).history for point in crash_points(start, assign)}
    assert found == {((1, 0),), ((1, 0), (2, 10))}


@pytest.mark.parametrize("history", [[[2, 0], [1, 5]], [[1, 0], [1, 5]], [[1, 5], [2, 5]], [[1, 5], [2, 4]]])
def test_a_history_that_does_not_increase_is_damage(history: list[list[int]]) -> None:
    disk = new_disk()
    write_checkpoint(disk, f"{FOLDER}/{FILE_NAME}", 1, {"epochs": history})
    with pytest.raises(LogDamaged):
        LeaderEpochs.load(disk, FOLDER)


# --- rule 10: (largest epoch ≤ asked, its end) ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("asked", "answer"),
    [
        (0, (0, 5)),  # older than all: it ends where the history begins
        (1, (1, 10)),
        (2, (1, 10)),  # unknown here: the largest one before it
        (3, (1, 10)),
        (4, (4, 20)),
        (5, (5, 33)),  # the latest one ends where the log does
        (9, (5, 33)),
    ],
)
def test_the_end_of_an_epoch_is_where_the_next_one_begins(asked: int, answer: tuple[int, int]) -> None:
    assert epochs((1, 5), (4, 10), (5, 20)).end_offset_for(asked, 33) == answer


def test_an_empty_history_ends_where_the_log_does() -> None:
    assert epochs().end_offset_for(3, 17) == (3, 17)


@pytest.mark.parametrize(
    ("offset", "span"),
    [
        (4, (NO_LEADER_EPOCH, 5)),
        (5, (1, 10)),
        (9, (1, 10)),
        (10, (4, 20)),
        (20, (5, MAX_OFFSET)),
        (10**9, (5, MAX_OFFSET)),
    ],
)
def test_the_epoch_that_wrote_an_offset(offset: int, span: tuple[int, int]) -> None:
    assert epochs((1, 5), (4, 10), (5, 20)).span_at(offset) == span


# --- cutting ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("end", "left"),
    [
        (50, [(1, 5), (4, 10), (5, 20)]),
        (21, [(1, 5), (4, 10), (5, 20)]),
        (20, [(1, 5), (4, 10)]),
        (11, [(1, 5), (4, 10)]),
        (10, [(1, 5)]),
        (5, []),
        (0, []),
    ],
)
def test_cutting_the_end_forgets_the_epochs_that_begin_there_or_later(end: int, left: list[EpochStart]) -> None:
    history = epochs((1, 5), (4, 10), (5, 20))
    history.cut_end(end)
    assert list(history.history) == left


@pytest.mark.parametrize(
    ("start", "left"),
    [
        (0, [(1, 5), (4, 10), (5, 20)]),
        (9, [(1, 5), (4, 10), (5, 20)]),
        (10, [(4, 10), (5, 20)]),
        (15, [(4, 10), (5, 20)]),
        (20, [(5, 20)]),
        (99, [(5, 20)]),
    ],
)
def test_cutting_the_start_forgets_the_epochs_that_ended_before_it(start: int, left: list[EpochStart]) -> None:
    history = epochs((1, 5), (4, 10), (5, 20))
    history.cut_start(start)
    assert list(history.history) == left


# --- in a log ---------------------------------------------------------------------------------------------------------


def test_a_follower_learns_the_epochs_from_the_batches() -> None:
    leader, _ = new_log()
    for epoch in (3, 5, 9):
        leader.begin_epoch(epoch)
        append(leader, b"one")
        append(leader, b"two", b"three")
    follower = open_log(new_disk())
    follower.append_as_follower(leader.read(0, 10_000, Isolation.LOG_END).data, NOW_MS)
    assert follower.epochs.history == leader.epochs.history == ((3, 0), (5, 3), (9, 6))


def test_a_follower_truncates_to_where_the_histories_part() -> None:
    """KIP-279: it asks about its latest epoch, cuts, and asks again until both agree."""
    leader, _ = new_log()
    follower = open_log(new_disk())
    append(leader, b"shared", b"shared")
    follower.append_as_follower(contents(leader)[0], NOW_MS)
    for epoch in (4, 6):  # led by the follower, seen by nobody else
        data = batch(b"lost")
        stamp(data, follower.log_end_offset, epoch)
        follower.append_as_follower(data, NOW_MS)
    for epoch in (5, 7):
        leader.begin_epoch(epoch)
        append(leader, b"kept", b"kept")
    while True:
        asked = follower.epochs.latest
        answer = leader.epochs.end_offset_for(asked, leader.log_end_offset)
        if answer.epoch == asked and follower.log_end_offset <= answer.start_offset:
            break
        own = follower.epochs.end_offset_for(answer.epoch, follower.log_end_offset)
        follower.truncate_to(min(answer.start_offset, own.start_offset), NOW_MS)
    assert follower.log_end_offset == 2
    follower.append_as_follower(leader.read(2, 10_000, Isolation.LOG_END).data, NOW_MS)
    assert contents(follower) == contents(leader)
    assert follower.epochs.history == leader.epochs.history


def test_an_epoch_is_durable_before_its_first_batch() -> None:
    log, disk = new_log()
    append(log, b"of epoch 3")
    disk.capacity = disk.used_bytes() + 10
    with refused(log, disk, DiskFull):
        log.begin_epoch(4)
    disk.capacity = None
    log.begin_epoch(4)
    append(log, b"of epoch 4")
    disk.crash_process()
    assert open_log(disk).epochs.history == ((3, 0), (4, 1))


def test_the_history_is_made_again_from_the_batches() -> None:
    log, disk = new_log({"segment.bytes": 300})
    for epoch in (4, 8):
        log.begin_epoch(epoch)
        for _ in range(5):
            append(log, b"x" * 60)
    expected = log.epochs.history
    for file in ("missing", "damaged"):
        broken = disk.clone()
        broken.crash_process()
        if file == "missing":
            broken.remove(f"{DIRECTORY}/{FILE_NAME}")
        else:
            broken.flip_bit(f"{DIRECTORY}/{FILE_NAME}", 77)
        again = open_log(broken, {"segment.bytes": 300})
        assert again.epochs.history == expected
        assert contents(again) == contents(log)


def test_a_batch_whose_epoch_was_changed_on_disk_is_not_served() -> None:
    """The epoch is not under the CRC: the history is what it is held against."""
    log, disk = new_log()
    append(log, b"one")
    append(log, b"two")
    second = len(contents(log)[0])
    file = disk.open(f"{DIRECTORY}/{0:020d}.log")
    file.write_at(b"\0\0\0\x02", second + 12)
    first = log.read(0, 1, Isolation.LOG_END).data
    assert read_header(first).leader_epoch == 3
    with pytest.raises(LogDamaged, match="epoch 2 where epoch 3"):
        log.read(1, 10_000, Isolation.LOG_END)


def test_deleting_records_inside_a_segment_keeps_the_batches_before_readable_for_recovery() -> None:
    """The start may lie inside a batch, whose epoch is checked like any other."""
    log, disk = new_log()
    append(log, b"one")
    log.begin_epoch(5)
    append(log, *[b"many"] * 10)
    log.begin_epoch(6)
    append(log, b"last")
    log.advance_high_watermark(log.log_end_offset)
    log.delete_records(7)
    assert log.epochs.history == ((5, 1), (6, 11))
    for ends_cleanly in (False, True, False):
        found = split_batches(log.read(7, 10_000, Isolation.LOG_END).data)
        assert [read_header(each).base_offset for each in found] == [1, 11]
        if ends_cleanly:
            log.close()
        else:
            disk.crash_process()
        log = open_log(disk)
        assert log.epochs.history == ((5, 1), (6, 11))


# --- of what a leader sends -------------------------------------------------------------------------------------------


def sent(offset: int, epoch: int) -> bytearray:
    data = bytearray(batch(b"v"))
    stamp(data, offset, epoch)
    return data


def test_a_followed_epoch_is_on_disk_before_its_first_batch_comes() -> None:
    log, disk = new_log()
    append(log, b"v")
    epoch = log.epochs.latest + 1
    job = log.plan_followed_epoch(sent(1, epoch))
    assert job.has_work
    job.run()
    assert log.epochs.latest < epoch
    writes = log.epochs._writes
    log.append_as_follower(sent(1, epoch), NOW_MS)
    assert log.epochs.latest == epoch
    assert log.epochs._writes == writes
    assert LeaderEpochs.load(disk, DIRECTORY).history == log.epochs.history
    assert not log.plan_followed_epoch(sent(2, epoch)).has_work


def test_batches_of_the_epoch_before_take_back_what_was_written_ahead() -> None:
    """A leader may be chosen that lacks the epoch in between."""
    log, disk = new_log()
    append(log, b"v")
    epoch = log.epochs.latest
    log.plan_followed_epoch(sent(1, epoch + 1)).run()
    log.append_as_follower(sent(1, epoch), NOW_MS)
    log.append_as_follower(sent(2, epoch), NOW_MS)
    disk.crash_machine(random.Random(1))
    assert [start.epoch for start in LeaderEpochs.load(disk, DIRECTORY).history] == [epoch]


@pytest.mark.parametrize("data", [b"", b"short", bytes(61)])
def test_what_is_no_batch_of_a_new_epoch_is_left_to_the_append(data: bytes) -> None:
    log, _ = new_log()
    append(log, b"v")
    assert not log.plan_followed_epoch(data).has_work

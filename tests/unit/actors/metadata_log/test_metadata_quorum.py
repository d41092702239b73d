"""Each decision of the quorum, and the log in memory that they are about."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.metadata_log.rules.quorum import (
    CommitRule,
    PromisedLog,
    choose_in_doubt,
    choose_log,
    common_end,
    is_majority,
    is_snapshot_due,
    may_form,
    next_controller_epoch,
    next_voters,
)
from raylog.actors.metadata_log.rules.tail import (
    LogTail,
    MetadataSnapshot,
    StoredBatch,
    decode_batches,
    decode_change,
    decode_state,
    encode_change,
    encode_state,
)
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voters
from raylog.config import MIB
from raylog.errors import (
    CorruptBatch,
    InvalidBatch,
    MetadataRecordUnknown,
    OffsetOutOfRange,
    OffsetsNotContiguous,
    StaleLeaderEpoch,
)
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.record_batch import stamp
from tests.unit.actors.metadata_world import Note, named, voter_of

ABC = (1, 2, 3)


def log(broker_id: int, epoch: int, end: int, voters: tuple[int, ...] = ABC) -> PromisedLog:
    return PromisedLog(*voter_of(broker_id), epoch, 0, end, named(*voters))


def forgetful(broker_id: int, epoch: int, end: int, voters: tuple[int, ...] = ABC) -> PromisedLog:
    return log(broker_id, epoch, end, voters)._replace(is_unproven=True)


def chosen_in_doubt(*promised: PromisedLog) -> int | None:
    best = choose_in_doubt(promised)
    return best.broker_id if best is not None else None


def chosen(*promised: PromisedLog) -> int | None:
    best = choose_log(promised)
    return best.broker_id if best is not None else None


# --- taking over --------------------------------------------------------------------------------------------------


def test_an_epoch_is_above_all_that_were_seen() -> None:
    assert next_controller_epoch([]) == 1
    assert next_controller_epoch([-1]) == 1
    assert next_controller_epoch([4, 9, -1]) == 10


def test_a_majority_is_more_than_half_of_the_voters_whoever_else_is_there() -> None:
    assert is_majority(named(1, 2, 9), named(*ABC))
    assert not is_majority(named(1, 8, 9), named(*ABC))
    assert not is_majority(named(1, 2), named(1, 2, 3, 4))
    assert not is_majority(named(1), ())


def test_the_newest_log_is_the_one_with_the_highest_last_epoch_then_the_longest() -> None:
    assert chosen(log(1, 4, 100), log(2, 5, 10)) == 2
    assert chosen(log(1, 5, 12), log(2, 5, 10), log(3, 4, 90)) == 1
    assert chosen(log(1, 5, 12), log(2, 5, 12)) == 1


def test_a_voter_whose_disk_was_replaced_stands_behind_no_log() -> None:
    replaced = PromisedLog(2, "a blank disk", -1, 0, 0, ())
    assert chosen(log(1, 4, 9), replaced) is None
    assert chosen(log(1, 4, 9), log(2, -1, 0, ())) == 1
    assert chosen(log(1, 4, 9), replaced, log(3, 4, 7)) == 1


def test_a_minority_of_the_voters_has_nothing_to_adopt() -> None:
    assert chosen(log(1, 4, 100), log(8, 4, 100), log(9, 4, 100)) is None
    assert chosen(log(1, -1, 0, ()), log(2, -1, 0, ())) is None
    assert chosen() is None


def test_the_newest_log_names_the_voters() -> None:
    old, new = ABC, (1, 2, 3, 4)
    assert chosen(log(1, 4, 9, old), log(2, 4, 10, new), log(3, 4, 9, old)) == 2
    assert chosen(log(1, 4, 11, (1,)), log(2, 4, 10, ABC)) == 1


def test_an_observer_may_have_the_newest_log() -> None:
    assert chosen(log(1, 4, 9), log(2, 4, 9), log(9, 4, 10)) == 9


def test_a_newer_log_whose_own_voters_are_missing_does_not_stand_in_the_way() -> None:
    assert chosen(log(1, 4, 9, ABC), log(2, 4, 9, ABC), log(9, 4, 10, (1, 2, 3, 4))) == 1


def test_a_voter_that_may_have_forgotten_its_end_stands_behind_no_log() -> None:
    assert chosen(log(1, 4, 9), forgetful(2, 4, 7)) is None
    assert chosen(log(1, 4, 9), forgetful(2, 4, 9)) is None
    assert chosen(log(1, 4, 9), forgetful(2, 4, 7), log(3, 4, 8)) == 1
    assert chosen(log(1, 4, 9), log(3, 4, 8), forgetful(2, 4, 10)) == 2  # what it still has is as good as anybody's


def test_the_newest_log_is_taken_in_doubt_when_all_its_voters_have_promised() -> None:
    assert chosen_in_doubt(forgetful(1, 4, 9), forgetful(2, 4, 7), log(3, 4, 8)) == 1
    assert chosen_in_doubt(forgetful(1, 4, 9, (1,))) == 1
    assert chosen_in_doubt(forgetful(1, 4, 9), forgetful(2, 4, 7)) is None
    assert chosen_in_doubt(log(8, -1, 0, ())) is None
    assert chosen_in_doubt() is None


def test_a_log_is_not_taken_in_doubt_while_voters_of_a_newer_one_are_missing() -> None:
    older, newer = forgetful(1, 4, 9, (1,)), forgetful(2, 4, 10, (1, 2, 3))
    assert chosen_in_doubt(older, newer) is None
    assert chosen_in_doubt(older, newer, log(3, 4, 8)) == 2


def test_a_cluster_is_formed_on_blank_brokers_only() -> None:
    blank = [log(each, -1, 0, ()) for each in ABC]
    assert may_form(blank, ABC)
    assert not may_form(blank[:2], ABC)
    assert not may_form([*blank, log(9, 1, 3)], ABC)


# --- committing ---------------------------------------------------------------------------------------------------


def test_a_batch_counts_when_a_majority_has_synced_it() -> None:
    rule = CommitRule(named(*ABC), 0, 0)
    assert not rule.synced(voter_of(1), 5)
    assert not rule.synced(voter_of(9), 5)
    assert rule.synced(voter_of(2), 3)
    assert rule.committed == 3
    assert rule.synced(voter_of(3), 9)
    assert rule.committed == 5


def test_an_older_batch_is_committed_only_by_one_of_the_own_epoch() -> None:
    rule = CommitRule(named(*ABC), 2, own_offset=10)
    for broker_id in ABC:
        assert not rule.synced(voter_of(broker_id), 10)
    assert rule.committed == 2
    assert not rule.synced(voter_of(1), 11)
    assert rule.synced(voter_of(2), 11)
    assert rule.committed == 11


def test_what_a_broker_has_said_over_an_earlier_stream_commits_nothing_more() -> None:
    rule = CommitRule(named(*ABC), 0, 0)
    rule.synced(voter_of(3), 10)
    rule.forget(3)
    assert not rule.synced(voter_of(1), 10)
    assert rule.synced(voter_of(3), 9)
    assert rule.committed == 9


def test_a_committed_offset_never_goes_back() -> None:
    rule = CommitRule(named(*ABC), 0, 0)
    rule.synced(voter_of(1), 5)
    rule.synced(voter_of(2), 5)
    assert not rule.synced(voter_of(1), 3)
    rule.change_voters(named(1, 2, 3, 4), 6)
    assert not rule.synced(voter_of(3), 4)
    assert rule.committed == 5


def test_a_new_voter_counts_from_the_batch_that_names_it() -> None:
    rule = CommitRule(named(1), 0, 0)
    rule.synced(voter_of(2), 8)  # in memory: it is no voter yet
    rule.change_voters(named(1, 2), 10)
    assert not rule.synced(voter_of(1), 10)
    assert not rule.synced(voter_of(2), 9)
    assert rule.synced(voter_of(2), 10)
    assert rule.committed == 10


def test_a_voter_whose_disk_was_replaced_does_not_count_before_it_is_named_anew() -> None:
    rule = CommitRule(named(*ABC), 0, 0)
    rule.synced(voter_of(1), 5)
    assert not rule.synced((2, "a blank disk"), 5)
    rule.change_voters(named(1, 3), 6)
    rule.synced(voter_of(3), 6)
    rule.synced(voter_of(1), 7)
    rule.change_voters((*named(1, 3), (2, "a blank disk")), 7)
    assert rule.synced((2, "a blank disk"), 7)
    assert rule.committed == 7


def test_changed_voters_are_in_force_at_once() -> None:
    rule = CommitRule(named(*ABC), 0, 0)
    rule.change_voters(named(1, 2, 3, 4), 5)
    rule.synced(voter_of(1), 5)
    assert not rule.synced(voter_of(2), 5)
    assert rule.synced(voter_of(3), 5)
    assert rule.voters == named(1, 2, 3, 4)


# --- changing the voters ------------------------------------------------------------------------------------------


def step(current: Collection[int], wanted: Collection[int], ready: Collection[int]) -> tuple[int, ...] | None:
    following = next_voters(named(*current), named(*wanted), named(*ready))
    return None if following is None else tuple(broker_id for broker_id, _ in following)


def test_a_newcomer_that_is_up_to_date_joins_before_anybody_leaves() -> None:
    assert step(ABC, (1, 2, 4), {1, 2, 3, 4}) == (1, 2, 3, 4)
    assert step((1, 2, 3, 4), (1, 2, 4), {1, 2, 3, 4}) == (1, 2, 4)


def test_nobody_joins_before_it_is_up_to_date_and_nobody_who_is_needed_leaves_before() -> None:
    assert step(ABC, (1, 2, 4), {1, 2, 3}) is None


def test_a_lost_voter_leaves_without_waiting_for_its_successor() -> None:
    assert step(ABC, (1, 2, 4), {1, 2}) == (1, 2)


def test_no_step_leaves_a_set_without_a_majority() -> None:
    assert step(ABC, (2, 3), {1, 2}) is None
    assert step((1, 2), (1,), {1}) == (1,)
    assert step((1, 2), (2,), {1}) is None


def test_there_is_no_step_from_a_set_to_itself() -> None:
    assert step(ABC, (3, 2, 1), set(ABC)) is None


def test_a_voter_on_another_disk_joins_when_its_former_self_has_left() -> None:
    former, now = (*named(1, 2), (3, "a disk that is gone")), named(1, 2, 3)
    assert next_voters(former, now, set(now)) == named(1, 2)
    assert next_voters(named(1, 2), now, set(now)) == now
    assert next_voters(former, now, set(named(1, 3))) is None  # 2 is needed


_sets = st.sets(st.integers(0, 6), min_size=1, max_size=5)


@given(_sets, _sets)
def test_with_all_brokers_up_every_set_is_reached_one_member_at_a_time(current: set[int], wanted: set[int]) -> None:
    voters, steps = named(*current), 0
    while (following := next_voters(voters, named(*wanted), named(*range(7)))) is not None:
        assert len(set(following) ^ set(voters)) == 1
        voters, steps = following, steps + 1
    assert voters == named(*wanted)
    assert steps == len(current ^ wanted)


# --- the log in memory --------------------------------------------------------------------------------------------


def batch(base: int, epoch: int, *records: Message) -> StoredBatch:
    return StoredBatch.decode(encode_change(records or [Note(f"{epoch} {base}")], base, epoch, 0))


def tail_of(*epochs: int, snapshot: MetadataSnapshot | None = None) -> LogTail:
    """A log with a batch of one record in each of these epochs."""
    tail = LogTail() if snapshot is None else LogTail(snapshot)
    for epoch in epochs:
        tail.append([batch(tail.end_offset, epoch)])
    return tail


def snapshot_at(version: int, epoch: int, *records: Message) -> MetadataSnapshot:
    return MetadataSnapshot.decode(version, epoch, encode_state(records, epoch, 0))


def test_batches_join_on_and_epochs_do_not_fall() -> None:
    tail = tail_of(1, 2)
    with pytest.raises(OffsetsNotContiguous):
        tail.append([batch(3, 2)])
    with pytest.raises(StaleLeaderEpoch):
        tail.append([batch(2, 2), batch(3, 1)])
    assert (tail.start_offset, tail.end_offset, tail.last_epoch) == (0, 2, 2)


def test_the_epoch_before_an_offset_is_known_where_batches_meet() -> None:
    tail = LogTail(snapshot_at(10, 3))
    tail.append([batch(10, 4, Note("a"), Note("b")), batch(12, 5)])
    assert [tail.epoch_before(offset) for offset in (9, 10, 11, 12, 13, 14)] == [None, 3, None, 4, 5, None]
    assert [tail.boundary_before(offset) for offset in (9, 10, 11, 12, 13, 99)] == [None, 10, 10, 12, 13, 13]
    with pytest.raises(OffsetOutOfRange):
        tail.batches_from(11)


def test_voters_are_those_last_named() -> None:
    tail = LogTail(snapshot_at(5, 1, Voters(named(1)), Note("state")))
    tail.append([batch(5, 2, ControllerStarted(2)), batch(6, 2, Voters(named(1, 2)))])
    assert (tail.voters, tail.voters_offset, tail.voters_at(6)) == (named(1, 2), 7, named(1))
    tail.truncate_to(6)
    assert (tail.voters, tail.voters_offset) == (named(1), 5)
    assert LogTail().voters == ()


def test_a_snapshot_keeps_what_joins_on_to_it_and_nothing_else() -> None:
    tail = tail_of(1, 1, 2)
    tail.replace_start(snapshot_at(2, 1))
    assert (tail.start_offset, tail.end_offset) == (2, 3)
    tail = tail_of(1, 1, 2)
    tail.replace_start(snapshot_at(2, 7))
    assert (tail.start_offset, tail.end_offset, tail.last_epoch, tail.size_bytes) == (2, 2, 7, 0)


def test_reading_stops_at_the_limit_but_gives_one_batch_at_least() -> None:
    tail = tail_of(1, 1, 1)
    size = tail.size_bytes // 3
    assert [tail.read(0, limit)[1] for limit in (0, size, 2 * size, 9 * size)] == [1, 1, 2, 3]
    assert tail.read(3, 100) == (b"", 3)
    assert [stored.end_offset for stored in decode_batches(tail.read(1, 9 * size)[0])] == [2, 3]


_histories = st.lists(st.integers(1, 4), max_size=8).map(sorted)


@given(_histories, _histories, _histories)
def test_two_logs_find_where_they_part(common: Sequence[int], own: Sequence[int], other: Sequence[int]) -> None:
    """By asking as a feed does. Epochs of the two branches differ, since an epoch has one writer (rule 10)."""
    mine = tail_of(*common, *(10 * epoch for epoch in own))
    theirs = tail_of(*common, *(10 * epoch + 1 for epoch in other))
    place: int | None = mine.end_offset
    for _ in range(30):
        assert place is not None
        place = mine.boundary_before(place)
        assert place is not None
        epoch = mine.epoch_before(place)
        assert epoch is not None
        if theirs.epoch_before(place) == epoch:
            break
        answer = theirs.epoch_end(epoch)
        place = common_end(mine.epoch_end(answer[0]), answer)
    assert place == len(common)


def test_a_log_that_parts_before_ours_begins_takes_a_snapshot() -> None:
    mine = LogTail(snapshot_at(10, 5))
    assert common_end(mine.epoch_end(3), (3, 20)) is None


def test_a_snapshot_is_due_when_the_log_outgrows_the_last_one() -> None:
    assert not is_snapshot_due(MIB - 1, 0)
    assert is_snapshot_due(MIB, 0)
    assert not is_snapshot_due(3 * MIB, 4 * MIB)


# --- records as bytes ---------------------------------------------------------------------------------------------


def test_records_come_back_as_they_went() -> None:
    records = (Voters(named(*ABC)), ControllerStarted(4), Note("text"))
    assert decode_change(encode_change(records, 17, 4, 1000)) == records
    many = tuple(Note(str(number)) for number in range(25_000))
    assert decode_state(encode_state(many, 4, 0)) == many
    assert decode_state(encode_state((), 4, 0)) == ()
    with pytest.raises(InvalidBatch):
        encode_change([], 0, 1, 0)


def _change_of(value: bytes | None) -> bytes:
    data = encode_batch([value], timestamps=0)
    stamp(data, 0, 1)
    return bytes(data)


def test_a_record_of_a_newer_raylog_is_named() -> None:
    with pytest.raises(MetadataRecordUnknown, match="kind 253 in version 2 is unknown"):
        decode_change(_change_of(b"\xfd\x02\x90"))


@pytest.mark.parametrize("value", [None, b"", b"\x64", b"\x64\x01", b"\x64\x01\xc1", b"\x65\x01\x91\xa1x"])
def test_what_is_no_record_is_refused(value: bytes | None) -> None:
    with pytest.raises(InvalidBatch):
        decode_change(_change_of(value))


def test_a_flipped_bit_is_refused() -> None:
    data = bytearray(encode_change([Note("text")], 0, 1, 0))
    data[-1] ^= 1
    with pytest.raises(CorruptBatch):
        decode_change(data)

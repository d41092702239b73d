"""What becomes of a family and its members, request by request."""

from __future__ import annotations

from dataclasses import replace

import pytest

from raylog.actors.protocol.names import coordinator_hash
from raylog.actors.protocol.transaction_family_messages import EndFamily, FamilyRecord, InitFamily
from raylog.actors.protocol.transaction_messages import TransactionRecord
from raylog.actors.transactions.rules.family import (
    FOR_EVER,
    NO_BATCH,
    FamilyChange,
    end_family,
    init_family,
    is_family_expired,
    join_family,
    member_id,
    next_member,
    split_member,
)
from raylog.actors.transactions.rules.transaction import LAST_EPOCH, Phase, completed
from raylog.errors import FamilyFenced, InvalidTransactionTimeout

NAME = "counts"


class Family:
    """As a coordinator keeps it: what is decided is applied."""

    def __init__(self) -> None:
        self.record: FamilyRecord | None = None
        self.members: dict[int, TransactionRecord] = {}
        self._fresh = 100

    def init(self, holder: bytes = b"a", timeout_ms: int = 1000, now_ms: int = 10) -> FamilyChange:
        change = init_family(self.record, self.members, InitFamily(NAME, holder, timeout_ms, FOR_EVER), now_ms)
        return self._apply(change)

    def join(self, now_ms: int = 20) -> tuple[int, int, int]:
        assert self.record is not None
        self._fresh += 1
        number = next_member(self.members)[0]
        self.members[number] = joined = join_family(self.record, self.members, now_ms, self._fresh)
        assert joined.transactional_id == member_id(NAME, number)
        return number, joined.producer_id, joined.epoch

    def end(self, batch: int, *winners: tuple[int, int, int], epoch: int | None = None) -> FamilyChange:
        assert self.record is not None
        asked = EndFamily(NAME, self.record.epoch if epoch is None else epoch, batch, winners)
        return self._apply(end_family(self.record, self.members, asked, 30))

    def phases(self) -> list[Phase]:
        return [Phase(each.phase) for _, each in sorted(self.members.items())]

    def complete(self) -> None:
        for number, each in self.members.items():
            if Phase(each.phase).is_prepared:
                self.members[number] = completed(each, 40)

    def _apply(self, change: FamilyChange) -> FamilyChange:
        self.record = change.record or self.record
        for each in (*change.commits, *change.aborts):
            member = split_member(each.transactional_id)
            assert member is not None
            self.members[member[1]] = each
        return change


@pytest.fixture
def family() -> Family:
    made = Family()
    made.init()
    return made


def test_a_batch_is_committed_with_its_winners_and_all_others_are_aborted(family: Family) -> None:
    first, second, _ = family.join(), family.join(), family.join()
    change = family.end(0, first, second)
    assert change.record is not None
    assert change.record.last_batch == 0
    assert [each.transactional_id for each in change.commits] == [member_id(NAME, 0), member_id(NAME, 1)]
    assert family.phases() == [Phase.PREPARE_COMMIT, Phase.PREPARE_COMMIT, Phase.PREPARE_ABORT]
    assert all(each.epoch == each.ended_epoch + 1 == each.marker_epoch for each in family.members.values())


def test_a_batch_that_was_committed_is_not_committed_again(family: Family) -> None:
    family.end(3, family.join())
    family.complete()
    for batch in (3, 2):
        again = family.end(batch, family.join())
        assert (again.record, again.commits) == (None, ())
        assert [each.phase for each in again.aborts] == [Phase.PREPARE_ABORT]
        family.complete()


def test_where_one_winner_is_not_open_any_more_none_counts(family: Family) -> None:
    gone, other = family.join(), family.join()
    family.members[gone[0]] = replace(family.members[gone[0]], phase=int(Phase.PREPARE_ABORT), epoch=gone[2] + 1)
    change = family.end(0, gone, other)
    assert (change.record, change.commits) == (None, ())
    assert family.phases() == [Phase.PREPARE_ABORT, Phase.PREPARE_ABORT]
    assert family.end(0, (7, 1, 0)).record is None, "nobody's number"


def test_an_abort_ends_all_and_leaves_the_batches_alone(family: Family) -> None:
    family.end(0, family.join())
    family.join()
    change = family.end(NO_BATCH)
    assert (change.record, change.commits, len(change.aborts)) == (None, (), 1)


def test_a_new_driver_aborts_what_the_one_before_has_left_and_fences_it(family: Family) -> None:
    family.end(4, family.join())
    family.complete()
    left = family.join()
    before = family.record
    assert before is not None
    change = family.init(b"b")
    assert change.record is not None
    assert change.record.last_batch == 4
    assert family.phases() == [Phase.PREPARE_ABORT]
    with pytest.raises(FamilyFenced):
        family.end(5, left, epoch=before.epoch)
    assert family.init(b"b") == (None, (), ()), "the same one asks again"


def test_members_are_used_again_under_their_next_epoch(family: Family) -> None:
    first = family.join()
    family.end(0, first)
    assert family.join()[0] != first[0], "its markers are not written yet"
    family.complete()
    assert family.join() == (first[0], first[1], first[2] + 1)


def test_a_member_gets_another_producer_id_before_its_epochs_run_out(family: Family) -> None:
    number, producer_id, _ = family.join()
    family.members[number] = replace(family.members[number], epoch=LAST_EPOCH - 1)
    family.end(0, (number, producer_id, LAST_EPOCH - 1))
    family.complete()
    again = family.join()
    assert (again[0], again[2]) == (number, 0)
    assert again[1] != producer_id
    family.end(1, again)
    assert family.phases() == [Phase.PREPARE_COMMIT]


def test_time_outs_are_checked_and_names_have_one_coordinator() -> None:
    with pytest.raises(InvalidTransactionTimeout):
        Family().init(timeout_ms=0)
    assert {coordinator_hash(member_id(NAME, number)) for number in range(9)} == {coordinator_hash(NAME)}
    assert split_member(member_id(NAME, 12)) == (NAME, 12)
    assert split_member(NAME) is None


@pytest.mark.parametrize("number", ["b", "", "1\x1f2", "-1", "01", "²", "9" * 5000])
def test_what_no_family_has_made_is_no_member(number: str) -> None:
    assert split_member(f"a\x1f{number}") is None


def test_a_family_is_forgotten_when_nobody_uses_it_any_more(family: Family) -> None:
    assert family.record is not None
    assert not is_family_expired(family.record, family.members, 10**15)
    mortal = replace(family.record, keep_ms=50)
    assert not is_family_expired(mortal, family.members, 59)
    assert is_family_expired(mortal, family.members, 60)
    family.join()
    assert not is_family_expired(mortal, family.members, 60)

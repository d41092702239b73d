"""The leader's arithmetic: high watermark, ISR proposals, lag."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.control_messages import ReplicaId
from raylog.actors.replica.rules.replication import FollowerProgress, Leadership, RecordedPartition

ME: ReplicaId = (1, 10)
SECOND: ReplicaId = (2, 20)
THIRD: ReplicaId = (3, 30)
ALL = (ME, SECOND, THIRD)
LAG_MS = 1_000


def recorded(isr: tuple[ReplicaId, ...] = ALL, *, min_insync: int = 2, partition_epoch: int = 7) -> RecordedPartition:
    return RecordedPartition(5, partition_epoch, isr, ALL, min_insync)


def leadership(isr: tuple[ReplicaId, ...] = ALL, *, min_insync: int = 2, epoch_start: int = 0) -> Leadership:
    return Leadership(ME, recorded(isr, min_insync=min_insync), epoch_start, 0)


def test_the_high_watermark_waits_for_every_member() -> None:
    lead = leadership()
    assert lead.high_watermark(0, 100) == 0  # nobody has said anything yet
    lead.follower_holds(SECOND, 80, 100, 1)
    assert lead.high_watermark(0, 100) == 0
    lead.follower_holds(THIRD, 60, 100, 1)
    assert lead.high_watermark(0, 100) == 60


def test_the_high_watermark_never_passes_what_counts_of_the_leaders_own_log() -> None:
    lead = leadership((ME, SECOND))
    lead.follower_holds(SECOND, 100, 100, 1)
    assert lead.high_watermark(0, 40) == 40


def test_the_high_watermark_never_goes_back() -> None:
    lead = leadership((ME, SECOND))
    lead.follower_holds(SECOND, 50, 100, 1)
    assert lead.high_watermark(70, 100) == 70


def test_a_silent_member_has_to_leave_however_often_the_settings_change() -> None:
    lead = leadership()
    for now_ms in range(0, 1_500, 100):
        lead.follower_holds(THIRD, 10, 10, now_ms)
        lead.record(recorded(), now_ms)
    assert lead.next_proposal(0, 10, 1_500, LAG_MS) == (ME, THIRD)


def test_a_new_process_of_a_member_is_given_the_time_to_catch_up() -> None:
    lead = leadership()
    lead.follower_holds(THIRD, 10, 10, 1_400)
    again = (2, 21)
    lead.record(RecordedPartition(5, 8, (ME, again, THIRD), (ME, again, THIRD), 2), 1_400)
    assert lead.next_proposal(0, 10, 1_500, LAG_MS) is None


def test_below_the_minimum_the_high_watermark_stands_still() -> None:
    lead = leadership((ME,))
    assert lead.high_watermark(10, 100) == 10
    lead.record(recorded((ME,), min_insync=1, partition_epoch=8), 1)
    assert lead.high_watermark(10, 100) == 100


def test_a_member_being_added_is_waited_for_but_not_counted() -> None:
    lead = leadership((ME,), min_insync=2)
    lead.follower_holds(SECOND, 100, 100, 1)
    lead.propose((ME, SECOND))
    assert lead.high_watermark(0, 100) == 0  # the recorded ISR is still below the minimum
    lead = leadership((ME, THIRD))
    lead.follower_holds(THIRD, 100, 100, 1)
    lead.follower_holds(SECOND, 90, 100, 1)
    lead.propose((ME, THIRD, SECOND))
    assert lead.high_watermark(0, 100) == 90


def test_a_member_being_removed_is_waited_for_until_that_is_recorded() -> None:
    lead = leadership((ME, SECOND, THIRD))
    lead.follower_holds(SECOND, 100, 100, 1)
    lead.follower_holds(THIRD, 20, 100, 1)
    lead.propose((ME, SECOND))
    assert lead.high_watermark(0, 100) == 20
    lead.record(recorded((ME, SECOND), partition_epoch=8), 2)
    assert lead.high_watermark(20, 100) == 100


def test_a_refused_proposal_is_waited_for_no_longer() -> None:
    lead = leadership((ME, THIRD))
    lead.follower_holds(THIRD, 100, 100, 1)
    lead.propose((ME, THIRD, SECOND))
    assert lead.high_watermark(0, 100) == 0
    lead.proposal_refused()
    assert lead.high_watermark(0, 100) == 100


def test_a_state_of_the_same_partition_epoch_leaves_the_proposal_open() -> None:
    lead = leadership((ME, THIRD))
    lead.propose((ME, THIRD, SECOND))
    lead.record(recorded((ME, THIRD), partition_epoch=7), 1)
    assert lead.proposed == (ME, THIRD, SECOND)
    lead.record(recorded((ME, THIRD), partition_epoch=8), 1)
    assert lead.proposed is None


def test_who_has_caught_up_may_join() -> None:
    lead = leadership((ME,), min_insync=1, epoch_start=50)
    lead.follower_holds(SECOND, 49, 60, 1)
    assert lead.next_proposal(40, 60, 1, LAG_MS) is None  # before the start of this epoch
    lead.follower_holds(SECOND, 55, 60, 1)
    assert lead.next_proposal(60, 60, 1, LAG_MS) is None  # below the high watermark
    lead.follower_holds(SECOND, 60, 60, 1)
    assert lead.next_proposal(60, 60, 1, LAG_MS) == (ME, SECOND)


def test_who_joins_begins_no_earlier_than_the_leader() -> None:
    lead = leadership((ME, SECOND))
    lead.follower_holds(THIRD, 100, 100, 1)
    assert lead.next_proposal(100, 100, 1, LAG_MS, 40) is None
    lead.follower_holds(THIRD, 100, 100, 1, 39)
    assert lead.next_proposal(100, 100, 1, LAG_MS, 40) is None
    lead.follower_holds(THIRD, 100, 100, 1, 40)
    lead.follower_holds(THIRD, 100, 100, 1, 0)  # an answer to something older
    assert lead.next_proposal(100, 100, 1, LAG_MS, 40) == (ME, SECOND, THIRD)


def test_who_may_bring_back_what_was_deleted() -> None:
    lead = leadership((ME, SECOND))
    assert lead.may_bring_back(40) == {SECOND}
    lead.propose((ME, SECOND, THIRD))
    assert lead.may_bring_back(40) == {SECOND, THIRD}
    lead.follower_holds(SECOND, 100, 100, 1, 40)
    lead.follower_holds((3, 29), 100, 100, 1, 40)  # of a process that has been replaced
    assert lead.may_bring_back(40) == {THIRD}


def test_while_too_few_are_in_sync_any_replica_may_bring_back_what_was_deleted() -> None:
    lead = leadership((ME,))
    lead.follower_holds(SECOND, 100, 100, 1, 40)
    assert lead.may_bring_back(40) == {THIRD}
    assert leadership((ME,), min_insync=1).may_bring_back(40) == set()


def test_one_proposal_at_a_time() -> None:
    lead = leadership((ME,), min_insync=1)
    lead.follower_holds(SECOND, 10, 10, 1)
    lead.propose((ME, SECOND))
    lead.follower_holds(THIRD, 10, 10, 1)
    assert lead.next_proposal(10, 10, 1, LAG_MS) is None


def test_the_word_of_a_replaced_incarnation_counts_for_nothing() -> None:
    lead = leadership((ME, SECOND))
    lead.follower_holds((2, 19), 100, 100, 1)
    assert lead.high_watermark(0, 100) == 0
    lead.follower_holds(SECOND, 100, 100, 1)
    newer = replace(recorded((ME, SECOND), partition_epoch=8), incarnations=(ME, (2, 21), THIRD))
    lead.record(newer, 2)
    assert lead.log_end_of((2, 21)) == -1
    assert lead.next_proposal(0, 100, 2, LAG_MS) is None


def test_who_lags_for_too_long_has_to_leave() -> None:
    lead = leadership((ME, SECOND, THIRD))
    lead.follower_holds(SECOND, 100, 100, 100)
    lead.follower_holds(THIRD, 90, 100, 100)
    assert lead.next_proposal(90, 100, LAG_MS, LAG_MS) is None
    assert lead.next_proposal(90, 100, LAG_MS + 101, LAG_MS) == (ME, SECOND)


def test_a_quiet_follower_that_holds_everything_does_not_lag() -> None:
    lead = leadership((ME, SECOND))
    lead.follower_holds(SECOND, 100, 100, 0)
    assert lead.next_proposal(100, 100, 100 * LAG_MS, LAG_MS) is None


def test_a_quiet_follower_has_all_its_time_for_the_first_append_after_a_while() -> None:
    lead = leadership((ME, SECOND))
    lead.follower_holds(SECOND, 100, 100, 0)
    lead.appends(100, 100 * LAG_MS)
    assert lead.next_proposal(100, 110, 101 * LAG_MS, LAG_MS) is None
    lead.appends(110, 101 * LAG_MS)  # which it cannot have held yet
    assert lead.next_proposal(100, 120, 101 * LAG_MS + 1, LAG_MS) == (ME,)


def test_a_follower_that_is_always_one_report_behind_is_in_sync() -> None:
    progress = FollowerProgress(1, 0)
    for step in range(1, 100):
        progress.holds((step - 1) * 10, step * 10, step * 500)
        assert not progress.lags(step * 10, step * 500, LAG_MS)


@given(st.lists(st.tuples(st.sampled_from((SECOND, THIRD)), st.integers(0, 50)), max_size=30), st.data())
def test_the_high_watermark_is_what_every_member_has(reports: list[tuple[ReplicaId, int]], data: st.DataObject) -> None:
    """Whatever is reported in whatever order, each member has told that it holds all below the high watermark."""
    lead = leadership()
    highest = {SECOND: -1, THIRD: -1}
    high_watermark = 0
    for follower, offset in reports:
        lead.follower_holds(follower, offset, 50, 1)
        highest[follower] = max(highest[follower], offset)
        moved = lead.high_watermark(high_watermark, 50)
        assert moved >= high_watermark
        assert moved == 0 or moved <= min(highest.values())
        high_watermark = moved

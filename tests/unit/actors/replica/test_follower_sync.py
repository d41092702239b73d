"""Truncation by epochs, and which pushes join on: checked against logs that are lists of (offset, epoch)."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.replication_messages import NO_EPOCH
from raylog.actors.replica.rules.replication import (
    MAX_PUSHED_BYTES,
    FollowerCursor,
    Verdict,
    check_epoch,
    divergence,
    epoch_before,
    judge_push,
    truncation_offset,
)
from raylog.errors import StaleLeaderEpoch, UnknownLeaderEpoch
from raylog.storage.segment.leader_epochs import EpochStart, LeaderEpochs
from tests.unit.storage.small_log import new_disk


def history(log: list[int]) -> LeaderEpochs:
    """The epoch history of a log whose record at offset n is from epoch `log[n]`."""
    starts = [EpochStart(epoch, at) for at, epoch in enumerate(log) if at == 0 or log[at - 1] != epoch]
    return LeaderEpochs(new_disk(), "/log", starts)


def test_epochs_are_compared() -> None:
    check_epoch(NO_EPOCH, 5)
    check_epoch(5, 5)
    with pytest.raises(StaleLeaderEpoch):
        check_epoch(4, 5)
    with pytest.raises(UnknownLeaderEpoch):
        check_epoch(6, 5)


def test_the_same_history_does_not_diverge() -> None:
    assert divergence(history([0, 0, 1, 1]), 4, 3, 1) is None
    assert divergence(history([0, 0, 1, 1]), 4, 2, 0) is None
    assert divergence(history([]), 0, 0, NO_EPOCH) is None


def test_a_tail_of_an_older_epoch_diverges_where_the_leaders_epoch_ended() -> None:
    assert divergence(history([0, 0, 2]), 3, 4, 0) == (0, 2)


def test_an_epoch_that_the_leader_never_saw_diverges_at_the_one_before() -> None:
    assert divergence(history([0, 0, 2, 2]), 4, 4, 1) == (0, 2)


# Logs as histories make them: epochs rise along a log, and an epoch has one writer, so two logs agree in what they both
# hold of one epoch up to the point where they part.
@st.composite
def two_logs(draw: st.DrawFn) -> tuple[list[int], list[int]]:
    shared = sorted(draw(st.lists(st.integers(0, 3), max_size=8)))
    low = shared[-1] if shared else 0
    # After the parting an epoch above the last shared one belongs to one of the two alone.
    odd, even = [low + 1, low + 3, low + 5], [low + 2, low + 4, low + 6]
    leader = shared + sorted(draw(st.lists(st.sampled_from(odd), max_size=5)))
    cut = draw(st.integers(0, len(shared)))
    follower = shared[:cut] + sorted(draw(st.lists(st.sampled_from(even), max_size=5)))
    return leader, follower


@given(two_logs())
def test_truncation_ends_at_a_shared_prefix_and_keeps_as_much_as_is_shared(logs: tuple[list[int], list[int]]) -> None:
    """Rules 9 and 10: asking and cutting until nothing diverges leaves exactly what both have in common."""
    leader, follower = logs
    common = 0
    while common < min(len(leader), len(follower)) and leader[common] == follower[common]:
        common += 1
    for _ in range(10):
        own = history(follower)
        last_epoch = epoch_before(own, len(follower), 0)
        answer = divergence(history(leader), len(leader), len(follower), last_epoch)
        if answer is None:
            break
        offset = truncation_offset(own, len(follower), answer)
        assert offset < len(follower)
        follower = follower[:offset]
    assert follower == leader[:common]


def test_a_push_that_joins_on_is_appended() -> None:
    assert judge_push(history([0, 1]), 0, 2, 2, 1, 5, 3) is Verdict.APPEND


def test_a_push_behind_another_epoch_is_refused() -> None:
    assert judge_push(history([0, 1]), 0, 2, 2, 0, 5, 3) is Verdict.REFUSE


def test_a_push_with_a_gap_is_refused() -> None:
    assert judge_push(history([0, 1]), 0, 2, 3, 1, 5, 3) is Verdict.REFUSE


def test_a_push_that_is_there_already_changes_nothing() -> None:
    assert judge_push(history([0, 3, 3, 3]), 0, 4, 1, 0, 3, 3) is Verdict.REPEATED
    assert judge_push(history([0, 2, 2, 2]), 0, 4, 1, 0, 3, 3) is Verdict.REFUSE  # somebody else's batches
    assert judge_push(history([0, 3, 3]), 0, 3, 1, 0, 4, 3) is Verdict.REFUSE  # only a part is there


def test_a_log_without_records_takes_any_push_at_its_end() -> None:
    assert judge_push(history([]), 7, 7, 7, 4, 9, 5) is Verdict.APPEND


def test_what_is_pushed_and_not_answered_has_a_bound() -> None:
    cursor = FollowerCursor((2, 20), 1, 0)
    assert cursor.push(2 * MAX_PUSHED_BYTES, 3)  # one alone may be larger
    cursor.answered(2 * MAX_PUSHED_BYTES)
    assert cursor.push(MAX_PUSHED_BYTES - 10, 5)
    assert not cursor.push(11, 6)
    assert (cursor.pushed_bytes, cursor.next_offset) == (MAX_PUSHED_BYTES - 10, 5)
    assert cursor.push(10, 6)
    cursor.answered(MAX_PUSHED_BYTES)
    assert cursor.push(MAX_PUSHED_BYTES, 7)

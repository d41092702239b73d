"""The checker itself: that it says so when something is lost, and that it says nothing otherwise."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.simulator.checks.history import InvariantBroken, PartitionHistory

_RECORDS = [(0, b"1-0"), (1, b"1-1"), (2, b"2-0"), (3, b"1-2")]


def _history() -> PartitionHistory:
    """All of `_RECORDS` was sent, the first two are acknowledged, the third was read, the end was seen at 3."""
    history = PartitionHistory("topic-0")
    history.will_send(b"1", [b"1-0", b"1-1", b"1-2"], ordered=True)
    history.will_send(b"2", [b"2-0"], ordered=False)
    history.was_acknowledged([b"1-0", b"1-1"], 0)
    history.was_read(2, b"2-0")
    history.end_was_seen(3, 0)
    return history


def test_what_was_promised_is_there() -> None:
    _history().check_final(_RECORDS, 0, 4)


@pytest.mark.parametrize(
    ("records", "start", "end", "what"),
    [
        (_RECORDS[:1], 0, 1, "was acknowledged at 1 and is gone"),
        ([*_RECORDS[:2], (2, b"1-2")], 0, 3, "is now finally there"),
        ([*_RECORDS[:2], (3, b"2-0")], 0, 4, "offset 2 is missing"),
        ([*_RECORDS, (4, b"2-0")], 0, 5, "is there twice"),
        ([*_RECORDS, (4, b"9-9")], 0, 5, "which nobody sent"),
        (_RECORDS[:2], 0, 2, "was read at 2 and is gone"),
        (_RECORDS, 0, 5, "the log ends at 5, the records at 4"),
        (_RECORDS[1:], 1, 4, "the log starts at 1, but deletion was asked for up to 0"),
    ],
)
def test_what_is_wrong_is_said(records: list[tuple[int, bytes]], start: int, end: int, what: str) -> None:
    with pytest.raises(InvariantBroken, match=what):
        _history().check_final(records, start, end)


def test_an_idempotent_producer_writes_in_order() -> None:
    history = PartitionHistory("topic-0")
    history.will_send(b"1", [b"1-0", b"1-1"], ordered=True)
    with pytest.raises(InvariantBroken, match="behind number 1"):
        history.check_final([(0, b"1-1"), (1, b"1-0")], 0, 2)


@pytest.mark.parametrize(
    "says",
    [
        lambda history: history.was_acknowledged([b"2-0"], 1),
        lambda history: history.was_acknowledged([b"1-1"], 2),
        lambda history: history.was_read(0, b"1-1"),
        lambda history: history.was_read(7, b"9-9"),
        lambda history: history.end_was_seen(2, 3),
        lambda history: history.was_out_of_order(0, 1),
        lambda history: history.was_out_of_range(3),
        lambda history: history.has_diverged(3),
    ],
)
def test_clients_are_believed_at_once(says: Callable[[PartitionHistory], None]) -> None:
    with pytest.raises(InvariantBroken):
        says(_history())


def test_deletion_that_was_asked_for_is_no_loss_and_has_to_stay() -> None:
    history = _history()
    history.will_delete(2)
    history.check_final(_RECORDS[2:], 2, 4)
    history.was_deleted(2)
    with pytest.raises(InvariantBroken, match="done up to 2"):
        history.check_final(_RECORDS, 0, 4)


def test_what_no_disk_held_is_no_loss() -> None:
    history = _history()
    history.was_lost_from(1)
    history.check_final(_RECORDS[:1], 0, 1)
    assert history.may_have_lost
    with pytest.raises(InvariantBroken, match="acknowledged at 0"):
        history.check_final([], 0, 0)

"""Fetch sessions: what a client knows by them is what whole fetches would have told it."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.rules.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    Fetch,
    FetchAsked,
    FetchSessions,
    PartitionState,
    next_epoch,
)


def sessions(**bounds: Any) -> FetchSessions:
    numbers: Iterator[int] = count(100)
    return FetchSessions(lambda: next(numbers), **bounds)


def whole(*partitions: str, session_id: int = 0, epoch: int = INITIAL_EPOCH, uses_ids: bool = True) -> FetchAsked:
    return FetchAsked(session_id, epoch, {each: f"{each} from 0" for each in partitions}, uses_ids=uses_ids)


def begun(held: FetchSessions, *partitions: str, now: float = 0.0) -> int:
    fetch = held.fetch(whole(*partitions), now)
    assert fetch.session is not None
    assert fetch.is_whole
    return fetch.session_id


def test_a_session_is_changed_by_each_fetch() -> None:
    held = sessions()
    session_id = begun(held, "a", "b")
    fetch = held.fetch(FetchAsked(session_id, 1, {"c": "c from 0", "a": "a from 7"}, ["b"]), 1.0)
    assert (fetch.session_id, fetch.is_whole, fetch.error) == (session_id, False, ErrorCode.NONE)
    assert fetch.partitions == [("a", "a from 7"), ("c", "c from 0")]
    assert held.fetch(FetchAsked(session_id, 2, {}), 2.0).partitions == fetch.partitions


def test_what_comes_twice_late_or_to_the_wrong_session_is_refused() -> None:
    held = sessions()
    session_id = begun(held, "a")
    held.fetch(FetchAsked(session_id, 1, {}), 1.0)
    for asked, error in (
        (FetchAsked(session_id, 1, {}), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (FetchAsked(session_id, 3, {}), ErrorCode.INVALID_FETCH_SESSION_EPOCH),
        (FetchAsked(7, 2, {}), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (FetchAsked(0, 2, {}), ErrorCode.FETCH_SESSION_ID_NOT_FOUND),
        (FetchAsked(session_id, 2, {}, uses_ids=False), ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR),
    ):
        assert held.fetch(asked, 2.0) == Fetch(None, [], error=error)
    assert held.fetch(FetchAsked(session_id, 2, {}), 2.0).error is ErrorCode.NONE


@pytest.mark.parametrize("epoch", [FINAL_EPOCH, INITIAL_EPOCH])
def test_a_whole_fetch_ends_the_session_that_it_names(epoch: int) -> None:
    held = sessions()
    session_id = begun(held, "a")
    fetch = held.fetch(whole("b", session_id=session_id, epoch=epoch), 1.0)
    assert fetch.partitions == [("b", "b from 0")]
    assert (fetch.session is None) == (epoch == FINAL_EPOCH)
    assert fetch.session_id != session_id
    assert held.fetch(FetchAsked(session_id, 1, {}), 2.0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert len(held) == (0 if epoch == FINAL_EPOCH else 1)


def test_a_session_without_partitions_is_over() -> None:
    held = sessions()
    session_id = begun(held, "a")
    assert held.fetch(FetchAsked(session_id, 1, {}, ["a", "unknown"]), 1.0).session_id == 0
    assert held.fetch(whole(), 2.0).session_id == 0
    assert len(held) == 0


@pytest.mark.parametrize("bounds", [{"most_sessions": 2}, {"most_partitions": 4}])
def test_where_there_is_no_room_a_fetch_has_no_session_until_one_is_old(bounds: dict[str, int]) -> None:
    held = sessions(**bounds, kept_s=120)
    first, second = begun(held, "a", "b"), begun(held, "c", "d", now=10.0)
    held.fetch(FetchAsked(first, 1, {}), 50.0)
    assert held.fetch(whole("e", "f"), 129.0).session_id == 0
    assert begun(held, "e", now=130.0)
    assert held.fetch(FetchAsked(second, 1, {}), 131.0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert held.fetch(FetchAsked(first, 2, {}), 131.0).error is ErrorCode.NONE
    assert held.broken_invariants() == []


def test_a_session_that_grows_beyond_all_bounds_is_over_after_this_answer() -> None:
    held = sessions(most_partitions=2)
    session_id = begun(held, "a")
    fetch = held.fetch(FetchAsked(session_id, 1, {"b": "b", "c": "c"}), 1.0)
    assert [partition for partition, _ in fetch.partitions] == ["a", "b", "c"]
    assert held.broken_invariants() == []
    assert held.fetch(FetchAsked(session_id, 2, {}), 2.0).error is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


def test_what_had_records_is_served_last_the_next_time() -> None:
    held = sessions()
    session_id = begun(held, "a", "b", "c")
    fetch = held.fetch(FetchAsked(session_id, 1, {}), 1.0)
    assert fetch.session is not None
    for partition in "abc":
        fetch.session.must_tell(partition, PartitionState(0, 0), is_whole=True)
    assert fetch.session.must_tell("a", PartitionState(9, 0, has_records=True))
    assert not fetch.session.must_tell("b", PartitionState(0, 0))
    assert [partition for partition, _ in fetch.session.partitions] == ["b", "c", "a"]


def test_epochs_wrap_to_1_because_0_begins_a_session() -> None:
    assert [next_epoch(epoch) for epoch in (0, 1, 2**31 - 2, 2**31 - 1)] == [1, 2, 2**31 - 1, 1]


_STATES = st.tuples(st.integers(0, 2), st.integers(0, 1), st.just(False), st.booleans()).map(
    lambda drawn: PartitionState(*drawn)
)


@given(st.lists(st.dictionaries(st.sampled_from("abc"), _STATES, min_size=3), min_size=1, max_size=8))
def test_a_client_knows_what_whole_fetches_would_tell(rounds: list[dict[str, PartitionState]]) -> None:
    held, known, session_id = sessions(), dict[str, PartitionState](), 0
    for epoch, states in enumerate(rounds):
        fetch = held.fetch(whole("a", "b", "c") if epoch == 0 else FetchAsked(session_id, epoch, {}), float(epoch))
        assert fetch.session is not None
        session_id = fetch.session_id
        for partition, _ in fetch.partitions:
            assert isinstance(partition, str)
            if fetch.session.must_tell(partition, states[partition], is_whole=fetch.is_whole):
                known[partition] = states[partition]
            else:
                assert not states[partition].has_error
        assert known == states
        assert held.broken_invariants() == []

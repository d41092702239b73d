"""The order of a connection's requests and answers."""

from __future__ import annotations

from collections import deque

from hypothesis import given
from hypothesis import strategies as st

from raylog.api.kafka.rules.request_order import RequestOrder, Turn


def names(turns: list[Turn[str]]) -> list[str]:
    return [turn.request for turn in turns]


def test_a_request_begins_when_the_one_before_is_answered() -> None:
    order: RequestOrder[str] = RequestOrder()
    order.arrived("metadata", 10)
    order.arrived("fetch", 10)
    (metadata,) = order.begin()
    assert order.begin() == []
    order.answered(metadata, [b"m"])
    assert names(order.begin()) == ["fetch"]
    assert order.take_answers() == [b"m"]


def test_appends_overlap_each_other_and_nothing_else() -> None:
    order: RequestOrder[str] = RequestOrder()
    for name in ("produce 1", "produce 2", "fetch", "produce 3"):
        order.arrived(name, 10, may_overlap=name.startswith("produce"))
    first, second = order.begin()
    order.answered(second, [b"2"])
    assert (order.begin(), order.take_answers()) == ([], [])
    order.answered(first, [b"1", b"."])
    assert order.take_answers() == [b"1", b".", b"2"]
    (fetch,) = order.begin()
    assert (fetch.request, order.begin()) == ("fetch", [])
    order.answered(fetch, [b"f"])
    assert names(order.begin()) == ["produce 3"]


def test_a_request_without_an_answer_keeps_its_place() -> None:
    order: RequestOrder[str] = RequestOrder()
    for name in ("acks=0", "acks=1"):
        order.arrived(name, 10, may_overlap=True)
    silent, loud = order.begin()
    order.answered(loud, [b"done"])
    assert order.take_answers() == []
    order.answered(silent, None)
    assert order.take_answers() == [b"done"]
    assert (len(order), order.bytes_held) == (0, 0)


def test_a_connection_is_full_until_answers_have_gone_out() -> None:
    order: RequestOrder[str] = RequestOrder(most_bytes=10_000)
    order.arrived("produce", 10_001)
    assert order.is_full
    (turn,) = order.begin()
    order.answered(turn, [bytes(20_000)])
    assert order.is_full
    order.take_answers()
    assert not order.is_full


def test_its_bound_may_be_raised() -> None:
    order: RequestOrder[str] = RequestOrder(most_bytes=1_000)
    order.arrived("first", 1_000)
    assert order.is_full
    order.most_bytes = 10_000
    assert not order.is_full


def test_many_small_requests_fill_it_too() -> None:
    order: RequestOrder[int] = RequestOrder(most_bytes=100_000)
    for number in range(1_000):
        order.arrived(number, 1, may_overlap=True)
    assert order.is_full


@given(st.lists(st.booleans(), max_size=12), st.data())
def test_answers_are_taken_in_the_order_of_requests(overlap: list[bool], data: st.DataObject) -> None:
    order: RequestOrder[int] = RequestOrder()
    waiting, under_way, taken = deque(enumerate(overlap)), list[Turn[int]](), list[int]()
    while waiting or len(order):
        if waiting and (not under_way or data.draw(st.booleans())):
            number, may_overlap = waiting.popleft()
            order.arrived(number, number, may_overlap=may_overlap)
        elif under_way:
            turn = under_way.pop(data.draw(st.integers(0, len(under_way) - 1)))
            order.answered(turn, [bytes([turn.request])])
        under_way += order.begin()
        taken += [part[0] for part in order.take_answers()]
        assert order.broken_invariants() == []
    assert taken == list(range(len(overlap)))
    assert order.bytes_held == 0

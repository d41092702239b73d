"""How `python -m bench rebalance` tells partitions that stay from those that move, and how long they are without."""

from __future__ import annotations

from bench.delivery_gaps import ASSIGNED, REVOKED, Delivery, Gap, Told, gap_in, longest, missing, moved_at, parts_of


def at(*times: float, by: int = 0) -> list[tuple[int, Delivery]]:
    return [(by, Delivery(0, 7, time, time)) for time in times]


def test_a_gap_reaches_from_the_last_delivery_before_a_phase_to_its_end() -> None:
    assert gap_in(10.0, 20.0, at(1.0, 8.0, 12.0, 13.0, 18.0, 25.0)) == (Gap(5.0, 13.0, 18.0), False)
    assert gap_in(10.0, 20.0, at(1.0, 8.0, 15.0, 19.5)) == (Gap(7.0, 8.0, 15.0), False)
    assert gap_in(10.0, 20.0, at(9.0, 11.0)) == (Gap(9.0, 11.0, 20.0), False)
    assert gap_in(10.0, 20.0, []) == (Gap(10.0, 10.0, 20.0), False)


def test_what_another_member_delivers_has_moved_even_if_it_came_back() -> None:
    for by_others in (at(12.0, by=1), [*at(12.0, by=1), *at(13.0)]):
        assert gap_in(10.0, 20.0, [*at(9.0), *by_others, *at(19.0, by=by_others[-1][0])])[1]


def test_a_gap_is_taken_apart_by_what_happened_in_it() -> None:
    events = [(0, Delivery(0, REVOKED, 5.0, 5.0)), (1, Delivery(0, ASSIGNED, 6.0, 6.0)), *at(50.0)]
    assert parts_of(Gap(3.0, 4.0, 7.0), events) == "given up after 1000, taken after 2000, read after 3000"
    assert parts_of(Gap(3.0, 10.0, 13.0), events) == "read after 3000"


def test_what_the_killed_member_had_is_back_with_the_first_delivery_of_another() -> None:
    moved = [*at(1.0, 2.0), *at(6.0, 7.0, by=2)]
    late = [*at(1.0), *at(2.5), *at(9.0, by=1)]  # what it was handed before it was dead
    stays = at(1.0, 4.0, by=1)
    assert moved_at(Told([moved, late, stays], [], []), 2.4, killed=0) == [6.0, 9.0]


def test_the_longest_of_none_is_none() -> None:
    assert (longest([]), longest([1.0, 4.0, 5.0])) == (0.0, 3.0)


def test_each_offset_below_what_was_sent_has_to_be_with_some_member() -> None:
    told = Told([[by(0, 0), by(1, 1), by(0, 2), by(0, 2)], [by(0, 0), by(1, 3)], []], [], [])
    assert missing(told, [3, 3, 0]) == [(1, 1), (1, 2)]
    assert missing(told, [3, 1, 2]) == [(2, 0), (2, 1)]
    assert missing(told, [2, 1, 0]) == []


def by(member: int, offset: int) -> tuple[int, Delivery]:
    return member, Delivery(0, offset, 1.0, 1.0)

from __future__ import annotations

from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.kernel.backoff import Backoff
from tests.unit.longest_pauses import LongestPauses

seconds = st.just(0.0) | st.floats(0.001, 3_600.0)
seeds = st.integers(0, 2**32)


def test_pauses_double_up_to_the_longest() -> None:
    backoff = Backoff(0.1, 1.0, LongestPauses())
    assert [backoff.next() for _ in range(6)] == pytest.approx([0.1, 0.2, 0.4, 0.8, 1.0, 1.0])


def test_a_success_begins_anew_with_the_first_pause() -> None:
    backoff = Backoff(0.1, 1.0, LongestPauses())
    for _ in range(5):
        backoff.next()
    backoff.reset()
    assert backoff.failures == 0
    assert backoff.next() == pytest.approx(0.1)


def test_a_thousand_failures_are_no_reason_to_wait_for_longer() -> None:
    assert Backoff(0.1, 1.0, LongestPauses()).after(1_000_000) == 1.0


@given(seconds, seconds, seeds, st.integers(1, 50))
def test_a_pause_lies_between_half_of_its_full_length_and_all_of_it(
    first: float, longest: float, seed: int, failures: int
) -> None:
    backoff = Backoff(first, longest, Random(seed))
    full = min(longest, first * 2.0 ** (failures - 1))
    assert backoff.full(failures) == full
    assert full / 2 <= backoff.after(failures) <= full


@given(seconds, seconds, seeds)
def test_no_pause_is_shorter_than_the_one_before_until_the_longest_is_reached(
    first: float, longest: float, seed: int
) -> None:
    backoff, before = Backoff(first, longest, Random(seed)), 0.0
    while backoff.failures < 80 and backoff.full(backoff.failures + 1) < longest:
        pause = backoff.next()
        assert pause >= before
        before = pause


def test_those_that_failed_together_do_not_come_back_together() -> None:
    pauses = {Backoff(0.1, 1.0, Random(seed)).next() for seed in range(50)}
    assert len(pauses) == 50


@given(seconds, seconds, seeds)
def test_the_same_seed_gives_the_same_pauses(first: float, longest: float, seed: int) -> None:
    one, other = (Backoff(first, longest, Random(seed)) for _ in range(2))
    assert [one.next() for _ in range(20)] == [other.next() for _ in range(20)]

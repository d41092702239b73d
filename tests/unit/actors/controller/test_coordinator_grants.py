"""While a coordinator answers from memory no later one is placed, by whichever controller and clock (rule 25)."""

from __future__ import annotations

import math
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.controller.coordinator_grants import CLOCKS_APART_SECONDS, GRANT_SECONDS, CoordinatorGrants
from raylog.actors.kernel.background import SILENCE_SECONDS

_KEY = (b"t" * 16, 0)
_DRIFT = st.floats(0.999, 1.001)  # how fast a clock goes; of real ones the ten-thousandth of that would be much
_AWAY = st.floats(-1000.0, 1000.0)
_DELAY = st.floats(0.0, 5.0)


@dataclass(frozen=True)
class Clock:
    """A clock that shows another time than others, and goes at another speed."""

    ahead: float
    speed: float

    def at(self, time: float) -> float:
        return self.ahead + time * self.speed

    def time(self, shown: float) -> float:
        return (shown - self.ahead) / self.speed


_CLOCKS = st.builds(Clock, _AWAY, _DRIFT)


def trusts_until(host: Clock, sent_at: float, granted_ms: int) -> float:
    """Return until when a process answers from memory, as `CoordinatorHost` counts it."""
    return host.time(host.at(sent_at) + granted_ms / 1000)


def test_a_lease_outlives_a_grant_on_any_clock() -> None:
    assert GRANT_SECONDS + CLOCKS_APART_SECONDS <= SILENCE_SECONDS


@given(_CLOCKS, _CLOCKS, st.lists(st.tuples(_DELAY, _DELAY, _DELAY), max_size=5), _DELAY)
def test_the_same_controller_places_no_other_one_before_the_grants_are_over(
    here: Clock, there: Clock, beats: list[tuple[float, float, float]], then: float
) -> None:
    grants = CoordinatorGrants()
    grants.begin(here.at(0.0))
    now, trusted = 0.0, 0.0
    for pause, transit, age in beats:
        sent_at, now = now + pause, now + pause + transit
        granted_ms = grants.grant([_KEY], here.at(now) - age, here.at(now))
        trusted = max(trusted, trusts_until(there, sent_at, granted_ms))
    left = grants.seconds_left(_KEY, here.at(now + then))
    assert now + then + left / here.speed >= trusted


@given(_CLOCKS, _CLOCKS, _CLOCKS, _DELAY, _DELAY, _DELAY, _DELAY)
def test_a_later_controller_places_no_other_one_before_the_grants_of_an_earlier_one_are_over(
    earlier: Clock, later: Clock, there: Clock, promised: float, sent: float, transit: float, then: float
) -> None:
    """A majority is asked at 0 and obeys; so the promises to the later controller, and its beginning, come after it."""
    first, second = CoordinatorGrants(), CoordinatorGrants()
    first.begin(earlier.at(-1.0))
    second.begin(later.at(promised))
    granted_ms = first.grant([_KEY], earlier.at(0.0), earlier.at(sent + transit))
    left = second.seconds_left(_KEY, later.at(promised + then))
    assert promised + then + left / later.speed >= trusts_until(there, sent, granted_ms) or not granted_ms


@given(_CLOCKS, _DELAY)
def test_one_that_was_silent_for_a_lease_is_not_waited_for(here: Clock, age: float) -> None:
    grants = CoordinatorGrants()
    grants.begin(here.at(0.0))
    grants.grant([_KEY], here.at(10.0) - age, here.at(10.0))
    assert grants.seconds_left(_KEY, here.at(10.0) + SILENCE_SECONDS) == 0.0


def test_without_a_majority_nothing_is_granted() -> None:
    grants = CoordinatorGrants()
    grants.begin(0.0)
    assert grants.grant([_KEY], -math.inf, 10.0) == 0
    assert grants.grant([_KEY], 10.0 - GRANT_SECONDS, 10.0) == 0
    assert grants.seconds_left(_KEY, 10.0 + CLOCKS_APART_SECONDS) == 0.0


def test_one_that_has_ended_for_sure_is_not_waited_for() -> None:
    grants = CoordinatorGrants()
    grants.begin(0.0)
    assert grants.seconds_left(_KEY, 0.5) > 0.0
    grants.grant([_KEY], 10.0, 10.0)
    assert grants.seconds_left(_KEY, 10.0) > 0.0
    grants.has_ended(_KEY)
    assert grants.seconds_left(_KEY, 10.0) == 0.0
    grants.grant([_KEY], 11.0, 11.0)  # the next one
    assert grants.seconds_left(_KEY, 11.0) > 0.0

"""The timing wheel against a plain list of timers."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.actors.kernel.background import Timer, TimingWheel

distances = st.integers(-5, 200) | st.integers(0, 70_000) | st.integers(0, 2**45)


class WheelAgainstList(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now = 1_700_000_000_000
        self.wheel: TimingWheel[int] = TimingWheel(self.now)
        self.model: dict[int, int] = {}  # action -> deadline, in order of setting
        self.timers: dict[int, Timer[int]] = {}

    @rule(distance=distances)
    def set(self, distance: int) -> None:
        action = len(self.timers)
        self.timers[action] = self.wheel.set(self.now + distance, action)
        self.model[action] = self.now + distance

    @precondition(lambda self: self.timers)
    @rule(data=st.data())
    def cancel(self, data: st.DataObject) -> None:
        action = data.draw(st.sampled_from(sorted(self.timers)))
        assert self.wheel.cancel(self.timers[action]) == (self.model.pop(action, None) is not None)

    @rule(distance=distances)
    def advance(self, distance: int) -> None:
        target = self.now + distance
        self.now = max(self.now, target)
        due = [action for action, deadline in self.model.items() if deadline <= self.now]
        due.sort(key=lambda action: (self.model[action], action))
        assert self.wheel.advance(target) == due
        for action in due:
            del self.model[action]

    @rule(slots=st.sampled_from([64, 64**2, 64**3]), before=st.integers(1, 200))
    def advance_to_before_slots_begin(self, slots: int, before: int) -> None:
        """There timers are set that will be found where slots of several levels begin in one moment."""
        self.advance(slots - self.now % slots - before)

    @rule()
    def advance_to_where_it_asks(self) -> None:
        wake = self.wheel.wake_at()
        if wake is None:
            assert not self.model
        else:
            assert wake <= max(self.now, min(self.model.values()))
            self.advance(wake - self.now)

    @invariant()
    def it_counts(self) -> None:
        assert len(self.wheel) == len(self.model)


TestWheelAgainstList = WheelAgainstList.TestCase


@pytest.mark.parametrize("distance", [1, 63, 64, 65, 4095, 4096, 4097, 262_143, 262_144, 2**40])
def test_a_timer_goes_off_at_its_time_and_not_a_millisecond_before(distance: int) -> None:
    for now in (0, 1, 63, 4095, 1_700_000_000_001):
        wheel: TimingWheel[str] = TimingWheel(now)
        wheel.set(now + distance, "x")
        assert wheel.advance(now + distance - 1) == []
        assert wheel.advance(now + distance) == ["x"]
        assert wheel.advance(now + 2 * distance) == []


def test_a_full_turn_ahead_is_not_taken_for_now() -> None:
    wheel: TimingWheel[str] = TimingWheel(70)
    wheel.set(70 + 4090, "far")  # its slot in level 1 is the one that now is in
    assert wheel.advance(71) == []
    assert wheel.advance(4160) == ["far"]


@pytest.mark.parametrize("boundary", [64, 4096, 262_144])
def test_slots_of_several_levels_that_begin_in_one_moment_are_all_emptied(boundary: int) -> None:
    wheel: TimingWheel[str] = TimingWheel()
    wheel.set(boundary + 50, "from far")
    wheel.advance(boundary - 30)
    wheel.set(boundary, "on it")
    wheel.set(boundary + 20, "from near")
    wheel.advance(boundary - 1)
    assert wheel.advance(boundary) == ["on it"]
    assert wheel.advance(boundary + 20) == ["from near"]
    assert wheel.advance(boundary + 50) == ["from far"]


def test_following_its_advice_takes_few_steps() -> None:
    wheel: TimingWheel[int] = TimingWheel()
    wheel.set(2**40, 1)
    steps = 0
    while (wake := wheel.wake_at()) is not None:
        wheel.advance(wake)
        steps += 1
    assert steps <= 8


@given(st.lists(st.integers(0, 1000), max_size=50))
def test_timers_of_one_deadline_go_off_as_they_were_set(waits: list[int]) -> None:
    wheel: TimingWheel[int] = TimingWheel()
    for number, wait in enumerate(waits):
        wheel.advance(wheel.now_ms + wait)
        wheel.set(1_000_000, number)
    assert wheel.advance(1_000_000) == list(range(len(waits)))

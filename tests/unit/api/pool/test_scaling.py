"""Pools under traces of load, in a simulated world."""

from __future__ import annotations

import math

from hypothesis import given, settings
from hypothesis import strategies as st

from raylog.api.pool.rules.scaling import Load, ScalingPolicy, ScalingState, decide
from tests.unit.api.pool.pool_world import PoolWorld

POLICY = ScalingPolicy(max_actors=10)
LATE = 120  # seconds after which a steady load has found its number


def check_bounds(world: PoolWorld) -> None:
    most = min(world.policy.max_actors, len(world.partitions))
    for each in world.history:
        assert min(world.policy.min_actors, most) <= each.wanted <= most
        assert each.there <= most + 1, "one more in a roll-out only"


def test_a_backlog_is_drained_by_all_and_then_the_pool_goes_to_none() -> None:
    world = PoolWorld(POLICY, lambda at: 60_000 if at == 0 else 0, lambda _: 100)
    world.run(300)
    assert max(each.running for each in world.history) == 10
    assert next(each.at for each in world.history if each.running == 10) < 25, "up at once"
    assert world.history[-1].lag == 0
    assert world.history[-1].there == 0, "and nothing is left when nothing is to be done"
    assert world.turns() == 1
    check_bounds(world)


def test_it_wakes_up_for_a_single_record() -> None:
    world = PoolWorld(POLICY, lambda at: 1 if at == 100 else 0, lambda _: 50)
    world.run(200)
    assert {each.wanted for each in world.since(100)[:20]} == {1}
    assert world.history[-1].there == 0
    assert sum(world.committed.values()) == 1


@settings(max_examples=20)
@given(st.floats(0.5, 5_000), st.floats(0.2, 2_000), st.integers(1, 40))
def test_a_steady_load_finds_one_number_and_keeps_it(arrival: float, rate: float, partitions: int) -> None:
    world = PoolWorld(POLICY, lambda _: arrival, lambda _: rate, partitions)
    world.run(900)
    check_bounds(world)
    assert world.turns() <= 1, "up, and down to what is needed when the backlog of the start is gone"
    most = min(10, partitions)
    if arrival <= 0.7 * rate * most and math.ceil(arrival / (0.8 * rate)) < partitions:
        # A share of the partitions is uneven: the simulated actors do not help each other.
        assert all(each.waits <= POLICY.target_lag_seconds * 2 for each in world.since(600))
    assert len({each.wanted for each in world.since(600)}) == 1


@settings(max_examples=12)
@given(st.integers(2, 25), st.floats(10, 300), st.floats(1, 4))
def test_a_load_that_swings_fast_is_not_followed(period: int, low: float, times: float) -> None:
    world = PoolWorld(POLICY, lambda at: low * (times if at // period % 2 else 1), lambda _: 100)
    world.run(900)
    check_bounds(world)
    assert world.turns(since=LATE) <= 1


def test_a_ramp_is_followed_up_and_down() -> None:
    world = PoolWorld(POLICY, lambda at: max(0.0, min(at, 1200 - at)) * 1.0, lambda _: 100)
    world.run(1400)
    check_bounds(world)
    assert world.turns() <= 1
    assert max(each.waits for each in world.since(30)[:1170]) <= 2 * POLICY.target_lag_seconds
    assert world.history[600].running >= 7
    assert world.history[-1].there == 0


def test_bursts_are_worked_off_in_time() -> None:
    world = PoolWorld(POLICY, lambda at: 1_500 if at % 200 == 50 else 20, lambda _: 100)
    world.run(1000)
    check_bounds(world)
    for begin in range(250, 1000, 200):
        assert world.history[begin + 3 * 5].lag <= 200, "3 targets after the burst"


def test_a_slow_handler_gets_as_many_as_there_may_be() -> None:
    world = PoolWorld(POLICY, lambda at: 40 if at == 0 else 0, lambda _: 1 / 20)
    world.run(400)
    check_bounds(world)
    assert max(each.running for each in world.history) == 10
    assert sum(world.committed.values()) == 40


def test_actors_that_die_are_replaced() -> None:
    world = PoolWorld(POLICY, lambda _: 400, lambda _: 100, deaths=lambda at: 2 if at in (200, 201, 400) else 0)
    world.run(700)
    check_bounds(world)
    before, after = world.history[199].running, world.history[230].running
    assert after >= before - 1
    assert world.history[-1].waits <= 5
    assert world.turns() <= 3


def test_min_actors_stay_and_max_actors_are_not_passed() -> None:
    policy = ScalingPolicy(min_actors=2, max_actors=4)
    world = PoolWorld(policy, lambda at: 100_000 if at == 100 else 0, lambda _: 500)
    world.run(400)
    check_bounds(world)
    assert {each.running for each in world.since(10)[:80]} == {2}
    assert max(each.running for each in world.history) == 4
    assert world.history[-1].running == 2


def test_no_more_than_partitions() -> None:
    world = PoolWorld(POLICY, lambda _: 10_000, lambda _: 100, partitions=3)
    world.run(100)
    check_bounds(world)
    assert world.history[-1].running == 3


def test_a_pile_in_few_partitions_gets_no_more_actors_than_these() -> None:
    world = PoolWorld(POLICY, lambda at: 30_000 if at == 0 else 0, lambda _: 100, used=2)
    world.run(400)
    assert max(each.wanted for each in world.history) == 2
    assert world.history[-1].lag == 0


def test_one_for_one_handler_that_becomes_slow() -> None:
    world = PoolWorld(POLICY, lambda _: 100, lambda at: 200 if at < 300 else 25)
    world.run(700)
    check_bounds(world)
    assert world.history[299].running == 1
    assert world.history[-1].running >= 5
    assert world.history[-1].waits <= 5


@given(
    st.builds(ScalingPolicy, st.integers(0, 5), st.integers(1, 20)),
    st.lists(
        st.builds(Load, st.floats(0, 1e9), st.floats(0, 1e6), st.none() | st.floats(0, 1e6), st.integers(0, 50),
                  st.integers(0, 50), st.integers(0, 50)),
        max_size=40,
    ),
)  # fmt: skip
def test_whatever_comes_the_number_is_within_its_bounds(policy: ScalingPolicy, loads: list[Load]) -> None:
    state = ScalingState()
    for at, load in enumerate(loads):
        found = decide(policy, state, load, float(at))
        most = min(policy.max_actors, load.partitions)
        assert min(policy.min_actors, most) <= found.wanted <= most
        assert found.wanted > 0 or load.lag == 0 or most == 0, "records that wait keep one"
        state = found.state

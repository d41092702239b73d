"""The number of actors that a pool needs: from its lag, what arrives, and what one actor does in a second.

    needed = arrival / (0.8 of an actor's rate)  +  (lag beyond what is on its way anyhow) / (target × an actor's rate)

    idle for so long                      min_actors
    the rate is not known yet             one actor; twice as many while the lag is above the target and not less
    needed > wanted                       at once
    less is needed all through a while    down to the most that was needed in it, and at most by a half at a time

What must stay true:
- The number lies between `min_actors` and the smaller of `max_actors` and the number of partitions.
- Records that wait keep at least one actor.
- It goes down only if all of `down_after` has needed fewer, and no more often than every `down_after / 3`. So a load
  that swings faster than that is never followed down and up again.
- What it goes down to is reckoned with more room than what it goes up to: a load between the two changes nothing.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Final

_BUSY_SHARE: Final = 0.8  # of an actor's time, when all is well
_SPARE_SHARE: Final = 0.65  # of the time of those that are left when others go
_UNDER_WAY: Final = 0.5  # of the target: records that are behind only because commits come now and then
_DOWN_STEPS: Final = 3  # in `down_after`
_LEAST_RATE: Final = 1e-6  # records a second; what is below is none
_LEAST_ARRIVAL: Final = 0.01  # records a second; what is below comes from smoothing


@dataclass(frozen=True)
class ScalingPolicy:
    """The bounds and times that the user has asked for, in seconds."""

    min_actors: int = 0
    max_actors: int = 10
    target_lag_seconds: float = 5.0
    down_after: float = 30.0
    idle_after: float = 30.0


@dataclass(frozen=True)
class Load:
    """All that is known of the work at one moment."""

    lag: float  # records
    arrival: float  # records a second
    actor_rate: float | None  # records a second that one busy actor does; None: nobody knows yet
    partitions: int
    behind: int  # partitions that have lag: no more actors than these make it less
    running: int  # actors that work


@dataclass(frozen=True)
class ScalingState:
    """The part of a decision that the next one needs."""

    wanted: int = 0
    needs: tuple[tuple[float, int], ...] = ()  # (when, how many were needed), of the last `down_after`
    down_at: float = -math.inf  # the last time that the number went down
    grown_at: float = -math.inf  # the last time that the number was doubled without a rate
    busy_at: float = -math.inf  # the last time that there was something to do
    lag: float = 0.0


@dataclass(frozen=True)
class Decision:
    """The number of actors that there are to be, and why, in words."""

    wanted: int
    reason: str
    state: ScalingState


def decide(policy: ScalingPolicy, state: ScalingState, load: Load, now: float) -> Decision:
    """Decide once. Call it every second or so, with the state that the last decision has left."""
    most = max(0, min(policy.max_actors, load.partitions))
    least = min(policy.min_actors, most)
    has_work = load.lag > 0 or load.arrival > _LEAST_ARRIVAL
    busy_at = now if has_work or math.isinf(state.busy_at) else state.busy_at
    state = replace(state, busy_at=busy_at)
    if not has_work and now - busy_at >= policy.idle_after:
        reason = f"nothing to do for {now - busy_at:.0f} s"
        return Decision(least, reason, replace(state, wanted=least, needs=(), lag=0.0))
    need, enough, reason, grown_at = _needed(policy, state, load, now)
    need, enough = max(need, min(1, state.wanted)), max(enough, min(1, state.wanted))  # the last one goes when idle
    bounded = max(least, min(most, need))
    if bounded < need:
        reason += f"; bounded by {'partitions' if load.partitions < policy.max_actors else 'max_actors'}"
    kept = (now, max(least, min(most, enough)))
    state = replace(state, needs=_recent((*state.needs, kept), now - policy.down_after))
    state = replace(state, grown_at=grown_at, lag=load.lag)
    current = max(least, min(most, state.wanted))
    if bounded >= current:
        return Decision(bounded, reason, replace(state, wanted=bounded))
    return _down(policy, state, current, reason, now)


def _needed(policy: ScalingPolicy, state: ScalingState, load: Load, now: float) -> tuple[int, int, str, float]:
    """Return how many are needed without any bound, how many are enough to stay, why, and when a guess was last
    doubled.
    """
    if load.actor_rate is None or load.actor_rate < _LEAST_RATE:
        need, reason, grown_at = _guess(policy, state, load, now)
        return need, need, reason, grown_at
    excess = max(0.0, load.lag - _UNDER_WAY * policy.target_lag_seconds * load.arrival) / policy.target_lag_seconds
    need, enough = (_count(load, share, excess) for share in (_BUSY_SHARE, _SPARE_SHARE))
    reason = (
        f"{load.arrival:.1f} records/s arrive, {load.lag:.0f} wait, an actor does {load.actor_rate:.1f} a second"
    )
    return need, enough, reason, state.grown_at


def _count(load: Load, share: float, excess: float) -> int:
    assert load.actor_rate is not None
    to_keep_up = math.ceil(load.arrival / share / load.actor_rate - 1e-9)
    to_catch_up = math.ceil((load.arrival / share + excess) / load.actor_rate - 1e-9)
    return max(to_keep_up, min(to_catch_up, load.behind), int(load.lag > 0))


def _guess(policy: ScalingPolicy, state: ScalingState, load: Load, now: float) -> tuple[int, str, float]:
    """Return a number without a rate. Where nothing is late, one may be enough: if it is not, its rate shows soon."""
    late = load.lag > policy.target_lag_seconds * load.arrival and load.lag >= state.lag
    began = max(state.grown_at, now if state.wanted == 0 else -math.inf)
    if not late:
        return 1, "nothing waits for long; the rate of an actor is not known yet", began
    if load.running == 0 or now - began < policy.target_lag_seconds:
        return max(1, state.wanted), "records wait; the rate of an actor is not known yet", began
    reason = "records wait longer than they should; the rate of an actor is not known yet"
    return max(1, state.wanted, min(2 * state.wanted, load.behind)), reason, now


def _down(policy: ScalingPolicy, state: ScalingState, current: int, reason: str, now: float) -> Decision:
    highest = max(count for _, count in state.needs)
    is_seen_long_enough = now - state.needs[0][0] >= policy.down_after
    pause = policy.down_after / _DOWN_STEPS
    target = max(highest, current // 2)
    if target >= current or not is_seen_long_enough or now - state.down_at < pause:
        return Decision(current, reason, replace(state, wanted=current))
    return Decision(target, reason, replace(state, wanted=target, down_at=now))


def _recent(needs: tuple[tuple[float, int], ...], since: float) -> tuple[tuple[float, int], ...]:
    """Return those since then, and the last one before, so that it shows whether all of that time is known."""
    first = max((place for place, (at, _) in enumerate(needs) if at <= since), default=0)
    return needs[first:]

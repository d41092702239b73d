"""The figures that every benchmark reports, and the way to time a call."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

ROUNDS = 5


@dataclass(frozen=True)
class Figure:
    """One measured number."""

    name: str
    rounds: Sequence[float]
    unit: str
    goal: float | None = None
    smaller_is_better: bool = False
    note: str = ""

    @property
    def median(self) -> float:
        return statistics.median(self.rounds)

    @property
    def meets_goal(self) -> bool | None:
        if self.goal is None:
            return None
        return self.median <= self.goal if self.smaller_is_better else self.median >= self.goal


def seconds(action: Callable[[], object]) -> float:
    """Return how long one call takes."""
    start = time.perf_counter()
    action()
    return time.perf_counter() - start


def rounds_of(measure: Callable[[], float], rounds: int = ROUNDS) -> list[float]:
    """The measure, taken several times after one round to warm up."""
    measure()
    return [measure() for _ in range(rounds)]


def rate_of(
    action: Callable[[], object],
    amount: float,
    at_least: float = 0.2,
    *,
    clock: Callable[[], float] = time.perf_counter,
) -> Callable[[], float]:
    """A measure of `amount` per second, which repeats `action` for at least so many seconds.

    By `time.process_time` these are seconds of the processor, which other processes do not cost.
    """

    def measure() -> float:
        start, repeats = clock(), 0
        while (spent := clock() - start) < at_least:
            action()
            repeats += 1
        return repeats * amount / spent

    return measure

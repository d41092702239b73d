"""Setting and cancelling a timer beside 100,000 others: the timing wheel against the standard library's heap."""

from __future__ import annotations

import heapq
import random
from collections.abc import Callable, Iterator

from bench.measuring import ROUNDS, Figure, seconds
from raylog.actors.kernel.background import TimingWheel

_PENDING = 100_000
_SESSION_MS = 45_000


def run() -> Iterator[Figure]:
    rng = random.Random(1)
    waits = [rng.randrange(1, _SESSION_MS) for _ in range(_PENDING)]
    by_wheel, by_heap = [], []
    for _ in range(ROUNDS + 1):  # the first warms up
        by_wheel.append(seconds(_renewals_on_wheel(waits)) / _PENDING)
        by_heap.append(seconds(_renewals_on_heap(waits)) / _PENDING)
    wheel, heap = by_wheel[1:], by_heap[1:]
    yield Figure("renew one of 100,000 timers, wheel", [each * 1e6 for each in wheel], "µs")
    yield Figure("renew one of 100,000 timers, heapq", [each * 1e6 for each in heap], "µs")
    ratios = [slow / fast for slow, fast in zip(heap, wheel, strict=True)]
    yield Figure("the wheel against heapq", ratios, "times", note="a renewal cancels and sets, as a heartbeat does")


def _renewals_on_wheel(waits: list[int]) -> Callable[[], object]:
    wheel: TimingWheel[int] = TimingWheel()
    timers = [wheel.set(wait, number) for number, wait in enumerate(waits)]

    def renew_all() -> None:
        for number, timer in enumerate(timers):
            wheel.cancel(timer)
            timers[number] = wheel.set(timer.deadline_ms + _SESSION_MS, number)

    return renew_all


def _renewals_on_heap(waits: list[int]) -> Callable[[], object]:
    """A heap cannot take one out of its middle: cancelled entries are marked, and cleaned out when they are half."""
    entries: list[list[int]] = [[wait, number, 1] for number, wait in enumerate(waits)]
    heap = entries[:]
    heapq.heapify(heap)

    def renew_all() -> None:
        nonlocal heap
        cancelled = 0
        for number, entry in enumerate(entries):
            entry[2] = 0
            cancelled += 1
            renewed = [entry[0] + _SESSION_MS, number, 1]
            entries[number] = renewed
            heapq.heappush(heap, renewed)
            if cancelled * 2 > len(heap):
                heap = [each for each in heap if each[2]]
                heapq.heapify(heap)
                cancelled = 0

    return renew_all

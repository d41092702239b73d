"""How long requests took, as counts by upper bound. An observation is a look-up and two additions: some 0.2 µs."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterator
from itertools import accumulate
from typing import Final

from raylog.actors.kernel.metric_definitions import LatencyMetric, Reading

BOUNDS: Final = (
    0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0,
)  # fmt: skip
_LABELS: Final = (*map(str, BOUNDS), "+Inf")


class LatencyCounts:
    __slots__ = ("_counts", "_seconds")

    def __init__(self) -> None:
        self._counts = [0] * len(_LABELS)
        self._seconds = 0.0

    def add(self, seconds: float) -> None:
        self._counts[bisect_left(BOUNDS, seconds)] += 1
        self._seconds += seconds

    def readings(self, metric: LatencyMetric, tags: tuple[str, ...]) -> Iterator[Reading]:
        count = 0
        for label, count in zip(_LABELS, accumulate(self._counts), strict=True):
            yield Reading(metric.bucket, (*tags, label), count)
        yield Reading(metric.total, tags, self._seconds)
        yield Reading(metric.count, tags, count)

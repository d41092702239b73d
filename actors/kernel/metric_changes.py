"""What has to be told to Ray of the readings of a core: counters as what was added since the last time.

What must stay true:
- A counter that is lower than the last time has begun anew, say with another controller in the same process: all of it
  is new.
- A gauge that is not read any more, say of a group that was deleted, becomes 0 once: Ray would repeat its last value as
  long as the process lives.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeAlias

from raylog.actors.kernel.metric_definitions import Metric, MetricKind, Reading

_Series: TypeAlias = tuple[Metric, tuple[str, ...]]


class MetricChanges:
    def __init__(self) -> None:
        self._totals: dict[_Series, float] = {}
        self._gauges: set[_Series] = set()

    def since_last(self, readings: Iterable[Reading]) -> list[Reading]:
        changes: list[Reading] = []
        gauges: set[_Series] = set()
        for reading in readings:
            metric, tags, value = reading
            if metric.kind is MetricKind.GAUGE:
                gauges.add((metric, tags))
                changes.append(reading)
                continue
            last = self._totals.get((metric, tags), 0)
            if value != last:
                changes.append(Reading(metric, tags, value - last if value > last else value))
                self._totals[metric, tags] = value
        changes += [Reading(metric, tags, 0) for metric, tags in self._gauges - gauges]
        self._gauges = gauges
        return [each for each in changes if each.value > 0 or each.metric.kind is MetricKind.GAUGE]

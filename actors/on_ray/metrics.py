"""Passing the numbers of a core to Ray's metrics, every few seconds, on a thread of its own.

What must stay true: the core is read on its own loop, so that the numbers of a part belong together. Ray is called on
this thread. A core whose loop does not run is not waited for; its numbers come the next time.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import TimeoutError as FutureTimeout
from typing import Final, TypeAlias

from ray.util.metrics import Counter, Gauge

from raylog.actors.kernel.metrics import Metric, MetricChanges, MetricKind, Reading, ReadingGroup
from raylog.actors.machine.loop_thread import CoreThread

PERIOD_SECONDS: Final = 5.0
_FIRST_SECONDS: Final = 1.0
_READ_SECONDS: Final = 2.0
_AT_ONCE: Final = 50  # replicas, in one turn of the core's loop

ReadCall: TypeAlias = Callable[[], Iterable[Reading | ReadingGroup]]


class RayMetrics:
    """Runs from when it is made until its process ends. `tags`: those of the process, the first of each metric."""

    def __init__(self, core: CoreThread, read: ReadCall, tags: Mapping[str, str]) -> None:
        self._core = core
        self._read = read
        self._teller = MetricTeller(tags)
        self._changes = MetricChanges()
        threading.Thread(target=self._report_for_ever, name="raylog metrics", daemon=True).start()

    def _report_for_ever(self) -> None:
        time.sleep(_FIRST_SECONDS)
        while True:
            self._report()
            time.sleep(PERIOD_SECONDS)

    def _report(self) -> None:
        try:
            readings = self._core.do(self._read_now(), _READ_SECONDS)
        except FutureTimeout:
            return
        self._teller.tell(self._changes.since_last(readings))

    async def _read_now(self) -> list[Reading]:
        """Read the core. Between parts of it others get their turn, if there are many."""
        self._changes.begin_reading()
        readings: list[Reading] = []
        for number, part in enumerate(self._read(), start=1):
            if isinstance(part, ReadingGroup):
                readings += self._changes.to_read(part)
            else:
                readings.append(part)
            if number % _AT_ONCE == 0:
                await asyncio.sleep(0)
        return readings


class MetricTeller:
    """Passes changes to Ray. For one thread. `tags`: those of the process, the first of each metric."""

    def __init__(self, tags: Mapping[str, str]) -> None:
        self._tags = tuple(tags.values())
        self._made: dict[str, Counter | Gauge] = {}

    def tell(self, changes: Iterable[Reading]) -> None:
        for change in changes:
            self._tell(change)

    def _tell(self, change: Reading) -> None:
        metric = change.metric
        ours = self._made.get(metric.name) or self._make(metric)
        tags = dict(zip(metric.tags, (*self._tags, *change.tags), strict=True))
        if isinstance(ours, Gauge):
            ours.set(float(change.value), tags=tags)
        else:
            ours.inc(float(change.value), tags=tags)

    def _make(self, metric: Metric) -> Counter | Gauge:
        kind = Counter if metric.kind is MetricKind.COUNTER else Gauge
        made = self._made[metric.name] = kind(metric.name, metric.description, metric.tags)
        return made

"""The numbers of a stream in Ray's metrics: how far it is behind, and what it has committed.

What must stay true: what Ray or the brokers do about metrics never ends a stream, nor holds one up.
"""

from __future__ import annotations

import logging
import threading
import weakref
from collections.abc import Callable, Collection, Mapping
from typing import Final

from ray.util.metrics import Counter, Gauge

from raylog.actors.kernel.metrics import STREAM_BATCHES, STREAM_LAG, STREAM_OFFSETS, Metric, MetricKind
from raylog.api.connection.records import TopicPartition
from raylog.api.data.rules.stream_steps import lag

_FIRST_SECONDS: Final = 1.0
_PERIOD_SECONDS: Final = 5.0

_log = logging.getLogger(__name__)
_made: dict[str, Counter | Gauge] = {}  # of this process; several streams of it share them, and differ in tags


class StreamMetrics:
    """The metrics of one stream. `ends`: how far the logs of some partitions go, as their leaders say."""

    def __init__(
        self,
        cluster: str,
        group_id: str,
        ends: Callable[[Collection[TopicPartition]], Mapping[TopicPartition, int]],
        begins: Mapping[TopicPartition, int],
    ) -> None:
        self._tags = {"cluster": cluster, "group": group_id}
        self._ends = ends
        self._positions = dict(begins)
        self._lock = threading.Lock()
        self._closed = threading.Event()
        work = (weakref.ref(self), self._closed)
        threading.Thread(target=_report_for_ever, args=work, name="raylog stream metrics", daemon=True).start()

    def joined(self, begins: Mapping[TopicPartition, int]) -> None:
        """Hear of partitions that the stream reads. Those that it knows stay where they are."""
        with self._lock:
            self._positions = {**begins, **self._positions}

    def committed(self, positions: Mapping[TopicPartition, int]) -> None:
        with self._lock:
            count = sum(end - self._positions.get(place, end) for place, end in positions.items())
            self._positions.update(positions)
        self._tell(STREAM_OFFSETS, count)
        self._tell(STREAM_BATCHES, 1)

    def close(self) -> None:
        """Tell no lag any more: this process does not know of it from here on."""
        self._closed.set()
        self._tell(STREAM_LAG, 0)

    def report(self) -> None:
        """Tell how far it is behind now."""
        with self._lock:
            positions = dict(self._positions)
        try:
            behind = lag(positions, self._ends(positions.keys()))
        except Exception as error:  # noqa: BLE001  the stream itself meets it, if it lasts
            _log.debug("The lag of the stream of %r is not known: %s", self._tags["group"], error)
            return
        if not self._closed.is_set():
            self._tell(STREAM_LAG, behind)

    def _tell(self, metric: Metric, number: int) -> None:
        try:
            ours = _of(metric)
            if isinstance(ours, Gauge):
                ours.set(float(number), self._tags)
            elif number > 0:  # Ray takes no others
                ours.inc(float(number), self._tags)
        except Exception as error:  # noqa: BLE001  what was committed is committed, whatever Ray says to a number of it
            _log.warning("Ray was not told %s: %r", metric.name, error)


def _report_for_ever(metrics: weakref.ref[StreamMetrics], closed: threading.Event) -> None:
    """Report every few seconds, until the stream is closed, or gone without that."""
    pause = _FIRST_SECONDS
    while not closed.wait(pause) and (there := metrics()) is not None:
        there.report()
        del there  # while it waits, it keeps nothing
        pause = _PERIOD_SECONDS


def _of(metric: Metric) -> Counter | Gauge:
    found = _made.get(metric.name)
    if found is None:
        kind = Counter if metric.kind is MetricKind.COUNTER else Gauge
        found = _made[metric.name] = kind(metric.name, metric.description, metric.tags)
    return found

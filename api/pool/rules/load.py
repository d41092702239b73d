"""Figures of a pool's work: lag, arrival and the rate of an actor, from offsets and from what actors report.

What must stay true:
- Offsets that no actor will ever commit (markers of transactions, compacted records) are no lag for long: an actor with
  nothing in hand tells how far it has read, and nothing before that is lag.
- A rate is measured only while actors have more to do than they can: what an idle one does says nothing.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from raylog.api.connection.records import TopicPartition

_ARRIVAL_SECONDS: Final = 10.0
_RATE_SECONDS: Final = 30.0
_LONGEST_RATE_SECONDS: Final = 300.0
_LEAST_RECORDS: Final = 10  # for a rate; handlers that are slower are measured for longer
_LEAST_SECONDS: Final = 1.0  # of work


class LagMeter:
    """Lag and arrival, from offsets that are looked up now and then."""

    def __init__(self) -> None:
        self.lags: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._done: dict[TopicPartition, int] = {}
        self._arrived = 0
        self._samples: deque[tuple[float, int]] = deque()

    def look(
        self, begins: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int],
        committed: Mapping[TopicPartition, int], now: float,
    ) -> None:  # fmt: skip
        """Take in what was found. `begins`: where the group reads a partition of which it has committed nothing."""
        for place, end in ends.items():
            self._arrived += max(0, end - self._ends.get(place, end))
            if end < self._done.get(place, 0):
                self._done.pop(place)  # the log was cut, or the topic made anew
        self._ends = dict(ends)
        self.lags = {
            place: max(0, end - max(committed.get(place, begins.get(place, 0)), self._done.get(place, 0)))
            for place, end in ends.items()
        }
        self._samples.append((now, self._arrived))
        while len(self._samples) > 2 and now - self._samples[1][0] >= _ARRIVAL_SECONDS:
            self._samples.popleft()

    def read_up_to(self, positions: Mapping[TopicPartition, int]) -> None:
        """Note how far actors have read that have nothing in hand. It counts from the next look on."""
        self._done.update(positions)

    @property
    def lag(self) -> int:
        return sum(self.lags.values())

    @property
    def partitions(self) -> int:
        return len(self._ends)

    @property
    def behind(self) -> int:
        """The number of partitions that have lag."""
        return sum(lag > 0 for lag in self.lags.values())

    @property
    def arrival(self) -> float:
        """Records a second, of the last seconds."""
        (first, before), (last, after) = self._samples[0], self._samples[-1]
        return (after - before) / (last - first) if last > first else 0.0


@dataclass(frozen=True)
class WorkDone:
    """The part of an actor's report that says how fast it is. Totals since it began."""

    full_records: int = 0  # done while it had more to do than it could
    full_seconds: float = 0.0  # how long that was
    in_hand: int = 0  # records that it works on now


class RateMeter:
    """The records a second that one actor does, if it always has some."""

    def __init__(self) -> None:
        self._last: dict[str, WorkDone] = {}
        self._measures: deque[tuple[float, int, float]] = deque()
        self._in_hand = 0

    def hear(self, reports: Mapping[str, WorkDone], now: float) -> None:
        records, seconds = 0, 0.0
        for actor, work in reports.items():
            last = self._last.get(actor, WorkDone())
            records += max(0, work.full_records - last.full_records)
            seconds += max(0.0, work.full_seconds - last.full_seconds)
        self._last = dict(reports)
        self._in_hand = sum(work.in_hand for work in reports.values())
        if records or seconds:
            self._measures.append((now, records, seconds))
        while self._measures and self._may_forget(now):
            self._measures.popleft()

    def _may_forget(self, now: float) -> bool:
        """Whether the first measure is old, and the others are enough without it."""
        age = now - self._measures[0][0]
        others = _sum(list(self._measures)[1:])
        is_enough = others[0] >= _LEAST_RECORDS and others[1] >= _LEAST_SECONDS
        has_news = now - self._measures[-1][0] < _LONGEST_RATE_SECONDS
        return (age > _RATE_SECONDS and is_enough) or (age > _LONGEST_RATE_SECONDS and has_news)

    @property
    def rate(self) -> float | None:
        """None: too little was measured. What takes longer than it was measured is slower than this."""
        records, seconds = _sum(self._measures)
        if seconds < _LEAST_SECONDS:
            return None
        return max(records, self._in_hand if records == 0 else 0) / seconds or None

    def forget(self) -> None:
        """Begin anew: another handler works from now on."""
        self._measures.clear()


def _sum(measures: Iterable[tuple[float, int, float]]) -> tuple[int, float]:
    records, seconds = 0, 0.0
    for _, count, took in measures:
        records, seconds = records + count, seconds + took
    return records, seconds

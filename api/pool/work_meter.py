"""Counts of a worker, for its supervisor. They are written by the thread that works, and read by any."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace

from raylog.api.connection.records import TopicPartition
from raylog.api.pool.rules.load import WorkDone


@dataclass(frozen=True)
class WorkCounts:
    """Totals since the worker began, and what it has now."""

    handled: int = 0  # records, those put aside too
    failed: int = 0  # attempts
    put_aside: int = 0  # records
    done: WorkDone = field(default_factory=WorkDone)
    partitions: int = 0
    positions: Mapping[TopicPartition, int] = field(default_factory=dict)  # only with nothing in hand


class WorkMeter:
    """The counts of one worker. `now` is a clock in seconds."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._lock = threading.Lock()
        self._counts = WorkCounts()
        self._full_since: tuple[float, int] | None = None
        self._moved_at = now()

    def read(self) -> WorkCounts:
        with self._lock:
            self._measure()
            return self._counts

    def stuck_seconds(self) -> float:
        """Return for how long it has had something in hand without being heard of."""
        with self._lock:
            return self._now() - self._moved_at if self._counts.done.in_hand else 0.0

    def add(self, *, handled: int = 0, failed: int = 0, put_aside: int = 0) -> None:
        with self._lock:
            counts, self._moved_at = self._counts, self._now()
            self._counts = replace(
                counts,
                handled=counts.handled + handled,
                failed=counts.failed + failed,
                put_aside=counts.put_aside + put_aside,
            )

    def set_totals(self, *, handled: int, failed: int, put_aside: int) -> None:
        """Take over what somebody else has counted."""
        with self._lock:
            self._counts = replace(self._counts, handled=handled, failed=failed, put_aside=put_aside)

    def has(self, in_hand: int, *, is_full: bool) -> None:
        """Note how many records it works on, and whether it has more to do than it can from here on."""
        with self._lock:
            self._measure()
            self._moved_at = self._now()
            self._counts = replace(self._counts, done=replace(self._counts.done, in_hand=in_hand), positions={})
            self._full_since = (self._now(), self._counts.handled) if is_full else None

    def rests(self, positions: Mapping[TopicPartition, int], partitions: int) -> None:
        """Note that it has nothing in hand, and how far it has read."""
        self.has(0, is_full=False)
        with self._lock:
            self._counts = replace(self._counts, positions=dict(positions), partitions=partitions)

    def reads(self, partitions: int) -> None:
        with self._lock:
            self._counts = replace(self._counts, partitions=partitions)

    def _measure(self) -> None:
        if self._full_since is None:
            return
        since, handled = self._full_since
        now, done = self._now(), self._counts.done
        records = max(0, self._counts.handled - handled)
        seconds = done.full_seconds + max(0.0, now - since)
        self._counts = replace(
            self._counts, done=replace(done, full_records=done.full_records + records, full_seconds=seconds)
        )
        self._full_since = (now, self._counts.handled)

"""Plain numbers of what one replica has done as a leader. They outlive its roles, and begin anew with its process, or
under other tags.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raylog.actors.kernel.metrics import (
    APPEND_SECONDS,
    BYTES_IN,
    BYTES_OUT,
    FETCH_SECONDS,
    RECORDS_IN,
    RECORDS_OUT,
    LatencyCounts,
    Reading,
)


class ReplicaCounters:
    """Counters of one replica. `clock` tells seconds: the event loop's own, or a finer one that the shell has."""

    __slots__ = ("appends", "bytes_in", "bytes_out", "clock", "fetches", "records_in", "records_out")

    def __init__(self, clock: Callable[[], float]) -> None:
        self.clock = clock
        self.begin_anew()

    def begin_anew(self) -> None:
        """Forget what was counted."""
        self.bytes_in = 0
        self.records_in = 0
        self.bytes_out = 0
        self.records_out = 0
        self.appends = LatencyCounts()
        self.fetches = LatencyCounts()

    @property
    def state(self) -> tuple[float, ...]:
        """Return other numbers as soon as one of the counters has moved."""
        return self.bytes_in, self.bytes_out, self.records_in, self.records_out, self.appends.count, self.fetches.count

    def readings(self, tags: tuple[str, ...]) -> Iterator[Reading]:
        yield Reading(BYTES_IN, tags, self.bytes_in)
        yield Reading(RECORDS_IN, tags, self.records_in)
        yield Reading(BYTES_OUT, tags, self.bytes_out)
        yield Reading(RECORDS_OUT, tags, self.records_out)
        yield from self.appends.readings(APPEND_SECONDS, tags)
        yield from self.fetches.readings(FETCH_SECONDS, tags)

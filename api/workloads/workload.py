"""Workloads: their shape, after OpenMessaging's conventions, and what comes out of them.

    publish rate        records a second until all are acknowledged, as fast as it goes
    publish latency     from the moment a record is due until it is acknowledged, at a fixed rate
    end-to-end latency  from the same moment until a consumer in another process has it
    backlog drain       records a second that a consumer reads of what was written before it came

A record that is late because the one before it took long counts from when it was due, not from when it was sent.
"""

from __future__ import annotations

import itertools
import random
import struct
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Final

_STAMP: Final = struct.Struct("<q")
STAMP_BYTES: Final = _STAMP.size
UNREPLICATED: Final = ("redis", "nats")  # as `servers.py` starts them: no replicas, no choice of acks
NOT_MEASURED: Final = 0  # in place of the time: the latency of this record does not count
_POOL_BYTES: Final = 1 << 20


@dataclass(frozen=True)
class Workload:
    """One point of a grid. What a system has no word for (replicas, acks of Redis) it leaves aside."""

    partitions: int = 3
    size: int = 100  # bytes of a record
    replicas: int = 3
    acks: str = "all"
    rate: int = 1_000  # records a second while latency is measured
    seconds: float = 5.0  # of each phase
    group: int = 1_000  # records handed over at once while the rate is measured
    in_flight: int = 4  # such groups
    warm_up: float = 1.0

    @property
    def name(self) -> str:
        return f"{self.partitions}p-{self.size}b-rf{self.replicas}-acks{self.acks}"

    def point_of(self, driver: str) -> str:
        """Return which point of the grid it is, in what that system has words for."""
        return f"{self.partitions}p-{self.size}b" if driver in UNREPLICATED else self.name


@dataclass(frozen=True)
class Latency:
    """Milliseconds."""

    count: int
    average: float
    p50: float
    p75: float
    p95: float
    p99: float
    p999: float
    p9999: float
    most: float


NO_LATENCY: Final = Latency(0, -1, -1, -1, -1, -1, -1, -1, -1)


@dataclass(frozen=True)
class Outcome:
    """The results of one workload on one system."""

    workload: Workload
    driver: str
    version: str
    guarantee: str
    publish_rate: float  # records a second
    publish_latency: Latency
    end_to_end_latency: Latency
    backlog: int  # records
    drain_rate: float

    @property
    def point(self) -> str:
        return self.workload.point_of(self.driver)

    @property
    def publish_megabytes(self) -> float:
        return self.publish_rate * self.workload.size / 1e6


def grid(
    base: Workload, partitions: Sequence[int], sizes: Sequence[int], replicas: Sequence[int], acks: Sequence[str]
) -> Iterator[Workload]:
    """All combinations."""
    for count, size, factor, ack in itertools.product(partitions, sizes, replicas, acks):
        yield replace(base, partitions=count, size=size, replicas=factor, acks=ack)


def latency_of(samples: Sequence[float]) -> Latency:
    """Return the latencies of samples in seconds. A percentile is the smallest sample that at least so many of all are
    not above.
    """
    if not samples:
        return NO_LATENCY
    ranked = sorted(samples)

    def at(part: float) -> float:
        place = min(len(ranked) - 1, max(0, -(-int(part * 1e6) * len(ranked) // 1_000_000) - 1))
        return 1000 * ranked[place]

    average = 1000 * sum(ranked) / len(ranked)
    parts = at(0.5), at(0.75), at(0.95), at(0.99), at(0.999), at(0.9999)
    return Latency(len(ranked), average, *parts, 1000 * ranked[-1])


# --- records ------------------------------------------------------------------------------------------------------


class Payloads:
    """Records of one size that begin with when they were due, and do not compress."""

    def __init__(self, size: int) -> None:
        self._filling = size - STAMP_BYTES
        self._pool = random.Random(7).randbytes(_POOL_BYTES + size)
        self._place = 0

    def make(self, due_ns: int) -> bytes:
        self._place = (self._place + 997) % _POOL_BYTES
        return _STAMP.pack(due_ns) + self._pool[self._place : self._place + self._filling]


def due_of(payload: bytes) -> int:
    """Return when the record was due, in nanoseconds of the monotonic clock, which all processes of a machine share."""
    due: int = _STAMP.unpack_from(payload)[0]
    return due

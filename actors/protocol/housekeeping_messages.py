"""Messages between replicas, their broker and its housekeeping process. Kinds 70 to 79.

The housekeeping process dials its broker and tells its address. Replicas ask the broker for that, and then send their
plans to the process itself. Damage that it finds in their files is reported to them by way of the broker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TypeAlias

from raylog.actors.protocol.messages import Message, message

SegmentSpan: TypeAlias = tuple[int, int, int]  # base offset, next offset, size


@message(kind=70)
@dataclass(frozen=True, slots=True)
class HousekeeperHello(Message):
    """Sent by the housekeeping process to its broker. Answered with Done; an earlier process is killed."""

    pid: int
    endpoints: tuple[str, ...]


@message(kind=71)
@dataclass(frozen=True, slots=True)
class StopHousekeeper(Message):
    """Sent by the broker, one-way: end."""


@message(kind=72)
@dataclass(frozen=True, slots=True)
class FindHousekeeper(Message):
    """Sent by a replica to its broker: where is the housekeeping process?"""


@message(kind=73)
@dataclass(frozen=True, slots=True)
class HousekeeperFound(Message):
    """The answer to FindHousekeeper, the nearest endpoint first. None: there is no such process just now."""

    endpoints: tuple[str, ...]


@message(kind=74, version=2)
@dataclass(frozen=True, slots=True)
class CompactLog(Message):
    """Sent by a replica: carry this plan out (`compaction/plan.py`). Abandoned when the stream ends."""

    directory: str
    segments: tuple[SegmentSpan, ...]
    first_dirty_offset: int
    removable_below: int
    later: tuple[SegmentSpan, ...]
    segment_bytes: int
    index_interval_bytes: int
    unpack_limit: int
    planned_at_ms: int
    opening: str
    truncations: int
    run: str


@message(kind=75)
@dataclass(frozen=True, slots=True)
class LogCompacted(Message):
    """The answer to CompactLog: the new segments lie beside the old ones, synced, and may be put in place."""

    cleaned_to: int
    replaced: tuple[tuple[int, int], ...]
    bytes_before: int
    bytes_after: int
    records_before: int
    records_after: int
    keys: int
    map_bytes: int


@message(kind=59)  # 76 and on are the coordinators'
@dataclass(frozen=True, slots=True)
class SuspectReplica(Message):
    """Sent by the housekeeping process to its broker, for a replica: `SuspectBatch`, and its answers."""

    topic_id: bytes
    partition: int
    offset: int

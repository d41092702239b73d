"""Deciding what to compact. The plan says all that the work needs, so that it can be done in another process.

Planning looks at what the log has in memory, at one small file, and at a few headers: it is quick however long the log.

    0 … removable below … cleaned to ……………… limit ………………… log end
        tombstones may go   │  dirty: its keys  │  not to be touched: the growing segment, what is not yet
                            │  go into the map  │  replicated or decided, what is younger than min.compaction.lag.ms
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raylog.storage.segment.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    pass


class PlannedSegment(NamedTuple):
    base_offset: int
    next_offset: int
    size: int


class KnownWrite(Protocol):
    """A producer as the log knows it: the last offset of its newest batch of data (-1: none), and its epoch."""

    @property
    def last_offset(self) -> int: ...
    @property
    def epoch(self) -> int: ...


class KnownWrites(Protocol):
    """The producers that a log knows. One that goes on writing meanwhile only has newer writes, beyond the plan."""

    def get(self, producer_id: int, /) -> KnownWrite | None: ...


@dataclass(frozen=True)
class CompactionPlan:
    """One compaction of one log.

    What grows with the number of producers is no part of what two plans are compared by, and travels in files beside
    the log (`plan_files.py`).
    """

    directory: str
    segments: tuple[PlannedSegment, ...]  # from the log's beginning to the limit
    first_dirty_offset: int
    removable_below: int
    later: tuple[PlannedSegment, ...]  # the sealed ones after the limit, for their markers
    aborted_later: Sequence[AbortedTransaction] = field(compare=False)  # by markers in the growing segment
    last_writes: KnownWrites = field(compare=False)
    segment_bytes: int
    index_interval_bytes: int
    unpack_limit: int  # of one batch; one that unpacks to more stays whole
    planned_at_ms: int
    made_for: tuple[str, int]  # the opening of the log, and how often it had been cut: what else could look the same
    run: str  # in the names of what is written for this plan, and for no other

    @property
    def limit(self) -> int:
        return self.segments[-1].next_offset

    @property
    def dirty_offsets(self) -> int:
        """No more keys than this can be new."""
        return self.limit - self.first_dirty_offset

"""Deciding what to compact. The plan says all that the work needs, so that it can be done in another process.

Planning looks at what the log has in memory, at one small file, and at a few headers: it is quick however long the log.

    0 … removable below … cleaned to ……………… limit ………………… log end
        tombstones may go   │  dirty: its keys  │  not to be touched: the growing segment, what is not yet
                            │  go into the map  │  replicated or decided, what is younger than min.compaction.lag.ms
"""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple, Protocol

from raylog.config import INT64_MAX
from raylog.storage.append_checks import unpack_limit
from raylog.storage.compaction_progress import CompactionProgress
from raylog.storage.segment import Segment
from raylog.storage.transaction_index import AbortedTransaction

if TYPE_CHECKING:
    from raylog.storage.partition_log import PartitionLog


class PlannedSegment(NamedTuple):
    base_offset: int
    next_offset: int
    size: int


class KnownWrite(Protocol):
    """What a log knows of a producer: the last offset of its newest batch of data (-1: none), and its epoch."""

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


def plan_compaction(log: PartitionLog, now_ms: int, *, force: bool = False) -> CompactionPlan | None:
    """What to compact in `log` now; None where it is not worth while yet (`force`: where there is nothing dirty)."""
    _roll_if_waiting_too_long(log, now_ms)
    cleanable = _cleanable(log, now_ms)
    if not cleanable:
        return None
    progress = CompactionProgress.load(log.directory.disk, log.directory.path)
    first_dirty = max(progress.cleaned_to, cleanable[0].base_offset)
    dirty = [segment for segment in cleanable if segment.next_offset > first_dirty]
    if not dirty or not (force or _is_worth_while(log, cleanable, dirty, now_ms)):
        return None
    limit = cleanable[-1].next_offset
    sealed = [PlannedSegment(each.base_offset, each.next_offset, each.size) for each in log.segments.sealed]
    return CompactionPlan(
        directory=log.directory.path,
        segments=tuple(sealed[: len(cleanable)]),
        first_dirty_offset=first_dirty,
        removable_below=progress.removable_below(now_ms, log.config.delete_retention_ms),
        later=tuple(sealed[len(cleanable) :]),
        aborted_later=log.segments.active.transactions.overlapping(cleanable[0].base_offset, limit),
        last_writes=log.producers,
        segment_bytes=log.config.segment_bytes,
        index_interval_bytes=log.config.index_interval_bytes,
        unpack_limit=unpack_limit(log.config),
        planned_at_ms=now_ms,
        made_for=log.shape,
        run=secrets.token_hex(8),
    )


def _cleanable(log: PartitionLog, now_ms: int) -> list[Segment]:
    keep_from = min(log.high_watermark, log.last_stable_offset)
    youngest = now_ms - log.config.min_compaction_lag_ms
    cleanable = []
    for segment in log.segments.sealed:
        too_young = log.config.min_compaction_lag_ms > 0 and segment.largest_timestamp > youngest
        if segment.next_offset > keep_from or too_young:
            break
        cleanable.append(segment)
    return cleanable


def _is_worth_while(log: PartitionLog, cleanable: list[Segment], dirty: list[Segment], now_ms: int) -> bool:
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = sum(segment.size for segment in cleanable)
    if total_bytes and dirty_bytes / total_bytes >= log.config.min_cleanable_dirty_ratio:
        return True
    return now_ms - dirty[0].oldest_timestamp() > log.config.max_compaction_lag_ms


def _roll_if_waiting_too_long(log: PartitionLog, now_ms: int) -> None:
    active = log.segments.active
    lag = log.config.max_compaction_lag_ms
    if lag < INT64_MAX and active.size and now_ms - active.first_timestamp > lag:
        log.roll()

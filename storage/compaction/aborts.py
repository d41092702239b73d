"""The aborted transactions that a compaction has to know, from the files of the segments.

A transaction's data may end below the limit of a plan and its marker stand behind it, so the segments after the limit
count too. An index that is not to be believed is made again from the batches; that takes a scan, which is why all this
is the compactor's work and not the planner's.
"""

from __future__ import annotations

from collections.abc import Sequence

from raylog.errors import CompactionOutdated, LogDamaged
from raylog.storage.compaction.plan import CompactionPlan, PlannedSegment
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.segment.producer_replay import know_transactions
from raylog.storage.segment.segment import Segment, file_name
from raylog.storage.segment.segment_list import SegmentList
from raylog.storage.segment.transaction_index import SUFFIX, AbortedTransaction, TransactionIndex


def aborted_transactions(disk: Disk, plan: CompactionPlan) -> list[AbortedTransaction]:
    """Return the aborted transactions with records in the planned segments."""
    spans = (*plan.segments, *plan.later)
    start, found = plan.segments[0].base_offset, []
    for at, span in enumerate(spans):
        path = f"{plan.directory}/{file_name(span.base_offset, SUFFIX)}"
        try:
            index = TransactionIndex.load(disk, path, span.size)
        except SealBroken:
            index = _made_again(disk, plan, spans[: at + 1])
        found += index.overlapping(start, plan.limit)
        if index.complete_for(plan.limit):
            return found
    return [*found, *plan.aborted_later]


def _made_again(disk: Disk, plan: CompactionPlan, spans: Sequence[PlannedSegment]) -> TransactionIndex:
    """The index of the last of `spans`, from its batches and what the producers had open before them."""
    segments: list[Segment] = []
    last = spans[-1]
    try:
        for span in spans:
            segments.append(Segment.open(disk, plan.directory, span.base_offset, plan.index_interval_bytes, None))
            segments[-1].next_offset = span.next_offset
        return know_transactions(SegmentList(segments), segments[-1], plan.planned_at_ms)
    except FileNotFoundError:
        raise CompactionOutdated(last.base_offset, last.next_offset) from None
    except LogDamaged as damage:
        if any(segment.size < span.size for segment, span in zip(segments, spans, strict=False)):
            raise CompactionOutdated(last.base_offset, last.next_offset) from damage
        raise
    finally:
        for segment in segments:
            segment.close()

"""Plans and reports of compactions as messages, and back."""

from __future__ import annotations

from collections.abc import Sequence

from raylog.actors.protocol.housekeeping_messages import CompactLog, LogCompacted
from raylog.storage.compaction.cleaner import CompactionReport
from raylog.storage.compaction.plan import CompactionPlan, KnownWrites, PlannedSegment
from raylog.storage.segment.transaction_index import AbortedTransaction


def compact_log(plan: CompactionPlan) -> CompactLog:
    return CompactLog(
        plan.directory,
        plan.segments,
        plan.first_dirty_offset,
        plan.removable_below,
        plan.later,
        plan.segment_bytes,
        plan.index_interval_bytes,
        plan.unpack_limit,
        plan.planned_at_ms,
        *plan.made_for,
        plan.run,
    )


def plan_of(
    asked: CompactLog, aborted_later: Sequence[AbortedTransaction], last_writes: KnownWrites
) -> CompactionPlan:
    return CompactionPlan(
        directory=asked.directory,
        segments=tuple(PlannedSegment(*span) for span in asked.segments),
        first_dirty_offset=asked.first_dirty_offset,
        removable_below=asked.removable_below,
        later=tuple(PlannedSegment(*span) for span in asked.later),
        aborted_later=aborted_later,
        last_writes=last_writes,
        segment_bytes=asked.segment_bytes,
        index_interval_bytes=asked.index_interval_bytes,
        unpack_limit=asked.unpack_limit,
        planned_at_ms=asked.planned_at_ms,
        made_for=(asked.opening, asked.truncations),
        run=asked.run,
    )


def log_compacted(report: CompactionReport) -> LogCompacted:
    return LogCompacted(
        report.cleaned_to,
        tuple(report.replaced),
        report.bytes_before,
        report.bytes_after,
        report.records_before,
        report.records_after,
        report.keys,
        report.map_bytes,
    )


def report_of(done: LogCompacted, plan: CompactionPlan) -> CompactionReport:
    """The report of what was done for this plan."""
    return CompactionReport(
        done.cleaned_to,
        list(done.replaced),
        done.bytes_before,
        done.bytes_after,
        done.records_before,
        done.records_after,
        done.keys,
        done.map_bytes,
        plan.made_for,
        plan.run,
    )

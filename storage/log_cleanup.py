"""Getting rid of old records: whole segments by retention, outdated values by compaction, and in the end the files.

What must stay true: segments leave the log at once, but their files stay for `file.delete.delay.ms`, since readers on
this machine may be in the middle of them.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from raylog.errors import CompactionOutdated
from raylog.storage.compaction_progress import CompactionProgress, Pass
from raylog.storage.compaction_swap import commit_swap, finish_swap, is_written
from raylog.storage.disk import Disk
from raylog.storage.partition_directory import DELETED_SUFFIX
from raylog.storage.retention import Expired, SegmentFacts, expired_segments, is_past
from raylog.storage.segment import LOG_SUFFIX, Segment

if TYPE_CHECKING:
    from raylog.storage.compaction import CompactionReport
    from raylog.storage.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class Removal(NamedTuple):
    """Files out of the log's sight, and the open segments they belong to."""

    due_ms: int
    segments: Sequence[Segment]
    paths: Sequence[str]


class Removals:
    """What is to be removed later."""

    def __init__(self) -> None:
        self._waiting: list[Removal] = []

    def add(self, removal: Removal) -> None:
        self._waiting.append(removal)

    def carry_out(self, disk: Disk, now_ms: int, let_go: Callable[[Segment], None]) -> int:
        """Remove what is due; returns the number of files."""
        due = [removal for removal in self._waiting if removal.due_ms <= now_ms]
        for removal in due:
            for path in removal.paths:
                disk.remove(path)
            self._waiting.remove(removal)  # not before: a refusal is tried again next time
            for segment in removal.segments:
                let_go(segment)
        return sum(len(removal.paths) for removal in due)

    def close(self) -> None:
        """Let go of the files; the next opening removes them."""
        for removal in self._waiting:
            for segment in removal.segments:
                segment.close()


def delete_old_segments(log: PartitionLog, now_ms: int) -> list[Expired]:
    active = log.segments.active
    if active.size and log.config.deletes_old_segments and is_past(active.largest_timestamp, log.config, now_ms):
        log.roll()  # an idle partition gives up its last segment too, once all in it is too old
    facts = [
        SegmentFacts(segment.base_offset, segment.next_offset, segment.size, segment.largest_timestamp)
        for segment in log.segments.sealed
    ]
    keep_from = min(log.high_watermark, log.last_stable_offset)
    expired = expired_segments(
        facts, log.segments.active.size, log.config, now_ms, log.log_start_offset, keep_from
    )
    if expired:
        gone = [log.segments.containing(entry.base_offset) for entry in expired]
        log.advance_log_start(gone[-1].next_offset)
        for segment, entry in zip(gone, expired, strict=True):
            _log.info("%s: deleted, %s.", segment.path(LOG_SUFFIX), entry.reason)
            retired = segment.retire(DELETED_SUFFIX)  # if this fails, the segment is the log's still
            log.segments.remove(segment)
            _remove_later(log, [segment], retired, now_ms)
    return expired


def check_current(log: PartitionLog, report: CompactionReport) -> None:
    """Refuse a compaction of segments that the log does not have any more."""
    for base_offset, end_offset in report.replaced:
        old = _segments_between(log, base_offset, end_offset)
        same = old and old[0].base_offset == base_offset and old[-1].next_offset == end_offset
        if not same or not is_written(log.directory, base_offset) or report.made_for != log.shape:
            raise CompactionOutdated(base_offset, end_offset)


def install_compaction(log: PartitionLog, report: CompactionReport, now_ms: int) -> None:
    """Swap the new segments in; see `compaction_swap.py` for what a crash in between leaves."""
    for base_offset, end_offset in report.replaced:
        _install(log, base_offset, end_offset, now_ms)
    progress = CompactionProgress.load(log.disk, log.directory.path)
    done = progress.after(Pass(report.cleaned_to, now_ms), log.config.delete_retention_ms)
    done.save(log.disk, log.directory.path)
    _log.info(
        "%s: compacted to offset %d; %d of %d records stay, %d bytes became %d.",
        log.directory.path,
        report.cleaned_to,
        report.records_after,
        report.records_before,
        report.bytes_before,
        report.bytes_after,
    )


def _install(log: PartitionLog, base_offset: int, end_offset: int, now_ms: int) -> None:
    old = _segments_between(log, base_offset, end_offset)
    commit_swap(log.directory, base_offset)
    retired = finish_swap(log.directory, base_offset, [segment.base_offset for segment in old])
    log.segments.replace(old, log.opened_segment(base_offset, end_offset))
    _remove_later(log, old, retired, now_ms)


def _segments_between(log: PartitionLog, base_offset: int, end_offset: int) -> list[Segment]:
    return [segment for segment in log.segments.sealed if base_offset <= segment.base_offset < end_offset]


def _remove_later(log: PartitionLog, segments: Sequence[Segment], paths: Sequence[str], now_ms: int) -> None:
    log.removals.add(Removal(now_ms + log.config.file_delete_delay_ms, segments, paths))

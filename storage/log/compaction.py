"""Compaction as far as it touches the log itself: planning it, and putting its segments in place.

What must stay true: a log whose files are half swapped is cut or closed only after the swap has been finished
(`LogState.settle`).
"""

from __future__ import annotations

import logging
import secrets
from collections.abc import Callable, Iterator
from itertools import takewhile

from raylog.config import INT64_MAX
from raylog.errors import CompactionOutdated, DiskFailed
from raylog.storage.compaction.cleaner import CompactionReport
from raylog.storage.compaction.plan import CompactionPlan, PlannedSegment
from raylog.storage.compaction.progress import CompactionProgress, Pass
from raylog.storage.compaction.swap import SWAP_SUFFIX, commit_swap, is_written, put_in_place, retire_old
from raylog.storage.directory.partition_directory import DELETED_SUFFIX
from raylog.storage.format.batch_codec import unpack_limit
from raylog.storage.log.appends import roll
from raylog.storage.log.job import StepJob
from raylog.storage.log.state import LogState, all_or_offline
from raylog.storage.segment.segment import Segment

_log = logging.getLogger(__name__)


def plan_compaction(log: LogState, now_ms: int, *, force: bool = False) -> CompactionPlan | None:
    """Return what to compact in `log` now; None where it is not worth while yet (`force`: where there is nothing
    dirty), or while the log is cut.
    """
    if log.cut is not None:
        return None
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


def _cleanable(log: LogState, now_ms: int) -> list[Segment]:
    keep_from = min(log.high_watermark, log.last_stable_offset)
    youngest = now_ms - log.config.min_compaction_lag_ms
    cleanable = []
    for segment in log.segments.sealed:
        too_young = log.config.min_compaction_lag_ms > 0 and segment.largest_timestamp > youngest
        if segment.next_offset > keep_from or too_young:
            break
        cleanable.append(segment)
    return cleanable


def _is_worth_while(log: LogState, cleanable: list[Segment], dirty: list[Segment], now_ms: int) -> bool:
    dirty_bytes = sum(segment.size for segment in dirty)
    total_bytes = sum(segment.size for segment in cleanable)
    if total_bytes and dirty_bytes / total_bytes >= log.config.min_cleanable_dirty_ratio:
        return True
    return now_ms - dirty[0].oldest_timestamp() > log.config.max_compaction_lag_ms


def _roll_if_waiting_too_long(log: LogState, now_ms: int) -> None:
    active = log.segments.active
    lag = log.config.max_compaction_lag_ms
    if lag < INT64_MAX and active.size and now_ms - active.first_timestamp > lag:
        roll(log)


def check_current(log: LogState, report: CompactionReport) -> None:
    """Refuse a compaction of segments that the log does not have any more."""
    for base_offset, end_offset in report.replaced:
        old = _segments_between(log, base_offset, end_offset)
        same = old and old[0].base_offset == base_offset and old[-1].next_offset == end_offset
        if not same or not is_written(log.directory, base_offset, report.run) or report.made_for != log.shape:
            raise CompactionOutdated(base_offset, end_offset)


def install_compaction(log: LogState, report: CompactionReport, now_ms: int) -> None:
    """Put the segments that a compaction wrote in the place of the old ones."""
    Installation(log, report, now_ms).run()


class Installation(StepJob):
    """One step of `install_compaction`: one segment after the other takes the place of the old ones.

        apply: the first step  →  work: the sync that the next one relies on  →  apply: the next step  →  work  →  …

    Between two steps the log may be appended to, read and flushed. `compaction/swap.py` says what a crash leaves.
    """

    def __init__(self, log: LogState, report: CompactionReport, now_ms: int) -> None:
        super().__init__(log)
        check_current(log, report)
        log.settle()
        self._report = report
        self._now_ms = now_ms
        self._is_between = True  # two segments: none is half in place
        self._is_settled = False
        log.swap = self

    def _take_in(self) -> StepJob | None:
        """Take the next step. CompactionOutdated: the log was cut since, or it needed all of its segments in place."""
        if self._is_settled or self._report.made_for != self._log.shape:
            raise CompactionOutdated(0, self._report.cleaned_to)
        _take_step(self._log, self)
        return None if self._is_over else self

    def settle_in_steps(self) -> Iterator[Callable[[], object]]:
        """Finish the segment that is half in place, if one is, and go no further."""
        self._is_settled = True
        while not self._is_between:
            if self._is_over:
                raise DiskFailed(f"{self._log.directory.path}: a segment is half in place: {self._failure!r}")
            if self.has_work:
                yield self.work
            _take_step(self._log, self)

    def _run(self) -> Iterator[Callable[[], object]]:
        for base_offset, end_offset in self._report.replaced:
            if self._is_settled:
                return  # whoever asked for the rest gives it up, and removes its files
            self._is_between = False
            yield from self._swap(base_offset, end_offset)
            self._is_between = True
        yield self._save_progress
        self._log.swap = None
        _tell(self._log, self._report)

    def _swap(self, base_offset: int, end_offset: int) -> Iterator[Callable[[], object]]:
        log = self._log
        old = _segments_between(log, base_offset, end_offset)
        commit_swap(log.directory, base_offset, self._report.run)
        yield self._sync_names
        retired = retire_old(log.directory, base_offset, [segment.base_offset for segment in old])
        for segment in old:
            segment.was_retired(DELETED_SUFFIX)
        new = log.opened_segment(base_offset, end_offset, SWAP_SUFFIX)
        log.segments.replace(old, new)
        log.remove_later(old, retired, self._now_ms)
        yield self._sync_names
        put_in_place(log.directory, base_offset)
        new.has_lost_suffix()

    def _sync_names(self) -> None:
        self._log.disk.sync_directory(self._log.directory.path)

    def _save_progress(self) -> None:
        """Save the progress, unless a cut or the end has overtaken it; a cut writes down what is left of the progress
        before it.
        """
        self._sync_names()
        log, directory = self._log, self._log.directory
        with directory.progress_lock:
            if self._report.made_for == log.shape and not directory.is_released:
                progress = CompactionProgress.load(log.disk, directory.path)
                done = Pass(self._report.cleaned_to, self._now_ms)
                progress.after(done, log.config.delete_retention_ms).save(log.disk, directory.path)


@all_or_offline
def _take_step(_: LogState, installation: Installation) -> None:
    installation.take_step()


def _tell(log: LogState, report: CompactionReport) -> None:
    _log.info(
        "%s: compacted to offset %d; %d of %d records stay, %d bytes became %d.",
        log.directory.path,
        report.cleaned_to,
        report.records_after,
        report.records_before,
        report.bytes_before,
        report.bytes_after,
    )


def _segments_between(log: LogState, base_offset: int, end_offset: int) -> list[Segment]:
    """Return the segments that begin there; never the growing one."""
    found = takewhile(lambda each: each.base_offset < end_offset, log.segments.from_offset(base_offset))
    return [each for each in found if each.base_offset >= base_offset and each is not log.segments.active]

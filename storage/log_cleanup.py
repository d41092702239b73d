"""Getting rid of old records: whole segments by retention, outdated values by compaction, and in the end the files.

What must stay true:
- Segments leave the log at once, but their files stay for `file.delete.delay.ms`, since readers on this machine may be
  in the middle of them.
- What takes the disk long (syncing names, freeing a large file's blocks) can be done on another thread, while the log's
  owner goes on. So each of these jobs has steps: begin or go on, on the owner's thread; the slow work, anywhere; go on
  or finish, on the owner's thread.
- A log whose files are half swapped is cut or closed only after the swap has been finished (`Installation.settle`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Generator, Sequence
from itertools import islice, takewhile
from typing import TYPE_CHECKING, NamedTuple

from raylog.config import NO_LIMIT
from raylog.errors import CompactionOutdated, DiskFull
from raylog.storage.compaction_progress import CompactionProgress, Pass
from raylog.storage.compaction_swap import SWAP_SUFFIX, commit_swap, is_written, put_in_place, retire_old
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


class DueRemoval(NamedTuple):
    """Files whose time is over."""

    removals: Sequence[Removal]
    disk: Disk

    def carry_out(self) -> int:
        """Remove them; returns how many. On any thread: freeing the blocks of a large file takes long."""
        paths = [path for removal in self.removals for path in removal.paths]
        for path in paths:
            self.disk.remove(path)
        return len(paths)


class Removals:
    """What is to be removed later."""

    def __init__(self) -> None:
        self._waiting: list[Removal] = []

    def add(self, removal: Removal) -> None:
        self._waiting.append(removal)

    def begin(self, disk: Disk, now_ms: int, let_go: Callable[[Segment], None]) -> DueRemoval:
        """What is due. Its segments are let go first: a file's blocks are freed by whoever has it last."""
        for at, removal in enumerate(self._waiting):
            if removal.due_ms <= now_ms:
                for segment in removal.segments:
                    let_go(segment)
                self._waiting[at] = removal._replace(segments=())
        return DueRemoval([removal for removal in self._waiting if removal.due_ms <= now_ms], disk)

    def finish(self, due: DueRemoval) -> None:
        """It was carried out. What was not is due again the next time."""
        self._waiting = [removal for removal in self._waiting if removal not in due.removals]

    def close(self) -> None:
        """Let go of the files; the next opening removes them."""
        for removal in self._waiting:
            for segment in removal.segments:
                segment.close()


def may_have_old_segments(log: PartitionLog, now_ms: int, decides: bool, spared_ms: int) -> bool:
    """Whether `find_old_segments` is worth its while: asked often, so it looks at two segments and at no file."""
    oldest, config = log.segments[0], log.config
    if len(log.segments) > 1 and oldest.next_offset <= log.log_start_offset:
        return True
    if not decides or not config.deletes_old_segments or not log.size_bytes:
        return False
    if config.retention_bytes != NO_LIMIT and log.size_bytes - oldest.size >= config.retention_bytes:
        return oldest is not log.segments.active
    if config.retention_ms == NO_LIMIT or now_ms - oldest.written_ms < spared_ms:
        return False
    return not oldest.is_dated or is_past(oldest.largest_timestamp, config, now_ms)


def find_old_segments(
    log: PartitionLog, now_ms: int, at_most: int | None, decides: bool, spared_ms: int
) -> list[Expired]:
    """Those that may go; it rolls the growing one where that may go too."""
    active = log.segments.active
    may_expire = decides and active.size and log.config.deletes_old_segments and now_ms - active.written_ms >= spared_ms
    if may_expire and is_past(active.largest_timestamp, log.config, now_ms):
        _roll_if_there_is_room(log)  # an idle partition gives up its last segment too, once all in it is too old
    facts = (
        SegmentFacts(
            segment.base_offset, segment.next_offset, segment.size, segment.largest_timestamp, segment.written_ms
        )
        for segment in islice(log.segments.sealed, at_most)
    )
    keep_from = min(log.high_watermark, log.last_stable_offset)
    return expired_segments(
        facts, log.size_bytes, log.config, now_ms, log.log_start_offset, keep_from, decides, spared_ms
    )


def delete_old_segments(
    log: PartitionLog, now_ms: int, at_most: int | None, decides: bool, spared_ms: int
) -> list[Expired]:
    expired = find_old_segments(log, now_ms, at_most, decides, spared_ms)
    if expired:
        gone = [log.segments.containing(entry.base_offset) for entry in expired]
        log.advance_log_start(gone[-1].next_offset)
        for segment, entry in zip(gone, expired, strict=True):
            _log.info("%s: deleted, %s.", segment.path(LOG_SUFFIX), entry.reason)
            retired = _retire(log, segment)  # if this fails, the segment is the log's still
            log.segments.remove(segment)
            _remove_later(log, [segment], retired, now_ms)
    return expired


def _roll_if_there_is_room(log: PartitionLog) -> None:
    try:
        log.roll()
    except DiskFull as error:  # to delete the others is what makes room
        _log.warning("%s keeps its last segment for now: %s", log.directory.path, error)


def begin_at(log: PartitionLog, offset: int) -> None:
    """Let the log start there. Where not one block is free, segments that go by this pay for it with their indexes.

    These can be made again, should there be no room even then, and the segments stay.
    """
    going = iter([segment for segment in log.segments.sealed if segment.next_offset <= offset])
    while True:
        try:
            log.marks.begin_at(offset)
            return
        except DiskFull:
            segment = next(going, None)
            if segment is None:
                raise
            _remove_indexes(log, segment)


def _retire(log: PartitionLog, segment: Segment) -> list[str]:
    """On a full disk its indexes pay for this too: the longer names may need one more block for the directory."""
    try:
        return segment.retire(DELETED_SUFFIX)
    except DiskFull:
        _remove_indexes(log, segment)
        return segment.retire(DELETED_SUFFIX)


def _remove_indexes(log: PartitionLog, segment: Segment) -> None:
    for path in segment.index_paths():
        log.disk.remove(path)
        log.disk.remove(path + DELETED_SUFFIX)  # perhaps it has that name already


def check_current(log: PartitionLog, report: CompactionReport) -> None:
    """Refuse a compaction of segments that the log does not have any more."""
    for base_offset, end_offset in report.replaced:
        old = _segments_between(log, base_offset, end_offset)
        same = old and old[0].base_offset == base_offset and old[-1].next_offset == end_offset
        if not same or not is_written(log.directory, base_offset, report.run) or report.made_for != log.shape:
            raise CompactionOutdated(base_offset, end_offset)


class Installation:
    """Putting the segments of one compaction in the place of the old ones, one after the other.

        go_on (owner)  →  sync (anywhere)  →  go_on  →  sync  →  …  →  go_on returns None: it is over

    Between two steps the log may be appended to, read and flushed. `compaction_swap.py` says what a crash leaves.
    """

    def __init__(self, log: PartitionLog, report: CompactionReport, now_ms: int) -> None:
        self._log = log
        self._report = report
        self._now_ms = now_ms
        self._steps = self._install()
        self._sync: Callable[[], None] | None = None  # that the next step relies upon
        self._is_between = True  # segments: none is half in place
        self._is_settled = False

    def check_current(self) -> None:
        """CompactionOutdated: the log was cut since, or it needed all of its segments in place."""
        if self._is_settled or self._report.made_for != self._log.shape:
            raise CompactionOutdated(0, self._report.cleaned_to)

    def go_on(self) -> Callable[[], None] | None:
        """Take the next step; returns what has to be synced before the one after it."""
        self._sync = next(self._steps, None)
        return self._sync

    def settle(self) -> None:
        """Finish the segment that is half in place, if one is, and go no further."""
        while not self._is_between:
            if self._sync is not None:
                self._sync()
            self.go_on()
        self._is_settled = True

    def _install(self) -> Generator[Callable[[], None], None, None]:
        for base_offset, end_offset in self._report.replaced:
            self._is_between = False
            yield from self._swap(base_offset, end_offset)
            self._is_between = True
        yield self._save_progress
        _tell(self._log, self._report)

    def _swap(self, base_offset: int, end_offset: int) -> Generator[Callable[[], None], None, None]:
        log = self._log
        old = _segments_between(log, base_offset, end_offset)
        commit_swap(log.directory, base_offset, self._report.run)
        yield self._sync_names
        retired = retire_old(log.directory, base_offset, [segment.base_offset for segment in old])
        new = log.opened_segment(base_offset, end_offset, SWAP_SUFFIX)
        log.segments.replace(old, new)
        _remove_later(log, old, retired, self._now_ms)
        yield self._sync_names
        put_in_place(log.directory, base_offset)
        new.has_lost_suffix()

    def _sync_names(self) -> None:
        self._log.disk.sync_directory(self._log.directory.path)

    def _save_progress(self) -> None:
        """Unless a cut or the end has overtaken it; a cut writes down what is left of the progress before it."""
        self._sync_names()
        log, directory = self._log, self._log.directory
        with directory.progress_lock:
            if self._report.made_for == log.shape and not directory.is_released:
                progress = CompactionProgress.load(log.disk, directory.path)
                done = Pass(self._report.cleaned_to, self._now_ms)
                progress.after(done, log.config.delete_retention_ms).save(log.disk, directory.path)


def _tell(log: PartitionLog, report: CompactionReport) -> None:
    _log.info(
        "%s: compacted to offset %d; %d of %d records stay, %d bytes became %d.",
        log.directory.path,
        report.cleaned_to,
        report.records_after,
        report.records_before,
        report.bytes_before,
        report.bytes_after,
    )


def _segments_between(log: PartitionLog, base_offset: int, end_offset: int) -> list[Segment]:
    """Those that begin there; never the growing one."""
    found = takewhile(lambda each: each.base_offset < end_offset, log.segments.from_offset(base_offset))
    return [each for each in found if each.base_offset >= base_offset and each is not log.segments.active]


def _remove_later(log: PartitionLog, segments: Sequence[Segment], paths: Sequence[str], now_ms: int) -> None:
    log.removals.add(Removal(now_ms + log.config.file_delete_delay_ms, segments, paths))

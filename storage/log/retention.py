"""Retention: old segments that may go, by age, by size, or because their records were deleted, and how they go.

What its leader has just written stays for a while, however old its timestamps are: whoever imports old records can
read them. That is known of what this process wrote; what it found at its opening has been there for long enough.

What must stay true:
- Only a prefix of the sealed segments goes, and nothing at or above `keep_from`, the lower of high watermark and last
  stable offset.
- A segment leaves the log at once, but its files stay for a while (`state.Removals`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from itertools import islice
from typing import NamedTuple

from raylog.config import NO_LIMIT, TopicConfig
from raylog.errors import DiskFull, OffsetOutOfRange
from raylog.storage.directory.partition_directory import DELETED_SUFFIX
from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import NO_TIMESTAMP
from raylog.storage.log.appends import roll
from raylog.storage.log.job import Job
from raylog.storage.log.state import LogState
from raylog.storage.segment.segment import LOG_SUFFIX, Segment

_log = logging.getLogger(__name__)


# --- deciding ---


class SegmentFacts(NamedTuple):
    base_offset: int
    next_offset: int
    size: int
    largest_timestamp: int
    written_ms: int = NO_TIMESTAMP  # when something was written there last


class Expired(NamedTuple):
    base_offset: int
    reason: str


def expired_segments(
    sealed: Iterable[SegmentFacts],
    total_bytes: int,
    config: TopicConfig,
    now_ms: int,
    log_start_offset: int,
    keep_from: int,
    decides: bool = True,
    spared_ms: int = 0,
) -> list[Expired]:
    """The oldest segments that are to be deleted, in order, each with the reason for an operator to read.

    `total_bytes` is what the log holds now. `decides`: by age and size too, not by the log start offset alone; by age
    only what was written `spared_ms` ago. No more of `sealed` is looked at than the first segment that stays.
    """
    expired = []
    total = total_bytes
    for facts in sealed:
        if facts.next_offset > keep_from:
            break
        reason = _below_start(facts, log_start_offset)
        if reason is None and decides:
            reason = _too_old_or_too_much(facts, total, config, now_ms, spared_ms)
        if reason is None:
            break
        expired.append(Expired(facts.base_offset, reason))
        total -= facts.size
    return expired


def _below_start(facts: SegmentFacts, log_start_offset: int) -> str | None:
    if facts.next_offset > log_start_offset:
        return None
    return f"all its records are below the log start offset {log_start_offset}"


def _too_old_or_too_much(
    facts: SegmentFacts, total: int, config: TopicConfig, now_ms: int, spared_ms: int
) -> str | None:
    if not config.deletes_old_segments:
        return None
    if now_ms - facts.written_ms >= spared_ms and is_past(facts.largest_timestamp, config, now_ms):
        return f"its newest record is over retention.ms={config.retention_ms} old"
    if config.retention_bytes != NO_LIMIT and total - facts.size >= config.retention_bytes:
        return f"the partition holds {total} bytes, over retention.bytes={config.retention_bytes}"
    return None


def is_past(largest_timestamp: int, config: TopicConfig, now_ms: int) -> bool:
    """Whether a segment is too old. One without any timestamp holds nothing but compacted-away offsets."""
    if config.retention_ms == NO_LIMIT:
        return False
    return largest_timestamp == NO_TIMESTAMP or now_ms - largest_timestamp > config.retention_ms


# --- deleting ---


def may_have_old_segments(log: LogState, now_ms: int, *, decides: bool = True, spared_ms: int = 0) -> bool:
    """Whether `delete_old_segments` may have something to do.

    It is asked often, so it looks at two segments and at no file.
    """
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


def old_segments_due_in_ms(log: LogState, now_ms: int, *, decides: bool = True, spared_ms: int = 0) -> int | None:
    """Return when the oldest segment will be too old, if the clock goes on as it does. None: nothing goes by age.

    What goes by size, or because its records were deleted, is found by `may_have_old_segments` when something changes.
    """
    oldest, config = log.segments[0], log.config
    if not decides or not config.deletes_old_segments or config.retention_ms == NO_LIMIT or not log.size_bytes:
        return None
    too_old_ms = oldest.largest_timestamp + config.retention_ms + 1 if oldest.is_dated else now_ms
    return max(too_old_ms, oldest.written_ms + spared_ms) - now_ms


def _find_old_segments(log: LogState, now_ms: int, at_most: int | None, decides: bool, spared_ms: int) -> list[Expired]:
    """Return the segments that may go. It rolls the growing segment where that may go too."""
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
    log: LogState, now_ms: int, at_most: int | None = None, *, decides: bool = True, spared_ms: int = 0
) -> list[Expired]:
    """Take out of the log what retention allows; `remove_deleted_files` frees the space later.

    Where the log's owner does not decide what is too old or too much (`decides`), only what is below the log start
    offset goes. What this process wrote within `spared_ms` does not go by age.
    """
    log.settle_swap()
    expired = _find_old_segments(log, now_ms, at_most, decides, spared_ms)
    if expired:
        gone = [log.segments.containing(entry.base_offset) for entry in expired]
        advance_log_start(log, gone[-1].next_offset)
        for segment, entry in zip(gone, expired, strict=True):
            _log.info("%s: deleted, %s.", segment.path(LOG_SUFFIX), entry.reason)
            retired = _retire(log, segment)  # if this fails, the segment is the log's still
            log.segments.remove(segment)
            log.remove_later([segment], retired, now_ms)
    return expired


class _StartAhead:
    """Writes down where the log will start, on any thread.

    Where not one block is free, segments that go by this pay for it with their indexes. These can be made again, should
    there be no room even then, and the segments stay.
    """

    def __init__(self, log: LogState, offset: int) -> None:
        self._disk = log.disk
        self._going = [segment.index_paths() for segment in log.segments.sealed if segment.next_offset <= offset]
        self.write = log.marks.write_ahead(offset)

    def carry_out(self) -> None:
        going = iter(self._going)
        while True:
            try:
                self.write.carry_out()
                return
            except DiskFull:
                paths = next(going, None)
                if paths is None:
                    raise
                _remove_indexes(self._disk, paths)


class LogStart(Job[None]):
    """Lets the log begin at an offset, which `work` writes ahead, so that the owner need not wait for the disk.

    Where something else was written meanwhile, nothing has moved: it is to be planned anew.
    """

    def __init__(self, log: LogState, offset: int) -> None:
        super().__init__(log)
        if offset > log.high_watermark:
            raise OffsetOutOfRange(offset, log.log_start_offset, log.high_watermark)
        self._ahead = _StartAhead(log, offset) if offset > log.log_start_offset else None

    @property
    def has_work(self) -> bool:
        return self._ahead is not None

    def work(self) -> None:
        if self._ahead is not None:
            self._ahead.carry_out()

    def _take_in(self) -> None:
        log = self._log
        if self._ahead is not None and log.directory.is_newest(self._ahead.write):
            advance_log_start(log, self._ahead.write.checkpoint.log_start_offset)


class Deletion(Job[list[Expired]]):
    """Deletes old segments. The log start is written ahead, so that the owner need not wait for the disk.

    `decides` is asked for the plan, and again before anything is deleted: the owner may have lost its part meanwhile.
    """

    def __init__(
        self,
        log: LogState,
        now_ms: int,
        at_most: int | None = None,
        *,
        decides: Callable[[], bool] = lambda: True,
        spared_ms: int = 0,
    ) -> None:
        super().__init__(log)
        self._now_ms = now_ms
        self._decides = decides
        self._spared_ms = spared_ms
        log.settle_swap()
        old = _find_old_segments(log, now_ms, at_most, decides(), spared_ms)
        self._at_most = len(old)  # what has become too old or too much since was not written ahead
        start = log.segments.containing(old[-1].base_offset).next_offset if old else log.log_start_offset
        self._ahead = _StartAhead(log, start) if start > log.log_start_offset else None

    @property
    def has_work(self) -> bool:
        return self._ahead is not None

    def work(self) -> None:
        if self._ahead is not None:
            self._ahead.carry_out()

    def _take_in(self) -> list[Expired]:
        return delete_old_segments(
            self._log, self._now_ms, self._at_most, decides=self._decides(), spared_ms=self._spared_ms
        )


def delete_records(log: LogState, before_offset: int) -> int:
    """Let the log begin at `before_offset`, durably; returns the log start offset."""
    if not log.log_start_offset <= before_offset <= log.high_watermark:
        if before_offset < log.log_start_offset:
            return log.log_start_offset
        raise OffsetOutOfRange(before_offset, log.log_start_offset, log.high_watermark)
    advance_log_start(log, before_offset)
    return log.log_start_offset


def advance_log_start(log: LogState, offset: int) -> None:
    """Let the log start at `offset`, if that is further on."""
    if offset > log.log_start_offset:
        _begin_at(log, offset)
        log.epochs.cut_start(offset)


def remove_deleted_files(log: LogState, now_ms: int) -> int:
    """Remove the files whose `file.delete.delay.ms` is over; returns how many."""
    return FileRemoval(log, now_ms).run()


class FileRemoval(Job[int]):
    """Removes deleted files. To free the blocks of a large file takes long."""

    def __init__(self, log: LogState, now_ms: int) -> None:
        super().__init__(log)
        self._due = log.removals.take_due(now_ms, log.flushes.let_go)
        self._paths = [path for removal in self._due for path in removal.paths]

    @property
    def has_work(self) -> bool:
        return bool(self._due)

    def work(self) -> None:
        for path in self._paths:
            self._log.disk.remove(path)

    def _take_in(self) -> int:
        self._log.removals.were_carried_out(self._due)
        return len(self._paths)


class SegmentDating(Job[None]):
    """Finds the largest timestamps of sealed segments that are not in memory yet.

    None of the segments may be replaced before `apply`.
    """

    def __init__(self, log: LogState, segments: Sequence[Segment]) -> None:
        super().__init__(log)
        self._undated = [segment for segment in segments if not segment.is_dated]
        self._shape = log.shape
        self._found: list[int] = []

    @property
    def has_work(self) -> bool:
        return bool(self._undated)

    def work(self) -> None:
        """Stop at the first segment that is gone."""
        with suppress(FileNotFoundError):
            for segment in self._undated:
                self._found.append(segment.find_largest_timestamp())

    def _take_in(self) -> None:
        """Forget them if the log was cut: the segments may be others by now."""
        if self._log.shape == self._shape:
            for segment, timestamp in zip(self._undated, self._found, strict=False):
                segment.date(timestamp)


def _roll_if_there_is_room(log: LogState) -> None:
    try:
        roll(log)
    except DiskFull as error:  # to delete the others is what makes room
        _log.warning("%s keeps its last segment for now: %s", log.directory.path, error)


def _begin_at(log: LogState, offset: int) -> None:
    if not log.marks.is_written_ahead(offset):
        _StartAhead(log, offset).carry_out()
    log.marks.begin_at(offset)


def _retire(log: LogState, segment: Segment) -> list[str]:
    """Rename the files of a segment. On a full disk its indexes pay for this too: the longer names may need one more
    block for the directory.
    """
    try:
        return segment.retire(DELETED_SUFFIX)
    except DiskFull:
        _remove_indexes(log.disk, segment.index_paths())
        return segment.retire(DELETED_SUFFIX)


def _remove_indexes(disk: Disk, paths: Sequence[str]) -> None:
    for path in paths:
        disk.remove(path)
        disk.remove(path + DELETED_SUFFIX)  # perhaps it has that name already

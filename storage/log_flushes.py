"""The flushes of one log: when one is due, which are under way, what they have proven, and what is kept open for them.

What must stay true:
- The recovery point moves over what was synced, and only while no cut has come between (`LogFlush.truncations`).
- A segment that the log has no more is closed once no flush is under way: a sync of a closed file would seem to fail.
"""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING

from raylog.errors import DiskFull
from raylog.storage.log_flush import FlushSchedule, LogFlush
from raylog.storage.segment import Segment

if TYPE_CHECKING:
    from raylog.storage.partition_log import PartitionLog

_log = logging.getLogger(__name__)


class LogFlushes:
    """Told by its log of all that changes what has to be synced."""

    def __init__(self, log: PartitionLog) -> None:
        self._log = log
        self._schedule = FlushSchedule()
        self._under_way = 0
        self._name_changes = 1
        self._names_synced = 0
        self._counted_unsynced = log.log_end_offset  # what is below may count though it is not synced
        self._let_go: list[Segment] = []

    # --- what changes ---

    def appended(self, records: int, now_ms: int) -> None:
        self._schedule.appended(records, now_ms)

    def rolled(self) -> None:
        self.names_changed()
        self._schedule.rolled()

    def names_changed(self) -> None:
        """Files came, went, or were renamed."""
        self._name_changes += 1

    def settings_changed(self) -> None:
        self._counted_unsynced = self._log.log_end_offset

    def let_go(self, segment: Segment) -> None:
        """Close a segment that the log has no more, as soon as no flush can be at it."""
        self._let_go.append(segment)
        self._close_if_idle()

    # --- flushing ---

    def is_due(self, now_ms: int) -> bool:
        return self._schedule.is_due(self._log.config, now_ms)

    def begin(self) -> LogFlush:
        log = self._log
        self._schedule.began()
        self._under_way += 1
        behind = [
            segment
            for segment in log.segments.from_offset(log.recovery_point)
            if segment.next_offset > log.recovery_point
        ]
        return LogFlush(
            log.disk,
            log.directory.path,
            [segment.file for segment in behind],
            [path for segment in behind if segment.is_sealed for path in segment.index_paths()],
            log.log_end_offset,
            log.truncations,
            self._name_changes,
            self._name_changes != self._names_synced,
        )

    def finish(self, flush: LogFlush) -> None:
        self._is_over()
        self._names_synced = max(self._names_synced, flush.name_changes)
        if flush.truncations == self._log.truncations:
            self._log.marks.synced_to(flush.end_offset)
            self._write_flush_policy()
        else:
            self._schedule.overtaken()

    def abandon(self, flush: LogFlush) -> None:
        where = self._log.directory.path
        _log.warning("%s: a flush up to offset %d failed; it is due again.", where, flush.end_offset)
        self._schedule.overtaken()
        self._is_over()

    @property
    def is_letting_go(self) -> bool:
        """Whether files of segments that the log has no more are still open, for a flush."""
        return bool(self._let_go)

    def close(self) -> None:
        """The log is closed, so nothing is kept open any more."""
        while self._let_go:
            self._let_go.pop().close()

    def _is_over(self) -> None:
        self._under_way -= 1
        self._close_if_idle()

    def _close_if_idle(self) -> None:
        if not self._under_way:
            self.close()

    def _write_flush_policy(self) -> None:
        """Once all is synced that counted before: see `PartitionDirectory.write_config`."""
        log = self._log
        is_held_back = log.directory.flush_policy != log.config.flush_policy
        if is_held_back and log.recovery_point >= min(self._counted_unsynced, log.log_end_offset):
            try:
                log.directory.write_config(log.config, all_synced=True)
            except DiskFull as error:
                _log.warning("%s: its flush policy is written down after a later flush: %s", log.directory.path, error)

"""Making appended batches, and the marks of the log, survive a machine crash without stalling the appends.

What must stay true: the recovery point moves over what was synced, and only if the log has not been cut since the flush
was planned.
"""

from __future__ import annotations

import logging

from raylog.errors import DiskFull
from raylog.storage.disk.sealed_file import sync_sealed
from raylog.storage.log.job import Job
from raylog.storage.log.state import LogState

_log = logging.getLogger(__name__)


class Flush(Job[int]):
    """Makes all that is in the log now safe. `apply` moves the recovery point, and returns it.

    Each flush has to be applied or abandoned: until then files that leave the log stay open for it.
    """

    def __init__(self, log: LogState) -> None:
        super().__init__(log)
        log.flushes.began()
        synced_to = log.recovery_point
        behind = [segment for segment in log.segments.from_offset(synced_to) if segment.next_offset > synced_to]
        self._files = [segment.file for segment in behind]
        self._index_paths = [path for segment in behind if segment.is_sealed for path in segment.index_paths()]
        self._end_offset = log.log_end_offset
        self._truncations = log.truncations
        self._name_changes = log.flushes.name_changes
        self._has_new_names = log.flushes.name_changes != log.flushes.names_synced

    def work(self) -> None:
        """Sync it. A failure is final for the log: see `DiskFailed`."""
        for file in self._files:
            file.sync()
        sync_sealed(self._log.disk, self._index_paths)
        if self._has_new_names:
            self._log.disk.sync_directory(self._log.directory.path)

    def _take_in(self) -> int:
        """A flush that a truncation has overtaken proves nothing."""
        log, flushes = self._log, self._log.flushes
        flushes.is_over()
        flushes.names_synced = max(flushes.names_synced, self._name_changes)
        if self._truncations == log.truncations:
            log.marks.synced_to(self._end_offset)
            log.let_files_rest()
            write_flush_policy(log)
        else:
            flushes.proved_nothing()
        return log.recovery_point

    def abandon(self) -> None:
        """Give the flush up: what it was to make safe is due again."""
        log = self._log
        _log.warning("%s: a flush up to offset %d failed; it is due again.", log.directory.path, self._end_offset)
        log.flushes.proved_nothing()
        log.flushes.is_over()


def flush(log: LogState) -> int:
    """Sync all that is in the log; returns the recovery point."""
    return Flush(log).run()


class Checkpoint(Job[bool]):
    """Puts the marks of the log on disk, as they are now. `apply` says whether they were written.

    They are not where newer marks were written meanwhile: see `CheckpointWrite`.
    """

    def __init__(self, log: LogState) -> None:
        super().__init__(log)
        self._write = log.marks.begin_write()
        self._is_written = False

    def work(self) -> None:
        self._is_written = self._write.carry_out()

    def _take_in(self) -> bool:
        return self._is_written


def write_flush_policy(log: LogState) -> None:
    """Once all is synced that counted before: see `PartitionDirectory.write_config`."""
    is_held_back = log.directory.flush_policy != log.config.flush_policy
    if is_held_back and log.recovery_point >= min(log.flushes.counted_unsynced, log.log_end_offset):
        try:
            log.directory.write_config(log.config, all_synced=True)
        except DiskFull as error:
            _log.warning("%s: its flush policy is written down after a later flush: %s", log.directory.path, error)

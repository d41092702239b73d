"""Making appended batches survive a machine crash, without stalling the appends.

A flush has three steps, so that the slow one can run on another thread while the owner goes on appending:
`begin_flush` collects what to sync, `LogFlush.sync` blocks on the disk, and `finish_flush` moves the recovery point.
Where the sync fails, `abandon_flush` takes the third step's place.

What must stay true: the recovery point moves over what was synced, and only if the log has not been cut since the flush
began (`LogFlush.truncations`).
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from raylog.errors import DiskFull
from raylog.storage.disk.disk import Disk, DiskFile
from raylog.storage.disk.sealed_file import sync_sealed
from raylog.storage.log.state import LogState

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class LogFlush:
    """What has to reach the disk for everything below `end_offset` to be safe."""

    disk: Disk
    directory: str
    files: Sequence[DiskFile]
    index_paths: Sequence[str]
    end_offset: int
    truncations: int  # how often the log had been cut when this began
    name_changes: int  # and how often its files had changed
    new_names: bool

    def sync(self) -> None:
        """Block until it is safe. A failure is final for the log: see `DiskFailed`."""
        for file in self.files:
            file.sync()
        sync_sealed(self.disk, self.index_paths)
        if self.new_names:
            self.disk.sync_directory(self.directory)


def begin_flush(log: LogState) -> LogFlush:
    """What has to be synced for all that is in the log now to survive a machine crash. Each is to be finished."""
    log.flushes.began()
    synced_to = log.recovery_point
    behind = [segment for segment in log.segments.from_offset(synced_to) if segment.next_offset > synced_to]
    return LogFlush(
        log.disk,
        log.directory.path,
        [segment.file for segment in behind],
        [path for segment in behind if segment.is_sealed for path in segment.index_paths()],
        log.log_end_offset,
        log.truncations,
        log.flushes.name_changes,
        log.flushes.name_changes != log.flushes.names_synced,
    )


def finish_flush(log: LogState, flush: LogFlush) -> None:
    """Take note that `flush` has been synced. One that a truncation has overtaken proves nothing."""
    flushes = log.flushes
    flushes.is_over()
    flushes.names_synced = max(flushes.names_synced, flush.name_changes)
    if flush.truncations == log.truncations:
        log.marks.synced_to(flush.end_offset)
        _write_flush_policy(log)
    else:
        flushes.proved_nothing()


def abandon_flush(log: LogState, flush: LogFlush) -> None:
    """Take note that `flush` failed: it is over, and what it was to make safe is due again."""
    _log.warning("%s: a flush up to offset %d failed; it is due again.", log.directory.path, flush.end_offset)
    log.flushes.proved_nothing()
    log.flushes.is_over()


def flush(log: LogState) -> int:
    """Sync all that is in the log; returns the recovery point."""
    begun = begin_flush(log)
    try:
        begun.sync()
    except BaseException:
        abandon_flush(log, begun)
        raise
    finish_flush(log, begun)
    return log.recovery_point


def _write_flush_policy(log: LogState) -> None:
    """Once all is synced that counted before: see `PartitionDirectory.write_config`."""
    is_held_back = log.directory.flush_policy != log.config.flush_policy
    if is_held_back and log.recovery_point >= min(log.flushes.counted_unsynced, log.log_end_offset):
        try:
            log.directory.write_config(log.config, all_synced=True)
        except DiskFull as error:
            _log.warning("%s: its flush policy is written down after a later flush: %s", log.directory.path, error)

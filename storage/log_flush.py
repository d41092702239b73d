"""Making appended batches survive a machine crash, without stalling the appends.

A flush has three steps, so that the slow one can run on another thread while the owner goes on appending:
`PartitionLog.begin_flush()` collects what to sync, `LogFlush.sync()` blocks on the disk, and
`PartitionLog.finish_flush()` moves the recovery point. `PartitionLog.flush()` does all three.
Where the sync fails, `PartitionLog.abandon_flush()` takes the third step's place.
"""

from __future__ import annotations

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from raylog.config import TopicConfig
from raylog.errors import DiskError, DiskFailed
from raylog.storage.disk import Disk, DiskFile

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
        sync_indexes(self.disk, self.index_paths)
        if self.new_names:
            self.disk.sync_directory(self.directory)


def sync_indexes(disk: Disk, paths: Sequence[str]) -> None:
    """Spare the next opening the making of indexes that are there. One that retention has taken away is no loss."""
    for path in paths:
        try:
            file = disk.open(path)
        except FileNotFoundError:
            continue
        except DiskFailed:
            raise
        except DiskError as error:  # it can be made again, so the batches' flush need not wait for it
            _log.warning("An index is not synced: %s", error)
            continue
        try:
            file.sync()
        finally:
            file.close()


class FlushSchedule:
    """When `flush.messages` or `flush.ms` ask for a flush. A sealed segment asks for one by itself."""

    def __init__(self) -> None:
        self._records = 0
        self._waiting_since_ms: int | None = None
        self._at_once = False

    def appended(self, records: int, now_ms: int) -> None:
        self._records += records
        if self._waiting_since_ms is None:
            self._waiting_since_ms = now_ms

    def rolled(self) -> None:
        self._at_once = True

    def overtaken(self) -> None:
        """A flush proved nothing, so what it was to make safe still waits."""
        self._at_once = True

    def began(self) -> None:
        self._records = 0
        self._waiting_since_ms = None
        self._at_once = False

    def is_due(self, config: TopicConfig, now_ms: int) -> bool:
        if self._at_once or self._records >= config.flush_messages:
            return True
        if self._waiting_since_ms is None:
            return False
        return config.flush_policy == "fsync" or now_ms - self._waiting_since_ms >= config.flush_ms

"""One replica's log: what the rest of raylog appends to, reads from, truncates, trims and flushes.

    state      state.py: segments, epochs, producers, marks; what a call that fails means
    calls      functions over the state, by subject: appends.py, reader.py, truncation.py, retention.py, compaction.py,
               flushing.py, settings.py, copying.py
    jobs       job.py: slow calls in steps, made by `plan_…`
    this file  which of them the rest of raylog may make, and what an error in each means for the log

What must stay true:
- One owner: the directory is locked for as long as the log is open, and one thread calls these methods. Only
  `Job.work` may run on another thread.
- A method that raises has changed nothing, unless it raised `DiskFailed` or `LogDamaged`: then the log is offline, and
  every later call says so (rule 2); damage is also remembered on disk (rule 14).
- The clock is an argument. Nothing here waits for anything but the disk.
"""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import ExitStack

from raylog.config import ConfigValue, TopicConfig
from raylog.errors import LogDamaged, LogOffline
from raylog.storage.directory.partition_directory import (
    CleanShutdown,
    PartitionDirectory,
    PartitionIdentity,
)
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.local_disk import LocalDisk
from raylog.storage.disk.sealed_file import sync_sealed
from raylog.storage.log import (
    aborted_transactions,
    appends,
    compaction,
    copying,
    flushing,
    reader,
    retention,
    role_start,
    settings,
    truncation,
)
from raylog.storage.log.recovery import LogRecovery
from raylog.storage.log.state import LogState, quarantine, reading, while_open
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX
from raylog.storage.segment.segment import file_name


class PartitionLog(LogState):
    """The log of one replica. Made by `PartitionLog.open`."""

    @classmethod
    def open(
        cls,
        path: str,
        identity: PartitionIdentity,
        overrides: Mapping[str, ConfigValue] | None = None,
        *,
        now_ms: int,
        disk: Disk | None = None,
        incarnation: int = 0,
        is_named: bool = False,
    ) -> PartitionLog:
        """Open the replica in the directory `path`, creating it as this incarnation if that is blank.

        `is_named`: if there is such a directory, whoever has made it has made its name durable.

        `overrides` are the topic's settings under Kafka's names. Raises `LogDamaged` for a replica that is, or by this
        becomes, quarantined; `DirectoryLocked`, `WrongCluster`, `WrongPartition`, `DirectoryNotOurs` for a directory
        that is not to be touched.
        """
        config = TopicConfig.parse(overrides or {})
        directory, created = PartitionDirectory.open(
            disk or LocalDisk(), path, identity, config.overrides(), incarnation, is_named=is_named
        )
        try:
            return cls(directory, config, LogRecovery(directory, config, now_ms).run(created))
        except LogDamaged as damage:
            quarantine(directory, damage)
            directory.release()
            raise
        except BaseException:
            directory.release()
            raise

    # --- roles ---

    plan_role_start = while_open(role_start.RoleStart)
    plan_followed_epoch = while_open(role_start.FollowedEpoch)
    begin_epoch = while_open(role_start.begin_epoch)

    # --- appending ---

    append_as_leader = while_open(appends.append_as_leader)
    append_as_follower = while_open(appends.append_as_follower)
    roll = while_open(appends.roll)

    # --- reading ---

    read = reading(reader.read)
    slice = reading(reader.file_slice)
    offset_for_timestamp = reading(reader.offset_for_timestamp)
    look_up_timestamp = reading(reader.look_up_timestamp)
    aborted_between = reading(reader.aborted_between)
    find_aborted = reading(reader.find_aborted)
    lacks_aborted = reading(aborted_transactions.lacks_aborted)
    plan_aborted = while_open(aborted_transactions.AbortedReading)
    inspect = reading(reader.inspect)
    spot_of = reading(reader.spot_of_offset)
    spot_from = reading(reader.spot_from_position)

    # --- truncating ---

    plan_copy = while_open(copying.LogCopy)
    plan_truncation = while_open(truncation.Truncation)
    plan_restart = while_open(truncation.Restart)
    truncate_to = while_open(truncation.truncate_to)
    restart_at = while_open(truncation.restart_at)

    # --- getting rid of old records ---

    delete_records = while_open(retention.delete_records)
    plan_log_start = while_open(retention.LogStart)
    may_have_old_segments = while_open(retention.may_have_old_segments)
    old_segments_due_in_ms = while_open(retention.old_segments_due_in_ms)
    delete_old_segments = while_open(retention.delete_old_segments)
    plan_deletion = while_open(retention.Deletion)
    remove_deleted_files = while_open(retention.remove_deleted_files)
    plan_removal = while_open(retention.FileRemoval)
    plan_dating = while_open(retention.SegmentDating)
    plan_compaction = while_open(compaction.plan_compaction)
    install_compaction = while_open(compaction.install_compaction)
    plan_installation = while_open(compaction.Installation)

    # --- flushing ---

    flush = while_open(flushing.flush)
    plan_flush = while_open(flushing.Flush)

    # --- marks and settings ---

    @while_open
    def checkpoint(self) -> None:
        """Put the marks on disk."""
        self.marks.write()

    plan_checkpoint = while_open(flushing.Checkpoint)

    plan_settings = while_open(settings.LogSettings)
    update_config = while_open(settings.update_config)

    @while_open
    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers idle for `producer.id.expiration.ms`; returns their ids."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # --- ending ---

    def abandon(self) -> None:
        """Close it as it is, since its directory goes. Opened again, it would be as after a crash of its process."""
        self._end()
        self.close()

    def close(self) -> None:
        """Sync everything and leave a note that nothing needs to be checked next time."""
        with ExitStack() as at_last:  # whatever fails on the way, the lock goes
            at_last.callback(self.directory.release)
            for segment in self.segments:
                at_last.callback(segment.close)
            at_last.callback(self.flushes.close)
            at_last.callback(self.removals.close)
            at_last.callback(self._end)
            if self.offline_because is None:
                self._close_cleanly()

    def _end(self) -> None:
        if self.offline_because is None:
            self.offline_because = LogOffline("it was closed.")

    @while_open
    def _close_cleanly(self) -> None:
        self.settle()
        self.epochs.take_back()
        self.make_first_file()  # the note names each segment
        self.segments.active.save_indexes()
        end = self.log_end_offset
        snapshot = self.directory.file(file_name(end, SNAPSHOT_SUFFIX))
        self.producers.save(self.disk, snapshot, end)
        self.flush()
        sync_sealed(self.disk, [*self.segments.active.index_paths(), snapshot])
        self.checkpoint()
        sizes = tuple((segment.base_offset, segment.size) for segment in self.segments)
        self.directory.write_clean_shutdown(CleanShutdown(end, sizes))

"""The directory of one replica: whose it is, what it remembers beside the batches, and its lock.

    .lock                         flock: one owner
    partition.json                cluster id, topic, topic id, partition, configuration; written last at creation
    log-checkpoint                boot id, recovery point, high watermark, log start offset, and what is unfinished
    clean-shutdown                the segments and their sizes at the last clean close; absent while the log is open
    quarantine                    why this replica may not be used any more (rule 14)
    disk-failed                   the disk has refused a write or a sync: what was unsynced has to be written again
    leader-epoch-checkpoint       see leader_epochs.py
    <offset>.log .index .timeindex .txnindex .snapshot      none while nothing was ever written

What must stay true: all of the named files are replaced whole (rule 15). The log start offset on disk is never behind
what has been deleted, so a first segment that begins after it is missing data.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Container, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Final

from raylog.config import ConfigValue, TopicConfig
from raylog.errors import DirectoryNotOurs, DiskError, LogDamaged, WrongCluster, WrongPartition
from raylog.storage.directory.doubts import BLANK
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX, Body, read_checkpoint, write_checkpoint, write_unnamed
from raylog.storage.disk.disk import DirectoryLock, Disk
from raylog.storage.segment.cutting import remove_file
from raylog.storage.segment.leader_epochs import FILE_NAME as LEADER_EPOCHS_FILE
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX
from raylog.storage.segment.segment import LOG_SUFFIX, file_name

LOCK_FILE: Final = ".lock"
PARTITION_FILE: Final = "partition.json"
CHECKPOINT_FILE: Final = "log-checkpoint"
CLEAN_SHUTDOWN_FILE: Final = "clean-shutdown"
QUARANTINE_FILE: Final = "quarantine"
DISK_FAILED_FILE: Final = "disk-failed"
DELETED_SUFFIX: Final = ".deleted"
CLEANED_SUFFIX: Final = ".cleaned"
CHECKPOINT_VERSION: Final = 2  # 1: without `created_as`
_VERSION: Final = 1

_SEGMENT_FILE: Final = re.compile(r"(\d{20})(\.[a-z]+)")
_OF_A_SEGMENT: Final = re.compile(r"\d{20}\.")
# What a creation that was interrupted may have left behind, or a compaction of an earlier topic of the same name that
# has not heard of its end yet.
_BEFORE_CREATION: Final = frozenset((LOCK_FILE, CHECKPOINT_FILE, LEADER_EPOCHS_FILE))
_ALSO_BEFORE_CREATION: Final = (TEMPORARY_SUFFIX, CLEANED_SUFFIX)


@dataclass(frozen=True)
class PartitionIdentity:
    """The partition and the topic of a directory; the id tells a topic from an earlier one of the same name."""

    cluster_id: str
    topic: str
    topic_id: str
    partition: int

    def __str__(self) -> str:
        return f"partition {self.partition} of topic {self.topic!r} (id {self.topic_id})"


@dataclass(frozen=True)
class LogCheckpoint:
    """The facts that a log knows when it is opened. Everything below the recovery point has been synced."""

    boot_id: str
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0
    unproven: str = ""  # why the controller has to hear of this replica before anybody relies on it, see doubts.py
    restart: tuple[int, int] | None = None  # thrown away half way: (first offset, log start offset) to go on with
    created_as: int = 0  # the incarnation that created the directory; 0: not known


@dataclass(frozen=True)
class CleanShutdown:
    """(base offset, size) of each segment, and the log end offset, when the log was closed."""

    log_end_offset: int
    segments: tuple[tuple[int, int], ...]


def emptied(marks: LogCheckpoint) -> LogCheckpoint:
    """Return the marks of a log that was thrown away, as `marks.restart` says."""
    assert marks.restart is not None
    base_offset, start = marks.restart
    return replace(
        marks, recovery_point=base_offset, high_watermark=start, log_start_offset=start, restart=None
    )


def may_precede_creation(name: str) -> bool:
    """Whether a directory that is not a replica's yet may hold a file of this name: its creation was cut short."""
    return name in _BEFORE_CREATION or name.endswith(_ALSO_BEFORE_CREATION)


class PartitionDirectory:
    """An open, locked directory."""

    def __init__(self, disk: Disk, path: str, identity: PartitionIdentity, lock: DirectoryLock) -> None:
        self.disk = disk
        self.path = path
        self.identity = identity
        self._lock = lock
        self._writing = threading.Lock()
        self._writing_config = threading.Lock()
        self._checkpoints = 0
        self._configs = 0
        self.marks_on_disk: LogCheckpoint | None = None  # None: not known, say after a write that failed
        self._carried_out = 0  # the number of the last that was
        self.is_released = False
        self.flush_policy = ""  # as it is written down: with fsync, all that the log counts has been synced
        self.copy_lock = threading.Lock()  # of the copies of it that log_copy.py makes
        self.progress_lock = threading.Lock()  # of the file that compaction_progress.py writes
        self.has_new_segment = False  # the only one, and its name may not be durable
        self.was_empty = False  # but for its lock: an opening need not look for what an earlier process has left

    @classmethod
    def open(
        cls,
        disk: Disk,
        path: str,
        identity: PartitionIdentity,
        overrides: Mapping[str, ConfigValue],
        incarnation: int,
        *,
        is_named: bool,
    ) -> tuple[PartitionDirectory, bool]:
        """Lock the directory and check that it is this partition's, creating it as this incarnation if it is blank.

        Returns it, and whether it is new. `is_named`: if it is there, its name is durable.
        """
        is_named = is_named and disk.exists(path)
        disk.make_directory(path)
        directory = cls(disk, path, identity, disk.lock_directory(path))
        try:
            created = directory._check_or_create(overrides, incarnation)
            if created and not is_named:
                disk.sync_directory(path.rpartition("/")[0] or "/")
            if not directory.was_empty:
                directory._refuse_quarantined()
        except BaseException:
            directory.release()
            raise
        return directory, created

    def _check_or_create(self, overrides: Mapping[str, ConfigValue], incarnation: int) -> bool:
        try:
            found, config = read_checkpoint(self.disk, self.file(PARTITION_FILE), _VERSION, _parse_identity)
        except FileNotFoundError:
            self.was_empty = self._refuse_strange_files() == [LOCK_FILE]
            self._create(overrides, incarnation)
            return True
        if found.cluster_id != self.identity.cluster_id:
            raise WrongCluster(self.path, f"cluster {found.cluster_id}", f"cluster {self.identity.cluster_id}")
        if found != self.identity:
            raise WrongPartition(self.path, str(found), str(self.identity))
        if self._is_half_made():
            self._create(overrides, incarnation)
            return True
        self.flush_policy = TopicConfig.parse(config).flush_policy
        wanted = TopicConfig.parse(overrides)
        if config != self._writable(wanted, all_synced=False).overrides():
            self.write_config(wanted, all_synced=False)
        return False

    def _refuse_strange_files(self) -> list[str]:
        """Return what is there. DirectoryNotOurs where a creation that was cut short cannot have left it."""
        names = self.disk.list_directory(self.path)
        for name in names:
            if not may_precede_creation(name):
                raise DirectoryNotOurs(self.path, f"it holds {name!r}, but no {PARTITION_FILE}")
        return names

    def _is_half_made(self) -> bool:
        """Return whether the power went as it was created. It is as good as blank, and made anew as that (rule 7)."""
        names = self.disk.list_directory(self.path)
        return CHECKPOINT_FILE not in names and not any(map(_OF_A_SEGMENT.match, names))

    def _create(self, overrides: Mapping[str, ConfigValue], incarnation: int) -> None:
        # One sync makes both names durable. After a power cut there may be either without the other.
        blank = asdict(LogCheckpoint(self.disk.boot_id(), unproven=BLANK, created_as=incarnation))
        write_unnamed(self.disk, self.file(CHECKPOINT_FILE), CHECKPOINT_VERSION, blank)
        self.write_config(TopicConfig.parse(overrides), all_synced=True)

    def write_config(self, config: TopicConfig, *, all_synced: bool) -> None:
        """Write down whose this is and the settings; `flush.policy=fsync` waits until all in the log is synced.

        What was counted before the change stood in the page cache: a reboot that takes it has to raise doubt (rule 7).
        """
        self.begin_config(config, all_synced=all_synced).carry_out()

    def begin_config(self, config: TopicConfig, *, all_synced: bool) -> ConfigWrite:
        """Return the next write of them. From now on those that were begun before it are overtaken."""
        self._configs += 1
        return ConfigWrite(self, self._writable(config, all_synced), self._configs)

    def carry_out_config(self, write: ConfigWrite) -> bool:
        with self._writing_config:
            if write.number != self._configs:
                return False
            body = {**asdict(self.identity), "config": write.config.overrides()}
            write_checkpoint(self.disk, self.file(PARTITION_FILE), _VERSION, body)
            self.flush_policy = write.config.flush_policy
            return True

    def _writable(self, config: TopicConfig, all_synced: bool) -> TopicConfig:
        may_be_written = all_synced or config.flush_policy != "fsync" or self.flush_policy == "fsync"
        return config if may_be_written else replace(config, flush_policy=self.flush_policy)

    def release(self) -> None:
        """Give up the lock. What other threads were still to write here stays unwritten."""
        with self._writing, self._writing_config, self.progress_lock:
            self._checkpoints += 1
            self._configs += 1
            self.is_released = True
            self._lock.release()

    def file(self, name: str) -> str:
        return f"{self.path}/{name}"

    # --- files of segments ---

    def files_with(self, suffix: str) -> list[int]:
        """The offsets for which there is a file with this suffix, rising."""
        matches = map(_SEGMENT_FILE.fullmatch, self.disk.list_directory(self.path))
        return [int(match[1]) for match in matches if match and match[2] == suffix]

    def segment_bases(self) -> list[int]:
        return self.files_with(LOG_SUFFIX)

    def remove_snapshots(self, keep: Container[int]) -> None:
        """Remove the producers' states but those where a segment begins: of no use, or of a log that is gone."""
        for offset in self.files_with(SNAPSHOT_SUFFIX):
            if offset not in keep:
                self.disk.remove(self.file(file_name(offset, SNAPSHOT_SUFFIX)))

    def remove_segment_files(self) -> None:
        """Remove whatever belongs to a segment, also half-way through a compaction."""
        for name in self.disk.list_directory(self.path):
            if _OF_A_SEGMENT.match(name):
                if LOG_SUFFIX in name:
                    remove_file(self.disk, self.file(name))
                else:
                    self.disk.remove(self.file(name))

    # --- what is remembered ---

    def read_checkpoint(self) -> LogCheckpoint:
        path = self.file(CHECKPOINT_FILE)
        try:
            self.marks_on_disk = read_checkpoint(self.disk, path, CHECKPOINT_VERSION, parse_marks)
            return self.marks_on_disk
        except FileNotFoundError:
            raise LogDamaged(path, 0, "the file is missing") from None

    def write_checkpoint(self, checkpoint: LogCheckpoint) -> None:
        self.begin_checkpoint(checkpoint).carry_out()

    def begin_checkpoint(self, checkpoint: LogCheckpoint) -> CheckpointWrite:
        """The next write of the marks. From now on those that were begun before it are overtaken."""
        self._checkpoints += 1
        return CheckpointWrite(self, checkpoint, self._checkpoints)

    def carry_out(self, write: CheckpointWrite) -> bool:
        with self._writing:
            if write.number != self._checkpoints:
                return False
            self.marks_on_disk = None
            if self.has_new_segment:  # marks that count on a segment without a name would make a power cut damage
                self.disk.sync_directory(self.path)
                self.has_new_segment = False
            write_checkpoint(self.disk, self.file(CHECKPOINT_FILE), CHECKPOINT_VERSION, asdict(write.checkpoint))
            self.marks_on_disk, self._carried_out = write.checkpoint, write.number
            return True

    def is_newest(self, write: CheckpointWrite) -> bool:
        """Whether these are the marks on disk, and no others are on their way."""
        return write.number == self._checkpoints == self._carried_out

    def read_clean_shutdown(self) -> CleanShutdown | None:
        try:
            return read_checkpoint(self.disk, self.file(CLEAN_SHUTDOWN_FILE), _VERSION, _parse_shutdown)
        except FileNotFoundError:
            return None

    def write_clean_shutdown(self, shutdown: CleanShutdown) -> None:
        body = {"log_end_offset": shutdown.log_end_offset, "segments": [list(pair) for pair in shutdown.segments]}
        write_checkpoint(self.disk, self.file(CLEAN_SHUTDOWN_FILE), _VERSION, body)

    def forget_clean_shutdown(self) -> None:
        """Must reach the disk before anything is appended: a marker that is wrong would hide a crash."""
        if self.disk.exists(self.file(CLEAN_SHUTDOWN_FILE)):
            self.disk.remove(self.file(CLEAN_SHUTDOWN_FILE))
            self.disk.sync_directory(self.path)

    def quarantine(self, damage: LogDamaged) -> None:
        """Remember, through restarts, that this replica is damaged (rule 14)."""
        body = {"path": damage.path, "position": damage.position, "reason": damage.reason}
        write_checkpoint(self.disk, self.file(QUARANTINE_FILE), _VERSION, body)

    def note_failed_disk(self, error: DiskError) -> None:
        """Tell the next process of this boot. It is not synced, so it works on a disk that refuses each sync.

        A reboot takes the pages in question anyway, and raises doubt.
        """
        self.disk.write_file(self.file(DISK_FAILED_FILE), f"{error}\n".encode())

    def has_failed_disk(self) -> bool:
        return self.disk.exists(self.file(DISK_FAILED_FILE))

    def forget_failed_disk(self) -> None:
        """All that may have been dropped is in dirty pages again, or was lost with them."""
        if self.has_failed_disk():
            self.disk.remove(self.file(DISK_FAILED_FILE))

    def _refuse_quarantined(self) -> None:
        try:
            damage = read_checkpoint(self.disk, self.file(QUARANTINE_FILE), _VERSION, parse_damage)
        except FileNotFoundError:
            return
        raise damage


@dataclass(frozen=True)
class CheckpointWrite:
    """Marks on their way to the disk, which may be carried out on another thread: it takes two syncs.

    One that was overtaken leaves the file alone. So marks that a truncation has lowered are never raised again by a
    write that began before it, and the owner, who overtakes, waits for no more than the one that is being written.
    """

    directory: PartitionDirectory
    checkpoint: LogCheckpoint
    number: int

    def carry_out(self) -> bool:
        """Whether it was written."""
        return self.directory.carry_out(self)


@dataclass(frozen=True)
class ConfigWrite:
    """Settings on their way to the disk, as `CheckpointWrite` is for marks."""

    directory: PartitionDirectory
    config: TopicConfig  # as it may be written
    number: int

    def carry_out(self) -> bool:
        """Write it. False: it was overtaken."""
        return self.directory.carry_out_config(self)


def _parse_identity(body: Body) -> tuple[PartitionIdentity, Mapping[str, ConfigValue]]:
    config = body.pop("config")
    return PartitionIdentity(**body), config


def parse_marks(body: Body) -> LogCheckpoint:
    """Return what a `log-checkpoint` says."""
    restart = body.pop("restart", None)
    return LogCheckpoint(**body, restart=restart and (restart[0], restart[1]))


def _parse_shutdown(body: Body) -> CleanShutdown:
    return CleanShutdown(body["log_end_offset"], tuple((base, size) for base, size in body["segments"]))


def parse_damage(body: Body) -> LogDamaged:
    """Return what a `quarantined` file says."""
    return LogDamaged(body["path"], body["position"], body["reason"])

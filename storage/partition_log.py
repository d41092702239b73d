"""One replica's log: what the rest of raylog appends to, reads from, truncates, trims and flushes.

    log start offset ≤ last stable offset ≤ high watermark ≤ log end offset

What must stay true:
- One owner: the directory is locked for as long as the log is open, and one thread calls these methods
  (`LogFlush.sync` alone may run elsewhere).
- A method that raises has changed nothing, unless it raised `DiskFailed` or `LogDamaged`: then the log is offline, and
  every later call says so (rule 2); damage is also remembered on disk (rule 14).
- The clock is an argument. Nothing here waits for anything but the disk.
"""

from __future__ import annotations

import functools
import logging
import secrets
import zlib
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from typing import TYPE_CHECKING, Concatenate, NamedTuple, ParamSpec, TypeVar

from raylog.config import ConfigValue, TopicConfig
from raylog.errors import (
    DiskError,
    DiskFailed,
    DiskFull,
    InvalidLeaderEpoch,
    LogDamaged,
    LogOffline,
    OffsetOutOfRange,
    OffsetsNotContiguous,
    RaylogError,
    StaleLeaderEpoch,
)
from raylog.storage import compaction_plan, log_cleanup, log_reader, log_truncation
from raylog.storage.append_checks import check_new_batch, check_replicated
from raylog.storage.control_records import decode_marker
from raylog.storage.damaged_ranges import DamagedRanges, Spot, spot_from, spot_of
from raylog.storage.disk import Disk
from raylog.storage.local_disk import LocalDisk
from raylog.storage.log_cleanup import DueRemoval, Installation, Removals
from raylog.storage.log_copy import LogCopy
from raylog.storage.log_flush import LogFlush, sync_indexes
from raylog.storage.log_flushes import LogFlushes
from raylog.storage.log_marks import LogMarks
from raylog.storage.log_reader import FetchedBatches, FileSlice, Isolation, TimestampOffset
from raylog.storage.log_recovery import LogRecovery, RecoveredLog
from raylog.storage.log_truncation import PreparedCut
from raylog.storage.partition_directory import (
    DELETED_SUFFIX,
    CheckpointWrite,
    CleanShutdown,
    LogCheckpoint,
    PartitionDirectory,
    PartitionIdentity,
)
from raylog.storage.producer_replay import take_in
from raylog.storage.producer_state import SNAPSHOT_SUFFIX, ProducerStates
from raylog.storage.record_batch import (
    MAX_LEADER_EPOCH,
    MAX_OFFSET,
    MAX_OFFSET_DELTA,
    NO_LEADER_EPOCH,
    NO_TIMESTAMP,
    BatchHeader,
    Bytes,
    MutableBytes,
    read_header,
    stamp,
    stamp_log_append_time,
)
from raylog.storage.retention import Expired
from raylog.storage.segment import LOG_SUFFIX, Segment, file_name
from raylog.storage.transaction_index import AbortedRange, AbortedTransaction

if TYPE_CHECKING:
    from raylog.storage.compaction import CompactionReport
    from raylog.storage.compaction_plan import CompactionPlan

_log = logging.getLogger(__name__)

_P = ParamSpec("_P")
_R = TypeVar("_R")


class Waiting(NamedTuple):
    """Batches that will be in the growing segment before the one in question."""

    size: int = 0
    first_timestamp: int = NO_TIMESTAMP

    def and_also(self, header: BatchHeader) -> Waiting:
        first = header.max_timestamp if self.first_timestamp == NO_TIMESTAMP else self.first_timestamp
        return Waiting(self.size + header.size, first)


_NOTHING_WAITS = Waiting()


class Appended(NamedTuple):
    """Where a batch stands in the log, and the time its records got there, if they got one.

    A duplicate names both as they were when it arrived for the first time.
    """

    first_offset: int
    last_offset: int
    is_duplicate: bool = False
    append_time_ms: int = NO_TIMESTAMP


def _offline(log: PartitionLog) -> LogOffline:
    return LogOffline(f"{log.directory.path} is offline: {log.offline_because}")


def _while_open(
    method: Callable[Concatenate[PartitionLog, _P], _R],
) -> Callable[Concatenate[PartitionLog, _P], _R]:
    """Refuse the call on a log that is offline, and take the log offline where the call finds a reason."""

    @functools.wraps(method)
    def guarded(log: PartitionLog, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if log.offline_because is not None:
            raise _offline(log)
        try:
            return method(log, *args, **kwargs)
        except (DiskFailed, LogDamaged) as error:
            log.go_offline(error)
            raise

    return guarded


def _reading(
    method: Callable[Concatenate[PartitionLog, _P], _R],
) -> Callable[Concatenate[PartitionLog, _P], _R]:
    """As `_while_open`, for calls that change nothing: what damage means that they meet is for the owner to say."""

    @functools.wraps(method)
    def guarded(log: PartitionLog, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        if log.offline_because is not None:
            raise _offline(log)
        try:
            return method(log, *args, **kwargs)
        except DiskFailed as error:
            log.go_offline(error)
            raise
        except LogDamaged as damage:
            log.when_damaged(damage)
            raise

    return guarded


def _all_or_offline(
    method: Callable[Concatenate[PartitionLog, _P], _R],
) -> Callable[Concatenate[PartitionLog, _P], _R]:
    """As `_while_open`, for calls that cannot be undone half way: whatever stops them takes the log offline."""

    @functools.wraps(method)
    def guarded(log: PartitionLog, /, *args: _P.args, **kwargs: _P.kwargs) -> _R:
        try:
            return method(log, *args, **kwargs)
        except RaylogError as error:
            log.go_offline(error)
            raise

    return _while_open(guarded)


def quarantine(directory: PartitionDirectory, damage: LogDamaged) -> None:
    """Write down that the replica is damaged; a disk that refuses even that must not hide the damage itself."""
    try:
        directory.quarantine(damage)
    except DiskError as error:
        _log.error("%s is damaged, and that could not be written down: %s", directory.path, error)


class PartitionLog:
    """The log of one replica. Made by `PartitionLog.open`."""

    def __init__(self, directory: PartitionDirectory, config: TopicConfig, recovered: RecoveredLog) -> None:
        self.directory = directory
        self.config = config
        self.segments = recovered.segments
        self.epochs = recovered.epochs
        self.producers = recovered.producers
        self.opened_after = recovered.opened_after
        self.marks = LogMarks(directory, recovered.checkpoint)
        self.offline_because: RaylogError | None = None
        self.damaged = DamagedRanges()
        self.when_damaged: Callable[[LogDamaged], None] = self.go_offline  # an owner may know more (rule 14)
        self.disk = directory.disk
        self.flushes = LogFlushes(self)
        self.truncations = 0
        self._opening = secrets.token_hex(8)
        self.removals = Removals()
        self._installation: Installation | None = None
        self.producers.settle(self.high_watermark)

    @classmethod
    def open(
        cls,
        path: str,
        identity: PartitionIdentity,
        overrides: Mapping[str, ConfigValue] | None = None,
        *,
        now_ms: int,
        disk: Disk | None = None,
    ) -> PartitionLog:
        """Open the replica in the directory `path`, creating it if that is blank.

        `overrides` are the topic's settings under Kafka's names. Raises `LogDamaged` for a replica that is, or by this
        becomes, quarantined; `DirectoryLocked`, `WrongCluster`, `WrongPartition`, `DirectoryNotOurs` for a directory
        that is not to be touched.
        """
        config = TopicConfig.parse(overrides or {})
        directory, created = PartitionDirectory.open(disk or LocalDisk(), path, identity, config.overrides())
        try:
            return cls(directory, config, LogRecovery(directory, config, now_ms).run(created))
        except LogDamaged as damage:
            quarantine(directory, damage)
            directory.release()
            raise
        except BaseException:
            directory.release()
            raise

    # --- what it holds ---

    @property
    def log_end_offset(self) -> int:
        return self.segments.active.next_offset

    @property
    def log_start_offset(self) -> int:
        return self.marks.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.marks.high_watermark

    @property
    def last_stable_offset(self) -> int:
        """Below it every transaction has ended, and its marker is replicated."""
        unstable, marks = self.producers.first_unstable_offset(), self.marks
        if unstable is None:
            return marks.high_watermark
        return max(marks.log_start_offset, min(unstable, marks.high_watermark))

    @property
    def recovery_point(self) -> int:
        """Everything below it has been synced."""
        return self.marks.recovery_point

    @property
    def unproven(self) -> str:
        """Why the controller has to hear of this replica before anybody relies on it, through restarts (rule 7)."""
        return self.marks.unproven

    @property
    def size_bytes(self) -> int:
        return self.segments.size_bytes

    @_while_open
    def confirm_registered(self) -> None:
        """The controller has heard of this replica as it is: blank, or perhaps shorter than it was (rule 7)."""
        if self.marks.unproven:
            self.marks.registered()

    # --- appending ---

    @_while_open
    def begin_epoch(self, epoch: int) -> None:
        """Become the log of a leader: its epoch is on disk before its first batch is (rule 8)."""
        if not 0 <= epoch <= MAX_LEADER_EPOCH:
            raise InvalidLeaderEpoch(epoch)
        self.epochs.assign(epoch, self.log_end_offset)

    @_while_open
    def append_as_leader(
        self,
        batch: MutableBytes,
        leader_epoch: int,
        now_ms: int,
        checked: BatchHeader | None = None,
        *,
        control: bool = False,
    ) -> Appended:
        """Check `batch`, stamp offset and epoch into it in place, and append it.

        After that `batch` holds the bytes to push to followers. A duplicate is answered, not appended; it is to be
        acknowledged once the high watermark has passed it (rule 18). `checked`: what `check_new_batch` has said of it.
        """
        if leader_epoch != self.epochs.latest or leader_epoch == NO_LEADER_EPOCH:
            raise StaleLeaderEpoch(leader_epoch, self.epochs.latest)
        header = checked or check_new_batch(batch, self.config, now_ms, control=control)
        if control:
            marker = decode_marker(header, batch)
            assert marker is not None  # a new batch has records
            self.producers.check_marker(header, marker)
        elif header.has_producer:
            earlier = self.producers.check(header)
            if earlier is not None:
                return Appended(earlier.first_offset, earlier.last_offset, True, earlier.append_time_ms)
        append_time_ms = NO_TIMESTAMP
        if self.config.message_timestamp_type == "LogAppendTime":
            append_time_ms = now_ms
            stamp_log_append_time(batch, now_ms)
        stamp(batch, self.log_end_offset, leader_epoch)
        header = read_header(batch)
        if self._must_roll(header):
            self._roll()
        self._write(batch, [header], [memoryview(batch)], now_ms)
        return Appended(header.base_offset, header.last_offset, False, append_time_ms)

    @_while_open
    def append_as_follower(self, data: Bytes, now_ms: int) -> int:
        """Append batches as the leader stamped them; returns the new log end offset.

        All of `data` is checked before any of it is written, and it must join on to the log's end. Where a write fails
        (`DiskFull`), the batches before it are in the log: the log end offset tells.
        """
        arrived = check_replicated(data, self.log_end_offset, self.epochs.latest)
        if not arrived:
            return self.log_end_offset
        first = arrived[0][0].base_offset
        if first < self.log_end_offset:  # the leader's log starts inside a batch, and this log is still empty
            self._begin_inside_batch(first)
        try:
            self._append_checked(arrived, now_ms)
        finally:
            if self.log_end_offset < self.log_start_offset and self.offline_because is None:
                self._restart(self.log_start_offset, self.log_start_offset)  # not even that batch could be written
        return self.log_end_offset

    def _append_checked(self, arrived: Sequence[tuple[BatchHeader, memoryview]], now_ms: int) -> None:
        group: list[tuple[BatchHeader, memoryview]] = []
        waiting = Waiting()
        for header, batch in arrived:
            new_epoch = header.leader_epoch != self.epochs.latest
            must_roll = self._must_roll(header, waiting)
            if new_epoch or must_roll:
                self._write_group(group, now_ms)
                waiting = Waiting()
            if new_epoch:
                self.epochs.assign(header.leader_epoch, header.base_offset)
            if must_roll:
                self._roll()
            group.append((header, batch))
            waiting = waiting.and_also(header)
        self._write_group(group, now_ms)

    def _begin_inside_batch(self, base_offset: int) -> None:
        start = self.log_start_offset
        if self.segments.size_bytes or start != self.log_end_offset:
            raise OffsetsNotContiguous(base_offset, self.log_end_offset)
        self._restart(base_offset, start)

    def _write_group(self, group: list[tuple[BatchHeader, memoryview]], now_ms: int) -> None:
        """Write neighbouring batches with one call, and empty the group."""
        if not group:
            return
        batches = [batch for _, batch in group]
        data = batches[0] if len(batches) == 1 else b"".join(batches)
        self._write(data, [header for header, _ in group], batches, now_ms)
        group.clear()

    def _write(self, data: Bytes, headers: list[BatchHeader], batches: list[memoryview], now_ms: int) -> None:
        active = self.segments.active
        active.append(data, headers)
        active.written_ms = now_ms
        for header, batch in zip(headers, batches, strict=True):
            if header.has_producer:
                aborted = take_in(self.producers, header, batch, now_ms)
                if aborted is not None:
                    active.transactions.add(aborted)
            self.flushes.appended(header.record_count, now_ms)

    # --- rolling ---

    def _must_roll(self, header: BatchHeader, waiting: Waiting = _NOTHING_WAITS) -> bool:
        """Whether `header` begins a new segment, once the batches that are `waiting` have been written."""
        active, config = self.segments.active, self.config
        size = active.size + waiting.size
        if size == 0:
            return False
        return (
            size + header.size > config.segment_bytes
            or header.last_offset - active.base_offset > MAX_OFFSET_DELTA
            or active.offset_index.size_bytes >= config.segment_index_bytes
            or active.transactions.size_bytes >= config.segment_index_bytes
            or self._is_old_for(header, active, waiting)
        )

    def _is_old_for(self, header: BatchHeader, active: Segment, waiting: Waiting) -> bool:
        """Whether the segment has been growing for `segment.ms` by the time of `header`. Fillers have no time."""
        first = active.first_timestamp if active.first_timestamp != NO_TIMESTAMP else waiting.first_timestamp
        if first == NO_TIMESTAMP:
            return False
        return header.max_timestamp - first > self.config.segment_ms - self._jitter_ms(active)

    def _jitter_ms(self, active: Segment) -> int:
        """The same for one segment however often it is asked, different between segments and partitions."""
        jitter = min(self.config.segment_jitter_ms, self.config.segment_ms)
        return zlib.crc32(active.path(LOG_SUFFIX).encode()) % (jitter + 1) if jitter else 0

    @_while_open
    def roll(self) -> None:
        """Seal the growing segment and begin a new one."""
        if self.segments.active.size:
            self._roll()

    def _roll(self) -> None:
        active = self.segments.active
        successor = self.new_segment(active.next_offset)
        try:
            successor.save_snapshot(self.producers)
            active.seal()
        except DiskError:
            self._take_back(successor)
            raise
        self.segments.add(successor)
        self.flushes.rolled()

    def _take_back(self, successor: Segment) -> None:
        """A segment's file that the log does not know of would be taken for damage after a clean close."""
        successor.close()
        try:
            for path in successor.retire(DELETED_SUFFIX):
                self.disk.remove(path)
        except DiskError as error:
            raise DiskFailed(f"A file of a refused segment stays: {error.describe()}") from error

    def new_segment(self, base_offset: int) -> Segment:
        return Segment.create(
            self.disk, self.directory.path, base_offset, self.config.index_interval_bytes, self.epochs
        )

    def opened_segment(self, base_offset: int, next_offset: int, suffix: str) -> Segment:
        """A sealed segment whose files are there already."""
        segment = Segment.open(
            self.disk, self.directory.path, base_offset, self.config.index_interval_bytes, self.epochs, suffix
        )
        segment.next_offset = next_offset
        return segment

    # --- reading ---

    @_reading
    def read(self, offset: int, max_bytes: int, isolation: Isolation = Isolation.HIGH_WATERMARK) -> FetchedBatches:
        """Whole batches from the one that holds `offset` on, at most `max_bytes` but always one if there is one.

        Beyond what `isolation` lets the reader see the answer is empty; outside the log it is `OffsetOutOfRange`.
        """
        return log_reader.read(self, offset, max_bytes, isolation)

    @_reading
    def slice(
        self,
        offset: int,
        max_bytes: int,
        isolation: Isolation = Isolation.HIGH_WATERMARK,
        *,
        below: int = MAX_OFFSET,
    ) -> FileSlice | None:
        """The same as a piece of a file, for a reader on this machine who reads it himself.

        No batch of it ends beyond `below`.
        """
        return log_reader.file_slice(self, offset, max_bytes, isolation, below)

    @_reading
    def offset_for_timestamp(self, timestamp: int) -> TimestampOffset | None:
        """The first record of that time or later that a consumer may see."""
        return log_reader.offset_for_timestamp(self, timestamp)

    @_reading
    def look_up_timestamp(
        self, timestamp: int, opened: log_reader.Opened
    ) -> TimestampOffset | log_reader.UnopenedBatch | None:
        """The same, in steps: a batch that takes long to open is for the caller to open, elsewhere."""
        return log_reader.look_up_timestamp(self, timestamp, opened)

    @_reading
    def aborted_between(self, start_offset: int, end_offset: int, now_ms: int) -> list[AbortedTransaction]:
        """The aborted transactions with records in [start_offset, end_offset)."""
        return log_reader.aborted_between(self, start_offset, end_offset, now_ms)

    @_reading
    def find_aborted(self, wanted: AbortedRange, now_ms: int) -> None:
        """The same, at most so many as `wanted` says: it is shorter afterwards where there are more."""
        log_reader.find_aborted(self, wanted, now_ms)

    @_reading
    def inspect(self, offset: int) -> BatchHeader:
        """Look at the batch of `offset` with its CRC, which fetches leave to their readers.

        For a reader who got bytes that make no sense: where the disk is to blame, the replica is damaged (rule 14).
        """
        return log_reader.inspect(self, offset)

    @_reading
    def spot_of(self, offset: int) -> Spot:
        """The same in steps: what `inspect_spot` is to look into on any thread, for `range_of`."""
        if not self.log_start_offset <= offset < self.log_end_offset:
            raise OffsetOutOfRange(offset, self.log_start_offset, self.log_end_offset)
        return spot_of(self.segments.containing(offset), offset, self.epochs)

    @_reading
    def spot_from(self, base_offset: int, position: int) -> Spot:
        """Likewise for all from `position` on in the segment that holds `base_offset`."""
        return spot_from(self.segments.containing(max(base_offset, self.log_start_offset)), position, self.epochs)

    # --- moving the marks ---

    def advance_high_watermark(self, offset: int) -> None:
        """The high watermark goes forward only; never past the end of the log."""
        end = self.log_end_offset
        if self.marks.replicated_to(offset if offset < end else end):
            self.producers.settle(self.marks.high_watermark)

    @_while_open
    def delete_records(self, before_offset: int) -> int:
        """Let the log begin at `before_offset`, durably; returns the log start offset."""
        if not self.log_start_offset <= before_offset <= self.high_watermark:
            if before_offset < self.log_start_offset:
                return self.log_start_offset
            raise OffsetOutOfRange(before_offset, self.log_start_offset, self.high_watermark)
        self.advance_log_start(before_offset)
        return self.log_start_offset

    def advance_log_start(self, offset: int) -> None:
        if offset > self.log_start_offset:
            log_cleanup.begin_at(self, offset)
            try:
                self.epochs.cut_start(offset)
            except DiskFull as error:
                _log.warning("%s keeps leader epochs from before its start for now: %s", self.directory.path, error)

    @_while_open
    def update_config(self, overrides: Mapping[str, ConfigValue]) -> None:
        """Take over the topic's changed settings."""
        config = TopicConfig.parse(overrides)
        self.directory.write_config(config, all_synced=self.recovery_point >= self.log_end_offset)
        self.config = config
        self.flushes.settings_changed()

    # --- truncating ---

    @_while_open
    def prepare_copy(self, why: str, now_ms: int) -> LogCopy:
        """A copy of all that is here, to be carried out on any thread before the log is cut (rule 7)."""
        self._settle()
        return LogCopy(self, why, now_ms)

    @_while_open
    def prepare_truncation(self, offset: int, now_ms: int) -> PreparedCut | None:
        """What takes long of `truncate_to`, to be carried out on any thread before; None: nothing does."""
        cut = log_truncation.find_cut(self, offset) if offset < self.log_end_offset else None
        return None if cut is None else PreparedCut(self, cut, now_ms)

    @_while_open
    def truncate_to(self, offset: int, now_ms: int, prepared: PreparedCut | None = None) -> int:
        """Cut the log so that it ends at `offset` or before; returns the new log end offset.

        An offset inside a batch takes the batch with it: the leader sends it again.
        """
        if offset >= self.log_end_offset:
            self.epochs.cut_end(self.log_end_offset)  # an epoch of ours that wrote nothing is not the leader's history
            return self.log_end_offset
        self._settle()
        cut = log_truncation.find_cut(self, offset)
        if cut is None:
            self._restart(self.log_start_offset, self.log_start_offset)
        else:
            producers = None if prepared is None else prepared.producers_for(self, cut)
            log_truncation.prepare_cut(self, cut, now_ms)
            self._cut(cut, now_ms, producers, "" if prepared is None else prepared.replacement_for(self, cut))
        return self.log_end_offset

    @_all_or_offline
    def _cut(
        self, cut: log_truncation.Cut, now_ms: int, producers: ProducerStates | None, replacement: str
    ) -> None:
        log_truncation.carry_out_cut(self, cut, now_ms, producers, replacement)

    @_while_open
    def restart_at(self, offset: int) -> None:
        """Throw everything away and go on empty from `offset`, as a follower that is too far behind does."""
        if not 0 <= offset <= MAX_OFFSET:
            raise OffsetOutOfRange(offset, 0, MAX_OFFSET)
        self._restart(offset, offset)

    def _restart(self, base_offset: int, log_start_offset: int) -> None:
        self._settle()
        self._carry_out_restart(self.marks.before_restart(base_offset, log_start_offset))

    @_all_or_offline
    def _carry_out_restart(self, written: LogCheckpoint) -> None:
        log_truncation.carry_out_restart(self, written)

    # --- getting rid of old records ---

    @_while_open
    def may_have_old_segments(self, now_ms: int, *, decides: bool = True, spared_ms: int = 0) -> bool:
        """Whether `delete_old_segments` may have something to do: a quick look, for whoever asks often."""
        return log_cleanup.may_have_old_segments(self, now_ms, decides, spared_ms)

    @_while_open
    def delete_old_segments(
        self, now_ms: int, at_most: int | None = None, *, decides: bool = True, spared_ms: int = 0
    ) -> list[Expired]:
        """Take out of the log what retention allows; `remove_deleted_files` frees the space later.

        Where the log's owner does not decide what is too old or too much, only what is below the log start offset.
        By age nothing goes that this process wrote within `spared_ms`.
        """
        self._settle()
        return log_cleanup.delete_old_segments(self, now_ms, at_most, decides, spared_ms)

    @_while_open
    def begin_deletion(
        self, now_ms: int, at_most: int | None = None, *, decides: bool = True, spared_ms: int = 0
    ) -> CheckpointWrite | None:
        """What `delete_old_segments` would have to wait for the disk for, to be carried out before it, on any thread.

        None: there is nothing that it would wait for.
        """
        self._settle()
        old = log_cleanup.find_old_segments(self, now_ms, at_most, decides, spared_ms)
        start = self.segments.containing(old[-1].base_offset).next_offset if old else self.log_start_offset
        return self.marks.write_ahead(start) if start > self.log_start_offset else None

    @property
    def shape(self) -> tuple[str, int]:
        """Changes with every opening and every cut: segments at the same offsets may be others afterwards."""
        return self._opening, self.truncations

    @_while_open
    def plan_compaction(self, now_ms: int, *, force: bool = False) -> CompactionPlan | None:
        """What to compact now; None where it is not worth while (`force`: where there is nothing to do)."""
        return compaction_plan.plan_compaction(self, now_ms, force=force)

    @_while_open
    def install_compaction(self, report: CompactionReport, now_ms: int) -> None:
        """Put the segments that a compaction wrote in the place of the old ones."""
        installation = self.begin_installation(report, now_ms)
        while (sync := self.go_on_installing(installation)) is not None:
            sync()

    @_while_open
    def begin_installation(self, report: CompactionReport, now_ms: int) -> Installation:
        """The same in steps, of which the slow ones may run on another thread; see `Installation`."""
        log_cleanup.check_current(self, report)
        self._settle()
        self._installation = Installation(self, report, now_ms)
        return self._installation

    @_while_open
    def go_on_installing(self, installation: Installation) -> Callable[[], None] | None:
        """What has to be synced before this is called again; None: all is in place. CompactionOutdated after a cut."""
        installation.check_current()
        return self._next_step(installation)

    @_all_or_offline
    def _next_step(self, installation: Installation) -> Callable[[], None] | None:
        return installation.go_on()

    @_all_or_offline
    def _settle(self) -> None:
        """Leave no segment half in place."""
        installation, self._installation = self._installation, None
        if installation is not None:
            installation.settle()

    @_while_open
    def remove_deleted_files(self, now_ms: int) -> int:
        """Remove the files whose `file.delete.delay.ms` is over; returns how many."""
        due = self.begin_removal(now_ms)
        removed = due.carry_out()
        self.removals.finish(due)
        return removed

    @_while_open
    def begin_removal(self, now_ms: int) -> DueRemoval:
        """The same in steps: what is to be removed, on any thread. Then `removals.finish`."""
        return self.removals.begin(self.disk, now_ms, self.flushes.let_go)

    @_while_open
    def expire_producers(self, now_ms: int) -> list[int]:
        """Forget producers idle for `producer.id.expiration.ms`; returns their ids."""
        return self.producers.expire(now_ms, self.config.producer_id_expiration_ms)

    # --- flushing ---

    def flush_due(self, now_ms: int) -> bool:
        return self.flushes.is_due(now_ms)

    @_while_open
    def begin_flush(self) -> LogFlush:
        """What has to be synced for all that is in the log now to survive a machine crash. Each is to be finished."""
        return self.flushes.begin()

    @_while_open
    def finish_flush(self, flush: LogFlush) -> None:
        """Take note that `flush` has been synced. One that a truncation has overtaken proves nothing."""
        self.flushes.finish(flush)

    def abandon_flush(self, flush: LogFlush) -> None:
        """Take note that `flush` failed: it is over, and what it was to make safe is due again."""
        self.flushes.abandon(flush)

    @_while_open
    def flush(self) -> int:
        """Sync all that is in the log; returns the recovery point."""
        flush = self.begin_flush()
        try:
            flush.sync()
        except BaseException:
            self.abandon_flush(flush)
            raise
        self.finish_flush(flush)
        return self.recovery_point

    @_while_open
    def checkpoint(self) -> None:
        """Put the marks on disk."""
        self.marks.write()

    @_while_open
    def begin_checkpoint(self) -> CheckpointWrite:
        """The same for another thread to carry out."""
        return self.marks.begin_write()

    # --- ending ---

    def go_offline(self, error: RaylogError) -> None:
        """Serve and take nothing more. Damage is remembered through restarts."""
        if self.offline_because is None:
            self.offline_because = error
            _log.error("%s goes offline: %s", self.directory.path, error)
            if isinstance(error, LogDamaged):
                quarantine(self.directory, error)
            elif isinstance(error, DiskError):
                self._note_failed_disk(error)

    def _note_failed_disk(self, error: DiskError) -> None:
        try:
            self.directory.note_failed_disk(error)
        except DiskError as refused:  # with fsync the next process writes again what was unsynced in any case
            _log.error("%s: its disk failed, and that could not be written down: %s", self.directory.path, refused)

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

    @_while_open
    def _close_cleanly(self) -> None:
        self._settle()
        self.segments.active.save_indexes()
        end = self.log_end_offset
        snapshot = self.directory.file(file_name(end, SNAPSHOT_SUFFIX))
        self.producers.save(self.disk, snapshot, end)
        self.flush()
        sync_indexes(self.disk, [*self.segments.active.index_paths(), snapshot])
        self.checkpoint()
        sizes = tuple((segment.base_offset, segment.size) for segment in self.segments)
        self.directory.write_clean_shutdown(CleanShutdown(end, sizes))

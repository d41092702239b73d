"""Files of the metadata log on a broker's disk: its promise always, the log where it is a voter.

    <data dir>/metadata-promise          the highest controller epoch that this broker has promised
    <data dir>/metadata-snapshot         the state at an offset, which stands for the log before it
    <data dir>/directory-mark            a number that only rises: see directory_marks.py
    <data dir>/metadata-failure          the disk failed, and during which boot of the machine
    <data dir>/__cluster_metadata-0/     the log, a `PartitionLog`; it is there if the broker is, or once was, a voter

What must stay true: when a method returns, what it did survives any crash (rules 15 and 17). A crash half way leaves
what `load` puts right: the snapshot is on disk before the log before it goes, and a log that does not join on to the
snapshot is thrown away. Every method blocks on the disk, and one runs at a time.

A log that an opening has cut, where it may have been synced, stays `unproven`. It counts for no new controller until it
holds what one has committed without it (rules 7, 17).

After a failed sync the page cache may hold what the disk does not, and a later sync says that all is well (rule 2). So
a log that failed is not opened again before a reboot has emptied the cache: then what is read is what is there.
"""

from __future__ import annotations

import base64
import logging
from typing import Final, NamedTuple

from raylog.actors.metadata_log.rules.tail import BLANK, LogTail, MetadataSnapshot, decode_batches
from raylog.actors.protocol.names import METADATA_TOPIC
from raylog.actors.protocol.replication_messages import NO_EPOCH
from raylog.config import MIB, ConfigValue
from raylog.errors import BatchError, DiskError, DiskFailed, LogDamaged, RaylogError
from raylog.storage.directory.doubts import BLANK as BLANK_LOG
from raylog.storage.directory.partition_directory import PartitionIdentity
from raylog.storage.disk.checkpoints import Body, read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import Bytes
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation

_log = logging.getLogger(__name__)

METADATA_TOPIC_ID: Final = "00000000000000000000000000000001"
FAILURE_FILE: Final = "metadata-failure"
MARK_FILE: Final = "directory-mark"
PROMISE_FILE: Final = "metadata-promise"
SNAPSHOT_FILE: Final = "metadata-snapshot"
_VERSION: Final = 1
_READ_BYTES: Final = 8 * MIB
_SETTINGS: Final[dict[str, ConfigValue]] = {
    "cleanup.policy": "delete",
    "retention.ms": -1,
    "file.delete.delay.ms": 0,
    "flush.policy": "fsync",
    "segment.bytes": 64 * MIB,
}


class Loaded(NamedTuple):
    """The contents of a broker's disk: its promise, its directory's mark, and its copy of the log."""

    promised_epoch: int
    mark: int
    tail: LogTail
    is_unproven: bool = False


class MetadataFiles:
    """The files of one broker. The top of this file says what each of them holds."""

    def __init__(self, disk: Disk, data_directory: str, cluster_id: str) -> None:
        self._disk = disk
        self._directory = data_directory
        self._identity = PartitionIdentity(cluster_id, METADATA_TOPIC, METADATA_TOPIC_ID, 0)
        self._log: PartitionLog | None = None

    @property
    def keeps_log(self) -> bool:
        return self._log is not None

    # --- opening --------------------------------------------------------------------------------------------------

    def load(self, now_ms: int) -> Loaded:
        """Read what a crash has left. It is synced first, so that the next crash cannot take what is relied upon.

        Raises LogDamaged, DiskError, UnsupportedFormat, MetadataRecordUnknown: then this broker cannot take part.
        """
        self._refuse_failed()
        self._disk.sync_directory(self._directory)
        promised, mark = self._read_promise(), self._read_mark()
        if not self._disk.exists(self._log_path):
            return Loaded(promised, mark, LogTail())
        log = self._open_log(now_ms)
        try:
            tail = self._read_log(log, now_ms)
        except BaseException:
            log.close()
            raise
        self._log = log
        if log.unproven == BLANK_LOG:  # it was being made: nobody has heard of it yet
            self.prove()
        return Loaded(promised, mark, tail, bool(log.unproven))

    def _read_log(self, log: PartitionLog, now_ms: int) -> LogTail:
        log.flush()
        snapshot = self._read_snapshot()
        self._join(log, snapshot, now_ms)
        tail = LogTail(snapshot)
        while tail.end_offset < log.log_end_offset:
            fetched = log.read(tail.end_offset, _READ_BYTES, Isolation.LOG_END)
            try:
                tail.append(decode_batches(fetched.data))
            except BatchError:
                log.inspect(tail.end_offset)  # says whether the disk is to blame; if so, the log is damaged
                raise
        return tail

    def _join(self, log: PartitionLog, snapshot: MetadataSnapshot, now_ms: int) -> None:
        """Finish what a crash interrupted between the snapshot and the log before it."""
        start, version = log.log_start_offset, snapshot.version
        if start > version:
            raise LogDamaged(self._path(SNAPSHOT_FILE), 0, f"it stands for offset {version}, the log begins at {start}")
        if start < version:
            agrees = version <= log.log_end_offset and log.epochs.span_at(version - 1)[0] == snapshot.epoch
            _begin_at(log, version, agrees, now_ms)

    def _refuse_failed(self) -> None:
        try:
            failure = read_checkpoint(self._disk, self._path(FAILURE_FILE), _VERSION)
        except FileNotFoundError:
            return
        if failure["boot_id"] == self._disk.boot_id():
            raise DiskFailed(f"The metadata log failed since the machine was booted: {failure['reason']}")

    def _read_promise(self) -> int:
        try:
            return read_checkpoint(self._disk, self._path(PROMISE_FILE), _VERSION, _parse_promise)
        except FileNotFoundError:
            return NO_EPOCH

    def _read_mark(self) -> int:
        try:
            return read_checkpoint(self._disk, self._path(MARK_FILE), _VERSION, _parse_mark)
        except FileNotFoundError:
            return 0

    def _read_snapshot(self) -> MetadataSnapshot:
        path = self._path(SNAPSHOT_FILE)
        try:
            return read_checkpoint(self._disk, path, _VERSION, _parse_snapshot)
        except FileNotFoundError:
            return BLANK
        except BatchError as error:
            raise LogDamaged(path, 0, f"the checksum fits, but not the records ({error.describe()})") from error

    def _open_log(self, now_ms: int) -> PartitionLog:
        return PartitionLog.open(self._log_path, self._identity, _SETTINGS, now_ms=now_ms, disk=self._disk)

    # --- changing -------------------------------------------------------------------------------------------------

    def write_promise(self, epoch: int) -> None:
        write_checkpoint(self._disk, self._path(PROMISE_FILE), _VERSION, {"controller_epoch": epoch})

    def write_mark(self, mark: int) -> None:
        """Write the mark of the directory. It may run beside another method: the file is its own."""
        write_checkpoint(self._disk, self._path(MARK_FILE), _VERSION, {"mark": mark})

    def begin_log(self, tail: LogTail, now_ms: int) -> None:
        """Keep the log from now on, this one."""
        self._write_snapshot(tail.snapshot)
        log = self._open_log(now_ms)
        try:
            log.restart_at(tail.start_offset)  # an earlier attempt may have left something
            log.append_as_follower(tail.read(tail.start_offset, tail.size_bytes)[0], now_ms)
            log.flush()
            log.plan_role_start(None).run()
        except RaylogError:
            log.close()
            raise
        self._log = log

    def prove(self) -> None:
        """Write down that the log holds all that is committed, whatever an opening had to cut."""
        self._kept_log().plan_role_start(None).run()

    def append(self, data: Bytes, now_ms: int) -> None:
        """Append batches, synced. DiskFull and DiskBusy: the log ends where it ended before."""
        log = self._kept_log()
        end = log.log_end_offset
        try:
            log.append_as_follower(data, now_ms)
            log.flush()
        except RaylogError:
            if log.offline_because is None:
                log.truncate_to(end, now_ms)
            raise

    def truncate_to(self, offset: int, now_ms: int) -> None:
        self._kept_log().truncate_to(offset, now_ms)

    def install(self, snapshot: MetadataSnapshot, agrees: bool, now_ms: int) -> None:
        """Let the snapshot stand for all before it, and keep what follows it where the log `agrees` with it."""
        self._write_snapshot(snapshot)
        _begin_at(self._kept_log(), snapshot.version, agrees, now_ms)

    def remember_failure(self, error: RaylogError) -> None:
        """Write the failure down, as well as the disk still can."""
        body = {"boot_id": self._disk.boot_id(), "reason": error.describe()}
        try:
            write_checkpoint(self._disk, self._path(FAILURE_FILE), _VERSION, body)
        except DiskError as refused:
            _log.error("That the metadata log failed could not be written down: %s", refused)

    def close(self) -> None:
        if self._log is not None:
            self._log.close()

    def _write_snapshot(self, snapshot: MetadataSnapshot) -> None:
        state = base64.b64encode(snapshot.data).decode()
        body = {"version": snapshot.version, "epoch": snapshot.epoch, "state": state}
        write_checkpoint(self._disk, self._path(SNAPSHOT_FILE), _VERSION, body)

    def _kept_log(self) -> PartitionLog:
        assert self._log is not None
        return self._log

    @property
    def _log_path(self) -> str:
        return self._path(f"{METADATA_TOPIC}-0")

    def _path(self, name: str) -> str:
        return f"{self._directory}/{name}"


def _begin_at(log: PartitionLog, offset: int, keep_rest: bool, now_ms: int) -> None:
    if not keep_rest:
        log.restart_at(offset)
        return
    log.advance_high_watermark(offset)
    log.delete_records(offset)
    log.roll()
    log.delete_old_segments(now_ms)
    log.remove_deleted_files(now_ms)
    log.flush()
    log.checkpoint()


def _parse_promise(body: Body) -> int:
    return int(body["controller_epoch"])


def _parse_mark(body: Body) -> int:
    return int(body["mark"])


def _parse_snapshot(body: Body) -> MetadataSnapshot:
    state = base64.b64decode(body["state"], validate=True)
    return MetadataSnapshot.decode(body["version"], body["epoch"], state)

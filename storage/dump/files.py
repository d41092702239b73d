"""The files of a replica as a dump meets them: what their names say, and what they hold, without ever touching them.

What must stay true: nothing here writes, locks, renames or maps. A map of a file that a living replica shrinks would
kill the process that looks at it; so files are read, and what a name said a moment ago may be gone now.
"""

from __future__ import annotations

import os
import re
import struct
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple, NoReturn

from raylog.errors import DiskReadOnly, RaylogError
from raylog.storage.compaction import progress
from raylog.storage.compaction.swap import SWAP_SUFFIX
from raylog.storage.directory.data_directory import IDENTITY_FILE
from raylog.storage.directory.partition_directory import (
    CHECKPOINT_FILE,
    CLEAN_SHUTDOWN_FILE,
    CLEANED_SUFFIX,
    DELETED_SUFFIX,
    DISK_FAILED_FILE,
    LOCK_FILE,
    PARTITION_FILE,
    QUARANTINE_FILE,
)
from raylog.storage.directory.set_aside_names import SET_ASIDE
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX, read_checkpoint
from raylog.storage.disk.disk import disk_error
from raylog.storage.disk.local_disk import LocalDisk, LocalFile
from raylog.storage.format.record_batch import Bytes
from raylog.storage.segment import leader_epochs, transaction_index
from raylog.storage.segment.indexes import OffsetIndex, TimeIndex
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX
from raylog.storage.segment.segment import LOG_SUFFIX, file_name
from raylog.storage.segment.transaction_index import TransactionIndex

CHECKPOINTS: Final = {
    PARTITION_FILE: "topic, partition, settings",
    IDENTITY_FILE: "cluster, broker",
    CHECKPOINT_FILE: "recovery point, high watermark, log start",
    CLEAN_SHUTDOWN_FILE: "the segments at the last clean close",
    QUARANTINE_FILE: "why this replica may not be used",
    leader_epochs.FILE_NAME: "leader epochs and their first offsets",
    progress.FILE_NAME: "how far the log has been compacted",
}
_CHECKPOINT_VERSION: Final = 2  # the highest of any

KINDS: Final = {
    LOG_SUFFIX: "batches from offset {0} on",
    OffsetIndex.SUFFIX: "offset index",
    TimeIndex.SUFFIX: "time index",
    transaction_index.SUFFIX: "aborted transactions",
    SNAPSHOT_SUFFIX: "producers at offset {0}",
}
_FATES: Final = {
    "": "",
    CLEANED_SUFFIX: " (a compaction's draft)",
    SWAP_SUFFIX: " (compacted, to be put in place)",
    DELETED_SUFFIX: " (deleted, to be removed)",
}
_SEGMENT_FILE: Final = re.compile(
    r"(\d{20})(" + "|".join(map(re.escape, KINDS)) + r")((?:\.[0-9a-f]+(?=\.cleaned))?"
    "(?:" + "|".join(map(re.escape, _FATES)) + "))"
)
_SEAL_COVERS: Final = struct.Struct(">8xQ")  # see sealed_file.py


class SegmentFile(NamedTuple):
    """A file of a segment, by its name. `suffix` is empty while it is in use; that of a draft names the compaction."""

    base_offset: int
    kind: str
    suffix: str = ""

    @property
    def name(self) -> str:
        return file_name(self.base_offset, self.kind) + self.suffix

    @property
    def holds(self) -> str:
        return KINDS[self.kind].format(self.base_offset) + _FATES[self.fate]

    @property
    def fate(self) -> str:
        return self.suffix[self.suffix.rfind(".") :] if self.suffix else ""

    @property
    def is_left_over(self) -> bool:
        """No opening will ever look into it."""
        return self.fate in (CLEANED_SUFFIX, DELETED_SUFFIX)

    def beside(self, kind: str) -> SegmentFile:
        return self._replace(kind=kind)


def segment_file(name: str) -> SegmentFile | None:
    match = _SEGMENT_FILE.fullmatch(name)
    return SegmentFile(int(match[1]), match[2], match[3]) if match else None


def what_holds(name: str) -> str | None:
    """Return what a file of this name holds; None where it is none of a replica's."""
    segment = segment_file(name)
    if segment is not None:
        return segment.holds
    if name == LOCK_FILE:
        return "the owner's lock"
    if name == DISK_FAILED_FILE:
        return "what the disk refused: the next opening writes again what was unsynced"
    if name.endswith(TEMPORARY_SUFFIX):
        return "left of an interrupted write"
    return CHECKPOINTS.get(name)


class ReadOnlyDisk(LocalDisk):
    """The file system for one who only looks."""

    def open(self, path: str, *, create: bool = False) -> LocalFile:
        if create:
            _refuse()
        try:
            return LocalFile(path, os.open(path, os.O_RDONLY | os.O_CLOEXEC))
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Opening {path}") from error

    def map_file(self, path: str) -> Bytes:
        return self.read_file(path)

    def write_file(self, path: str, data: Bytes, *, sync: bool = False) -> None:  # noqa: ARG002
        _refuse()

    def make_directory(self, path: str) -> None:  # noqa: ARG002
        _refuse()

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002
        _refuse()

    def remove(self, path: str) -> None:  # noqa: ARG002
        _refuse()

    def remove_directory(self, path: str) -> None:  # noqa: ARG002
        _refuse()

    def lock_directory(self, path: str) -> NoReturn:  # noqa: ARG002
        _refuse()

    def status(self, path: str) -> os.stat_result:
        try:
            return os.stat(path)
        except FileNotFoundError:
            raise
        except OSError as error:
            raise disk_error(error, f"Looking at {path}") from error


def _refuse() -> NoReturn:
    raise DiskReadOnly("A dump changes nothing.")


@dataclass(frozen=True)
class SealedIndex:
    """The content of an index whose seal is whole, the bytes of log it says it describes, and those that are there."""

    rows: Sequence[tuple[int, ...]]
    covers: int
    log_bytes: int | None

    @property
    def fits(self) -> bool:
        return self.covers == self.log_bytes


class Replica:
    """A directory with a replica's files in it, or at least some of them."""

    def __init__(self, directory: str, disk: ReadOnlyDisk | None = None) -> None:
        self.disk = disk or ReadOnlyDisk()
        self.directory = directory
        self.names = self.disk.list_directory(directory)

    def path(self, name: str) -> str:
        return os.path.join(self.directory, name)

    def size(self, name: str) -> int | None:
        """The file's bytes now; None where it is gone, or was never there."""
        try:
            return self.disk.status(self.path(name)).st_size
        except FileNotFoundError:
            return None

    def inode(self, path: str) -> int | None:
        try:
            return self.disk.status(path).st_ino
        except FileNotFoundError:
            return None

    # --- the segments ---

    @cached_property
    def segments(self) -> list[SegmentFile]:
        """The log files in use, in their order."""
        files = map(segment_file, self.names)
        return [file for file in files if file and file.kind == LOG_SUFFIX and not file.suffix]

    def is_being_changed(self) -> bool:
        """Whether segments in use were replaced or removed since they were listed, or are about to be."""
        now = Replica(self.directory, self.disk)
        swapping = any(name.endswith(LOG_SUFFIX + SWAP_SUFFIX) for name in (*self.names, *now.names))
        return swapping or now.segments[: len(self.segments)] != self.segments

    @property
    def was_closed_cleanly(self) -> bool:
        return CLEAN_SHUTDOWN_FILE in self.names

    def is_growing(self, base_offset: int) -> bool:
        """Whether this is the segment that is being written to, or was when its owner died."""
        return bool(self.segments) and self.segments[-1].base_offset == base_offset and not self.was_closed_cleanly

    def load_index(self, file: SegmentFile) -> SealedIndex:
        """Raises `SealBroken` or `UnsupportedFormat` where the file is not to be believed."""
        index = self._load_index(file)
        # The owner may have sealed or compacted the segment between the two looks; a third one tells.
        return index if index.fits else self._load_index(file)

    def _load_index(self, file: SegmentFile) -> SealedIndex:
        path, covers = self.path(file.name), self.seal_covers(file)
        rows: Sequence[tuple[int, ...]]
        if file.kind == OffsetIndex.SUFFIX:
            rows = OffsetIndex.load(self.disk, path, file.base_offset, covers).pairs()
        elif file.kind == TimeIndex.SUFFIX:
            rows = TimeIndex.load(self.disk, path, file.base_offset, covers).pairs()
        else:
            rows = TransactionIndex.load(self.disk, path, covers).aborted
        return SealedIndex(rows, covers, self.size(file.beside(LOG_SUFFIX).name))

    def seal_covers(self, file: SegmentFile) -> int:
        """Return how many bytes a sealed file says it describes; its checksum has to tell whether that can be believed.
        """
        data = self.disk.read_file(self.path(file.name))
        return int(_SEAL_COVERS.unpack_from(data)[0]) if len(data) >= _SEAL_COVERS.size else 0

    # --- the checkpoints ---

    def checkpoint(self, name: str) -> dict[str, Any]:
        """The body of one of the files in `CHECKPOINTS`. Raises as `read_checkpoint` does."""
        return read_checkpoint(self.disk, self.path(name), _CHECKPOINT_VERSION)

    @cached_property
    def remembered(self) -> dict[str, dict[str, Any]]:
        """The content of the sound ones, when they were first asked, by their names.

        A living replica's have to be read before its log is looked at: the log may only have gone on since then.
        """
        sound = {}
        for name in CHECKPOINTS:
            with suppress(FileNotFoundError, RaylogError):
                sound[name] = self.checkpoint(name)
        return sound

    @property
    def topic(self) -> str | None:
        topic = self.remembered.get(PARTITION_FILE, {}).get("topic")
        return topic if isinstance(topic, str) else None

    @cached_property
    def epochs(self) -> LeaderEpochs | None:
        """The history against which batches' epochs are held."""
        try:
            return LeaderEpochs.load(self.disk, self.directory)
        except (FileNotFoundError, RaylogError):
            return None


def replicas_in(data_directory: str) -> list[str]:
    """The replicas' directories in a broker's data directory, but for those that were set aside."""
    found = sorted(Path(data_directory).glob(f"*/{PARTITION_FILE}"))
    return [str(path.parent) for path in found if SET_ASIDE not in path.parent.name]

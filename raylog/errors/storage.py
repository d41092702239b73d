"""Files and directories on a disk, and the compaction of a log."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class StorageError(RaylogError):
    """Something about files or directories."""


class DiskError(StorageError):
    """The disk refused an operation."""


class DiskFull(DiskError):
    """No space is left; nothing of the refused write remains."""

    retriable = True
    advice = "Free space on the disk or shorten the retention; writing goes on by itself when there is space."


class DiskBusy(DiskError):
    """The process or machine is short of file descriptors or memory; the disk itself is well."""

    retriable = True
    advice = "Raise the limit on open files (ulimit -n), or free memory."


class DiskFailed(DiskError):
    """The disk reported an I/O error, failed to sync, or became read-only. What it holds is unknown from here on."""

    advice = "The replica stays offline. Check the disk (dmesg, SMART), then restart or replace the broker."


class DiskReadOnly(DiskError):
    """The file or directory may not be written by this user."""

    advice = "Mount it writable, or correct the ownership of the data directory."


class DirectoryError(StorageError):
    """A directory cannot be used as it is."""


class DirectoryLocked(DirectoryError):
    """Another process owns the directory."""

    advice = "Stop that process first. Two owners of one directory would destroy it, so there is no override."

    path: str
    holder: str = "unknown"

    def describe(self) -> str:
        return f"Directory {self.path} is locked by another process ({self.holder})."


class DirectoryNotOurs(DirectoryError):
    """The directory holds files raylog did not make."""

    advice = "Give raylog an empty directory, or one it made itself."

    path: str
    found: str

    def describe(self) -> str:
        return f"Directory {self.path} is not a raylog directory: {self.found}."


class DirectoryBlank(DirectoryError):
    """A broker that had data finds none: the disk is not mounted, or was replaced."""

    advice = (
        "Mount or restore what belongs there. If it is lost, move this broker's replicas to others, remove the broker, "
        "and start again: the directory then gets a broker with a new number."
    )

    path: str
    broker: int

    def describe(self) -> str:
        return f"Directory {self.path} is blank, but broker {self.broker} has had its data there."


class DirectoryCopied(DirectoryError):
    """Two directories say that they are the same broker's: one of them is a copy."""

    advice = "Move the one that is the copy (the older one) out of the way, and start again."

    broker: int
    path: str
    other: str

    def describe(self) -> str:
        return f"Directories {self.path} and {self.other} are both broker {self.broker}'s."


class DirectoryOutdated(DirectoryError):
    """A broker's directory is older than the cluster has seen it: it was restored from a backup."""

    advice = (
        "Put back the newer directory. If that is lost, move this broker's replicas to others, remove the broker, and "
        "start it with an empty directory: raylog fetches everything anew. To go back in time, restore the directories "
        "of all brokers, as they were at one moment."
    )

    path: str
    broker: int
    mark: int
    recorded: int

    def describe(self) -> str:
        return (
            f"Directory {self.path} of broker {self.broker} is an older copy: its mark is {self.mark}, and the cluster "
            f"has seen {self.recorded}. It has forgotten what it acknowledged since."
        )


class WrongCluster(DirectoryError):
    """The directory belongs to another cluster or broker."""

    advice = "Start with the directory of this cluster and broker, or with an empty one."

    path: str
    found: str
    expected: str

    def describe(self) -> str:
        return f"Directory {self.path} belongs to {self.found}, not to {self.expected}."


class WrongPartition(DirectoryError):
    """The directory holds another topic's partition, or an earlier topic of the same name."""

    advice = "The topic was deleted and created again, or the directory was moved: set it aside."

    path: str
    found: str
    expected: str

    def describe(self) -> str:
        return f"Directory {self.path} holds {self.found}, not {self.expected}."


class UnsupportedFormat(StorageError):
    """A file was written by a newer version."""

    advice = "Use the raylog version that wrote it, or a newer one."

    path: str
    version: int
    known: int

    def describe(self) -> str:
        return f"File {self.path} has format version {self.version}; this raylog reads up to {self.known}."


class LogDamaged(StorageError):
    """Bytes that were stored are not there any more, or not as they were (rule 14)."""

    advice = (
        "The replica is quarantined: it serves nothing until it has been refetched from the leader. "
        "`python -m raylog.storage.dump` shows what is still readable."
    )

    path: str
    position: int
    reason: str

    def describe(self) -> str:
        return f"{self.path} is damaged at byte {self.position}: {self.reason}."


class LogOffline(StorageError):
    """The log was closed, or went offline after an earlier failure."""

    advice = "See the first error in this broker's log; the replica has to be opened again."


class CompactionError(RaylogError):
    """A compaction could not be done; the log is unchanged."""


class CompactionMemoryTooSmall(CompactionError):
    """The map cannot hold enough keys to get anywhere."""

    advice = "Raise the memory budget for compaction, or send smaller batches."

    needed: int
    available: int

    def describe(self) -> str:
        return f"A map of {self.needed} bytes is needed, but {self.available} are to be had."


class CompactionMemoryTaken(CompactionMemoryTooSmall):
    """The memory budget would be enough, but other compactions have it just now."""

    retriable = True
    advice = "It is given back when they end; if this happens often, raise the memory budget for compaction."


class CompactionOutdated(CompactionError):
    """The segments that were compacted are not those of the log any more."""

    retriable = True
    advice = "The log was truncated or trimmed meanwhile; the next compaction starts from what it is now."

    base_offset: int
    end_offset: int

    def describe(self) -> str:
        return f"The segments from offset {self.base_offset} to {self.end_offset} are not those that were compacted."


class CompactionAbandoned(CompactionError):
    """Whoever asked for a compaction does not wait for it any more."""

    retriable = True
    advice = "The log's owner asks again when it is there again."

    directory: str

    def describe(self) -> str:
        return f"Nobody waits for the compaction of {self.directory} any more."


class HousekeeperBusy(CompactionError):
    """The broker's housekeeping process has as many compactions waiting as it takes."""

    retriable = True
    advice = "The log's owner asks again later; nothing is lost but time."

    waiting: int

    def describe(self) -> str:
        return f"{self.waiting} compactions wait already."

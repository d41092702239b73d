"""Files and directories on a disk, and the compaction of a log."""

from __future__ import annotations

from raylog.errors.base import RaylogError


class StorageError(RaylogError):
    """A file or directory cannot be used, or a disk has a problem."""


class DiskError(StorageError):
    """The disk refused an operation."""


class DiskFull(DiskError):
    """The disk has no space left. Nothing of the refused write remains."""

    retriable = True
    advice = "Free space on the disk or shorten the retention. Writing continues by itself when there is space."


class DiskBusy(DiskError):
    """The process or machine is short of file descriptors or memory. The disk itself is healthy."""

    retriable = True
    advice = "Raise the limit on open files (ulimit -n), or free memory."


class DiskFailed(DiskError):
    """The disk reported an I/O error, failed to sync, or became read-only. Its content is unknown from then on."""

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


class DirectoryNotMade(DirectoryError):
    """There is no directory at this path, and none can be made there."""

    advice = "Give a path where this user may make directories."

    path: str
    reason: str

    def describe(self) -> str:
        return f"Directory {self.path} cannot be made: {self.reason}."


class DirectoryNotOurs(DirectoryError):
    """The directory holds files that raylog did not create."""

    advice = "Give raylog an empty directory, or one that it created."

    path: str
    found: str

    def describe(self) -> str:
        return f"Directory {self.path} is not a raylog directory: {self.found}."


class DirectoryBlank(DirectoryError):
    """A broker that had data finds none: the disk is not mounted, or was replaced."""

    advice = (
        "Mount or restore the broker's data. If it is lost, move this broker's replicas to others, remove the broker, "
        "and start again: the directory then gets a broker with a new number."
    )

    path: str
    broker: int

    def describe(self) -> str:
        return f"Directory {self.path} is blank, but broker {self.broker} had its data there."


class DirectoryCopied(DirectoryError):
    """Two directories claim to belong to the same broker: one of them is a copy."""

    advice = "Move the one that is the copy (the older one) out of the way, and start again."

    broker: int
    path: str
    other: str

    def describe(self) -> str:
        return f"Directories {self.path} and {self.other} both belong to broker {self.broker}."


class DirectoryOutdated(DirectoryError):
    """A broker's directory is older than the cluster has seen it: it was restored from a backup."""

    advice = (
        "Put back the newer directory. If that is lost, move this broker's replicas to others, remove the broker, and "
        "start it with an empty directory: raylog fetches all data again. To go back in time, restore the directories "
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


class BrokerWasRemoved(DirectoryError):
    """The directory belonged to a broker that was removed from the cluster."""

    advice = (
        "The cluster needs nothing of it any more: delete the directory, or move it away. A start with a blank one in "
        "its place makes a broker with a number of its own."
    )

    path: str
    broker: int

    def describe(self) -> str:
        return f"Directory {self.path} belonged to broker {self.broker}, which was removed from the cluster."


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
    """Stored bytes are missing or have changed (rule 14)."""

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
    """A compaction could not be done. The log is unchanged."""


class CompactionMemoryTooSmall(CompactionError):
    """The memory budget holds too few keys for a compaction to make progress."""

    advice = "Raise the memory budget for compaction, or send smaller batches."

    needed: int
    available: int

    def describe(self) -> str:
        return f"A compaction needs a key map of {self.needed} bytes, but {self.available} are available."


class CompactionMemoryTaken(CompactionMemoryTooSmall):
    """The memory budget is large enough, but other compactions are using it."""

    retriable = True
    advice = "They release it when they end. If this happens often, raise the memory budget for compaction."


class CompactionOutdated(CompactionError):
    """The log's segments have changed since the compaction read them."""

    retriable = True
    advice = "The log was truncated or trimmed meanwhile. The next compaction reads its present segments."

    base_offset: int
    end_offset: int

    def describe(self) -> str:
        return f"The segments a compaction read ({self.base_offset} to {self.end_offset}) have changed since it began."


class CompactionAbandoned(CompactionError):
    """The replica that asked for a compaction no longer waits for it."""

    retriable = True
    advice = "The replica asks again when it is back."

    directory: str

    def describe(self) -> str:
        return f"The compaction of {self.directory} is no longer wanted."


class HousekeeperBusy(CompactionError):
    """The broker's housekeeper already has as many compactions waiting as it accepts."""

    retriable = True
    advice = "Nothing is lost: the replica asks again later."

    waiting: int

    def describe(self) -> str:
        return f"{self.waiting} compactions are already waiting."

"""A broker's data directory: whose it is, its lock, and the replicas in it.

    broker.json              format version, cluster id, broker id, directory id, first voters
    .lock                    flock: one broker
    <topic>-<partition>/     one replica each, see partition_directory.py
    <topic>-<partition>@set-aside-<ms>-<why>/  a log that was set aside, see set_aside_names.py

What must stay true: the identity is written once, when the directory is blank, and never changes; so a node that comes
back with its directory is the same broker, and no broker ever writes into the directory of another. The directory id is
drawn then: a blank directory that takes the place of a lost one tells by it that it is another (rule 17).
"""

from __future__ import annotations

import os.path
import re
from dataclasses import asdict, dataclass
from typing import Final

from raylog.errors import DirectoryBlank, DirectoryNotOurs, WrongCluster
from raylog.storage.directory.partition_directory import LOCK_FILE
from raylog.storage.directory.set_aside_names import SetAsideName, new_path, parse_name, set_aside_of
from raylog.storage.disk.checkpoints import TEMPORARY_SUFFIX, Body, read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import DirectoryLock, Disk
from raylog.storage.disk.local_disk import LocalDisk

IDENTITY_FILE: Final = "broker.json"
_VERSION: Final = 1
_REPLICA_NAME: Final = re.compile(r"([a-zA-Z0-9._-]+)-(\d+)")


@dataclass(frozen=True)
class BrokerIdentity:
    cluster_id: str
    broker_id: int

    def __str__(self) -> str:
        return f"broker {self.broker_id} of cluster {self.cluster_id}"


@dataclass(frozen=True)
class Claim:
    """The facts by which a blank directory is made a broker's."""

    directory_id: str  # random
    first_voters: tuple[int, ...] = ()  # of the metadata log that this broker is to form with them; else empty


@dataclass(frozen=True)
class DirectoryIdentity:
    """The identity that a directory has on its disk."""

    broker: BrokerIdentity
    claim: Claim


class DataDirectory:
    """An open, locked data directory."""

    def __init__(self, disk: Disk, path: str, identity: DirectoryIdentity, lock: DirectoryLock) -> None:
        self.disk = disk
        self.path = path
        self.identity = identity
        self._lock = lock

    @staticmethod
    def read_identity(path: str, disk: Disk | None = None) -> DirectoryIdentity | None:
        """Return whose directory this is, without opening it; None where it is blank or missing."""
        disk = disk or LocalDisk()
        try:
            names = disk.list_directory(path)
        except FileNotFoundError:
            return None
        if IDENTITY_FILE in names:
            return read_checkpoint(disk, f"{path}/{IDENTITY_FILE}", _VERSION, _parse_identity)
        foreign = [name for name in names if name != LOCK_FILE and not name.endswith(TEMPORARY_SUFFIX)]
        if foreign:
            raise DirectoryNotOurs(path, f"it holds {foreign[0]!r}, but no {IDENTITY_FILE}")
        return None

    @classmethod
    def open(
        cls, path: str, broker: BrokerIdentity, disk: Disk | None = None, *, claim: Claim | None = None
    ) -> DataDirectory:
        """Lock the directory for this broker; a blank one becomes this broker's.

        DirectoryBlank where it is blank and there is no claim: this broker had a directory already.
        """
        disk = disk or LocalDisk()
        found = cls.read_identity(path, disk)  # before anything is written into what may be somebody else's
        if found is None:
            if claim is None:
                raise DirectoryBlank(path, broker.broker_id)
            _make_durably(disk, path)
        lock = disk.lock_directory(path)
        try:
            found = found or cls.read_identity(path, disk)  # somebody may have been quicker
            if found is None:
                assert claim is not None
                found = DirectoryIdentity(broker, claim)
                write_checkpoint(disk, f"{path}/{IDENTITY_FILE}", _VERSION, {**asdict(broker), **asdict(claim)})
            elif found.broker != broker:
                raise WrongCluster(path, str(found.broker), str(broker))
        except BaseException:
            lock.release()
            raise
        return cls(disk, path, found, lock)

    def replica_path(self, topic: str, partition: int) -> str:
        return f"{self.path}/{topic}-{partition}"

    def replicas(self) -> list[tuple[str, int]]:
        return replica_names(self.disk, self.path)

    def set_aside(self, topic: str, partition: int, why: str, now_ms: int) -> str:
        """Move a closed replica out of the way, so that another may take its place; returns where to."""
        path = self.replica_path(topic, partition)
        target = new_path(self.disk, path, why, now_ms)
        self.disk.rename(path, target)
        self.disk.sync_directory(self.path)
        return target

    def set_aside_before(self, topic: str, partition: int) -> list[str]:
        """Return where the logs that were set aside of this replica lie, the oldest first."""
        return [path for _, path in set_aside_of(self.disk, self.replica_path(topic, partition))]

    def all_set_aside(self) -> list[tuple[SetAsideName, str]]:
        """Return the logs that were set aside of all replicas: what their names say, and where they lie."""
        names = [(parse_name(name), name) for name in self.disk.list_directory(self.path)]
        return [(parsed, f"{self.path}/{name}") for parsed, name in names if parsed is not None]

    def free_bytes(self) -> int:
        return self.disk.free_bytes(self.path)

    def close(self) -> None:
        self._lock.release()


def replica_names(disk: Disk, path: str) -> list[tuple[str, int]]:
    """(topic, partition) of each replica's directory in a data directory, whether it can be opened or not."""
    matches = [_REPLICA_NAME.fullmatch(name) for name in disk.list_directory(path)]
    return [(match[1], int(match[2])) for match in matches if match]


def _parse_identity(body: Body) -> DirectoryIdentity:
    claim = Claim(body["directory_id"], tuple(body["first_voters"]))
    return DirectoryIdentity(BrokerIdentity(body["cluster_id"], body["broker_id"]), claim)


def _make_durably(disk: Disk, path: str) -> None:
    """Make the directory, so that not even a power cut takes its name away, and with it all that was synced in it."""
    parent = os.path.dirname(path.rstrip("/")) or "."
    unsure = [parent]  # even if `path` is there: whoever made it may not have come to the sync
    while not disk.exists(unsure[-1]):
        unsure.append(os.path.dirname(unsure[-1]) or ".")
    disk.make_directory(path)
    for each in reversed(unsure):
        disk.sync_directory(each)

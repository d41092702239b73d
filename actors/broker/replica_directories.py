"""Directories of a broker's replicas: making room for a process, and removing what nobody needs.

All of this is slow work of the disk, to be done off the loop. What must stay true:
- A directory is moved or removed only under its lock, so never under a process that uses it.
- What was set aside stays, however often: only a person removes it, or the end of its topic (rule 7).
- Removing begins with a rename; so a crash leaves a directory whole, or under a name that says that it is to go.
- The topic id in the directory decides whose it is, not its name.
"""

from __future__ import annotations

import logging
from typing import Final, NamedTuple

from raylog.actors.protocol.control_messages import NO_UNCLEAN_EPOCH, SetAside
from raylog.actors.protocol.names import METADATA_TOPIC
from raylog.errors import DirectoryLocked, LogDamaged, UnsupportedFormat
from raylog.storage.directory.data_directory import DataDirectory
from raylog.storage.directory.partition_directory import PARTITION_FILE, QUARANTINE_FILE, may_precede_creation
from raylog.storage.directory.set_aside_logs import SetAsideLog, SetAsideLogs
from raylog.storage.directory.set_aside_names import DAMAGED, moved
from raylog.storage.disk.checkpoints import read_checkpoint
from raylog.storage.disk.disk import Disk
from raylog.storage.segment.leader_epochs import LeaderEpochs

_REMOVED: Final = "@removed-"  # no topic has an @ in its name
_PARTITION_VERSION: Final = 1

_log = logging.getLogger(__name__)


class FoundReplica(NamedTuple):
    """A replica's directory. `topic_id` is empty where it cannot be read, or was never written."""

    topic: str
    partition: int
    topic_id: bytes
    in_use: bool


class ReplicaDirectories:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._disk: Disk = directory.disk

    def path(self, topic: str, partition: int) -> str:
        return self._directory.replica_path(topic, partition)

    def find(self) -> list[FoundReplica]:
        """All that there are, and which of them a living process has. One that was only made room for is none yet."""
        names = [name for name in self._directory.replicas() if name[0] != METADATA_TOPIC]
        found = [FoundReplica(*name, self._topic_id(*name), self._is_in_use(*name)) for name in names]
        return [each for each in found if each.topic_id or each.in_use or self._holds_data(self.path(*each[:2]))]

    def make_room(self, topic: str, topic_id: bytes, partition: int, now_ms: int) -> None:
        """Let a new process find this replica's own directory, or a blank one. DirectoryLocked: one has it still.

        A quarantined one is set aside (rule 14), and so is one that does not say whose it is; one of an earlier topic
        of this name is removed. No process may open it before `sync_rooms`.
        """
        path = self.path(topic, partition)
        self._take_away(path, topic, topic_id, partition, now_ms)
        self._disk.make_directory(path)

    def sync_rooms(self) -> None:
        """Make the names of all directories durable, of thousands with one sync."""
        self._disk.sync_directory(self._directory.path)

    def _take_away(self, path: str, topic: str, topic_id: bytes, partition: int, now_ms: int) -> None:
        """Take away what is not this replica's, or damaged."""
        if not self._disk.exists(path):
            return
        lock = self._disk.lock_directory(path)
        try:
            try:
                is_sound = not self._disk.exists(f"{path}/{QUARANTINE_FILE}")
                found = self._read_topic_id(path)
            except LogDamaged:
                is_sound, found = False, b""
            if not is_sound or (not found and self._holds_data(path)):
                target = self._directory.set_aside(topic, partition, DAMAGED, now_ms)
                _log.error("%s-%d is damaged: it was set aside as %s.", topic, partition, target)
            elif found not in (b"", topic_id):
                self._rename_removed(path, now_ms)
        finally:
            lock.release()

    def remove(self, topic: str, topic_id: bytes, partition: int, now_ms: int, unclean_epoch: int | None) -> bool:
        """Whether there was one; it is out of the way, and `purge` removes its files. DirectoryLocked as above.

        `unclean_epoch` of its partition, which goes on elsewhere: what a log has from before it may be nowhere else, so
        that one is set aside. None: the topic is no more, and what was set aside of it goes too.
        """
        if unclean_epoch is None:
            aside = self._directory.set_aside_before(topic, partition)
            self._drop_aside([each for each in aside if self._topic_id_in(each) == topic_id], now_ms)
        path = self.path(topic, partition)
        if not self._disk.exists(path) or self._topic_id(topic, partition) != topic_id:
            return False  # also without its lock, or the process of a later topic of this name would be taken for ours
        lock = self._disk.lock_directory(path)
        try:
            if self._topic_id(topic, partition) != topic_id:
                return False
            if unclean_epoch is not None and self._is_from_before(path, unclean_epoch):
                self._directory.set_aside(topic, partition, moved(unclean_epoch), now_ms)
            else:
                self._rename_removed(path, now_ms)
            return True
        finally:
            lock.release()

    def purge(self) -> None:
        """Remove the files of all that is to go."""
        for name in self._disk.list_directory(self._directory.path):
            if _REMOVED not in name:
                continue
            path = f"{self._directory.path}/{name}"
            try:
                files = self._disk.list_directory(path)
            except FileNotFoundError:  # another purge was quicker
                continue
            for file in files:
                self._disk.remove(f"{path}/{file}")
            self._disk.remove_directory(path)

    def usage(self) -> tuple[int, int]:
        """Bytes of the disk: free ones, and all."""
        return self._directory.free_bytes(), self._disk.total_bytes(self._directory.path)

    def close(self) -> None:
        self._directory.close()

    def drop_aside(self, name: str, now_ms: int) -> None:
        """A person needs it no more: out of the way, for `purge`. SetAsideUnknown, DirectoryLocked."""
        self._drop_aside([SetAsideLogs(self._directory).take(name)], now_ms)

    def find_aside(self, topic: str, partition: int) -> list[SetAside]:
        """The logs of this partition that were set aside, as they go over the wire."""
        return [_as_told(each) for each in SetAsideLogs(self._directory).find(topic, partition)]

    def restore_aside(self, topic: str, topic_id: bytes, partition: int, name: str, now_ms: int) -> None:
        SetAsideLogs(self._directory).restore(topic, topic_id, partition, name, now_ms)

    def _drop_aside(self, paths: list[str], now_ms: int) -> None:
        for path in paths:
            lock = self._disk.lock_directory(path)
            try:
                self._rename_removed(path, now_ms)
            finally:
                lock.release()

    def _is_from_before(self, path: str, epoch: int) -> bool:
        """Whether the log ends before this epoch; one that cannot be read may hold anything."""
        if epoch == NO_UNCLEAN_EPOCH or not self._holds_data(path):
            return False
        try:
            return LeaderEpochs.load(self._disk, path).latest < epoch
        except (FileNotFoundError, LogDamaged, UnsupportedFormat):
            return True

    def _rename_removed(self, path: str, now_ms: int) -> None:
        number = now_ms
        while self._disk.exists(target := f"{path}{_REMOVED}{number}"):
            number += 1
        self._disk.rename(path, target)
        self._disk.sync_directory(self._directory.path)

    def _is_in_use(self, topic: str, partition: int) -> bool:
        try:
            self._disk.lock_directory(self.path(topic, partition)).release()
        except DirectoryLocked:
            return True
        except FileNotFoundError:  # it was removed just now
            return False
        return False

    def _holds_data(self, path: str) -> bool:
        return not all(map(may_precede_creation, self._disk.list_directory(path)))

    def _topic_id(self, topic: str, partition: int) -> bytes:
        return self._topic_id_in(self.path(topic, partition))

    def _topic_id_in(self, path: str) -> bytes:
        try:
            return self._read_topic_id(path)
        except (LogDamaged, UnsupportedFormat):
            return b""

    def _read_topic_id(self, path: str) -> bytes:
        try:
            body = read_checkpoint(self._disk, f"{path}/{PARTITION_FILE}", _PARTITION_VERSION)
            return bytes.fromhex(body["topic_id"])
        except FileNotFoundError:
            return b""
        except (KeyError, TypeError, ValueError):
            raise LogDamaged(f"{path}/{PARTITION_FILE}", 0, "it names no topic id") from None


def _as_told(each: SetAsideLog) -> SetAside:
    said = each.said
    return SetAside(
        each.name, said.topic, said.partition, each.topic_id, said.at_ms, said.why,
        each.last_epoch, each.log_start_offset, each.log_end_offset, each.size_bytes, each.unusable,
    )  # fmt: skip

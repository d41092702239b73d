"""Logs that were set aside in a broker's directory: what is in them, and how one is dropped or restored.

What must stay true:
- A log is looked into without being changed, and dropped or restored only under its lock.
- One that is restored lies under one of both names at any moment, and so does what was in its place. Its marks say that
  a person has put it there (rule 7): so the controller takes it for what it is before anybody relies on it.
- A damaged one stays where it is, as it is. What is restored of it is its sound part (`sound_parts.py`), and what is
  told of it is where that ends.
"""

from __future__ import annotations

import re
from dataclasses import asdict, dataclass, replace
from typing import Final

from raylog.errors import LogDamaged, RaylogError, SetAsideUnknown, SetAsideUnusable, UnsupportedFormat
from raylog.storage.directory.data_directory import DataDirectory
from raylog.storage.directory.doubts import RESTORED
from raylog.storage.directory.partition_directory import (
    CHECKPOINT_FILE,
    CHECKPOINT_VERSION,
    PARTITION_FILE,
    QUARANTINE_FILE,
    parse_damage,
    parse_marks,
)
from raylog.storage.directory.set_aside_names import REPLACED, SetAsideName, parse_name
from raylog.storage.directory.sound_parts import SoundEnd, base_of, sound_end, write_sound_part
from raylog.storage.disk.checkpoints import read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import Disk
from raylog.storage.segment.leader_epochs import LeaderEpochs

_LOG_NAME: Final = re.compile(r"\d{20}\.log")
_PARTITION_VERSION: Final = 1
_QUARANTINE_VERSION: Final = 1
_UNKNOWN: Final = -1


@dataclass(frozen=True)
class SetAsideLog:
    """One log. What cannot be read is −1, or empty; `unusable`: why it cannot be restored."""

    name: str
    said: SetAsideName
    topic_id: bytes
    last_epoch: int
    log_start_offset: int
    log_end_offset: int  # of a damaged one: where its sound part ends
    size_bytes: int
    unusable: str


class SetAsideLogs:
    def __init__(self, directory: DataDirectory) -> None:
        self._directory = directory
        self._disk: Disk = directory.disk

    def find(self, topic: str = "", partition: int = _UNKNOWN) -> list[SetAsideLog]:
        """All of a partition, or of all topics, by their names. It reads a whole segment of each."""
        found = []
        for said, path in self._directory.all_set_aside():
            if topic in ("", said.topic) and partition in (_UNKNOWN, said.partition):
                try:
                    found.append(self._look_into(said, path))
                except FileNotFoundError:  # it was dropped just now
                    continue
        return found

    def take(self, name: str) -> str:
        """Return where the log of this name lies. SetAsideUnknown."""
        path = f"{self._directory.path}/{name}"
        if parse_name(name) is None or not self._disk.exists(path):
            raise SetAsideUnknown(name)
        return path

    def restore(self, topic: str, topic_id: bytes, partition: int, name: str, now_ms: int) -> None:
        """Put it in the replica's place. SetAsideUnknown, SetAsideUnusable; DirectoryLocked: a process has the replica.

        What was in its place is set aside.
        """
        source = self.take(name)
        said = parse_name(name)
        assert said is not None
        if (said.topic, said.partition) != (topic, partition):
            raise SetAsideUnusable(name, f"it is of {said.topic}-{said.partition}")
        found = self._look_into(said, source)
        if found.unusable or found.topic_id != topic_id:
            raise SetAsideUnusable(name, found.unusable or "it is of an earlier topic of this name")
        lock = self._disk.lock_directory(source)
        try:
            ready = self._ready(source, self._directory.replica_path(topic, partition))
            self._make_way(topic, partition, now_ms)
            self._disk.rename(ready, self._directory.replica_path(topic, partition))
            self._disk.sync_directory(self._directory.path)
        finally:
            lock.release()

    def _ready(self, source: str, target: str) -> str:
        """Return where the log lies that is to take the replica's place."""
        files = self._disk.list_directory(source)
        if QUARANTINE_FILE in files:
            return write_sound_part(self._disk, source, target, self._up_to_damage(source, files))
        self._mark(source)
        return source

    def _mark(self, path: str) -> None:
        marks = read_checkpoint(self._disk, f"{path}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, parse_marks)
        marked = asdict(replace(marks, unproven=RESTORED))
        write_checkpoint(self._disk, f"{path}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, marked)

    def _make_way(self, topic: str, partition: int, now_ms: int) -> None:
        path = self._directory.replica_path(topic, partition)
        if not self._disk.exists(path):
            return
        lock = self._disk.lock_directory(path)
        try:
            self._directory.set_aside(topic, partition, REPLACED, now_ms)
        finally:
            lock.release()

    # --- looking into them ---

    def _look_into(self, said: SetAsideName, path: str) -> SetAsideLog:
        files = self._disk.list_directory(path)
        logs = _logs_in(files)
        start = self._log_start(path)
        end = self._end_of(path, self._up_to_damage(path, files) or logs, start)
        return SetAsideLog(
            path.rpartition("/")[2],
            said,
            self._topic_id(path),
            end.last_epoch,
            start,
            end.next_offset,
            sum(self._size(f"{path}/{file}") for file in logs),
            self._why_unusable(path, files, start, end),
        )

    def _why_unusable(self, path: str, files: list[str], start: int, end: SoundEnd) -> str:
        if QUARANTINE_FILE in files and not self._up_to_damage(path, files):
            damage = self._damage(path)
            return "it is damaged" if damage is None else f"it is damaged: {damage.reason}"
        if PARTITION_FILE not in files or CHECKPOINT_FILE not in files:
            return "its own files are missing"
        try:
            read_checkpoint(self._disk, f"{path}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, parse_marks)
            LeaderEpochs.load(self._disk, path)
        except (FileNotFoundError, RaylogError) as error:
            return f"its own files are damaged: {error}"
        if QUARANTINE_FILE in files and not base_of(_logs_in(files)[0]) <= start < end.next_offset:
            return "it is damaged, and nothing before the damage is left"
        return ""

    def _up_to_damage(self, path: str, files: list[str]) -> list[str]:
        """The segments of a damaged log up to the one that its opening or reading found damaged; else none."""
        damage = self._damage(path) if QUARANTINE_FILE in files else None
        name = "" if damage is None else damage.path.rpartition("/")[2]
        logs = _logs_in(files)
        return logs[: logs.index(name) + 1] if name in logs else []

    def _damage(self, path: str) -> LogDamaged | None:
        """The damage for which it was quarantined; None where that cannot be read."""
        try:
            return read_checkpoint(self._disk, f"{path}/{QUARANTINE_FILE}", _QUARANTINE_VERSION, parse_damage)
        except (LogDamaged, UnsupportedFormat):
            return None

    def _end_of(self, path: str, logs: list[str], start: int) -> SoundEnd:
        """The end as far as the last segment is sound. A log without any holds nothing."""
        if not logs:
            return SoundEnd(0, start, _UNKNOWN)
        for name in reversed(logs):
            end = sound_end(self._disk, f"{path}/{name}", self._epochs(path))
            if end.size or base_of(name) == 0:
                return end
        return SoundEnd(0, _UNKNOWN, _UNKNOWN)

    def _epochs(self, path: str) -> LeaderEpochs | None:
        try:
            return LeaderEpochs.load(self._disk, path)
        except (FileNotFoundError, RaylogError):
            return None

    def _size(self, path: str) -> int:
        file = self._disk.open(path)
        try:
            return file.size()
        finally:
            file.close()

    def _topic_id(self, path: str) -> bytes:
        try:
            body = read_checkpoint(self._disk, f"{path}/{PARTITION_FILE}", _PARTITION_VERSION)
            return bytes.fromhex(body["topic_id"])
        except (FileNotFoundError, LogDamaged, UnsupportedFormat, KeyError, TypeError, ValueError):
            return b""

    def _log_start(self, path: str) -> int:
        try:
            marks = read_checkpoint(self._disk, f"{path}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, parse_marks)
        except (FileNotFoundError, LogDamaged, UnsupportedFormat):
            return _UNKNOWN
        return marks.log_start_offset


def _logs_in(files: list[str]) -> list[str]:
    return sorted(filter(_LOG_NAME.fullmatch, files))

"""A whole copy of a log, beside it, before its end is cut for a leader that may have lacked what is there (rule 7).

Sealed segments get a second name: nothing changes them any more, so they take no room twice. The growing one is copied,
for it is about to be cut. A cut of a sealed one gives the log a file of its own first (`Segment.truncate`).

What must stay true: the copy has its name only when it is whole and synced. One that a crash has cut short lies under
another name, and the next one begins with its removal. It opens like the log of a process that was killed.
"""

from __future__ import annotations

from dataclasses import asdict, replace
from typing import Final

from raylog.storage.directory.partition_directory import CHECKPOINT_FILE, CHECKPOINT_VERSION, PARTITION_FILE
from raylog.storage.directory.set_aside_names import new_path, set_aside_of
from raylog.storage.disk.checkpoints import write_checkpoint
from raylog.storage.disk.disk import copy_file
from raylog.storage.log.job import Job
from raylog.storage.log.state import LogState
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.segment import LOG_SUFFIX, file_name

_UNDER_WAY: Final = "@being-set-aside"


class LogCopy(Job[str]):
    """A copy of all that is in the log now. `apply` returns where it lies.

    From the plan to the end of `work` nothing may be appended to the log. A cut waits for the copy, or keeps it from
    being made.
    """

    def __init__(self, log: LogState, why: str, now_ms: int) -> None:
        super().__init__(log)
        log.settle()
        self._disk = log.disk
        self._path = log.directory.path
        self._lock = log.directory.copy_lock
        self._why = why
        self._now_ms = now_ms
        *sealed, active = log.segments
        self._sealed = [(each.base_offset, each.next_offset) for each in sealed]
        self._active = active.base_offset, active.size
        self._history = list(log.epochs.history)
        self._synced_to = log.recovery_point
        self._marks = replace(log.marks.now(), recovery_point=log.log_end_offset)
        self._shape = log.shape
        self._copied_to = ""

    def work(self) -> None:
        """Make the copy, unless the log was copied for the same reason before: that copy stands.

        FileNotFoundError: compaction or retention has replaced a segment meanwhile. Then the copy is to be planned
        anew.
        """
        with self._lock:  # an earlier copy, which nobody waits for any more, may be under way
            if self._log.shape != self._shape:
                raise FileNotFoundError(f"{self._path} was cut meanwhile.")
            self._copied_to = self._find() or self._make()

    def _take_in(self) -> str:
        return self._copied_to

    def _find(self) -> str:
        return next((path for name, path in set_aside_of(self._disk, self._path) if name.why == self._why), "")

    def _make(self) -> str:
        unfinished = self._path + _UNDER_WAY
        self._begin(unfinished)
        self._take_segments(unfinished)
        self._take_the_rest(unfinished)
        self._disk.sync_directory(unfinished)
        target = new_path(self._disk, self._path, self._why, self._now_ms)
        self._disk.rename(unfinished, target)
        self._disk.sync_directory(self._path.rpartition("/")[0] or "/")
        return target

    def _begin(self, path: str) -> None:
        if self._disk.exists(path):
            for name in self._disk.list_directory(path):
                self._disk.remove(f"{path}/{name}")
        self._disk.make_directory(path)

    def _take_segments(self, target: str) -> None:
        for base_offset, next_offset in self._sealed:
            name = file_name(base_offset, LOG_SUFFIX)
            self._disk.link(f"{self._path}/{name}", f"{target}/{name}")
            if next_offset > self._synced_to:
                self._sync(f"{target}/{name}")
        base_offset, size = self._active
        name = file_name(base_offset, LOG_SUFFIX)
        if not size:
            self._disk.write_file(f"{target}/{name}", b"", sync=True)
            return
        copy_file(self._disk, f"{self._path}/{name}", f"{target}/{name}", size)

    def _sync(self, path: str) -> None:
        file = self._disk.open(path)
        try:
            file.sync()
        finally:
            file.close()

    def _take_the_rest(self, target: str) -> None:
        LeaderEpochs(self._disk, target, self._history).save()
        identity = self._disk.read_file(f"{self._path}/{PARTITION_FILE}")
        self._disk.write_file(f"{target}/{PARTITION_FILE}", identity, sync=True)
        write_checkpoint(self._disk, f"{target}/{CHECKPOINT_FILE}", CHECKPOINT_VERSION, asdict(self._marks))

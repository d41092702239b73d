"""Leader epochs of a log's parts: pairs of (epoch, first offset of that epoch).

What must stay true (rule 8): epochs and their starts strictly increase, and a pair is on disk before the first batch of
its epoch is in the log. Truncation on rejoining the leader goes by this history, never by a high watermark (rules 9 and
10). What is on disk may name epochs that would begin at the log's end and have not come, or were led in by this replica
without a record. They are gone before anything else is appended (`take_back`), and an opening forgets them.
"""

from __future__ import annotations

import threading
from bisect import bisect_right
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Final, NamedTuple

from raylog.errors import LogDamaged, StaleLeaderEpoch
from raylog.storage.disk.checkpoints import Body, read_checkpoint, write_checkpoint
from raylog.storage.disk.disk import Disk
from raylog.storage.format.record_batch import MAX_OFFSET, NO_LEADER_EPOCH

FILE_NAME: Final = "leader-epoch-checkpoint"
_VERSION: Final = 1


class EpochStart(NamedTuple):
    epoch: int
    start_offset: int


class LeaderEpochs:
    """The history of one log, kept in memory and on disk."""

    def __init__(self, disk: Disk, directory: str, history: list[EpochStart] | None = None) -> None:
        self._disk = disk
        self._path = f"{directory}/{FILE_NAME}"
        self._history = history or []
        self._writing = threading.Lock()
        self._writes = 0
        self._ahead: EpochWrite | None = None  # of what `assign` is to find on disk
        self.is_stale = False  # on disk there are, or may soon be, epochs that are no part of the log

    @classmethod
    def load(cls, disk: Disk, directory: str) -> LeaderEpochs:
        """Raises `FileNotFoundError` or `LogDamaged` where the history has to be taken from the batches."""
        path = f"{directory}/{FILE_NAME}"
        history = read_checkpoint(disk, path, _VERSION, _history)
        for before, after in pairwise(history):
            if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
                raise LogDamaged(path, 0, f"epoch {after.epoch} at {after.start_offset} follows {before}")
        return cls(disk, directory, history)

    def save(self) -> None:
        """Write it. A write that is under way on another thread is waited for, or overtaken."""
        with self._writing:
            self._writes += 1
            self._write(self._history)
        self._is_on_disk()

    @property
    def history(self) -> tuple[EpochStart, ...]:
        return tuple(self._history)

    @property
    def latest(self) -> int:
        return self._history[-1].epoch if self._history else NO_LEADER_EPOCH

    def broken_invariants(self, log_end_offset: int) -> Iterator[str]:
        """Say in words what contradicts the top of this file."""
        for before, after in pairwise(self._history):
            if after.epoch <= before.epoch or after.start_offset <= before.start_offset:
                yield f"{after} follows {before}"
        if self._history and self._history[-1].start_offset > log_end_offset:
            yield f"{self._history[-1]} begins behind the log's end {log_end_offset}"

    def assign(self, epoch: int, start_offset: int) -> None:
        """Record that `epoch` begins at `start_offset`. An epoch that wrote nothing gives way to its successor."""
        if epoch == self.latest:
            return
        history, ahead = self._with(epoch, start_offset), self._ahead
        if ahead is not None and self._was_carried_out(ahead) and history == list(ahead.history):
            self._history = history
            self._is_on_disk()
        else:
            self._replace(history)

    def write_ahead(self, epoch: int, start_offset: int) -> EpochWrite:
        """Return a job for another thread: it writes that `epoch` begins there, before it does.

        `assign` need not wait for the disk then. Whatever is written behind this takes it back.
        """
        return self._begin_write(self._with(epoch, start_offset))

    def write_as_it_is(self) -> EpochWrite:
        """Return a job for another thread that does what `take_back` does, which then need not wait for the disk."""
        return self._begin_write(self._history)

    def _begin_write(self, history: list[EpochStart]) -> EpochWrite:
        self._writes += 1
        self._ahead = EpochWrite(self, tuple(history), self._writes)
        self.is_stale = True
        return self._ahead

    def take_back(self) -> None:
        """Let nothing be on disk that is no part of the history, before a batch of its last epoch is appended."""
        self.note_written()
        if self.is_stale:
            self.save()

    def note_written(self) -> None:
        """Take note of what was written ahead, if it is the history."""
        ahead = self._ahead
        if ahead is not None and self._was_carried_out(ahead) and list(ahead.history) == self._history:
            self._is_on_disk()

    def _was_carried_out(self, write: EpochWrite) -> bool:
        return write.is_carried_out and write.number == self._writes

    def _is_on_disk(self) -> None:
        self.is_stale, self._ahead = False, None

    def carry_out(self, write: EpochWrite) -> bool:
        """Write it, unless something was written behind it."""
        with self._writing:
            if write.number != self._writes:
                return False
            self._write(write.history)
            return True

    def _with(self, epoch: int, start_offset: int) -> list[EpochStart]:
        if epoch < self.latest:
            raise StaleLeaderEpoch(epoch, self.latest)
        kept = [entry for entry in self._history if entry.start_offset < start_offset]
        return [*kept, EpochStart(epoch, start_offset)]

    def end_offset_for(self, epoch: int, log_end_offset: int) -> EpochStart:
        """The largest epoch up to `epoch`, and the offset after its last record, as the leader answers (rule 10).

        An epoch older than the whole history ends where the history begins.
        """
        at = bisect_right(self._history, epoch, key=_epoch)
        end = self._history[at].start_offset if at < len(self._history) else log_end_offset
        return EpochStart(self._history[at - 1].epoch if at else epoch, end)

    def span_at(self, offset: int) -> tuple[int, int]:
        """The epoch that wrote `offset`, and the offset where the next epoch begins."""
        if self._history and offset >= self._history[-1].start_offset:
            return self._history[-1].epoch, MAX_OFFSET
        at = bisect_right(self._history, offset, key=_start_offset)
        epoch = self._history[at - 1].epoch if at else NO_LEADER_EPOCH
        return epoch, self._history[at].start_offset if at < len(self._history) else MAX_OFFSET

    def cut_end(self, log_end_offset: int) -> None:
        """Forget epochs that begin at or after the end of a truncated log. On disk they go before the next append."""
        kept = [entry for entry in self._history if entry.start_offset < log_end_offset]
        if len(kept) != len(self._history):
            self._history = kept
            self.is_stale = True

    def cut_start(self, log_start_offset: int) -> None:
        """Forget epochs that lie wholly before the log's start.

        The one across it keeps its beginning: the first batch that is still served may begin before the start. On disk
        they stay until something else is written: an opening forgets them again.
        """
        at = bisect_right(self._history, log_start_offset, key=_start_offset)
        if at > 1:
            self._history = self._history[at - 1 :]

    def clear(self) -> None:
        self._replace([])

    def forget_all(self) -> None:
        """Forget the history. On disk it goes before the next append."""
        self._history = []
        self.is_stale = True

    def _replace(self, history: list[EpochStart]) -> None:
        before, self._history = self._history, history
        try:
            self.save()
        except BaseException:
            self._history = before
            raise

    def _write(self, history: Iterable[EpochStart]) -> None:
        write_checkpoint(self._disk, self._path, _VERSION, {"epochs": [list(entry) for entry in history]})


class EpochWrite:
    """A history on its way to the disk, carried out on another thread: it takes two syncs.

    One that was overtaken leaves the file alone. So what the owner has cut meanwhile never comes back.
    """

    def __init__(self, epochs: LeaderEpochs, history: tuple[EpochStart, ...], number: int) -> None:
        self._epochs = epochs
        self.history = history
        self.number = number
        self.is_carried_out = False

    def carry_out(self) -> None:
        self.is_carried_out = self._epochs.carry_out(self)


def _history(body: Body) -> list[EpochStart]:
    return [EpochStart(int(epoch), int(start)) for epoch, start in body["epochs"]]


def _epoch(entry: EpochStart) -> int:
    return entry.epoch


def _start_offset(entry: EpochStart) -> int:
    return entry.start_offset

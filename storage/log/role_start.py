"""Words on disk that a role waits for: that the replica is registered, and the epoch of a leader (rules 7, 8).

A follower's first append in an epoch waits for the same words. So a follower whose log was created for it, and never
held anything, begins without them: of a new topic most replicas are such, and may stay empty for long.

What must stay true: neither counts before it is on disk. A write that something else has overtaken is made again. No
role begins while the log is cut in memory and not yet in its files.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raylog.errors import InvalidLeaderEpoch
from raylog.storage.directory.partition_directory import CheckpointWrite
from raylog.storage.format.record_batch import HEADER_BYTES, MAX_LEADER_EPOCH, Bytes, read_header
from raylog.storage.log.job import Job, StepJob
from raylog.storage.log.state import LogState, make_whole
from raylog.storage.segment.leader_epochs import EpochWrite


class RoleStart(StepJob):
    """Writes both down, after a cut that is under way. `epoch`: the one to lead in; None for a follower."""

    def __init__(self, log: LogState, epoch: int | None) -> None:
        super().__init__(log)
        if epoch is not None and epoch != log.epochs.latest:
            _check_epoch(epoch)
        self._epoch = epoch
        self._marks: CheckpointWrite | None = None
        self._epochs: EpochWrite | None = None
        self.take_step()

    def _run(self) -> Iterator[Callable[[], object]]:
        log, epoch = self._log, self._epoch
        while log.cut is not None:
            yield from log.cut.settle_in_steps()
        if epoch is None and log.may_register_later:
            log.marks.registers_later = True
        elif log.marks.unproven or log.marks.restart_ahead is not None:
            self._marks = log.marks.write_registered_ahead()
        if epoch is not None and epoch != log.epochs.latest:
            self._epochs = log.epochs.write_ahead(epoch, log.log_end_offset)
        if self._marks is not None or self._epochs is not None:
            yield self._write
        if self._marks is not None:
            log.marks.registered(self._marks)
        if epoch is not None and self._epochs is not None:
            log.epochs.assign(epoch, log.log_end_offset)

    def _write(self) -> None:
        _write_down(self._marks, self._epochs)


class FollowedEpoch(Job[None]):
    """Writes down ahead what the append of a leader's batches would have to wait for: that their epoch begins with
    them, or that epochs which were cut off are gone; before the first batch of all, that the replica is registered.
    """

    def __init__(self, log: LogState, batches: Bytes) -> None:
        super().__init__(log)
        self._marks: CheckpointWrite | None = None
        self._epochs: EpochWrite | None = None
        if len(batches) >= HEADER_BYTES:
            if log.marks.registers_later:
                self._marks = log.marks.write_registered_ahead()
            first = read_header(batches)
            if first.leader_epoch > log.epochs.latest and first.base_offset == log.log_end_offset:
                self._epochs = log.epochs.write_ahead(first.leader_epoch, first.base_offset)
            elif log.epochs.is_stale:
                self._epochs = log.epochs.write_as_it_is()

    @property
    def has_work(self) -> bool:
        return self._marks is not None or self._epochs is not None

    def work(self) -> None:
        _write_down(self._marks, self._epochs)

    def _take_in(self) -> None:
        """Leave the rest to the append, also what was overtaken."""
        if self._marks is not None and self._log.marks.is_on_disk(self._marks):
            self._log.marks.registered(self._marks)


def _write_down(marks: CheckpointWrite | None, epochs: EpochWrite | None) -> None:
    if marks is not None:
        marks.carry_out()
    if epochs is not None:
        epochs.carry_out()


def begin_epoch(log: LogState, epoch: int) -> None:
    """Become the log of a leader: its epoch is on disk before its first batch is (rule 8)."""
    _check_epoch(epoch)
    make_whole(log)
    log.epochs.assign(epoch, log.log_end_offset)


def _check_epoch(epoch: int) -> None:
    """InvalidLeaderEpoch where no log can hold it."""
    if not 0 <= epoch <= MAX_LEADER_EPOCH:
        raise InvalidLeaderEpoch(epoch)

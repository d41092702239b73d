"""Words on disk that a role waits for: that the replica is registered, and the epoch of a leader (rules 7, 8).

A follower's first append in an epoch waits for the same words.

What must stay true: neither counts before it is on disk. A write that something else has overtaken is made again.
"""

from __future__ import annotations

from raylog.errors import InvalidLeaderEpoch
from raylog.storage.format.record_batch import HEADER_BYTES, MAX_LEADER_EPOCH, Bytes, read_header
from raylog.storage.log.job import Job
from raylog.storage.log.state import LogState


class RoleStart(Job[None]):
    """Writes both down. `epoch`: the one to lead in; None for a follower."""

    def __init__(self, log: LogState, epoch: int | None) -> None:
        super().__init__(log)
        self._epoch = epoch
        self._marks = log.marks.write_registered_ahead() if log.marks.unproven else None
        self._epochs = None
        if epoch is not None and epoch != log.epochs.latest:
            _check_epoch(epoch)
            self._epochs = log.epochs.write_ahead(epoch, log.log_end_offset)

    @property
    def has_work(self) -> bool:
        return self._marks is not None or self._epochs is not None

    def work(self) -> None:
        if self._marks is not None:
            self._marks.carry_out()
        if self._epochs is not None:
            self._epochs.carry_out()

    def _take_in(self) -> None:
        log = self._log
        if self._marks is not None:
            log.marks.registered(self._marks)
        if self._epoch is not None and self._epochs is not None:
            log.epochs.assign(self._epoch, log.log_end_offset)


class FollowedEpoch(Job[None]):
    """Writes down ahead what the append of a leader's batches would have to wait for: that their epoch begins with
    them, or that epochs which were cut off are gone.
    """

    def __init__(self, log: LogState, batches: Bytes) -> None:
        super().__init__(log)
        self._write = None
        if len(batches) >= HEADER_BYTES:
            first = read_header(batches)
            if first.leader_epoch > log.epochs.latest and first.base_offset == log.log_end_offset:
                self._write = log.epochs.write_ahead(first.leader_epoch, first.base_offset)
            elif log.epochs.is_stale:
                self._write = log.epochs.write_as_it_is()

    @property
    def has_work(self) -> bool:
        return self._write is not None

    def work(self) -> None:
        if self._write is not None:
            self._write.carry_out()

    def _take_in(self) -> None:
        """Leave the rest to the append."""


def begin_epoch(log: LogState, epoch: int) -> None:
    """Become the log of a leader: its epoch is on disk before its first batch is (rule 8)."""
    _check_epoch(epoch)
    log.epochs.assign(epoch, log.log_end_offset)


def _check_epoch(epoch: int) -> None:
    """InvalidLeaderEpoch where no log can hold it."""
    if not 0 <= epoch <= MAX_LEADER_EPOCH:
        raise InvalidLeaderEpoch(epoch)

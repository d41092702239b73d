"""Knowing the aborted transactions of sealed segments, for readers of committed records, without the owner's waiting.

What must stay true: what was read counts only for the segments that it was read of.
"""

from __future__ import annotations

import logging
from contextlib import suppress

from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.log.job import Job
from raylog.storage.log.state import LogState
from raylog.storage.segment import transaction_index
from raylog.storage.segment.file_replay import FileReplay, SegmentFiles
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.segment import Segment
from raylog.storage.segment.transaction_index import TransactionIndex

_log = logging.getLogger(__name__)


def lacks_aborted(log: LogState, offset: int) -> bool:
    """Whether a look-up of aborted transactions from `offset` on would have to read files."""
    return not all(segment.transactions_known for segment in log.segments.from_offset(offset))


class AbortedReading(Job[None]):
    """Reads the transaction indexes from `offset` on that are not in memory; one that is not to be believed is made
    again from the batches.
    """

    def __init__(self, log: LogState, offset: int, now_ms: int) -> None:
        super().__init__(log)
        self._unknown = [each for each in log.segments.from_offset(offset) if not each.transactions_known]
        self._files = [SegmentFiles.of(segment) for segment in log.segments]
        self._paths = [segment.path(transaction_index.SUFFIX) for segment in self._unknown]
        self._epochs = LeaderEpochs(log.disk, log.directory.path, list(log.epochs.history))
        self._now_ms = now_ms
        self._shape = log.shape
        self._found: list[TransactionIndex] = []

    @property
    def has_work(self) -> bool:
        return bool(self._unknown)

    def work(self) -> None:
        """Stop at the first segment that is gone."""
        with suppress(FileNotFoundError):
            for segment, path in zip(self._unknown, self._paths, strict=True):
                self._found.append(self._read(segment, path))

    def _read(self, segment: Segment, path: str) -> TransactionIndex:
        disk, base_offset = self._log.disk, segment.base_offset
        before = [each for each in self._files if each.base_offset <= base_offset]
        try:
            return TransactionIndex.load(disk, path, before[-1].size)
        except SealBroken as broken:
            _log.warning("%s; the transaction index is made again from the log.", broken)
        return FileReplay(disk, self._epochs, self._now_ms).transactions_of(before)

    def _take_in(self) -> None:
        """Forget them if the log was cut: the segments may be others by now."""
        if self._log.shape == self._shape:
            for segment, found in zip(self._unknown, self._found, strict=False):
                if not segment.transactions_known:
                    segment.set_transactions(found)

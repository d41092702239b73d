"""Rebuilding producers' state and transactions from the files of segments, on any thread.

It opens the files that it reads itself. `producer_replay.py` does the same for a log that nobody else uses meanwhile.
What must stay true: nothing that the log's owner has in memory is touched.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from typing import NamedTuple

from raylog.errors import LogDamaged
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import SealBroken
from raylog.storage.format.record_batch import BatchHeader
from raylog.storage.segment.batch_scan import ChainBroken, scan_file
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.producer_state import SNAPSHOT_SUFFIX, ProducerStates, take_in
from raylog.storage.segment.segment import LOG_SUFFIX, Segment
from raylog.storage.segment.transaction_index import TransactionIndex


class SegmentFiles(NamedTuple):
    """The files of one segment, as they were when this was made."""

    base_offset: int
    size: int
    log_path: str
    snapshot_path: str

    @classmethod
    def of(cls, segment: Segment) -> SegmentFiles:
        return cls(segment.base_offset, segment.size, segment.path(LOG_SUFFIX), segment.path(SNAPSHOT_SUFFIX))


class FileReplay:
    """Reads segments of one log. FileNotFoundError: one has gone meanwhile. LogDamaged: or was replaced, or is damaged.

    `epochs`: not the owner's, but a history of its own.
    """

    def __init__(self, disk: Disk, epochs: LeaderEpochs, now_ms: int) -> None:
        self._disk = disk
        self._epochs = epochs
        self._now_ms = now_ms

    def producers_before(self, segments: Sequence[SegmentFiles]) -> ProducerStates:
        """Return the producers at the beginning of the last of these, which are the log's from its first on."""
        states, first = self._nearest_snapshot(segments)
        for segment in segments[first:-1]:
            for _, header, batch in self.batches(segment):
                take_in(states, header, batch, self._now_ms)
        return states

    def _nearest_snapshot(self, segments: Sequence[SegmentFiles]) -> tuple[ProducerStates, int]:
        for at in range(len(segments) - 1, -1, -1):
            with contextlib.suppress(SealBroken):
                found = segments[at]
                return ProducerStates.load(self._disk, found.snapshot_path, found.base_offset), at
        return ProducerStates(), 0

    def transactions_of(self, segments: Sequence[SegmentFiles]) -> TransactionIndex:
        """Return the aborted transactions of the last of these."""
        states, transactions = self.producers_before(segments), TransactionIndex()
        for _, header, batch in self.batches(segments[-1]):
            aborted = take_in(states, header, batch, self._now_ms)
            if aborted is not None:
                transactions.add(aborted)
        return transactions

    def batches(self, segment: SegmentFiles) -> Iterator[tuple[int, BatchHeader, memoryview]]:
        """Yield (position, header, batch) for all batches of the segment."""
        file = self._disk.open(segment.log_path)
        try:
            yield from scan_file(file, segment.base_offset, self._epochs, end=segment.size)
        except ChainBroken as broken:
            raise LogDamaged(segment.log_path, broken.position, broken.reason) from broken
        finally:
            file.close()

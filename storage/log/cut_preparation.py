"""The slow part of a cut that comes before it: where it is to be made, and what is known of the batches that stay.

What must stay true: the log stays as it is. What was found holds for the same cut of the same segments only.
"""

from __future__ import annotations

from typing import NamedTuple

from raylog.errors import LogDamaged
from raylog.storage.log.state import LogState
from raylog.storage.segment.cutting import write_replacement
from raylog.storage.segment.file_replay import FileReplay, SegmentFiles
from raylog.storage.segment.indexes import SegmentIndexes
from raylog.storage.segment.leader_epochs import LeaderEpochs
from raylog.storage.segment.producer_state import ProducerStates, take_in
from raylog.storage.segment.segment import Place, Segment
from raylog.storage.segment.transaction_index import TransactionIndex


class Cut(NamedTuple):
    """A cut at `place` of the segment `last`, and what is known then of producers and of that segment."""

    last: Segment
    place: Place
    producers: ProducerStates
    indexes: SegmentIndexes
    transactions: TransactionIndex
    replacement: str  # of a file that a copy of the log has too; empty where there is none


class CutPreparation:
    """Looks for the batch to end at, `offset` or before. It opens the files that it reads itself."""

    def __init__(self, log: LogState, offset: int, now_ms: int) -> None:
        self.cut: Cut | None = None  # None: not known, where compaction has replaced files meanwhile
        self.damage: LogDamaged | None = None
        self._disk = log.disk
        self._now_ms = now_ms
        self._offset = offset
        epochs = LeaderEpochs(log.disk, log.directory.path, list(log.epochs.history))
        self._replay = FileReplay(log.disk, epochs, now_ms)
        self._interval = log.config.index_interval_bytes
        self._segments = _segments_up_to(log, offset)
        self._files = [SegmentFiles.of(segment) for segment in self._segments]
        self._shape = log.shape

    def is_of(self, log: LogState) -> bool:
        """Whether the log has the same segments still."""
        return self._shape == log.shape and self._segments == _segments_up_to(log, self._offset)

    def carry_out(self) -> None:
        """Read what stays, and sync the segment that is to be cut, since a cut syncs all of it."""
        try:
            self.cut = self._find()
        except FileNotFoundError:
            self.cut = None
        except LogDamaged as damage:
            self.damage = damage

    def _find(self) -> Cut:
        states, last = self._replay.producers_before(self._files), self._files[-1]
        indexes, transactions = SegmentIndexes(last.base_offset, self._interval), TransactionIndex()
        indexes.start_anew()
        indexes.is_dated = True
        place = Place(0, last.base_offset)
        for position, header, batch in self._replay.batches(last):
            if header.next_offset > self._offset:
                break
            indexes.note(header, position)
            aborted = take_in(states, header, batch, self._now_ms)
            if aborted is not None:
                transactions.add(aborted)
            place = Place(position + header.size, header.next_offset)
        replacement = self._sync_or_replace(last.log_path, place.position)
        return Cut(self._segments[-1], place, states, indexes, transactions, replacement)

    def _sync_or_replace(self, path: str, size: int) -> str:
        file = self._disk.open(path)
        try:
            if file.links() > 1:
                return write_replacement(self._disk, path, size)
            file.sync()
        finally:
            file.close()
        return ""


def _segments_up_to(log: LogState, offset: int) -> list[Segment]:
    """Return the segments that hold anything below `offset`."""
    last = log.segments.containing(offset - 1)
    return [each for each in log.segments if each.base_offset <= last.base_offset]

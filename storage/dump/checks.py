"""Comparing what stands beside the batches with the batches: `--verify`.

Index entries are held against a walk over the log file as it passes by, so a segment is read once and nothing is
kept of it. Entries that point into damaged bytes are passed over: the damage itself has been reported.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Final

from raylog.errors import BatchError
from raylog.storage.compaction import progress
from raylog.storage.directory.partition_directory import CHECKPOINT_FILE, CLEAN_SHUTDOWN_FILE
from raylog.storage.dump.events import Problem
from raylog.storage.dump.files import Replica
from raylog.storage.dump.walk import FoundBatch, LostBytes
from raylog.storage.format.control_records import MarkerType, decode_marker
from raylog.storage.format.record_batch import NO_TIMESTAMP
from raylog.storage.segment import leader_epochs
from raylog.storage.segment.indexes import OffsetIndex, TimeIndex
from raylog.storage.segment.transaction_index import AbortedTransaction

MADE_AGAIN: Final = "It is made again from the log when it is needed next."


class IndexCheck(ABC):
    """One index, compared with the batches of its segment in their order."""

    def __init__(self, path: str, keys: Sequence[int]) -> None:
        self._path = path
        self._keys = keys
        self._at = 0
        self._saw_damage = False

    def see(self, piece: FoundBatch | LostBytes) -> Iterator[Problem]:
        if isinstance(piece, LostBytes) or not piece.is_readable:
            self._pass_over(piece)
            return
        key = self._key_of(piece)
        while self._at < len(self._keys) and self._keys[self._at] <= key:
            is_named = self._keys[self._at] == key
            reason = self._compare(self._at, piece) if is_named else self._missed(self._at)
            self._at += 1
            if reason is not None:
                yield self._problem(reason)
        self._note(piece)

    def _pass_over(self, damage: FoundBatch | LostBytes) -> None:
        self._saw_damage = True
        end = self._key_after(damage)
        while self._at < len(self._keys) and (end is None or self._keys[self._at] < end):
            self._at += 1

    def finish(self) -> Iterator[Problem]:
        """All batches have been seen."""
        for at in range(self._at, len(self._keys)):
            yield self._problem(self._missed(at))

    def _problem(self, reason: str) -> Problem:
        return Problem(self._path, reason, remedy=MADE_AGAIN)

    @abstractmethod
    def _key_of(self, batch: FoundBatch) -> int:
        """Return what entries name a batch by; it rises from batch to batch."""

    @abstractmethod
    def _key_after(self, damage: FoundBatch | LostBytes) -> int | None:
        """The key that comes after what is damaged; None where nothing follows."""

    @abstractmethod
    def _compare(self, at: int, batch: FoundBatch) -> str | None:
        """Return what is wrong with an entry that names this batch."""

    @abstractmethod
    def _missed(self, at: int) -> str:
        """Return what is wrong with an entry that names no batch."""

    def _note(self, batch: FoundBatch) -> None:
        """Note what the batches after this one are compared with."""
        self._saw_damage |= bool(batch.faults)


class OffsetIndexCheck(IndexCheck):
    def __init__(self, path: str, pairs: Sequence[tuple[int, ...]]) -> None:
        super().__init__(path, [row[1] for row in pairs])
        self._pairs = pairs

    def _key_of(self, batch: FoundBatch) -> int:
        return batch.position

    def _key_after(self, damage: FoundBatch | LostBytes) -> int:
        return damage.end

    def _compare(self, at: int, batch: FoundBatch) -> str | None:
        offset, position = self._pairs[at]
        if offset == batch.base_offset:
            return None
        return f"Offset {offset} is said to be at byte {position}, where offset {batch.base_offset} is."

    def _missed(self, at: int) -> str:
        offset, position = self._pairs[at]
        return f"Offset {offset} is said to be at byte {position}, where no batch begins."


class TimeIndexCheck(IndexCheck):
    def __init__(self, path: str, pairs: Sequence[tuple[int, ...]]) -> None:
        super().__init__(path, [row[1] for row in pairs])
        self._pairs = pairs
        self._newest = NO_TIMESTAMP

    def _key_of(self, batch: FoundBatch) -> int:
        return batch.base_offset

    def _key_after(self, damage: FoundBatch | LostBytes) -> int | None:
        return damage.next_offset

    def _compare(self, at: int, batch: FoundBatch) -> str | None:
        timestamp, offset = self._pairs[at]
        if timestamp != batch.header.max_timestamp:
            found = batch.header.max_timestamp
            return f"Offset {offset} is said to have timestamp {timestamp}, but its batch's largest is {found}."
        if timestamp <= self._newest and not self._saw_damage:
            return f"Timestamp {timestamp} at offset {offset} is not larger than all before it ({self._newest})."
        return None

    def _missed(self, at: int) -> str:
        timestamp, offset = self._pairs[at]
        return f"Timestamp {timestamp} is said to be at offset {offset}, where no batch begins."

    def _note(self, batch: FoundBatch) -> None:
        super()._note(batch)
        self._newest = max(self._newest, batch.header.max_timestamp)

    def finish(self) -> Iterator[Problem]:
        yield from super().finish()
        last = self._pairs[-1][0] if self._pairs else NO_TIMESTAMP
        if last < self._newest and not self._saw_damage:
            yield self._problem(f"The last entry says {last}, but the segment's largest timestamp is {self._newest}.")


class TransactionIndexCheck(IndexCheck):
    def __init__(self, path: str, rows: Sequence[tuple[int, ...]]) -> None:
        self._aborted = [AbortedTransaction._make(row) for row in rows]
        super().__init__(path, [transaction.last_offset for transaction in self._aborted])

    def _key_of(self, batch: FoundBatch) -> int:
        return batch.next_offset - 1

    def _key_after(self, damage: FoundBatch | LostBytes) -> int | None:
        return damage.next_offset

    def _compare(self, at: int, batch: FoundBatch) -> str | None:
        header = batch.header
        try:
            marker = decode_marker(header, batch.data) if header.is_control else None
        except BatchError:
            return None  # the batch's own problem
        producer_id = self._aborted[at].producer_id
        is_its_abort = header.producer_id == producer_id and marker is not None and marker.type is MarkerType.ABORT
        return None if is_its_abort else self._missed(at)

    def _missed(self, at: int) -> str:
        transaction = self._aborted[at]
        return f"Producer {transaction.producer_id} has no abort marker at offset {transaction.last_offset}."


def index_check(path: str, kind: str, rows: Sequence[tuple[int, ...]]) -> IndexCheck:
    if kind == OffsetIndex.SUFFIX:
        return OffsetIndexCheck(path, rows)
    if kind == TimeIndex.SUFFIX:
        return TimeIndexCheck(path, rows)
    return TransactionIndexCheck(path, rows)


# --- what the checkpoints say of the log as a whole -----------------------------------------------------------------


def check_marks(replica: Replica, end_offset: int) -> Iterator[Problem]:
    """Hold the checkpoints against the log, which ends at `end_offset` as far as it is sound."""
    yield from _check_log_checkpoint(replica, end_offset)
    yield from _check_clean_shutdown(replica, end_offset)
    beyond = f"after the end of the log at {end_offset}."
    path = replica.path(leader_epochs.FILE_NAME)
    for epoch, start in replica.remembered.get(leader_epochs.FILE_NAME, {}).get("epochs", []):
        if start > end_offset:
            yield Problem(path, f"Epoch {epoch} begins at offset {start}, {beyond}")
    path = replica.path(progress.FILE_NAME)
    for end, _ in replica.remembered.get(progress.FILE_NAME, {}).get("passes", []):
        if end > end_offset:
            yield Problem(path, f"A compaction went up to offset {end}, {beyond}")


def _check_log_checkpoint(replica: Replica, end_offset: int) -> Iterator[Problem]:
    path, marks = replica.path(CHECKPOINT_FILE), replica.remembered.get(CHECKPOINT_FILE)
    if marks is None:
        return
    start, first = marks["log_start_offset"], replica.segments[0].base_offset
    if first > start:
        yield Problem(path, f"The log starts at offset {start}, but its first segment at {first}: one is missing.")
    for name, mark in (("recovery point", marks["recovery_point"]), ("high watermark", marks["high_watermark"])):
        if mark > end_offset:
            yield Problem(path, f"The {name} is {mark}, but the log ends at offset {end_offset}.")
    if start > marks["high_watermark"]:
        yield Problem(path, f"The log starts at offset {start}, above its high watermark {marks['high_watermark']}.")


def _check_clean_shutdown(replica: Replica, end_offset: int) -> Iterator[Problem]:
    path, closed = replica.path(CLEAN_SHUTDOWN_FILE), replica.remembered.get(CLEAN_SHUTDOWN_FILE)
    if closed is None:
        return
    if closed["log_end_offset"] != end_offset:
        yield Problem(path, f"The log was closed at offset {closed['log_end_offset']}, but ends at {end_offset}.")
    then: dict[int, int] = dict(closed["segments"])
    now = {file.base_offset: replica.size(file.name) for file in replica.segments}
    for base in sorted({*then, *now}):
        if then.get(base) != now.get(base):
            was, size = _size(then.get(base)), _size(now.get(base))
            yield Problem(path, f"Segment {base}: {was} when the log was closed, {size} now.")


def _size(size: int | None) -> str:
    return "no file" if size is None else f"{size} bytes"

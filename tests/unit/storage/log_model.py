"""What a log must answer, worked out the slow way from a plain list of batches.

The model keeps every batch since the log last began, also those below the log's start, and answers each question by
walking over all of them. It shares the header's layout with the log and nothing else.

`batches` is what stands in the log; compaction takes records out of it. `history` is what was ever appended, and what
producers are known by: the log keeps that in its snapshots.

Where the log may truthfully answer in more than one way, the model says so:
- Producers can be forgotten, by expiry or with a snapshot that a power cut took, and worked out anew from batches that
  compaction has thinned out. See `Memory`.
- After a restart the high watermark is the one of the last checkpoint, while the log may still know that a transaction
  had been settled by a later one.
"""

from __future__ import annotations

import struct
from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import NamedTuple, TypeAlias

from crc32c import crc32c

from raylog.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerError,
    ProducerFenced,
)
from raylog.storage.format.control_records import Marker, MarkerType
from raylog.storage.format.record_batch import BatchHeader, Bytes, read_header
from raylog.storage.segment.leader_epochs import EpochStart
from tests.unit.storage.batches import Record

NO_EPOCH = -1
SEQUENCES = 2**31

# None: to be appended. Two offsets: a duplicate, and where it stands. Else the refusal.
ProducerAnswer: TypeAlias = tuple[int, int] | type[ProducerError] | None


class ModelBatch(NamedTuple):
    """One batch as it must stand in the log."""

    data: bytes
    header: BatchHeader
    records: tuple[Record, ...]
    marker: Marker | None = None

    @property
    def base_offset(self) -> int:
        return self.header.base_offset

    @property
    def next_offset(self) -> int:
        return self.header.base_offset + self.header.last_offset_delta + 1

    @property
    def is_data_of_producer(self) -> bool:
        return self.header.producer_id >= 0 and not self.header.is_control


def stamped(
    batch: Bytes,
    records: Sequence[Record],
    base_offset: int,
    epoch: int,
    *,
    append_time: int | None = None,
    marker: Marker | None = None,
) -> ModelBatch:
    """`batch` as a leader has to write it. `records` have offsets that count from 0."""
    data = bytearray(batch)
    struct.pack_into(">q", data, 0, base_offset)
    struct.pack_into(">i", data, 12, epoch)
    if append_time is not None:
        data[22] |= 0x08
        struct.pack_into(">q", data, 35, append_time)
        struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    placed = [
        record._replace(
            offset=base_offset + record.offset, timestamp=record.timestamp if append_time is None else append_time
        )
        for record in records
    ]
    return ModelBatch(bytes(data), read_header(data), tuple(placed), marker)


class Transaction(NamedTuple):
    """One transaction of one producer; open while it has no marker."""

    producer_id: int
    first_offset: int
    marker_offset: int | None = None
    aborted: bool = False


class Memory(NamedTuple):
    """What a log may know a producer by: its history from `since` on, and from `thinned_from` what compaction left."""

    since: int = 0
    thinned_from: int = 1 << 62


Possible: TypeAlias = set[Memory]


@dataclass(frozen=True)
class Marks:
    recovery_point: int = 0
    high_watermark: int = 0
    log_start_offset: int = 0


@dataclass
class LogModel:
    """One log. `base` is where its batches begin, and so its end while it has none."""

    base: int = 0
    batches: list[ModelBatch] = field(default_factory=list)
    history: list[ModelBatch] = field(default_factory=list)
    marks: Marks = Marks()
    on_disk: Marks = Marks()
    epochs: list[EpochStart] = field(default_factory=list)
    highest_watermark: int = 0  # ever known of what is in the log
    snapshots_doubtful: bool = False
    is_compacted: bool = False
    expired_at: dict[int, set[int]] = field(default_factory=dict)
    known: dict[int, Possible] = field(default_factory=dict)

    def clone(self) -> LogModel:
        return replace(
            self,
            batches=self.batches.copy(),
            history=self.history.copy(),
            epochs=self.epochs.copy(),
            expired_at={producer: set(points) for producer, points in self.expired_at.items()},
            known={producer: set(memories) for producer, memories in self.known.items()},
        )

    # --- what it holds ---

    @property
    def end(self) -> int:
        return self.batches[-1].next_offset if self.batches else self.base

    @property
    def start(self) -> int:
        return self.marks.log_start_offset

    @property
    def high_watermark(self) -> int:
        return self.marks.high_watermark

    @property
    def latest_epoch(self) -> int:
        return self.epochs[-1].epoch if self.epochs else NO_EPOCH

    @property
    def is_exact(self) -> bool:
        """Whether the log knows all there is to know of transactions and producers."""
        return not self.snapshots_doubtful and not self.is_compacted

    def boundaries(self, low: int = 0) -> list[int]:
        """The offsets at which the log could end, from `low` on."""
        ends = [self.base, *(batch.next_offset for batch in self.batches)]
        return [end for end in ends if end >= low]

    def below(self, end: int) -> list[ModelBatch]:
        return [batch for batch in self.batches if batch.next_offset <= end]

    def containing(self, offset: int) -> int:
        """The number of the batch that holds `offset`."""
        return bisect_right(self.batches, offset, key=lambda batch: batch.next_offset)

    # --- changes ---

    def append(self, batch: ModelBatch) -> None:
        if not self.batches:
            self.base = batch.base_offset
        assert batch.base_offset == self.end
        self.assign(batch.header.leader_epoch)
        self.batches.append(batch)
        self.history.append(batch)

    def assign(self, epoch: int) -> None:
        if epoch > self.latest_epoch:
            self.epochs = [entry for entry in self.epochs if entry.start_offset < self.end]
            self.epochs.append(EpochStart(epoch, self.end))

    def mark(self, **changes: int) -> None:
        self.marks = replace(self.marks, **changes)
        self.highest_watermark = max(self.highest_watermark, self.marks.high_watermark)

    def checkpoint(self) -> None:
        self.on_disk = self.marks

    def lower_marks(self, offset: int) -> None:
        marks = self.marks
        self.mark(
            recovery_point=min(marks.recovery_point, offset), high_watermark=min(marks.high_watermark, offset)
        )
        if self.marks != marks:
            self.checkpoint()

    def cut(self, end: int) -> None:
        """Lose what is at or after `end`, and with a batch that holds `end` all of that batch."""
        self.batches = self.below(end)
        self.history = [batch for batch in self.history if batch.next_offset <= self.end]
        self.epochs = [entry for entry in self.epochs if entry.start_offset < self.end]
        self.highest_watermark = min(self.highest_watermark, self.end)
        self.expired_at = {
            producer: {min(point, self.end) for point in points} for producer, points in self.expired_at.items()
        }

    def restart(self, base: int, start: int | None = None) -> None:
        """Begin again, with nothing."""
        self.base = base
        self.batches, self.history, self.epochs = [], [], []
        start = base if start is None else start
        self.marks = self.on_disk = Marks(base, start, start)
        self.highest_watermark = start
        self.expired_at, self.known = {}, {}
        self.is_compacted = False

    def begin_at(self, start: int) -> None:
        """Let the log start there, and forget the epochs that ended before."""
        self.mark(log_start_offset=start)
        self.checkpoint()
        self._cut_epochs()

    def _cut_epochs(self) -> None:
        ended = [entry for entry in self.epochs if entry.start_offset <= self.start][:-1]
        self.epochs = self.epochs[len(ended) :]

    def reopened(self, end: int) -> LogModel:
        """The log after a restart that left the batches up to `end`."""
        log = self.clone()
        marks = log.on_disk
        log.cut(end)
        if marks.log_start_offset > log.end:
            # All that is left had been deleted. Which epoch came last is still known.
            epochs = [entry for entry in self.epochs if entry.start_offset < marks.log_start_offset]
            log.restart(marks.log_start_offset)
            log.epochs = epochs
        start, end = marks.log_start_offset, log.end
        log.marks = log.on_disk = Marks(
            recovery_point=min(marks.recovery_point, end),
            high_watermark=min(max(marks.high_watermark, start), end),
            log_start_offset=start,
        )
        log._cut_epochs()
        return log

    # --- reading ---

    def read(self, offset: int, max_bytes: int, end: int, segment_bases: Iterable[int]) -> tuple[bytes, int]:
        """Whole batches from the one that holds `offset`, below `end`, of one segment: (bytes, offset after them)."""
        taken: list[ModelBatch] = []
        size = 0
        for batch in self.batches[self.containing(offset) :]:
            full = taken and (size + len(batch.data) > max_bytes or batch.base_offset in segment_bases)
            if batch.next_offset > end or full:
                break
            taken.append(batch)
            size += len(batch.data)
        if offset >= end or not taken:
            return b"", offset
        return b"".join(batch.data for batch in taken), taken[-1].next_offset

    def records(self) -> Iterator[Record]:
        """All records from the log's start on, markers included."""
        for batch in self.batches[self.containing(self.start) :]:
            yield from (record for record in batch.records if record.offset >= self.start)

    def offset_for_timestamp(self, timestamp: int) -> tuple[int, int] | None:
        for record in self.records():
            if record.timestamp >= timestamp:
                return (record.timestamp, record.offset) if record.offset < self.high_watermark else None
        return None

    def end_offset_for(self, epoch: int) -> EpochStart:
        later = [entry.start_offset for entry in self.epochs if entry.epoch > epoch]
        known = [entry.epoch for entry in self.epochs if entry.epoch <= epoch]
        return EpochStart(max(known, default=epoch), min(later, default=self.end))

    # --- transactions ---

    def transactions(self, *, least: bool = False) -> list[Transaction]:
        """Every transaction ever, the ended ones in the order of their markers, then the open ones.

        `least`: without what the log may have forgotten, or worked out anew from what compaction left.
        """
        ended: list[Transaction] = []
        first: dict[int, int] = {}
        for batch in self.batches if least and self.is_compacted else self.history:
            producer = batch.header.producer_id
            if least and batch.base_offset < max(memory.since for memory in self.possible(producer)):
                continue
            if batch.marker is not None:
                if producer in first:
                    aborted = batch.marker.type is MarkerType.ABORT
                    ended.append(Transaction(producer, first.pop(producer), batch.base_offset, aborted))
            elif batch.header.is_transactional and batch.is_data_of_producer:
                first.setdefault(producer, batch.base_offset)
        return ended + [Transaction(producer, offset) for producer, offset in first.items()]

    def aborted(self) -> list[Transaction]:
        return [transaction for transaction in self.transactions() if transaction.aborted]

    def aborts_ever(self) -> set[tuple[int, int | None]]:
        """The producer and the marker of every transaction that was aborted."""
        return {(transaction.producer_id, transaction.marker_offset) for transaction in self.aborted()}

    def last_stable_range(self) -> tuple[int, int]:
        """The least and the greatest last stable offset that would be right."""
        lowest = self._stable(self.transactions(), self.high_watermark)
        return lowest, self._stable(self.transactions(least=True), self.highest_watermark)

    def _stable(self, transactions: list[Transaction], settled: int) -> int:
        unstable = [
            transaction.first_offset
            for transaction in transactions
            if transaction.marker_offset is None or transaction.marker_offset >= settled
        ]
        return max(self.start, min([self.high_watermark, *unstable]))

    def committed(self, end: int) -> list[Record]:
        """The records that a `read_committed` reader gets below `end`."""
        aborted = self.aborted()
        return [
            record
            for batch in self.below(end)
            if not batch.header.is_control and not is_aborted(batch, aborted)
            for record in batch.records
            if record.offset >= self.start
        ]

    # --- producers ---

    def producer_ids(self) -> list[int]:
        return sorted({batch.header.producer_id for batch in self.history if batch.header.producer_id >= 0})

    def batches_of(self, producer: int, memory: Memory | None = None) -> list[ModelBatch]:
        since, thinned_from = memory or Memory()
        whole = [batch for batch in self.history if since <= batch.base_offset < thinned_from]
        thinned = [batch for batch in self.batches if batch.base_offset >= max(since, thinned_from)]
        return [batch for batch in whole + thinned if batch.header.producer_id == producer]

    def possible(self, producer: int) -> Possible:
        return self.known.get(producer, {Memory()})

    def rebuild_producers(self, segment_bases: Sequence[int]) -> None:
        """The log works out anew what it knows of producers: from a snapshot at one of its segments, if it has it."""
        first = segment_bases[0] if self.snapshots_doubtful else 0
        thinned = [*segment_bases, Memory().thinned_from] if self.is_compacted else [Memory().thinned_from]
        self.known = {}
        for producer in self.producer_ids():
            since = {0, first, *self.expired_at.get(producer, ())}
            self.known[producer] = {Memory(point, base) for point in since for base in thinned}

    def forget_producer(self, producer: int) -> None:
        self.expired_at.setdefault(producer, set()).add(self.end)
        self.known[producer] = {Memory(self.end)}

    def answers(self, header: BatchHeader, marker: Marker | None = None) -> dict[Memory, ProducerAnswer]:
        """What may be answered to a new batch, by what its producer may be known by."""
        return {memory: self._answer(header, marker, memory) for memory in self.possible(header.producer_id)}

    def learn(self, producer: int, memories: Possible) -> None:
        """Only these fit what the log has answered."""
        if producer in self.known:
            self.known[producer] = set(memories)

    def _answer(self, header: BatchHeader, marker: Marker | None, memory: Memory) -> ProducerAnswer:
        mine = self.batches_of(header.producer_id, memory)
        if not mine:
            return None
        epoch = mine[-1].header.producer_epoch
        if header.producer_epoch < epoch:
            return ProducerFenced
        if marker is not None:
            coordinators = [batch.marker.coordinator_epoch for batch in mine if batch.marker is not None]
            return CoordinatorFenced if coordinators and marker.coordinator_epoch < coordinators[-1] else None
        since_marker = data_after_last_marker(mine)
        if header.producer_epoch > epoch:
            if header.base_sequence != 0:
                return OutOfOrderSequence
            if any(batch.header.is_transactional for batch in since_marker):
                return InvalidTransactionState
        else:
            for batch in [batch for batch in since_marker if batch.header.producer_epoch == epoch][-5:]:
                if _sequences(batch.header) == _sequences(header):
                    return batch.base_offset, batch.next_offset - 1
            if header.base_sequence != next_sequence(mine):
                return OutOfOrderSequence
        in_transaction = any(batch.header.is_transactional for batch in since_marker)
        return InvalidTransactionState if in_transaction and not header.is_transactional else None


def next_sequence(mine: Sequence[ModelBatch]) -> int:
    """The sequence that a producer with these batches has to send next."""
    if not mine:
        return 0
    epoch = mine[-1].header.producer_epoch
    data = [batch.header for batch in mine if batch.header.producer_epoch == epoch and batch.is_data_of_producer]
    return (_sequences(data[-1])[1] + 1) % SEQUENCES if data else 0


def data_after_last_marker(mine: Sequence[ModelBatch]) -> list[ModelBatch]:
    markers = [number for number, batch in enumerate(mine) if batch.marker is not None]
    return list(mine[markers[-1] + 1 if markers else 0 :])


def is_aborted(batch: ModelBatch, aborted: Iterable[Transaction]) -> bool:
    return batch.header.is_transactional and any(
        transaction.producer_id == batch.header.producer_id
        and transaction.marker_offset is not None
        and transaction.first_offset <= batch.base_offset <= transaction.marker_offset
        for transaction in aborted
    )


def _sequences(header: BatchHeader) -> tuple[int, int]:
    return header.base_sequence, (header.base_sequence + header.last_offset_delta) % SEQUENCES

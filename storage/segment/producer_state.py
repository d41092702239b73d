"""State of each idempotent or transactional producer (rule 18), rebuilt from the log itself.

    per producer id: epoch, last sequence, the last five batches, the open transaction's first offset, the epoch of the
    coordinator that last ended a transaction

    a batch with                     | is
    ---------------------------------+------------------------------------------------------------
    an unknown producer id           | accepted, whatever its sequence (KIP-360)
    an older epoch                   | ProducerFenced
    a newer epoch                    | accepted at sequence 0, else OutOfOrderSequence; while a transaction of the
                                     |   older epoch is open, InvalidTransactionState: its marker comes first
    first sequence = last + 1        | accepted (sequences wrap to 0 after 2^31 - 1)
    the sequences of one of the last | a duplicate: answered with the offset it got the first time
      five batches                   |
    any other sequence               | OutOfOrderSequence

What must stay true: `check` decides and changes nothing, `apply` changes and decides nothing; applying the batches of
the log in their order always gives this state, on the leader, on followers and in recovery. A transaction marker ends
the window of the five batches, so that nothing is taken for a duplicate across transactions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import msgpack

from raylog.errors import (
    CoordinatorFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
)
from raylog.storage.disk.disk import Disk
from raylog.storage.disk.sealed_file import SealBroken, map_sealed, write_sealed
from raylog.storage.format.control_records import Marker, MarkerType, decode_marker
from raylog.storage.format.record_batch import NO_SEQUENCE, NO_TIMESTAMP, BatchHeader, Bytes
from raylog.storage.segment.transaction_index import AbortedTransaction

SNAPSHOT_SUFFIX: Final = ".snapshot"
REMEMBERED_BATCHES: Final = 5
_NO_COORDINATOR_EPOCH: Final = -1
_TAG: Final = b"RLPS"
_VERSION: Final = 2  # 1: without the append time of a batch


class BatchSpan(NamedTuple):
    """One remembered batch: enough to know it again and to answer as the first time."""

    first_sequence: int
    last_sequence: int
    first_offset: int
    last_offset: int
    append_time_ms: int = NO_TIMESTAMP  # of a batch whose records have the broker's time


@dataclass
class ProducerEntry:
    epoch: int
    last_seen_ms: int
    last_sequence: int = NO_SEQUENCE
    last_offset: int = -1
    coordinator_epoch: int = _NO_COORDINATOR_EPOCH
    transaction_start: int | None = None
    batches: list[BatchSpan] = field(default_factory=list)

    def expected_sequence(self) -> int:
        return (self.last_sequence + 1) & 0x7FFFFFFF

    def duplicate_of(self, header: BatchHeader) -> BatchSpan | None:
        for span in self.batches:
            if span.first_sequence == header.base_sequence and span.last_sequence == header.last_sequence:
                return span
        return None


class LastWrite(NamedTuple):
    """The last offset of a producer's newest batch of data (-1: none), and the producer's epoch."""

    last_offset: int
    epoch: int


class EndedTransaction(NamedTuple):
    """A transaction whose marker is in the log. Until the marker is below the high watermark it may yet vanish."""

    producer_id: int
    first_offset: int
    marker_offset: int


class ProducerStates:
    """The producers of one partition."""

    def __init__(self) -> None:
        self._producers: dict[int, ProducerEntry] = {}
        self._open: dict[int, int] = {}  # producer id -> first offset of its open transaction
        self._ended: list[EndedTransaction] = []  # markers at or above the high watermark
        self._first_ended: int | None = None  # the smallest first offset in `_ended`: every read asks for it

    def __len__(self) -> int:
        return len(self._producers)

    def get(self, producer_id: int) -> ProducerEntry | None:
        return self._producers.get(producer_id)

    # --- deciding ---

    def check(self, header: BatchHeader) -> BatchSpan | None:
        """Whether a leader may append this batch; returns the earlier one if it is a duplicate."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return None
        if header.producer_epoch < entry.epoch:
            raise ProducerFenced(header.producer_id, header.producer_epoch, entry.epoch)
        if header.producer_epoch > entry.epoch:
            if header.base_sequence != 0:
                raise OutOfOrderSequence(header.producer_id, header.base_sequence, 0)
            if entry.transaction_start is not None:
                raise InvalidTransactionState(
                    f"Producer {header.producer_id} has a transaction of epoch {entry.epoch} open; "
                    f"only a marker can end it."
                )
        else:
            duplicate = entry.duplicate_of(header)
            if duplicate is not None:
                return duplicate
            if header.base_sequence != entry.expected_sequence():
                raise OutOfOrderSequence(header.producer_id, header.base_sequence, entry.expected_sequence())
        if entry.transaction_start is not None and not header.is_transactional:
            raise InvalidTransactionState(
                f"Producer {header.producer_id} wrote outside the transaction it began at {entry.transaction_start}."
            )
        return None

    def check_marker(self, header: BatchHeader, marker: Marker) -> None:
        """Whether a leader may append this transaction marker (rule 20)."""
        entry = self._producers.get(header.producer_id)
        if entry is None:
            return
        if header.producer_epoch < entry.epoch:
            raise ProducerFenced(header.producer_id, header.producer_epoch, entry.epoch)
        if marker.coordinator_epoch < entry.coordinator_epoch:
            raise CoordinatorFenced(header.producer_id, marker.coordinator_epoch, entry.coordinator_epoch)

    # --- applying ---

    def apply(self, header: BatchHeader, now_ms: int) -> None:
        """Take in a data batch that is in the log. `now_ms` and not its timestamp: old data is no idle producer."""
        entry = self._entry_of_epoch(header.producer_id, header.producer_epoch, now_ms)
        append_time_ms = header.max_timestamp if header.is_log_append_time else NO_TIMESTAMP
        span = BatchSpan(
            header.base_sequence, header.last_sequence, header.base_offset, header.last_offset, append_time_ms
        )
        entry.batches.append(span)
        del entry.batches[:-REMEMBERED_BATCHES]
        entry.last_sequence = header.last_sequence
        entry.last_offset = header.last_offset
        if header.is_transactional and entry.transaction_start is None:
            entry.transaction_start = header.base_offset
            self._open[header.producer_id] = header.base_offset

    def apply_marker(self, header: BatchHeader, marker: Marker, now_ms: int) -> AbortedTransaction | None:
        """Take in a marker that is in the log; returns what readers have to skip if it aborted something."""
        entry = self._entry_of_epoch(header.producer_id, header.producer_epoch, now_ms)
        entry.batches.clear()
        entry.coordinator_epoch = marker.coordinator_epoch
        first_offset, entry.transaction_start = entry.transaction_start, None
        self._open.pop(header.producer_id, None)
        if first_offset is None:
            return None
        self._ended.append(EndedTransaction(header.producer_id, first_offset, header.base_offset))
        self._first_ended = first_offset if self._first_ended is None else min(self._first_ended, first_offset)
        if marker.type is MarkerType.COMMIT:
            return None
        stable = next(iter(self._open.values()), header.next_offset)
        return AbortedTransaction(header.producer_id, first_offset, header.last_offset, stable)

    def _entry_of_epoch(self, producer_id: int, epoch: int, now_ms: int) -> ProducerEntry:
        entry = self._producers.get(producer_id)
        if entry is None:
            entry = self._producers[producer_id] = ProducerEntry(epoch, now_ms)
        elif epoch != entry.epoch:
            entry.epoch = epoch
            entry.batches.clear()
            entry.last_sequence = NO_SEQUENCE
        entry.last_seen_ms = now_ms
        return entry

    # --- transactions ---

    def first_unstable_offset(self) -> int | None:
        """The first offset whose transaction is open, or ended by a marker that is not yet below the high watermark."""
        first_open = next(iter(self._open.values()), None)  # they stand in the order of their offsets
        if first_open is None or self._first_ended is None:
            return self._first_ended if first_open is None else first_open
        return min(first_open, self._first_ended)

    def settle(self, high_watermark: int) -> None:
        """Let go of ended transactions whose marker can no longer be truncated away."""
        if self._ended:
            self._ended = [ended for ended in self._ended if ended.marker_offset >= high_watermark]
            self._note_first_ended()

    def _note_first_ended(self) -> None:
        self._first_ended = min((ended.first_offset for ended in self._ended), default=None)

    def open_transactions(self) -> dict[int, int]:
        """Producer id to first offset of each open transaction."""
        return dict(self._open)

    def ids(self) -> list[int]:
        """Return the ids of all producers that are known."""
        return list(self._producers)

    def last_writes(self, producer_ids: Iterable[int]) -> Iterator[tuple[int, LastWrite]]:
        """The newest batches of those that are still known: compaction keeps each, if only its header."""
        for producer_id in producer_ids:
            entry = self._producers.get(producer_id)
            if entry is not None:
                yield producer_id, LastWrite(entry.last_offset, entry.epoch)

    def expire(self, now_ms: int, after_ms: int) -> list[int]:
        """Forget producers that have been idle for `after_ms` and have no open transaction."""
        idle = [
            producer_id
            for producer_id, entry in self._producers.items()
            if entry.transaction_start is None and now_ms - entry.last_seen_ms >= after_ms
        ]
        for producer_id in idle:
            del self._producers[producer_id]
        return idle

    # --- snapshots ---

    def save(self, disk: Disk, path: str, offset: int) -> None:
        """Write the state after every record below `offset`."""
        producers = [
            [
                producer_id,
                entry.epoch,
                entry.last_seen_ms,
                entry.last_sequence,
                entry.last_offset,
                entry.coordinator_epoch,
                entry.transaction_start,
                [list(span) for span in entry.batches],
            ]
            for producer_id, entry in self._producers.items()
        ]
        body: bytes = msgpack.packb([producers, [list(ended) for ended in self._ended]])
        write_sealed(disk, path, _TAG, _VERSION, offset, body)

    @classmethod
    def load(cls, disk: Disk, path: str, offset: int) -> ProducerStates:
        """Raises `SealBroken` where there is no snapshot to believe."""
        body = map_sealed(disk, path, _TAG, _VERSION, offset)
        try:
            return cls._from_rows(*msgpack.unpackb(body, use_list=True))
        except (ValueError, TypeError, msgpack.UnpackException) as error:
            raise SealBroken(f"{path} has a checksum that fits, but content that does not ({error})") from error

    @classmethod
    def _from_rows(cls, producers: list[list[Any]], ended: list[list[int]]) -> ProducerStates:
        states = cls()
        for producer_id, epoch, seen, sequence, offset, coordinator_epoch, start, spans in producers:
            batches = [BatchSpan(*span) for span in spans]
            states._producers[producer_id] = ProducerEntry(
                epoch, seen, sequence, offset, coordinator_epoch, start, batches
            )
            if start is not None:
                states._open[producer_id] = start
        states._open = dict(sorted(states._open.items(), key=lambda entry: entry[1]))
        states._ended = [EndedTransaction(*row) for row in ended]
        states._note_first_ended()
        return states


def take_in(states: ProducerStates, header: BatchHeader, batch: Bytes, now_ms: int) -> AbortedTransaction | None:
    """Let `states` know of a batch that is in the log; returns the transaction it aborts, if it does."""
    if not header.has_producer:
        return None
    if header.is_control:
        marker = decode_marker(header, batch)
        return None if marker is None else states.apply_marker(header, marker, now_ms)
    states.apply(header, now_ms)
    return None

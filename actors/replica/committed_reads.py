"""What one answer may hold for a reader of committed records: batches, and the aborted transactions among them.

What must stay true:
- An answer names every aborted transaction that has records in its batches, and at most `MAX_ABORTED`. Where there are
  more, it holds fewer batches; otherwise a log with millions of aborts could not be read at all (rule 31).
- One batch always makes progress: it is of one producer, so at most one aborted transaction matters to it.
"""

from __future__ import annotations

from typing import Final, NamedTuple, TypeAlias

from raylog.storage.format.record_batch import read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import FetchedBatches, FileSlice, Isolation
from raylog.storage.segment.batch_scan import walk_chain
from raylog.storage.segment.transaction_index import AbortedRange, AbortedTransaction

MAX_ABORTED: Final = 8192  # some 150 KiB of an answer, and 5 ms to look up and pack

AbortedPairs: TypeAlias = "tuple[tuple[int, int], ...]"  # producer id and first offset of each


class CommittedBatches(NamedTuple):
    """What is answered of the batches that were read."""

    data: bytes
    next_offset: int
    aborted: AbortedPairs


class CommittedSlice(NamedTuple):
    """What is answered of a piece of a file."""

    piece: FileSlice
    aborted: AbortedPairs


def committed_batches(log: PartitionLog, read: FetchedBatches, now_ms: int) -> CommittedBatches:
    """As many of the batches as one answer can name the aborted transactions of; at least one."""
    if not read.data:
        return CommittedBatches(read.data, read.next_offset, ())
    first = read_header(read.data)
    wanted = AbortedRange(first.base_offset, read.next_offset, MAX_ABORTED)
    log.find_aborted(wanted, now_ms)
    if wanted.end_offset >= read.next_offset:
        return CommittedBatches(read.data, read.next_offset, _pairs(wanted.found))
    length, next_offset = walk_chain(read.data, first.base_offset, None, wanted.end_offset)
    if length == 0:
        length, next_offset = first.size, first.next_offset
        wanted = AbortedRange(first.base_offset, first.next_offset, of_producer=first.producer_id)
        if first.is_transactional:
            log.find_aborted(wanted, now_ms)
    return CommittedBatches(read.data[:length], next_offset, _pairs(wanted.found))


def committed_slice(log: PartitionLog, piece: FileSlice, now_ms: int) -> CommittedSlice | None:
    """The piece, or as much of it as one answer can name the aborted transactions of; None: not even one batch."""
    wanted = AbortedRange(piece.base_offset, piece.next_offset, MAX_ABORTED)
    log.find_aborted(wanted, now_ms)
    if wanted.end_offset >= piece.next_offset:
        return CommittedSlice(piece, _pairs(wanted.found))
    shorter = log.slice(piece.base_offset, piece.length, Isolation.LAST_STABLE, below=wanted.end_offset)
    return None if shorter is None else CommittedSlice(shorter, _pairs(wanted.found))


def _pairs(aborted: list[AbortedTransaction]) -> AbortedPairs:
    return tuple((entry.producer_id, entry.first_offset) for entry in aborted)

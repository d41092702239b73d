"""Items that the fetcher, on its loop, passes to the thread that polls; and the batches in them that a reader sees.

What must stay true:
- Fetched bytes are whole batches that join on to each other, from where the reader is (`check_chain`). The fields of a
  header that no CRC covers are proved by their neighbours, whether the bytes came over a stream or out of a file.
- No batch is given out whose CRC has not been checked (rule 1); that is done where batches are looked into.
- A reader sees no control batches, no fillers, and nothing of aborted transactions. Whatever is passed over moves the
  position too, so a reader gets to the end of a log that ends with a marker.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.protocol.replication_messages import NO_EPOCH, AbortedRange
from raylog.api.connection.records import TopicPartition
from raylog.errors import CorruptBatch
from raylog.storage.format.control_records import decode_marker
from raylog.storage.format.record_batch import CHAIN_FIELDS, MAX_OFFSET, BatchHeader, Bytes, check_batch, split_batches
from raylog.storage.segment.batch_scan import ChainBroken, walk_chain
from raylog.storage.segment.transaction_filter import TransactionFilter
from raylog.storage.segment.transaction_index import AbortedTransaction


class PartitionMarks(NamedTuple):
    """The marks of a partition, as its leader said last."""

    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Chunk:
    """Whole batches of one partition, as they were fetched. They are a chain; their CRCs have not been looked at."""

    partition: TopicPartition
    generation: int
    position: int  # where the reader goes on; the first batch may begin before it
    end_offset: int
    data: Bytes
    aborted: tuple[AbortedRange, ...] | None  # None: the reader sees what transactions do


@dataclass(frozen=True, slots=True)
class Located:
    """The position that was to be looked up is found: the partition is read from here on."""

    partition: TopicPartition
    generation: int
    offset: int


@dataclass(frozen=True, slots=True)
class Failed:
    """An error that a poll has to raise. `is_final`: nothing more is fetched until a seek or another assignment."""

    partition: TopicPartition
    generation: int
    error: Exception
    is_final: bool


@dataclass(frozen=True, slots=True)
class Resized:
    """A topic that is followed has another number of partitions."""

    topic: str
    partitions: int


Item: TypeAlias = Chunk | Located | Failed | Resized


class ChainEnd(NamedTuple):
    """The offset and the epoch with which a chain of batches ends."""

    next_offset: int
    epoch: int  # of the last batch


def check_chain(data: Bytes, position: int) -> ChainEnd:
    """Whole batches, of which the first holds `position`. CorruptBatch."""
    batches = split_batches(data)
    if not batches:
        raise CorruptBatch("No batch was fetched where there must be one.")
    first, _, _, _, _ = CHAIN_FIELDS.unpack_from(data)
    size, end = _walked(data, first)
    if size != len(data) or not first <= position < end:
        raise CorruptBatch(f"Batches of the offsets {first} to {end} were fetched where {position} was asked for.")
    epochs = [CHAIN_FIELDS.unpack_from(batch)[2] for batch in batches]
    if epochs != sorted(epochs):
        raise CorruptBatch("The leader epochs of fetched batches go back.")
    return ChainEnd(end, epochs[-1])


def _walked(data: Bytes, first: int) -> tuple[int, int]:
    try:
        return walk_chain(data, first, None)
    except ChainBroken as error:
        raise CorruptBatch(f"Fetched batches do not join on to each other: {error.reason}.") from error


Batch: TypeAlias = "tuple[BatchHeader, memoryview]"
_UNKNOWN_END: Final = MAX_OFFSET  # of an aborted transaction: its marker tells, when the walk gets there


class VisibleBatches:
    """A walk over one chunk. `position`: nothing that a reader sees lies between where he is and there."""

    def __init__(self, chunk: Chunk) -> None:
        self.position = chunk.position
        self.epoch = NO_EPOCH  # of what is before the position
        self._batches = split_batches(chunk.data)
        self._batches.reverse()
        self._end = chunk.end_offset
        self._transactions: TransactionFilter | None = None
        if chunk.aborted is not None:
            aborted = [AbortedTransaction(*each, _UNKNOWN_END, _UNKNOWN_END) for each in chunk.aborted]
            self._transactions = TransactionFilter(aborted)

    def next(self) -> Batch | None:
        """The next one; None: there is none, and the position is behind the chunk.

        CorruptBatch, InvalidBatch: it does not get past this one.
        """
        batches = self._batches
        while batches:
            batch = batches[-1]
            header = check_batch(batch)
            is_visible = self._is_visible(header, batch)
            batches.pop()
            if is_visible:
                return header, batch
            self.passed(header)
        self.position = max(self.position, self._end)
        return None

    def passed(self, header: BatchHeader) -> None:
        """The reader is behind this batch."""
        self.position = max(self.position, header.next_offset)
        self.epoch = header.leader_epoch

    def _is_visible(self, header: BatchHeader, batch: memoryview) -> bool:
        if header.is_control:
            if self._transactions is not None:
                self._transactions.ends(header, decode_marker(header, batch))
            return False
        if header.record_count == 0 or header.next_offset <= self.position:
            return False
        return self._transactions is None or not self._transactions.is_aborted(header)

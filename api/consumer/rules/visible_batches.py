"""The batches of a chunk that a reader sees: no control batches, no fillers, nothing of aborted transactions.

What must stay true: no batch is given out whose CRC has not been checked (rule 1).
Whatever is passed over moves the position too, so a reader gets to the end of a log that ends with a marker.
"""

from __future__ import annotations

from typing import Final, TypeAlias

from raylog.actors.protocol.replication_messages import NO_EPOCH
from raylog.api.consumer.rules.fetched_items import Chunk
from raylog.storage.format.control_records import decode_marker
from raylog.storage.format.record_batch import MAX_OFFSET, BatchHeader, check_batch, split_batches
from raylog.storage.segment.transaction_filter import TransactionFilter
from raylog.storage.segment.transaction_index import AbortedTransaction

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

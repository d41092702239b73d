"""Batches of a log that belong to aborted transactions, and markers that nothing needs any more.

Shown the batches of a log in order, it follows the transactions: data of an aborted one goes at once; a marker goes
only when a pass has met no data of its transaction, since until then readers need it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

from raylog.storage.format.control_records import Marker, MarkerType
from raylog.storage.format.record_batch import BatchHeader
from raylog.storage.segment.transaction_index import AbortedTransaction


class TransactionFilter:
    """Follows the transactions through one walk over the log."""

    def __init__(self, aborted: Sequence[AbortedTransaction]) -> None:
        self._upcoming = deque(sorted(aborted, key=lambda transaction: transaction.first_offset))
        self._aborting: dict[int, AbortedTransaction] = {}
        self._with_data: set[int] = set()  # producers whose present transaction has shown data

    def is_aborted(self, header: BatchHeader) -> bool:
        """Whether this data batch never happened."""
        if not header.is_transactional:
            return False
        self._begin_up_to(header.last_offset)
        self._with_data.add(header.producer_id)
        aborted = self._aborting.get(header.producer_id)
        # A walk that begins further on has not met the markers before it.
        return aborted is not None and header.base_offset <= aborted.last_offset

    def ends(self, header: BatchHeader, marker: Marker | None) -> tuple[bool, AbortedTransaction | None]:
        """Return, for a marker, whether any data of its transaction was met, and what it aborted."""
        self._begin_up_to(header.last_offset)
        had_data = header.producer_id in self._with_data
        self._with_data.discard(header.producer_id)
        if marker is None:
            return had_data, None
        # Either kind ends what was open: nothing after a commit belongs to an abort from before it.
        aborted = self._aborting.pop(header.producer_id, None)
        return had_data, aborted if marker.type is MarkerType.ABORT else None

    def _begin_up_to(self, offset: int) -> None:
        while self._upcoming and self._upcoming[0].first_offset <= offset:
            transaction = self._upcoming.popleft()
            self._aborting[transaction.producer_id] = transaction

"""A leader as producers see it: one log, the real rules about sequences, and answers that get lost."""

from __future__ import annotations

from raylog.api.producer.rules.producer_batch import Columns, ProducerBatch
from raylog.errors import BatchTooLarge, OutOfOrderSequence
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.record_batch import read_header
from raylog.storage.segment.producer_state import ProducerStates


def batch_of(*values: bytes, deadline: float = 1e9) -> ProducerBatch:
    batch = ProducerBatch("clicks", 0, 0.0, deadline)
    batch.seal(Columns(None, values, None, 5))
    return batch


class ModelLeader:
    def __init__(self) -> None:
        self.epoch = 1
        self.values: list[bytes | None] = []
        self.largest = 10**9  # records that a batch may have
        self.is_of_transaction = False  # then it takes nothing of a producer before sequence 0
        self._states = ProducerStates()
        self.batches: list[bytes] = []

    @property
    def key(self) -> tuple[bytes, int]:
        return b"topic", self.epoch

    def append(self, sent: bytes) -> int:
        """The base offset. What the real one raises."""
        header = read_header(sent)
        if header.record_count > self.largest:
            raise BatchTooLarge(header.record_count, self.largest)
        if header.has_producer:
            if self.is_of_transaction and self._states.get(header.producer_id) is None and header.base_sequence:
                raise OutOfOrderSequence(header.producer_id, header.base_sequence, 0)
            duplicate = self._states.check(header)
            if duplicate is not None:
                return duplicate.first_offset
        base = len(self.values)
        stamped = header._replace(base_offset=base)
        if header.has_producer:
            self._states.apply(stamped, 0)
        self.values += decode_batch(sent).values
        self.batches.append(sent)
        return base

    def lose_tail(self, batches: int) -> None:
        """An unclean election: somebody leads who lacks the newest batches."""
        kept = self.batches[: max(0, len(self.batches) - batches)]
        self.epoch += 1
        self._states, self.batches, self.values = ProducerStates(), [], []
        for each in kept:
            self.append(each)

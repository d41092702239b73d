"""Order and sequences of a partition's batches, and what each answer means. Decides, and touches nothing.

    part              a batch, or a part of one that was too large, with the sequence it got when it was sent first
    settling          something was refused, or its outcome is unknown: nothing is sent until all that is in flight has
                      been answered or given up. Then the unresolved parts go again, unchanged, in their order.
    confirmed leader  the one that has taken a part since; only there more than one may be in flight

What must stay true:
- Parts go in their order, and a part that may be in the log keeps its sequence (rules 18 and 19).
- The first part of an identity, or for a leader, or after a failure goes alone. A leader accepts any sequence from a
  producer id that it does not know (KIP-360). If the first batch were refused for a moment with a second one in
  flight, the second would be accepted as the first. A transaction's parts go together until one of them has failed:
  there a leader takes nothing before sequence 0. After a failure more than it can recognize might get past one in
  doubt.
- A part that has failed for good leaves a gap that the leader will not pass. The parts that were sent behind it
  may be in the log all the same, so they are asked for under their old sequences first; what the leader then
  refuses as out of order is not in its log. From there on the partition goes on under a new producer id. The same
  mends a leader's log that has lost acknowledged records in an unclean election.
- A new producer id is only taken when nothing is in flight under the old one.
- A transaction never goes on under another identity: what fails for good is dropped, and the transaction with it.
- A part whose time is over while it is in flight has failed for its sender; it stays here until it is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from raylog.api.connection.retry_policy import Verdict, judge
from raylog.api.producer.rules.producer_batch import NOBODY, Outcome, ProducerBatch, Writer, split_encoded
from raylog.errors import OutOfOrderSequence, RaylogError
from raylog.storage.format.batch_codec import BatchForm
from raylog.storage.format.record_batch import NO_SEQUENCE, with_producer

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_HALF_OF_SEQUENCES: Final = 2**30

Leader: TypeAlias = "tuple[bytes, int]"  # topic id, leader epoch


class BatchPart:
    """The records of one request."""

    __slots__ = (
        "attempts",
        "batch",
        "count",
        "encoded",
        "first",
        "is_abandoned",
        "is_doubtful",
        "is_in_flight",
        "sequence",
        "stamped",
    )

    def __init__(self, batch: ProducerBatch, first: int, count: int, sequence: int) -> None:
        self.batch = batch
        self.first = first  # place in the batch of its first record
        self.count = count
        self.sequence = sequence
        self.encoded: bytearray | None = None
        self.stamped: tuple[Writer, int] | None = None  # the writer and the sequence that are in the bytes
        self.attempts = 0
        self.is_in_flight = False
        self.is_doubtful = False  # it may be in the log
        self.is_abandoned = False  # its sender has been told that it failed

    def payload(self, form: BatchForm, writer: Writer) -> bytearray:
        """Return the bytes for this writer; they are not changed any more once they were sent.

        `form`: for records that are not encoded yet.
        """
        wanted = (writer, self.sequence)
        if self.encoded is None:
            self.encoded = self.batch.encode(form, writer, self.sequence)
        elif self.stamped != wanted:
            self.encoded = with_producer(self.encoded, writer.producer_id, writer.epoch, self.sequence)
        self.stamped = wanted
        return self.encoded


class Delivery:
    """The delivery to one partition. `window`: how many parts may be in flight."""

    def __init__(self, window: int, is_idempotent: bool, *, is_transactional: bool = False) -> None:
        self.in_flight = 0
        self.is_settling = False
        self.writer: Writer | None = None if is_idempotent else NOBODY
        self.identities = 0  # that this partition has had
        self._window = window
        self._is_idempotent = is_idempotent
        self._is_transactional = is_transactional
        self._parts: list[BatchPart] = []  # unresolved, in order: first those in flight
        self._next_sequence = 0
        self._has_gap = False
        self._is_beginning = False  # a transaction, of which nothing has failed or was taken yet
        self._confirmed: Leader | None = None

    def __len__(self) -> int:
        return len(self._parts)

    # --- what to send ---

    def identify(self, writer: Writer) -> None:
        """Go on as this one, from sequence 0. Nothing is in flight."""
        assert self.in_flight == 0
        self.writer = writer
        self.identities += 1
        self._next_sequence = 0
        self._has_gap = False
        self._is_beginning = self._is_transactional
        self._confirmed = None
        for part in self._parts:
            part.sequence = self._take_sequences(part.count)

    def ready(self, leader: Leader) -> bool:
        """Whether something may be sent to this leader, be it a part again or a new batch."""
        if self.is_settling:
            if self.in_flight:
                return False
            self.is_settling = False
        if self._has_gap and not self._parts:
            self._give_up_identity()
        goes_alone = leader != self._confirmed and not self._is_beginning
        return self.in_flight < (1 if goes_alone else self._window)

    def next_again(self) -> BatchPart | None:
        """The first part that has to go again."""
        if self.in_flight == len(self._parts):
            return None
        return next(part for part in self._parts if not part.is_in_flight)

    def add(self, batch: ProducerBatch) -> BatchPart:
        """A new batch, behind all others. Its sequence is fixed from here on."""
        part = BatchPart(batch, 0, batch.count, self._take_sequences(batch.count))
        self._parts.append(part)
        return part

    def payload(self, part: BatchPart, form: BatchForm) -> bytearray:
        assert self.writer is not None
        return part.payload(form, self.writer)

    def start(self, part: BatchPart) -> None:
        part.is_in_flight = True
        part.attempts += 1
        self.in_flight += 1

    def _take_sequences(self, count: int) -> int:
        if not self._is_idempotent:
            return NO_SEQUENCE
        sequence = self._next_sequence
        self._next_sequence = (sequence + count) & _SEQUENCE_MASK
        return sequence

    # --- what came of it ---

    def delivered(self, part: BatchPart, leader: Leader, outcome: Outcome) -> None:
        self._landed(part)
        self._parts.remove(part)
        self._is_beginning = False
        if not self.is_settling:
            self._confirmed = leader
        self._resolve(part, outcome)

    def failed(self, part: BatchPart, error: RaylogError) -> None:
        self._landed(part)
        self.is_settling = True
        self._is_beginning = False
        self._confirmed = None
        verdict = judge(error)
        if verdict is Verdict.DOUBT:
            part.is_doubtful = True
        elif verdict is Verdict.OUT_OF_ORDER:
            self._out_of_order(part, error)
        elif verdict is Verdict.TOO_LARGE and part.count > 1 and not part.is_abandoned:
            self._halve(part)
        elif verdict in (Verdict.TOO_LARGE, Verdict.FINAL):
            self._drop(part, error)
        if part.is_abandoned:
            self._drop(part, error)

    def expired(self, now: float) -> Iterator[BatchPart]:
        """Parts whose time is over, which the caller has to `abandon`."""
        return (part for part in list(self._parts) if part.batch.deadline <= now and not part.is_abandoned)

    def abandon(self, part: BatchPart, error: RaylogError) -> None:
        """Tell the part's sender that it failed."""
        if not part.is_in_flight:
            self._drop(part, error)
            return
        self._resolve(part, Outcome(error=error))
        part.is_abandoned = True

    def unresolved(self) -> Iterator[BatchPart]:
        return (part for part in list(self._parts) if not part.is_abandoned)

    def _landed(self, part: BatchPart) -> None:
        part.is_in_flight = False
        self.in_flight -= 1

    def _out_of_order(self, part: BatchPart, error: RaylogError) -> None:
        """Only the first part, with nothing else in flight, learns something from it; others wait their turn."""
        if self.in_flight or part is not self._parts[0] or not self._is_idempotent:
            return
        expected = error.expected if isinstance(error, OutOfOrderSequence) else 0
        if self._is_transactional or 0 < (expected - part.sequence) & _SEQUENCE_MASK < _HALF_OF_SEQUENCES:
            self._drop(part, error)  # the log holds something else of these sequences: nobody knows what
        else:
            self._give_up_identity()  # what comes before it is not in this log, and cannot come any more

    def _give_up_identity(self) -> None:
        """A transaction has one for all partitions; where something of it has failed, all of it is aborted."""
        if not self._is_transactional:
            self.writer = None

    def _halve(self, part: BatchPart) -> None:
        assert part.encoded is not None
        half = part.count // 2
        sequence = (part.sequence + half) & _SEQUENCE_MASK if self._is_idempotent else NO_SEQUENCE
        first = BatchPart(part.batch, part.first, half, part.sequence)
        second = BatchPart(part.batch, part.first + half, part.count - half, sequence)
        first.encoded, second.encoded = split_encoded(part.encoded)
        first.is_doubtful = second.is_doubtful = part.is_doubtful
        place = self._parts.index(part)
        self._parts[place : place + 1] = [first, second]

    def _drop(self, part: BatchPart, error: RaylogError) -> None:
        if part in self._parts:
            self._parts.remove(part)
            self._has_gap = self._is_idempotent
            self._resolve(part, Outcome(error=error))

    def _resolve(self, part: BatchPart, outcome: Outcome) -> None:
        if not part.is_abandoned:
            part.batch.resolve_part(part.first, part.count, outcome)

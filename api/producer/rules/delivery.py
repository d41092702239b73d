"""Which batch of a partition goes next, under which sequence, and what each answer means. Decides, and touches
nothing.

    a parcel          a batch, or a part of one that was too large, with the sequence it got when it was sent first
    settling          something was refused, or its outcome is unknown: nothing is sent until all that is in flight has
                      been answered or given up. Then the unresolved parcels go again, unchanged, in their order.
    confirmed leader  the one that has taken a parcel since; only there more than one may be in flight

What must stay true:
- Parcels go in their order, and a parcel that may be in the log keeps its sequence (rules 18 and 19).
- The first parcel of an identity, or for a leader, or after a failure goes alone. A leader takes the first batch of
  a producer id that it does not know at any sequence (KIP-360): were it refused for a moment with another one
  behind it, the second would take its place. A transaction's parcels go together until one of them has failed: there
  a leader takes nothing before sequence 0. After a failure more than it can recognize might get past one in doubt.
- A parcel that has failed for good leaves a gap that the leader will not pass. The parcels that were sent behind it
  may be in the log all the same, so they are asked for under their old sequences first; what the leader then
  refuses as out of order is not in its log. From there on the partition goes on under a new producer id. The same
  mends a leader's log that has lost acknowledged records in an unclean election.
- A new producer id is only taken when nothing is in flight under the old one.
- Of a transaction nothing goes on under another identity: what fails for good is dropped, and the transaction with it.
- A parcel whose time is over while it is in flight has failed for its sender; it stays here until it is answered.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final, TypeAlias

from raylog.api.connection.retry_policy import Verdict, judge
from raylog.api.producer.rules.producer_batch import NOBODY, Outcome, PendingBatch, Writer, split_encoded
from raylog.errors import OutOfOrderSequence, RaylogError
from raylog.storage.format.record_batch import NO_SEQUENCE, with_producer

_SEQUENCE_MASK: Final = 0x7FFFFFFF
_HALF_OF_SEQUENCES: Final = 2**30

Leader: TypeAlias = "tuple[bytes, int]"  # topic id, leader epoch


class Parcel:
    """What goes over the wire at once."""

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

    def __init__(self, batch: PendingBatch, first: int, count: int, sequence: int) -> None:
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

    def payload(self, codec: int, writer: Writer) -> bytearray:
        """Its bytes on this account; they are not changed any more once they were sent."""
        wanted = (writer, self.sequence)
        if self.encoded is None:
            self.encoded = self.batch.encode(codec, writer, self.sequence)
        elif self.stamped != wanted:
            self.encoded = with_producer(self.encoded, writer.producer_id, writer.epoch, self.sequence)
        self.stamped = wanted
        return self.encoded


class Delivery:
    """Of one partition. `window`: how many parcels may be in flight."""

    def __init__(self, window: int, is_idempotent: bool, codec: int, *, is_transactional: bool = False) -> None:
        self.in_flight = 0
        self.is_settling = False
        self.writer: Writer | None = None if is_idempotent else NOBODY
        self.identities = 0  # that this partition has had
        self._window = window
        self._is_idempotent = is_idempotent
        self._is_transactional = is_transactional
        self._codec = codec
        self._parcels: list[Parcel] = []  # unresolved, in order: first those in flight
        self._next_sequence = 0
        self._has_gap = False
        self._is_beginning = False  # a transaction, of which nothing has failed or was taken yet
        self._confirmed: Leader | None = None

    def __len__(self) -> int:
        return len(self._parcels)

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
        for parcel in self._parcels:
            parcel.sequence = self._take_sequences(parcel.count)

    def ready(self, leader: Leader) -> bool:
        """Whether something may be sent to this leader, be it a parcel again or a new batch."""
        if self.is_settling:
            if self.in_flight:
                return False
            self.is_settling = False
        if self._has_gap and not self._parcels:
            self._give_up_identity()
        goes_alone = leader != self._confirmed and not self._is_beginning
        return self.in_flight < (1 if goes_alone else self._window)

    def next_again(self) -> Parcel | None:
        """The first parcel that has to go again."""
        if self.in_flight == len(self._parcels):
            return None
        return next(parcel for parcel in self._parcels if not parcel.is_in_flight)

    def add(self, batch: PendingBatch) -> Parcel:
        """A new batch, behind all others. Its sequence is fixed from here on."""
        parcel = Parcel(batch, 0, batch.count, self._take_sequences(batch.count))
        self._parcels.append(parcel)
        return parcel

    def payload(self, parcel: Parcel) -> bytearray:
        assert self.writer is not None
        return parcel.payload(self._codec, self.writer)

    def start(self, parcel: Parcel) -> None:
        parcel.is_in_flight = True
        parcel.attempts += 1
        self.in_flight += 1

    def _take_sequences(self, count: int) -> int:
        if not self._is_idempotent:
            return NO_SEQUENCE
        sequence = self._next_sequence
        self._next_sequence = (sequence + count) & _SEQUENCE_MASK
        return sequence

    # --- what came of it ---

    def delivered(self, parcel: Parcel, leader: Leader, outcome: Outcome) -> None:
        self._landed(parcel)
        self._parcels.remove(parcel)
        self._is_beginning = False
        if not self.is_settling:
            self._confirmed = leader
        self._resolve(parcel, outcome)

    def failed(self, parcel: Parcel, error: RaylogError) -> None:
        self._landed(parcel)
        self.is_settling = True
        self._is_beginning = False
        self._confirmed = None
        verdict = judge(error)
        if verdict is Verdict.DOUBT:
            parcel.is_doubtful = True
        elif verdict is Verdict.OUT_OF_ORDER:
            self._out_of_order(parcel, error)
        elif verdict is Verdict.TOO_LARGE and parcel.count > 1 and not parcel.is_abandoned:
            self._halve(parcel)
        elif verdict in (Verdict.TOO_LARGE, Verdict.FINAL):
            self._drop(parcel, error)
        if parcel.is_abandoned:
            self._drop(parcel, error)

    def expired(self, now: float) -> Iterator[Parcel]:
        """Parcels whose time is over, which the caller has to `abandon`."""
        return (parcel for parcel in list(self._parcels) if parcel.batch.deadline <= now and not parcel.is_abandoned)

    def abandon(self, parcel: Parcel, error: RaylogError) -> None:
        """Its sender is told that it failed."""
        if not parcel.is_in_flight:
            self._drop(parcel, error)
            return
        self._resolve(parcel, Outcome(error=error))
        parcel.is_abandoned = True

    def unresolved(self) -> Iterator[Parcel]:
        return (parcel for parcel in list(self._parcels) if not parcel.is_abandoned)

    def _landed(self, parcel: Parcel) -> None:
        parcel.is_in_flight = False
        self.in_flight -= 1

    def _out_of_order(self, parcel: Parcel, error: RaylogError) -> None:
        """Only the first parcel, with nothing else in flight, learns something from it; others wait their turn."""
        if self.in_flight or parcel is not self._parcels[0] or not self._is_idempotent:
            return
        expected = error.expected if isinstance(error, OutOfOrderSequence) else 0
        if self._is_transactional or 0 < (expected - parcel.sequence) & _SEQUENCE_MASK < _HALF_OF_SEQUENCES:
            self._drop(parcel, error)  # the log holds something else of these sequences: nobody knows what
        else:
            self._give_up_identity()  # what comes before it is not in this log, and cannot come any more

    def _give_up_identity(self) -> None:
        """A transaction has one for all partitions; where something of it has failed, all of it is aborted."""
        if not self._is_transactional:
            self.writer = None

    def _halve(self, parcel: Parcel) -> None:
        assert parcel.encoded is not None
        half = parcel.count // 2
        sequence = (parcel.sequence + half) & _SEQUENCE_MASK if self._is_idempotent else NO_SEQUENCE
        first = Parcel(parcel.batch, parcel.first, half, parcel.sequence)
        second = Parcel(parcel.batch, parcel.first + half, parcel.count - half, sequence)
        first.encoded, second.encoded = split_encoded(parcel.encoded, self._codec)
        first.is_doubtful = second.is_doubtful = parcel.is_doubtful
        place = self._parcels.index(parcel)
        self._parcels[place : place + 1] = [first, second]

    def _drop(self, parcel: Parcel, error: RaylogError) -> None:
        if parcel in self._parcels:
            self._parcels.remove(parcel)
            self._has_gap = self._is_idempotent
            self._resolve(parcel, Outcome(error=error))

    def _resolve(self, parcel: Parcel, outcome: Outcome) -> None:
        if not parcel.is_abandoned:
            parcel.batch.resolve_part(parcel.first, parcel.count, outcome)

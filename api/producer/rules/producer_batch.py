"""Records of one partition on their way out, and what became of them.

    open      `send` adds records to it                             (its `PartitionQueue` holds the list)
    sealed    nothing is added any more
    encoded   its bytes exist, what they were made of is let go of  (`Delivery` holds them)
    resolved  it has an outcome: every record of it was delivered, or none is known to be

What must stay true:
- The outcome is set once and never changes; who listens is told once, by whoever comes second: the outcome or the
  listener.
- Listeners are told in the order in which they came. One that fails is logged and keeps nobody else from being
  told.
- Nothing is made for a listener before there is one: most records are sent without anybody waiting for them.

Outcomes are set on the event loop, listeners come from any thread. Neither needs a lock: `list.pop` gives each
listener to one of the two.

`BatchGrowth` is the time that an open batch waits for more records although it could be sent.

On idle cores a leader answers at once. A producer that sends a batch as soon as the last one is answered then sends
many small ones. Each costs the event loop a few hundred microseconds, in which the sending thread has to stand by, for
they share the GIL: 490 records a batch took 1.6 µs of processor each, 3,800 take 0.9. So a batch that is being filled
fast waits until it is worth its price.

What must stay true:
- Few records never wait: a lone `send`, and a program that sends what it has now and then.
- Neither does a batch that somebody waits for (`ProducerBatch.hurry`), that is flushed, or whose room is wanted.
- A batch that is no longer being filled is found out within the time that it has been open, and none waits for longer
  than LONGEST_SECONDS.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import chain, islice, repeat
from typing import Final, NamedTuple, Protocol, cast

from raylog.api.connection.client_threads import goes_on_after
from raylog.errors import RaylogError
from raylog.storage.format.batch_codec import BatchForm, TimestampRuns, decode_batch, encode_raw
from raylog.storage.format.columns import NULL_LENGTH, Headers, join
from raylog.storage.format.record_batch import NO_PRODUCER_EPOCH, NO_PRODUCER_ID, NO_SEQUENCE

FEW: Final = 32
ENOUGH: Final = 4_096
FAST: Final = 20_000  # records a second; a batch in 1 ms is then dearer than the records in it
LONGEST_SECONDS: Final = 0.005
SHORTEST_SECONDS: Final = 0.001  # what the loop's timers are rounded to

_log = logging.getLogger(__name__)


class Outcome(NamedTuple):
    """The outcome of a batch: where it begins in the log (−1: not known), or why it failed."""

    base_offset: int = -1
    append_time_ms: int = -1  # −1 where records keep their writer's time
    log_start_offset: int = -1
    error: RaylogError | None = None


class Writer(NamedTuple):
    """The identity under which a batch is written. The epoch goes up with every transaction, and is 0 where there are
    none.
    """

    producer_id: int
    epoch: int = 0
    is_transactional: bool = False


NOBODY: Final = Writer(NO_PRODUCER_ID, NO_PRODUCER_EPOCH)
_LENGTH: Final = struct.Struct("<i")


class Lengths(NamedTuple):
    """The lengths of the keys and values of a batch, as they stand in its payload: int32 little-endian per record, −1
    for null.
    """

    keys: bytes
    values: bytes

    def of(self, index: int) -> tuple[int, int]:
        """Return the lengths of one record's key and value."""
        at = index * _LENGTH.size
        return _LENGTH.unpack_from(self.keys, at)[0], _LENGTH.unpack_from(self.values, at)[0]


class Encoded(NamedTuple):
    """A batch as bytes."""

    batch: bytearray
    lengths: Lengths | None = None  # None: nobody holds the future of one of its records


@dataclass(frozen=True, slots=True)
class Columns:
    """Records side by side. `keys` or `headers` None: no record has any."""

    keys: Sequence[bytes | None] | None
    values: Sequence[bytes | None]
    headers: Sequence[Headers | None] | None
    timestamps: Sequence[int] | TimestampRuns | int

    def __len__(self) -> int:
        return len(self.values)

    def encode(self, form: BatchForm, writer: Writer, sequence: int) -> Encoded:
        keys, count = self.keys, len(self)
        if keys is not None and not any(keys) and keys.count(None) == count:
            keys = None
        key_lengths, joined_keys = (NULL_LENGTH * count, b"") if keys is None else join(keys)
        value_lengths, joined_values = join(self.values)
        batch = encode_raw(
            count, key_lengths, joined_keys, value_lengths, joined_values, self.timestamps, self.headers,
            form=form, producer_id=writer.producer_id, producer_epoch=writer.epoch, base_sequence=sequence,
            transactional=writer.is_transactional,
        )  # fmt: skip
        return Encoded(batch, Lengths(key_lengths, value_lengths))


class Encodable(Protocol):
    """The content of a batch before it is bytes."""

    @property
    def timestamps(self) -> Sequence[int] | TimestampRuns | int: ...

    def __len__(self) -> int: ...

    def encode(self, form: BatchForm, writer: Writer, sequence: int) -> Encoded: ...


class ProducerBatch:
    """One batch. `size` is what it takes of the producer's buffer."""

    __slots__ = (
        "_lengths",
        "content",
        "count",
        "deadline",
        "held_by",
        "is_awaited",
        "is_taken",
        "listeners",
        "opened_at",
        "outcome",
        "partition",
        "parts",
        "size",
        "stamps",
        "topic",
    )

    def __init__(self, topic: str, partition: int, opened_at: float, deadline: float) -> None:
        self.topic = topic
        self.partition = partition
        self.opened_at = opened_at
        self.deadline = deadline
        self.size = 0
        self.count = 0
        self.is_taken = False  # by the event loop
        self.is_awaited = False
        self.held_by: Callable[[], object] | None = None  # whom to tell that it should not wait for more records
        self.content: Encodable | None = None
        self.stamps: Sequence[int] | TimestampRuns | int = 0
        self._lengths: Lengths | None = None
        self.outcome: Outcome | None = None
        self.parts: list[tuple[int, int, Outcome]] = []  # (first, count, what became of these), of a batch in pieces
        self.listeners: list[Callable[[], object]] = []

    def seal(self, content: Encodable) -> None:
        self.content = content
        self.stamps = content.timestamps
        self.count = len(content)

    def encode(self, form: BatchForm, writer: Writer, sequence: int) -> bytearray:
        """Return the batch's bytes. Only once: what they are made of is let go of."""
        content, self.content = self.content, None
        assert content is not None
        encoded, self._lengths = content.encode(form, writer, sequence)
        return encoded

    # --- the outcome ---

    def resolve(self, outcome: Outcome) -> None:
        """Set the outcome of all records."""
        if self.outcome is None:
            self.outcome = outcome
            self.content = None
            self.held_by = None
            self.tell()

    def resolve_part(self, first: int, count: int, outcome: Outcome) -> bool:
        """Set the outcome of some of its records. Returns whether that was the last part. The batch fails where one of
        its parts does.
        """
        if count == self.count:
            self.resolve(outcome)
            return True
        self.parts.append((first, count, outcome))
        if sum(part[1] for part in self.parts) < self.count:
            return False
        failed = [part[2] for part in self.parts if part[2].error is not None]
        self.resolve(failed[0] if failed else min(self.parts)[2])
        return True

    def outcome_of(self, index: int) -> tuple[Outcome, int]:
        """Return the outcome of one record, once there is one, and its place in the part of the batch that shares it.
        """
        assert self.outcome is not None
        for first, count, outcome in self.parts:
            if first <= index < first + count:
                return outcome, index - first
        return self.outcome, index

    def listen(self, listener: Callable[[], object]) -> None:
        """Call it once there is an outcome: on the event loop, or here and now where there is one."""
        self.listeners.append(listener)
        if self.outcome is not None:
            self.tell()

    def hurry(self) -> None:
        """Have the batch sent without waiting for more records: somebody waits for it, on whichever thread.

        The sender that holds it back notes itself first and then looks at `is_awaited`: one of the two sees the other.
        """
        self.is_awaited = True
        held_by = self.held_by
        if held_by is not None and not self.is_taken:
            held_by()

    def tell(self) -> None:
        while self.listeners:
            try:
                listener = self.listeners.pop(0)
            except IndexError:
                return  # another thread has told the last one
            try:
                listener()
            except BaseException as error:  # a callback of the program's: it must not keep others from being told
                if not goes_on_after(error):
                    raise
                _log.exception("A callback for records of %s-%d failed.", self.topic, self.partition)

    def sizes_of(self, index: int) -> tuple[int, int]:
        """Return how many bytes the key and the value of a sent record have; −1: there is none."""
        return (-1, -1) if self._lengths is None else self._lengths.of(index)

    def timestamp_of(self, index: int) -> int:
        """Return the timestamp that the record was given here."""
        stamps = self.stamps
        if isinstance(stamps, int):
            return stamps
        each = stamps[min(index, len(stamps) - 1)]
        if isinstance(each, int):
            return each
        runs = cast(TimestampRuns, stamps)
        return next(islice(chain.from_iterable(repeat(ms, count) for count, ms in runs), index, None))


def split_encoded(encoded: bytearray) -> tuple[bytearray, bytearray]:
    """Two batches of the same form with the records of one; the first gets the smaller half."""
    decoded = decode_batch(encoded)
    half, form = len(decoded) // 2, BatchForm(decoded.header.codec, decoded.header.magic)
    writer = NOBODY._replace(is_transactional=decoded.header.is_transactional)
    first, second = (
        Columns(decoded.keys[part], decoded.values[part], list(decoded.headers)[part], decoded.timestamps[part]).encode(
            form, writer, NO_SEQUENCE
        ).batch
        for part in (slice(half), slice(half, None))
    )
    return first, second


class BatchGrowth:
    """The growth of one partition's batches. It is asked when a batch could be sent, and again when what it said is
    over.
    """

    def __init__(self, batch_size: int) -> None:
        self._enough_bytes = batch_size // 2
        self._opened_at = -1.0
        self._looked_at = 0.0
        self._records = 0

    def seconds_to_wait(self, opened_at: float, records: int, size: int, now: float) -> float:
        """0: send it."""
        if records < FEW or records >= ENOUGH or size >= self._enough_bytes:
            return 0.0
        left = opened_at + LONGEST_SECONDS - now
        if left < SHORTEST_SECONDS:
            return 0.0
        is_same = opened_at == self._opened_at
        since, before = (self._looked_at, self._records) if is_same else (opened_at, 0)
        self._opened_at, self._looked_at, self._records = opened_at, now, records
        if records - before < FAST * (now - since):
            return 0.0
        return min(left, max(SHORTEST_SECONDS, now - opened_at))

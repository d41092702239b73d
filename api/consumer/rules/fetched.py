"""Items that the fetcher, on its loop, passes to the thread that polls; and the batches in them that a reader sees.

What must stay true:
- Fetched bytes are whole batches that join on to each other, from where the reader is (`check_chain`). The fields of a
  header that no CRC covers are proved by their neighbours, whether the bytes came over a stream or out of a file.
- No batch is given out whose CRC has not been checked (rule 1); that is done where batches are looked into.
- A reader sees no control batches, no fillers, and nothing of aborted transactions. Whatever is passed over moves the
  position too, so a reader gets to the end of a log that ends with a marker.

Decoding of these batches into records goes at the speed of C.

A record is made when it is asked for, by a chain of C iterators, so a program that drops each record before it takes
the next needs no memory for them and gives the garbage collector nothing to walk (a named tuple is never untracked).
Measured: lists of 500 records came at 1.6 M/s where columns were made as lists first, and come at 3.2 M/s so.

What must stay true: `position` is the offset of the first record that was not taken, at any moment. It is read off the
iterator that the offsets come from, so taking a record and moving the position are one step. `cut` closes a gate before
that iterator, so it may come from another thread at any moment.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import islice, repeat
from operator import itemgetter, length_hint
from typing import Final, NamedTuple, Protocol, TypeAlias, TypeVar, cast

from raylog.actors.protocol.replication_messages import NO_EPOCH, AbortedRange
from raylog.api.connection.records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, TopicPartition
from raylog.api.connection.serializers import name_of
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.errors import CorruptBatch, RecordUnreadable
from raylog.storage.format.batch_codec import walk_checked
from raylog.storage.format.control_records import decode_marker
from raylog.storage.format.record_batch import CHAIN_FIELDS, MAX_OFFSET, BatchHeader, Bytes, check_batch, split_batches
from raylog.storage.segment.batch_scan import ChainBroken, walk_chain
from raylog.storage.segment.transaction_filter import TransactionFilter
from raylog.storage.segment.transaction_index import AbortedTransaction

_T = TypeVar("_T")
_new: Final = cast("Callable[[type[ConsumerRecord], tuple[object, ...]], ConsumerRecord]", tuple.__new__)


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


class Piece(Protocol):
    """Some records of one partition, to be taken one by one."""

    @property
    def records(self) -> Iterator[ConsumerRecord]: ...
    @property
    def end(self) -> int:
        """The position when all are taken."""

    @property
    def position(self) -> int: ...
    @property
    def taken(self) -> int:
        """The number of records that were taken."""

    def cut(self) -> None:
        """Give out nothing more. Safe on any thread."""


class RecordRun:
    """The records of one checked batch, from `position` on."""

    __slots__ = ("_all_offsets", "_gate", "_offsets", "_passed", "end", "records")

    def __init__(self, partition: TopicPartition, header: BatchHeader, batch: Bytes, position: int) -> None:
        columns = walk_checked(header, batch)
        passed = bisect_left(columns.offsets, position)
        self.end = header.next_offset
        self._all_offsets = columns.offsets
        self._passed = passed
        self._gate = repeat(partition.topic, len(columns.offsets) - passed)
        self._offsets = _without_first(iter(columns.offsets), passed)
        timestamp_type = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        rows = zip(
            self._gate,
            repeat(partition.partition),
            self._offsets,
            _without_first(columns.timestamps, passed),
            repeat(timestamp_type),
            _without_first(columns.keys, passed),
            _without_first(columns.values, passed),
            _without_first(columns.headers, passed),
            repeat(header.leader_epoch),
            strict=False,  # the gate ends them all
        )
        self.records = _made(rows)

    @property
    def position(self) -> int:
        left = length_hint(self._offsets)
        return self._all_offsets[len(self._all_offsets) - left] if left else self.end

    @property
    def taken(self) -> int:
        return len(self._all_offsets) - self._passed - length_hint(self._offsets)

    def take(self, most: int) -> list[ConsumerRecord]:
        return list(islice(self.records, most))

    def cut(self) -> None:
        deque(self._gate, maxlen=0)


class RecordList:
    """Records that are made already, handed out one by one like those of a run."""

    __slots__ = ("_gate", "_list", "_rest", "end", "records")

    def __init__(self, records: list[ConsumerRecord], end: int) -> None:
        self.end = end
        self._list = records
        self._rest = iter(records)
        self._gate = repeat(None, len(records))
        self.records: Iterator[ConsumerRecord] = map(itemgetter(1), zip(self._gate, self._rest, strict=False))

    @property
    def position(self) -> int:
        left = length_hint(self._rest)
        return self._list[len(self._list) - left].offset if left else self.end

    @property
    def taken(self) -> int:
        return len(self._list) - length_hint(self._rest)

    def cut(self) -> None:
        deque(self._gate, maxlen=0)


def _made(rows: Iterator[tuple[object, ...]]) -> Iterator[ConsumerRecord]:
    """Make records of rows, in the way that is fastest by a fifth to make tuples with names of plain ones."""
    return map(_new, repeat(ConsumerRecord), rows)


def _without_first(items: Iterator[_T], passed: int) -> Iterator[_T]:
    if passed:
        deque(islice(items, passed), maxlen=0)
    return items


def deserialize(
    records: list[ConsumerRecord], keys: Deserializer | None, values: Deserializer | None
) -> tuple[list[ConsumerRecord], RecordUnreadable | None]:
    """The records with what the deserializers make of their bytes, as far as these go; and what stopped them."""
    if not records or (keys is None and values is None):
        return records, None
    topic = records[0].topic
    topics, partitions, offsets, times, types, raw_keys, raw_values, headers, epochs = zip(*records, strict=True)
    walked = iter(raw_values)
    made_keys = iter(raw_keys) if keys is None else keys.over(topic, headers, raw_keys, iter(raw_keys))
    made_values = walked if values is None else values.over(topic, headers, raw_values, walked)
    done: list[ConsumerRecord] = []
    rows = zip(topics, partitions, offsets, times, types, made_keys, made_values, headers, epochs, strict=True)
    try:
        done.extend(_made(rows))  # keeps what it has when an item raises
    except Exception as error:  # noqa: BLE001 (whatever the user's function raises; it becomes the cause)
        bad = records[len(done)]
        is_key = length_hint(walked) == len(records) - len(done)  # its value was not looked at
        field, blamed = ("key", keys) if is_key else ("value", values)
        name = "" if blamed is None else name_of(blamed.function)
        reason = f"{field}_deserializer {name} raised {type(error).__name__}: {error}"
        unreadable = RecordUnreadable(topic, bad.partition, bad.offset, bad.offset + 1, reason)
        unreadable.__cause__ = error
        return done, unreadable
    return done, None

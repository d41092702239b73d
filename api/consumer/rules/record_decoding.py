"""Decoding of batches into records, at the speed of C.

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
from itertools import islice, repeat
from operator import itemgetter, length_hint
from typing import Final, Protocol, TypeVar, cast

from raylog.api.connection.records import CREATE_TIME, LOG_APPEND_TIME, ConsumerRecord, TopicPartition
from raylog.api.connection.serializers import name_of
from raylog.api.consumer.rules.deserializers import Deserializer
from raylog.errors import RecordUnreadable
from raylog.storage.format.batch_codec import walk_checked
from raylog.storage.format.record_batch import BatchHeader, Bytes

_T = TypeVar("_T")
_new: Final = cast("Callable[[type[ConsumerRecord], tuple[object, ...]], ConsumerRecord]", tuple.__new__)


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

"""Many records at once: columns in, batches out, one future for the lot.

    columns ──check──► chunks ──partition of each key──► columns of each partition ──cut, gathered──► batches

No step is Python per record; each works on a column at a time. What must stay true:
- Wrong types are refused before any record is taken.
- Records of a partition keep the order that they have in the columns.
- A batch is cut so that it keeps below `batch_size` on the wire, unless one record alone is larger.
- What is gathered for batches that are not full yet is bounded for all partitions together.
- Every record is in exactly one piece, and every piece in a batch, or failed with the reason why it was not taken.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, replace
from functools import cache, partial
from itertools import compress
from typing import Any, Final, NamedTuple

from raylog.api.connection.progress import Progress
from raylog.api.connection.serializers import check_headers, column
from raylog.api.producer.buffer.record_accumulator import RecordAccumulator
from raylog.api.producer.buffer.record_future import RecordFuture, told_on_this_loop, wait_for
from raylog.api.producer.producer_core import TopicRoutes
from raylog.api.producer.rules.bulk_partitioning import known_partitions, partitions_of, split
from raylog.api.producer.rules.joined_columns import (
    WIRE_BYTES,
    Gathering,
    JoinedBatch,
    JoinedColumns,
    Positions,
    join_records,
)
from raylog.api.producer.rules.producer_batch import Columns, Encodable, Outcome, ProducerBatch
from raylog.api.producer.rules.producer_options import ProducerOptions
from raylog.errors import BufferFull, BulkSendFailed, RaylogError, RecordTooLarge

# Records that are split at once: so few that they stay in the processor's caches meanwhile, and that pieces of them
# fill batches well; but enough that there are some for each partition.
_CHUNK: Final = 4_096
_CHUNK_PER_PARTITION: Final = 1_024
_ARROW_CHUNK: Final = 7_168  # the same where Arrow splits them
_WORTH_ARROW: Final = 4 * _ARROW_CHUNK  # fewer would not pay for importing it
_GATHERED_SHARE: Final = 4  # of `buffer_memory`, of which it is no part
_SAMPLE: Final = 64

SplitCall = Callable[[Sequence[bytes | None], Sequence[bytes | None], int, bytes, int], list[JoinedColumns]]


class DeliveredRange(NamedTuple):
    """Records that lie side by side in a partition."""

    partition: int
    first_offset: int  # −1 under acks=0
    record_count: int


class BulkMetadata(NamedTuple):
    """The places of the records of a bulk send."""

    topic: str
    record_count: int
    ranges: tuple[DeliveredRange, ...]


class BulkFailure(NamedTuple):
    """Records of a bulk send that are not known to be delivered: their places in what was given."""

    positions: Sequence[int]
    error: RaylogError


@dataclass(slots=True)
class _Piece:
    """Records of one batch: all of it, or (with interceptors, which see one at a time) one record in `place`."""

    batch: ProducerBatch | None
    count: int
    positions: Positions
    error: RaylogError | None = None  # why it was not taken
    place: int = -1

    def outcomes(self) -> list[tuple[int, int, Outcome, int]]:
        """(first, count, what became of them, the offset of the first), of a batch that is resolved."""
        batch = self.batch
        if batch is None or batch.outcome is None:
            return []
        if self.place >= 0:
            outcome, place = batch.outcome_of(self.place)
            return [(0, 1, outcome, outcome.base_offset + place if outcome.base_offset >= 0 else -1)]
        parts = sorted(batch.parts, key=lambda part: part[0]) or [(0, batch.count, batch.outcome)]
        return [(first, count, outcome, outcome.base_offset) for first, count, outcome in parts]


class BulkFuture:
    """The outcome of one `send_many` or `send_arrow`."""

    def __init__(self, topic: str, count: int) -> None:
        self.topic = topic
        self.count = count
        self._pieces: list[_Piece] = []

    def done(self) -> bool:
        """Whether all records are delivered or have failed."""
        return all(piece.batch is None or piece.batch.outcome is not None for piece in self._pieces)

    def result(self, timeout: float | None = None) -> BulkMetadata:
        """Return the records' places. BulkSendFailed: some are not delivered; ResultNotReady after `timeout` seconds.
        """
        self._wait(timeout)
        failures = self.failures()
        if failures:
            failed = sum(len(failure.positions) for failure in failures)
            raise BulkSendFailed(self.topic, failed, self.count, str(failures[0].error)) from failures[0].error
        ranges = [
            DeliveredRange(piece.batch.partition, offset, count)
            for piece in self._pieces
            if piece.batch is not None
            for _, count, _, offset in piece.outcomes()
        ]
        return BulkMetadata(self.topic, self.count, tuple(ranges))

    get = result

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Return why not all records are delivered, or None."""
        try:
            self.result(timeout)
        except BulkSendFailed as error:
            return error
        return None

    def failures(self) -> list[BulkFailure]:
        """Return which records have failed so far, and why: to be sent again, or to be written somewhere else."""
        failures = []
        for piece in self._pieces:
            if piece.error is not None:
                failures.append(BulkFailure(piece.positions(), piece.error))
            failed = [part for part in piece.outcomes() if part[2].error is not None]
            for first, count, outcome, _ in failed:
                assert outcome.error is not None
                failures.append(BulkFailure(piece.positions()[first : first + count], outcome.error))
        return failures

    def add_done_callback(self, callback: Callable[[BulkFuture], object]) -> None:
        """Call `callback(future)` when all records are delivered or have failed; be quick there."""
        self._listen(lambda: callback(self))

    def __await__(self) -> Generator[Any, None, BulkMetadata]:
        """Await the records' places, on any event loop."""
        if not self.done():
            yield from told_on_this_loop(self._listen)
        return self.result(0)

    def _listen(self, listener: Callable[[], object]) -> None:
        left = [piece.batch for piece in self._pieces if piece.batch is not None]
        if not left:
            listener()
            return
        waiting, lock = len(left), threading.Lock()

        def told() -> None:
            nonlocal waiting
            with lock:
                waiting -= 1
                is_last = waiting == 0
            if is_last:
                listener()

        for batch in left:
            batch.listen(told)

    def _wait(self, timeout: float | None) -> None:
        until = None if timeout is None else time.monotonic() + timeout
        done = 0
        with Progress(f"delivering to {self.topic!r}", self.count, "records") as progress:
            for piece in self._pieces:
                if piece.batch is not None and piece.batch.outcome is None:
                    wait_for(piece.batch, None if until is None else until - time.monotonic(), progress.tell)
                done += piece.count
                progress.tell(done)

    def add(self, batch: ProducerBatch, positions: Positions) -> None:
        """Wait for this batch, which holds the records of these positions, too."""
        self._pieces.append(_Piece(batch, batch.count, positions))

    def add_one(self, sent: RecordFuture, position: int) -> None:
        """Wait for a record that has joined a batch of `send`."""
        batch, place = sent
        self._pieces.append(_Piece(batch, 1, lambda: range(position, position + 1), None, place >> 1))

    def refuse(self, count: int, positions: Positions, error: RaylogError) -> None:
        """Let these records have failed."""
        self._pieces.append(_Piece(None, count, positions, error))


class BulkSend:
    """One call of `send_many` or `send_arrow`."""

    def __init__(
        self,
        future: BulkFuture,
        routes: TopicRoutes,
        accumulator: RecordAccumulator,
        options: ProducerOptions,
        wait_for_room: Callable[[int], None],
        tell: Callable[[int], object],
    ) -> None:
        self.future = future
        self.routes = routes
        self.options = options
        self._accumulator = accumulator
        self._wait_for_room = wait_for_room
        self._tell = tell
        self._taken = 0
        self._error: RaylogError | None = None
        self._gathering = [Gathering() for _ in range(routes.partitions)]
        self._split_joined: SplitCall | None = None

    def add(self, partition: int, content: Encodable, size: int, positions: Positions) -> None:
        """One batch, once there is room for it."""
        if size > self.options.max_request_size and len(content) == 1:
            self.future.refuse(1, positions, RecordTooLarge(self.routes.topic, size, self.options.max_request_size))
            return
        try:
            while self._error is None:
                batch = self._accumulator.append_batch(self.routes.queues[partition], content, size)
                if batch is not None:
                    self.future.add(batch, positions)
                    self._taken += len(content)
                    self._tell(self._taken)
                    return
                self._wait_for_room(size)
        except BufferFull as error:
            self._error = error
        assert self._error is not None
        self.future.refuse(len(content), positions, self._error)

    # --- columns ---

    def columns(self, given: Columns, partition: int | None) -> None:
        """Columns whose values have been checked; keys are here, for those that were met before need no look."""
        routes = self.routes
        partition = 0 if routes.partitions == 1 else partition
        if given.keys is not None and routes.is_cached and partition is None:
            if len(given) >= _WORTH_ARROW and given.headers is None and isinstance(given.timestamps, int):
                self._split_joined = _arrow_split()
            keys, chunks = given.keys, self._chunks(given)
            looked_up = [self._look_up(keys[rows.start : rows.stop]) for rows in chunks]  # all before any is taken
            for rows, (parts, some) in zip(chunks, looked_up, strict=True):
                self._split(replace(_part(given, rows.start, rows.stop), keys=some), parts, rows.start)
            self._end_gathering()
            return
        if given.keys is not None:
            given = replace(given, keys=column("key", given.keys, routes.topic, None))
        if partition is not None:
            self._pieces(given, _always(partition), _same)
        elif routes.is_cached:
            self._pieces(given, routes.next_partition, _same)
        else:
            for rows in self._chunks(given):
                chunk = _part(given, rows.start, rows.stop)
                self._split(chunk, [routes.choose(key) for key in chunk.keys or [None] * len(chunk)], rows.start)
            self._end_gathering()

    def _chunks(self, given: Columns) -> list[range]:
        """The chunks."""
        count = len(given)
        step = max(_CHUNK, _CHUNK_PER_PARTITION * self.routes.partitions)
        if self._split_joined is not None:
            step = max(step, _ARROW_CHUNK)
        return [range(start, min(start + step, count)) for start in range(0, count, step)]

    def _look_up(self, keys: Sequence[Any]) -> tuple[Sequence[int], Sequence[bytes | None]]:
        """The partition of each key, and the keys as bytes. TypeError."""
        routes = self.routes
        known = known_partitions(keys, routes.partitions, routes.numbers)
        if known is not None:
            return known, keys
        keys = column("key", keys, routes.topic, None)
        there = [key for key in keys if key is not None]
        parts = partitions_of(there, routes.partitions, routes.numbers)
        if len(there) < len(keys):
            numbers = iter(parts)
            sticky = routes.next_partition(WIRE_BYTES * len(keys))
            parts = [sticky if key is None else next(numbers) for key in keys]
        return parts, keys

    def _split(self, chunk: Columns, parts: Sequence[int], start: int) -> None:
        """The records of each partition together."""
        if self._split_joined is not None and self._split_by_arrow(self._split_joined, chunk, parts, start):
            return
        count = self.routes.partitions
        values = split(chunk.values, parts, count)
        none: list[None] = [None] * count
        keys: Sequence[Any] = none if chunk.keys is None else split(chunk.keys, parts, count)
        headers: Sequence[Any] = none if chunk.headers is None else split(chunk.headers, parts, count)
        stamps: Any = chunk.timestamps
        timestamps = [stamps] * count if isinstance(stamps, int) else split(stamps, parts, count)
        record_size = _record_size(chunk)
        for partition in range(count):
            if values[partition]:
                some = Columns(keys[partition], values[partition], headers[partition], timestamps[partition])
                self._gather(some, partition, partial(_places, parts, partition, start), record_size)

    def _split_by_arrow(self, split_joined: SplitCall, chunk: Columns, parts: Sequence[int], start: int) -> bool:
        """The same for records that are small, of less than 257 partitions. False: they are not, nothing is done."""
        most, count, stamp = self.options.batch_size, self.routes.partitions, chunk.timestamps
        if not isinstance(parts, bytes) or not isinstance(stamp, int) or chunk.keys is None:
            return False
        if _record_size(chunk) * len(chunk) > most * count:
            return False
        pieces = split_joined(chunk.keys, chunk.values, stamp, parts, count)
        if any(piece.size > most for piece in pieces):
            return False
        for partition, piece in enumerate(pieces):
            if piece.count:
                self._gather_piece(piece, partition, partial(_places, parts, partition, start))
        return True

    def _gather(
        self, some: Columns, partition: int, places: Callable[[range], Sequence[int]], record_size: int
    ) -> None:
        """Put these records behind those of their partition that wait for more."""
        most = self.options.batch_size
        piece = join_records(some) if record_size * len(some) <= most else None
        if piece is None or piece.size > most:
            self._let_go(partition, self._gathering[partition])
            self._pieces(some, _always(partition), places)
        else:
            self._gather_piece(piece, partition, places)

    def _gather_piece(self, piece: JoinedColumns, partition: int, places: Callable[[range], Sequence[int]]) -> None:
        gathering = self._gathering[partition]
        if gathering.size + piece.size > self.options.batch_size:
            self._let_go(partition, gathering)
        gathering.add(piece, partial(places, range(piece.count)))
        if sum(each.size for each in self._gathering) > self.options.buffer_memory // _GATHERED_SHARE:
            self._end_gathering()

    def _let_go(self, partition: int, gathering: Gathering) -> None:
        batch = gathering.take()
        if batch is not None:
            content, places = batch
            self.add(partition, content, content.size, places)

    def _end_gathering(self) -> None:
        for partition, gathering in enumerate(self._gathering):
            self._let_go(partition, gathering)

    def _pieces(self, some: Columns, partition: Callable[[int], int], places: Callable[[range], Sequence[int]]) -> None:
        """Batches of these records; `partition` is asked for each, with its size."""
        step = max(1, self.options.batch_size // _record_size(some))
        for start in range(0, len(some), step):
            self._piece(some, range(start, min(start + step, len(some))), partition, places)

    def _piece(
        self, some: Columns, rows: range, partition: Callable[[int], int], places: Callable[[range], Sequence[int]]
    ) -> None:
        content = JoinedBatch([join_records(_part(some, rows.start, rows.stop))])
        if content.size > self.options.batch_size and len(rows) > 1:  # these are larger than most
            middle = len(rows) // 2
            self._piece(some, rows[:middle], partition, places)
            self._piece(some, rows[middle:], partition, places)
        else:
            self.add(partition(content.size), content, content.size, partial(places, rows))


@cache
def _arrow_split() -> SplitCall | None:
    """None: the extra `arrow` is not installed."""
    try:
        from raylog.api.producer.rules.arrow_split import split_joined
    except ImportError:
        return None
    return split_joined


def _record_size(some: Columns) -> int:
    """Return about how many bytes a record takes in a batch, judging by some of them."""
    every = max(1, len(some) // _SAMPLE)
    sample = [len(value) for value in some.values[::every] if value is not None]
    if some.keys is not None:
        sample += [len(key) for key in some.keys[::every] if key is not None]
    looked_at = -(-len(some) // every)
    return WIRE_BYTES + sum(sample) // max(1, looked_at) + 1


def _same(rows: range) -> Sequence[int]:
    return rows


def _always(partition: int) -> Callable[[int], int]:
    return lambda _size: partition


def _places(parts: Sequence[int], partition: int, start: int, rows: range) -> Sequence[int]:
    """Return the positions of these records of a partition; found again when somebody asks, which is rare."""
    places = compress(range(start, start + len(parts)), (each == partition for each in parts))
    return list(places)[rows.start : rows.stop]


def _part(some: Columns, start: int, stop: int) -> Columns:
    if start == 0 and stop >= len(some):
        return some
    stamps: Any = some.timestamps
    return Columns(
        None if some.keys is None else some.keys[start:stop],
        some.values[start:stop],
        None if some.headers is None else some.headers[start:stop],
        stamps if isinstance(stamps, int) else stamps[start:stop],
    )


def check_columns(
    topic: str,
    values: Sequence[Any],
    keys: Sequence[Any] | None,
    timestamps: Sequence[int] | int | None,
    headers: Sequence[Any] | None,
    options: ProducerOptions,
    now_ms: int,
) -> Columns:
    """Return the arguments of `send_many` as bytes; keys without a serializer are not looked at yet. TypeError,
    ValueError.
    """
    for name, each in (("values", values), ("keys", keys), ("headers", headers)):
        if each is not None and not isinstance(each, list | tuple):
            raise TypeError(f"{name} are a list or tuple of records' {name}, not a {type(each).__name__}.")
        if each is not None and len(each) != len(values):
            raise ValueError(f"There are {len(values)} values, but {len(each)} {name}.")
    stamps = now_ms if timestamps is None else timestamps
    if not isinstance(stamps, int):
        if len(stamps) != len(values):
            raise ValueError(f"There are {len(values)} values, but {len(stamps)} timestamps.")
        stamps = list(stamps)
    for stamp in {stamps} if isinstance(stamps, int) else set(stamps):
        if type(stamp) is not int or not 0 <= stamp < 2**63:
            raise TypeError(f"A timestamp is a whole number of milliseconds since 1970, not {stamp!r}.")
    return Columns(
        column("key", keys, topic, options.key_serializer) if keys and options.key_serializer else keys,
        column("value", values, topic, options.value_serializer),
        None if headers is None else list(map(check_headers, headers)),
        stamps,
    )

"""One range of offsets as rows, in a task of a job. Needs pyarrow.

    the client loop's thread: PartitionFetcher ──chunks──► _Inbox ──► this thread: CRC, Arrow ──► job

What must stay true:
- What comes out is what is visible in the range, in order, and nothing of a topic that only has the same name; or it
  ends in an error. Nothing is left out in silence: where loss is allowed, a warning says what is not there any more.
- What waits between the threads is bounded, and nothing is fetched beyond the range that one fetch would not bring.
"""

from __future__ import annotations

import asyncio
import logging
from bisect import bisect_left
from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Final

import pyarrow as pa

from raylog.actors.kernel.wait_notices import LoopNotices
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.machine.actor_address import Address
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, NO_EPOCH
from raylog.api.connection.leader_requests import look_up
from raylog.api.connection.records import CREATE_TIME, LOG_APPEND_TIME, TopicPartition
from raylog.api.consumer.fetching.partition_fetcher import PartitionFetcher
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.fetch_room import Grant
from raylog.api.consumer.rules.fetched import Batch, Chunk, Failed, Item, PartitionMarks, VisibleBatches
from raylog.api.consumer.rules.positions import Start
from raylog.api.jobs.channel import Channel, channel_to
from raylog.api.jobs.rules.row_schema import ROWS, ROWS_WITH_HEADERS, schema_of, to_rows
from raylog.config import KIB, MIB
from raylog.errors import (
    BatchError,
    LogTruncated,
    NoOffsetReset,
    PeerNotAdmitted,
    RangeNotRead,
    RaylogError,
    RecordsLost,
    RequestTimedOut,
    UnknownTopic,
)
from raylog.storage.format.arrow_columns import checked_to_arrow

if TYPE_CHECKING:
    from raylog.api.jobs.rules.offset_ranges import OffsetRange

_PATIENCE_SECONDS: Final = 60.0  # without anything new
_MOST_SUSPICIONS: Final = 8  # of one position, with growing pauses
_UNKNOWN_SECONDS: Final = 5.0  # in which brokers may hear of a topic
_LOOK_SECONDS: Final = 30.0
_FETCH_BYTES: Final = 4 * MIB
_LEAST_FETCH_BYTES: Final = 64 * KIB
_AHEAD_BYTES: Final = 16 * MIB
_FIRST_GUESS: Final = KIB  # of a record's size
# Spark takes milliseconds for each Arrow batch, whatever is in it: 65,536 rows together take a sixth less of its time
# than 16,384. It does not keep more than 16 MiB of memory for the next batch.
_ROWS_TOGETHER: Final = 65_536
_BYTES_TOGETHER: Final = 12 * MIB

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RangeReading:
    """The way that ranges are read, which is sent to tasks. It holds the clients' secret."""

    access: ClusterAccess
    reads_committed: bool
    fails_on_data_loss: bool
    includes_headers: bool
    loss: type[RecordsLost] = RecordsLost  # what is raised where records are gone
    columns: tuple[str, ...] | None = None  # of the rows; None: all

    def told_of(self, brokers: Mapping[int, Address]) -> RangeReading:
        """The same, by way of these."""
        return replace(self, access=replace(self.access, brokers=dict(brokers)))

    def rows(self, piece: OffsetRange) -> Iterator[pa.RecordBatch]:
        """Raises `loss`, RangeNotRead, BatchError, RecordUnreadable, PeerNotAdmitted."""
        return _together(_RangeReader(self, piece).rows(), self.schema)

    @property
    def schema(self) -> pa.Schema:
        if self.columns is not None:
            return schema_of(self.columns)
        return ROWS_WITH_HEADERS if self.includes_headers else ROWS


class _RangeReader:
    def __init__(self, reading: RangeReading, piece: OffsetRange) -> None:
        self._reading = reading
        self._piece = piece
        self._position = piece.start
        self._schema = reading.schema
        self._channel = channel_to(reading.access)

    def rows(self) -> Iterator[pa.RecordBatch]:
        suspicions, suspect = 0, -1
        while self._position < self._piece.end:
            inbox = self._channel.run(self._open(suspicions))
            try:
                yield from self._from(inbox)
            except BatchError:
                suspicions = suspicions + 1 if suspect == self._position else 1
                suspect = self._position
                if suspicions > _MOST_SUSPICIONS:
                    raise
            except (NoOffsetReset, LogTruncated, UnknownTopic) as error:
                self._lost(error)
            finally:
                if self._channel.runtime.is_running:
                    self._channel.run(inbox.close())

    async def _open(self, suspicions: int) -> _Inbox:
        """`suspicions`: how often what came from the position was damaged; the leader is told (rule 1)."""
        return _Inbox(self._channel, self._reading, self._piece, self._position, suspicions)

    def _from(self, inbox: _Inbox) -> Iterator[pa.RecordBatch]:
        while self._position < self._piece.end:
            try:
                chunk = self._channel.run(inbox.take(), _PATIENCE_SECONDS)
            except RequestTimedOut:
                reason = inbox.last_error or f"nothing came for {_PATIENCE_SECONDS:g} s"
                raise RangeNotRead(str(self._piece.place), self._position, reason) from None
            visible = VisibleBatches(chunk)
            while self._position < self._piece.end and (batch := visible.next()) is not None:
                rows = self._decoded(batch)
                visible.passed(batch[0])
                self._position = min(visible.position, self._piece.end)
                if rows.num_rows:
                    yield rows
            self._position = max(self._position, min(visible.position, self._piece.end))

    def _decoded(self, batch: Batch) -> pa.RecordBatch:
        header, data = batch
        records = checked_to_arrow(header, data, include_headers=self._reading.includes_headers)
        offsets = records.column(0)
        low, high = 0, len(offsets)
        if header.base_offset < self._position:
            low = _first_at(offsets, self._position)
        if header.next_offset > self._piece.end:
            high = _first_at(offsets, self._piece.end)
        if high - low < len(offsets):
            records = records.slice(low, high - low)
        kind = LOG_APPEND_TIME if header.is_log_append_time else CREATE_TIME
        return to_rows(records, self._piece.topic, self._piece.partition, kind, self._schema)

    def _lost(self, error: RaylogError) -> None:
        """Go on behind what is not there any more, if that is wanted."""
        place = str(self._piece.place)
        if self._reading.fails_on_data_loss:
            raise self._reading.loss(place, error.describe().rstrip(".")) from error
        begin = self._next_there()
        _log.warning("%s: offsets %d to %d are not there any more: %s", place, self._position, begin - 1, error)
        self._position = begin

    def _next_there(self) -> int:
        """The first offset of the range, from the position on, that may be there; the end: none is."""
        place, end = self._piece.place, self._piece.end
        try:
            view = self._channel.run(self._channel.link.find_topic(place.topic, _LOOK_SECONDS))
            if view.topic_id != self._piece.topic_id:
                return end
            first = self._look(place, EARLIEST)
            last = self._look(place, LATEST)
        except UnknownTopic:
            return end
        if self._position < first:
            return min(first, end)
        if self._position < last:  # it is there now: a leader that was behind
            raise RangeNotRead(str(place), self._position, "its leader changed its mind about what is there")
        return end

    def _look(self, place: TopicPartition, what: int) -> int:
        found = self._channel.run(look_up(self._channel.link, {place: what}, False, _LOOK_SECONDS))
        return found[place].offset


class _Inbox:
    """The data that has been fetched of one range, from one position on. It lives on the client's loop."""

    def __init__(
        self, channel: Channel, reading: RangeReading, piece: OffsetRange, position: int, suspicions: int
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self._end = piece.end
        self._read_to = self._begin = position
        self._chunks: deque[Chunk] = deque()
        self._waiting = self._seen = 0  # bytes
        self._failed: RaylogError | None = None
        self._unknown_since = 0.0
        self._is_news = asyncio.Event()
        self._is_room = asyncio.Event()
        self.last_error = ""
        self.notices = LoopNotices()
        options = ConsumerOptions.parse(
            {
                "auto_offset_reset": "none",
                "isolation_level": "read_committed" if reading.reads_committed else "read_uncommitted",
            }
        )
        start = Start(0, position, NO_EPOCH, None, suspicions)
        work = PartitionFetcher(channel.link, options, piece.place, start, self, piece.topic_id)
        self._task = self._loop.create_task(work.run())
        self._task.add_done_callback(self._over)

    async def take(self) -> Chunk:
        """The next one. What ended the fetching is raised when all before it was taken."""
        while not self._chunks:
            if self._failed is not None:
                raise self._failed
            self._is_news.clear()
            await self._is_news.wait()
        chunk = self._chunks.popleft()
        self._waiting -= len(chunk.data)
        self._is_room.set()
        return chunk

    async def close(self) -> None:
        self._task.cancel()
        await asyncio.wait([self._task], timeout=_LOOK_SECONDS)
        self.notices.close()

    # --- from the fetcher -----------------------------------------------------------------------------------------

    def put(self, item: Item) -> None:
        if isinstance(item, Chunk):
            self._chunks.append(item)
            self._waiting += len(item.data)
            self._seen += len(item.data)
            self._read_to = item.end_offset
            self._unknown_since = 0.0
        elif isinstance(item, Failed) and isinstance(item.error, RaylogError):
            self._heard(item.error, item.is_final)
        self._is_news.set()

    def mark(self, partition: TopicPartition, marks: PartitionMarks) -> None:
        """Do nothing: nobody here asks how far the log goes."""

    async def until_arrival(self, leader: PartitionLeader, offset: int) -> None:
        """Do nothing: its fetch waits at the leader."""

    def settled(self, partition: TopicPartition, grant: Grant) -> None:
        """Do nothing: there is one fetch at a time."""

    async def room(self, partition: TopicPartition) -> Grant:  # noqa: ARG002  it has one
        while self._waiting >= _AHEAD_BYTES or self._read_to >= self._end:
            self._is_room.clear()
            await self._is_room.wait()
        # A fetch should bring no more than the range holds: what is beyond it would be fetched in vain.
        size = max(1, self._seen // (self._read_to - self._begin)) if self._seen else _FIRST_GUESS
        most = min(_FETCH_BYTES, max(_LEAST_FETCH_BYTES, size * (self._end - self._read_to)))
        return Grant(most, may_wait=True)

    def _heard(self, error: RaylogError, is_final: bool) -> None:
        self.last_error = error.describe()
        now = self._loop.time()
        if isinstance(error, UnknownTopic):
            self._unknown_since = self._unknown_since or now
            is_final = now - self._unknown_since >= _UNKNOWN_SECONDS
        if is_final or isinstance(error, PeerNotAdmitted):
            self._failed = error

    def _over(self, task: asyncio.Task[None]) -> None:
        error = None if task.cancelled() else task.exception()
        if error is not None and self._failed is None:
            _log.error("The fetching of a range broke: %r", error, exc_info=error)
            self._failed = RangeNotRead("A range", self._read_to, repr(error))
        self._is_news.set()


def _first_at(offsets: pa.Array, offset: int) -> int:
    """Return where the offset is, or the next one; offsets rise."""
    return bisect_left(range(len(offsets)), offset, key=lambda index: offsets[index].as_py())


def _together(batches: Iterator[pa.RecordBatch], schema: pa.Schema) -> Iterator[pa.RecordBatch]:
    """Small ones joined to larger ones; the order stays."""
    held: list[pa.RecordBatch] = []
    rows = size = 0
    for batch in batches:
        held.append(batch)
        rows += batch.num_rows
        size += batch.nbytes
        if rows >= _ROWS_TOGETHER or size >= _BYTES_TOGETHER:
            yield _joined(held, schema)
            held, rows, size = [], 0, 0
    if held:
        yield _joined(held, schema)


def _joined(batches: list[pa.RecordBatch], schema: pa.Schema) -> pa.RecordBatch:
    if len(batches) == 1:
        return batches[0]
    return pa.Table.from_batches(batches, schema).combine_chunks().to_batches()[0]

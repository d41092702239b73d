"""Requests of readers to a leader: batches from an offset on, where a moment begins, where an epoch ends.

What must stay true:
- Nothing above the high watermark is given, and to readers of committed records nothing above the last stable offset.
- No end offset is given before the high watermark has reached the start of this epoch (rule 16).
- A fetch finds out whether its reader's log has diverged before it gives anything (rule 11).
- What is read beside the loop is given only while the replica still leads (rule 28).
- An answer names every aborted transaction that has records in its batches, and at most `MAX_ABORTED`. Where there are
  more, it holds fewer batches; otherwise a log with millions of aborts could not be read at all (rule 31).
- One batch always makes progress: it is of one producer, so at most one aborted transaction matters to it.
- A fetch that waits (`fetch.min.bytes`, `fetch.max.wait.ms`) is answered once: when there is enough, when its time is
  over, or when this replica no longer leads. Nothing is left of it once its stream has ended.
- While no fetch waits, an append costs nothing here; a slow reader stalls no other.
- Whoever watches a partition is told once: when there is something to read, or when this replica no longer leads.
- Nothing is read for a client that does not take its answers; its fetches wait on, and what they wait for costs nothing
  (rule 31). So an answer goes out in the moment in which it is read: the next one sees how much is unsent.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.kernel.background import TimerHandle, Timers
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Response, Stream
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    LATEST,
    MAX_TIMESTAMP,
    NO_EPOCH,
    EpochEndFound,
    Fetch,
    Fetched,
    FindEpochEnd,
    ListedOffset,
    ListOffset,
    WatchedPartition,
)
from raylog.actors.replica.hosted_log import MAX_READ_BYTES, HostedLog
from raylog.actors.replica.rules.replication import check_epoch, divergence
from raylog.errors import NotLeader, OffsetNotAvailable, RaylogError
from raylog.storage.format.record_batch import read_header
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import (
    FetchedBatches,
    FileSlice,
    Isolation,
    TimestampOffset,
    UnopenedBatch,
    visible_end,
)
from raylog.storage.segment.batch_scan import walk_chain
from raylog.storage.segment.transaction_index import AbortedRange, AbortedTransaction

_MIN_FILE_BYTES: Final = 64 * 1024  # less is sent: that is quicker than opening a file
_TRIED_AT_ONCE: Final = 256  # fetches that wait, in one turn of the loop
_MAX_WAIT_MS: Final = 10 * 60 * 1000


class _WaitingFetch:
    __slots__ = ("is_deferred", "is_due", "owed", "stream", "timer", "try_answer")

    def __init__(self, stream: Stream, try_answer: Callable[[bool], Answer]) -> None:
        self.stream = stream
        self.try_answer = try_answer
        self.owed = LaterAnswer()
        self.timer: TimerHandle | None = None
        self.is_due = False  # its time is over
        self.is_deferred = False  # until its client reads


class FetchWaits:
    """Fetches that wait. `try_answer` is asked at each wake-up; with True it has to answer with what there is."""

    def __init__(self, timers: Timers) -> None:
        self._timers = timers
        self.waiting: dict[_WaitingFetch, None] = {}
        self._to_try: deque[_WaitingFetch] = deque()  # in the turns of the loop that follow
        self._is_woken_again = False  # since then

    def __len__(self) -> int:
        return len(self.waiting)

    def wait(self, stream: Stream, try_answer: Callable[[bool], Answer], max_wait_ms: int) -> LaterAnswer:
        waiting = _WaitingFetch(stream, try_answer)
        self.waiting[waiting] = None
        waiting.timer = self._timers.after(max_wait_ms, partial(self._is_over, waiting))
        waiting.owed.when_cancelled(partial(self._forget, waiting))
        return waiting.owed

    def wake(self) -> None:
        """Try all again: there is more to read, or the marks have moved. Of many only some in each turn (rule 34)."""
        if self._to_try:
            self._is_woken_again = True
        else:
            self._to_try.extend(self.waiting)
            self._try_some()

    def _try_some(self) -> None:
        for _ in range(_TRIED_AT_ONCE):
            if not self._to_try:
                break
            self._attempt(self._to_try.popleft())
        if not self._to_try and self._is_woken_again:
            self._is_woken_again = False
            self._to_try.extend(self.waiting)
        if self._to_try:
            asyncio.get_running_loop().call_soon(self._try_some)

    def fail_all(self, error: RaylogError) -> None:
        for waiting in list(self.waiting):
            self._fail(waiting, error)

    def _is_over(self, waiting: _WaitingFetch) -> None:
        waiting.is_due = True
        self._attempt(waiting)

    def _reads_again(self, waiting: _WaitingFetch) -> None:
        waiting.is_deferred = False
        self._attempt(waiting)

    def _attempt(self, waiting: _WaitingFetch) -> None:
        if waiting not in self.waiting or waiting.is_deferred:
            return
        if waiting.stream.is_congested:
            waiting.is_deferred = True
            waiting.stream.when_it_reads(partial(self._reads_again, waiting))
            return
        try:
            answer = waiting.try_answer(waiting.is_due)
        except RaylogError as error:
            self._fail(waiting, error)
            return
        if answer is not None:
            self._forget(waiting)
            waiting.owed.give(answer)

    def _fail(self, waiting: _WaitingFetch, error: RaylogError) -> None:
        self._forget(waiting)
        waiting.owed.fail(error)

    def _forget(self, waiting: _WaitingFetch) -> None:
        self.waiting.pop(waiting, None)
        if waiting.timer is not None:
            self._timers.cancel(waiting.timer)


class _Watcher:
    """A wait to be told that there is something to read."""

    __slots__ = ("isolation", "offset", "tell")

    def __init__(self, offset: int, isolation: Isolation, tell: Callable[[], None]) -> None:
        self.offset = offset
        self.isolation = isolation
        self.tell = tell


class LeaderReads:
    """Reads from the log of a replica that leads in `epoch`, which begins at `epoch_start`.

    `check_leading` raises NotLeader once the replica does not lead any more.
    """

    def __init__(
        self, hosted: HostedLog, epoch: int, epoch_start: int, check_leading: Callable[[], None]
    ) -> None:
        self._hosted = hosted
        self._log = hosted.log
        self._epoch = epoch
        self._epoch_start = epoch_start
        self._check_leading = check_leading
        self._counters = hosted.counters
        self._fetches = FetchWaits(hosted.timers)
        self._answer_room = hosted.env.answers
        self._watchers: dict[_Watcher, None] = {}

    @property
    def waiting(self) -> int:
        """Number of fetches that wait for more to read."""
        return len(self._fetches)

    def wake(self) -> None:
        """Look at all that wait: the marks have moved. Called for each batch."""
        if self._fetches.waiting:
            self._fetches.wake()
        if self._watchers:
            self._tell_watchers()

    def end(self, error: NotLeader) -> None:
        """Answer all that wait with this error."""
        self._fetches.fail_all(error)
        watchers, self._watchers = self._watchers, {}
        for watcher in watchers:
            watcher.tell()

    # --- watching ---

    def watch(self, watched: WatchedPartition, committed: bool, tell: Callable[[], None]) -> Callable[[], None] | None:
        """Call `tell` once there is something to read. Return what ends that; None: there is something now."""
        check_epoch(watched.leader_epoch, self._epoch)
        watcher = _Watcher(watched.offset, _isolation(committed), tell)
        if watched.offset < visible_end(self._log, watcher.isolation):
            return None
        self._watchers[watcher] = None
        return lambda: self._watchers.pop(watcher, None)

    def _tell_watchers(self) -> None:
        ends = {isolation: visible_end(self._log, isolation) for isolation in Isolation}
        for watcher in [each for each in self._watchers if each.offset < ends[each.isolation]]:
            del self._watchers[watcher]
            watcher.tell()

    # --- fetching ---

    def fetch(self, stream: Stream, message: Fetch) -> Answer | Awaitable[Answer]:
        began = self._counters.clock()
        check_epoch(message.leader_epoch, self._epoch)
        end = self._log.log_end_offset
        diverged = divergence(self._log.epochs, end, message.offset, message.last_epoch)
        if diverged is not None:
            return Response(self._fetched(message.offset, diverged=diverged))
        visible = message.offset < visible_end(self._log, _isolation(message.committed))
        if visible and self._hosted.is_cold(message.offset):
            if message.committed and self._log.lacks_aborted(message.offset):
                return self._fetch_unknown(stream, message, began)
            return self._show_cold(message, began) or self._fetch_cold(stream, message, began)
        answer = self._try_fetch(message, message.max_wait_ms <= 0)
        if answer is not None:
            self._counters.fetches.add(self._counters.clock() - began)
            return answer
        return self._fetches.wait(stream, partial(self._try_fetch, message), min(message.max_wait_ms, _MAX_WAIT_MS))

    def _try_fetch(self, message: Fetch, must_answer: bool) -> Answer:
        isolation = _isolation(message.committed)
        there = None
        if self._reads_files(message) or (message.min_bytes > 1 and not must_answer):
            there = self._log.slice(message.offset, message.max_bytes, isolation)
            length = 0 if there is None else there.length
            if length < min(message.min_bytes, message.max_bytes) and not must_answer:
                return None
        shown = self._show(message, there) if self._reads_files(message) else None
        if shown is not None:
            return shown
        self._answer_room.check(0)  # before anything is read (rule 31)
        read = self._hosted.read(message.offset, message.max_bytes, isolation)
        if not read.data and not must_answer:
            return None
        return self._give(message, read)

    def _give(self, message: Fetch, read: FetchedBatches) -> Response:
        seen = CommittedBatches(read.data, read.next_offset, ())
        if message.committed:
            seen = committed_batches(self._log, read, self._hosted.env.wall_ms())
        self._gave_out(len(seen.data), seen.next_offset - message.offset)
        return Response(self._fetched(seen.next_offset, seen.aborted), seen.data)

    def _show(self, message: Fetch, there: FileSlice | None) -> Response | None:
        """Answer with a piece of a file. None: there is too little in it for the reader to open a file."""
        aborted: AbortedPairs = ()
        if there is not None and there.length >= _MIN_FILE_BYTES and message.committed:
            committed = committed_slice(self._log, there, self._hosted.env.wall_ms())
            there, aborted = committed or (None, ())
        if there is None or there.length < _MIN_FILE_BYTES:
            return None
        self._gave_out(there.length, there.next_offset - message.offset)
        piece = (there.path, there.inode, there.position, there.length, there.next_offset)
        return Response(self._fetched(there.base_offset, aborted, piece))

    def _show_cold(self, message: Fetch, began: float) -> Response | None:
        """Answer with a piece of a sealed segment. None: it is too little, or the reader is on another machine."""
        if not self._reads_files(message):
            return None
        shown = self._show(message, self._log.slice(message.offset, message.max_bytes, _isolation(message.committed)))
        if shown is not None:
            self._counters.fetches.add(self._counters.clock() - began)
        return shown

    def _gave_out(self, size: int, offsets: int) -> None:
        self._counters.bytes_out += size
        self._counters.records_out += offsets

    def _reads_files(self, message: Fetch) -> bool:
        """Only the same Ray node counts as the same machine: it sees the same files under the same names."""
        return bool(message.node_id) and message.node_id == self._hosted.node_id

    async def _fetch_unknown(self, stream: Stream, message: Fetch, began: float) -> Answer:
        """Find out beside the loop which transactions were aborted, and answer then."""
        await self._hosted.know_aborted(message.offset)
        self._check_leading()
        return self._show_cold(message, began) or await self._fetch_cold(stream, message, began)

    async def _fetch_cold(self, stream: Stream, message: Fetch, began: float) -> Answer:
        isolation, size = _isolation(message.committed), min(message.max_bytes, MAX_READ_BYTES)
        async with self._answer_room.reading(stream, size):
            self._check_leading()
            read = await self._hosted.read_cold(message.offset, size, isolation, self._check_leading)
        self._counters.fetches.add(self._counters.clock() - began)
        return self._give(message, read)

    def _fetched(
        self,
        next_offset: int,
        aborted: AbortedPairs = (),
        file: tuple[str, int, int, int, int] | None = None,
        diverged: tuple[int, int] | None = None,
    ) -> Fetched:
        log = self._log
        return Fetched(
            next_offset, log.high_watermark, log.last_stable_offset, log.log_start_offset, self._epoch,
            diverged, aborted, file,
        )  # fmt: skip

    # --- offsets ---

    def list_offset(self, message: ListOffset) -> Answer | Awaitable[Answer]:
        check_epoch(message.leader_epoch, self._epoch)
        log, timestamp = self._log, message.timestamp
        if timestamp == EARLIEST:
            return self._listed(log.log_start_offset)
        if log.high_watermark < self._epoch_start:
            raise OffsetNotAvailable(self._hosted.name.topic, self._hosted.name.partition)
        if timestamp == LATEST:
            return self._listed(log.last_stable_offset if message.committed else log.high_watermark)
        if timestamp == MAX_TIMESTAMP:
            timestamp = max(segment.largest_timestamp for segment in log.segments)
        found = log.look_up_timestamp(timestamp, {})
        if isinstance(found, UnopenedBatch):
            return self._look_up_beside(timestamp, message)
        return self._listed_moment(found, message)

    async def _look_up_beside(self, timestamp: int, message: ListOffset) -> Answer:
        """A batch that unpacks to much is opened beside the loop, and none is held while others are (rule 34)."""
        opened: dict[UnopenedBatch, TimestampOffset | None] = {}
        async with self._hosted.opening:
            self._check_leading()
            while isinstance(found := self._log.look_up_timestamp(timestamp, opened), UnopenedBatch):
                opened[found] = await self._hosted.off_loop(found.first_moment)
                self._check_leading()
        return self._listed_moment(found, message)

    def _listed_moment(self, found: TimestampOffset | None, message: ListOffset) -> Answer:
        if found is None or (message.committed and found.offset >= self._log.last_stable_offset):
            return Response(ListedOffset(-1, -1, NO_EPOCH))
        return self._listed(found.offset, found.timestamp)

    def _listed(self, offset: int, timestamp: int = -1) -> Response:
        return Response(ListedOffset(offset, timestamp, self._log.epochs.span_at(offset)[0]))

    def find_epoch_end(self, message: FindEpochEnd) -> Answer:
        check_epoch(message.leader_epoch, self._epoch)
        return Response(EpochEndFound(*self._log.epochs.end_offset_for(message.epoch, self._log.log_end_offset)))


def _isolation(committed: bool) -> Isolation:
    return Isolation.LAST_STABLE if committed else Isolation.HIGH_WATERMARK


# --- readers of committed records -------------------------------------------------------------------------------------

MAX_ABORTED: Final = 8192  # some 150 KiB of an answer, and 5 ms to look up and pack

AbortedPairs: TypeAlias = "tuple[tuple[int, int], ...]"  # producer id and first offset of each


class CommittedBatches(NamedTuple):
    """The part of the batches that were read which one answer holds."""

    data: bytes
    next_offset: int
    aborted: AbortedPairs


class CommittedSlice(NamedTuple):
    """The part of a piece of a file which one answer holds."""

    piece: FileSlice
    aborted: AbortedPairs


def committed_batches(log: PartitionLog, read: FetchedBatches, now_ms: int) -> CommittedBatches:
    """Take as many batches as one answer can name the aborted transactions of, but at least one."""
    if not read.data:
        return CommittedBatches(read.data, read.next_offset, ())
    first = read_header(read.data)
    wanted = AbortedRange(first.base_offset, read.next_offset, MAX_ABORTED)
    log.find_aborted(wanted, now_ms)
    if wanted.end_offset >= read.next_offset:
        return CommittedBatches(read.data, read.next_offset, _pairs(wanted.found))
    length, next_offset = walk_chain(read.data, first.base_offset, None, wanted.end_offset)
    if length == 0:
        length, next_offset = first.size, first.next_offset
        wanted = AbortedRange(first.base_offset, first.next_offset, of_producer=first.producer_id)
        if first.is_transactional:
            log.find_aborted(wanted, now_ms)
    return CommittedBatches(read.data[:length], next_offset, _pairs(wanted.found))


def committed_slice(log: PartitionLog, piece: FileSlice, now_ms: int) -> CommittedSlice | None:
    """The piece, or as much of it as one answer can name the aborted transactions of; None: not even one batch."""
    wanted = AbortedRange(piece.base_offset, piece.next_offset, MAX_ABORTED)
    log.find_aborted(wanted, now_ms)
    if wanted.end_offset >= piece.next_offset:
        return CommittedSlice(piece, _pairs(wanted.found))
    shorter = log.slice(piece.base_offset, piece.length, Isolation.LAST_STABLE, below=wanted.end_offset)
    return None if shorter is None else CommittedSlice(shorter, _pairs(wanted.found))


def _pairs(aborted: list[AbortedTransaction]) -> AbortedPairs:
    return tuple((entry.producer_id, entry.first_offset) for entry in aborted)

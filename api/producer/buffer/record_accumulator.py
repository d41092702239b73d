"""Records that were taken and are not under way: an open batch and sealed ones per partition.

    send's thread   adds to the open batch, seals it when it is full, tells the event loop of new work
    event loop      takes sealed batches, and the open one when nothing of its partition is under way

What must stay true:
- Records of a partition leave in the order in which `append` returned, whichever threads called.
- What is held, whether open, sealed or under way, never exceeds `buffer_memory`.
- The loop is told whenever a partition has something new that it may have to act upon. It is woken once, not per
  record.
- An interrupt (Ctrl-C) between any two steps blocks no partition and loses no record that was taken: what changes
  an open batch is done in an order in which the next caller can complete it, and the loop is told to look.

**The gate.** One thread at a time works on a partition's open batch: whoever has deleted the one entry of
`queue.gate`. That is a lock that costs two dictionary operations, a quarter of `with lock` (measured 40 ns against
145), because `send` spends a few hundred nanoseconds in all. `del gate[0]` is one atomic step under the GIL, and no
interrupt falls between it and a `try` that follows at once. A thread that finds the gate closed retries shortly. The
guarded section is short, never blocks, and never raises KeyError.

**The fast path** is in `Producer.send`: with the gate open, `room` for the record, and the time before `tick`, it
adds to `records` and is done. All else is in `append` here. `room` is what is left of the bytes reserved for the
open batch, in portions, so that the buffer's lock is taken once in hundreds of records. `tick` is when the
millisecond ends that the last records were stamped with.

**The pool.** `BufferPool` is the memory of records that are not delivered yet: `buffer_memory`, given out and taken
back (rule 31).

What must stay true:
- What is given out never exceeds the limit.
- A waiting thread is told of every return, and none waits longer than it said. One record, or one batch of a bulk
  send, is never larger than the whole (`producer_options.py`), so room for it comes once what is under way has been
  delivered or has failed.
- What is given out is noted in its holder's `size` in the same step, so that an interrupt (Ctrl-C) loses none of it.

The lock is a plain one, held for a few steps. A `threading.Condition` would not do: an interrupt (Ctrl-C) while one
is entered may leave it locked for ever, since entering it is a function of Python. `with` of a plain lock is one
step.
"""

from __future__ import annotations

import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from time import monotonic
from typing import Final, Protocol

from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.rules.producer_batch import Columns, Encodable, Outcome, ProducerBatch
from raylog.config import KIB
from raylog.storage.format.columns import Headers

RECORD_BYTES: Final = 100  # what a record costs beside its value, if its key is short
PORTION: Final = 64 * KIB
OPEN: Final = 0  # the entry of a gate
_NO_ROOM: Final = -1
# What the event loop wants to hear of a queue. It sets this before it looks at the queue for the last time.
TELL_ALL: Final = 0
TELL_SEALED: Final = 1  # something is under way, and its answer will look at the open batch
TELL_NOTHING: Final = 2  # as much as may be is under way
_GATE_PAUSE: Final = 20e-6
_SLICE_SECONDS: Final = 0.2  # a Ctrl-C that comes just before a thread goes to sleep does not wake it up


class Holder(Protocol):
    """A batch. Its `size` is changed here only."""

    size: int


class BufferPool:
    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._free = limit
        self._lock = threading.Lock()
        self._waiters: list[threading.Lock] = []  # locked until something is given back
        self._wanting: dict[object, None] = {}
        self._on_return: list[Callable[[], object]] = []

    @property
    def free(self) -> int:
        return self._free

    @property
    def waiting(self) -> int:
        """The number of those that wait for room; the sender then sends what it would let grow."""
        return len(self._waiters) + len(self._wanting)

    def take(self, holder: Holder, size: int, wanted: int = 0) -> int:
        """`wanted` bytes, or `size` of them where that is all there is; 0: there is not so much."""
        most = max(size, wanted)
        with self._lock:
            granted = most if self._free >= most else size
            if granted > self._free:
                return 0
            self._move(holder, granted)
            return granted

    def give_back(self, holder: Holder, size: int) -> None:
        if size:
            with self._lock:
                self._move(holder, -size)
                waiters, self._waiters = self._waiters, []
                listeners, self._on_return = self._on_return, []
            for waiter in waiters:
                waiter.release()
            for listener in listeners:
                listener()

    def _move(self, holder: Holder, size: int) -> None:
        free, held = self._free - size, holder.size + size
        try:
            self._free = free
            holder.size = held
        except BaseException:  # an interrupt before, between or behind the two
            self._free = free
            holder.size = held
            raise

    def wait(self, size: int, until: float) -> bool:
        """Wait until so much is free, or the monotonic clock says `until`. Returns whether it is free."""
        while True:
            waiter = threading.Lock()
            waiter.acquire()
            with self._lock:
                if self._free >= size:
                    return True
                self._waiters.append(waiter)
            try:
                left = until - monotonic()
                while left > 0 and self._free < size and not waiter.acquire(timeout=min(left, _SLICE_SECONDS)):
                    left = until - monotonic()
            finally:
                with self._lock:
                    if waiter in self._waiters:
                        self._waiters.remove(waiter)
            if left <= 0:
                return self._free >= size

    @contextmanager
    def wanted(self) -> Iterator[None]:
        """Count somebody who waits but cannot block; open batches are sent for it as for others."""
        token = object()
        self._wanting[token] = None
        try:
            yield
        finally:
            del self._wanting[token]

    def when_returned(self, listener: Callable[[], object]) -> None:
        """Call it once when something is given back next; for those that cannot block."""
        with self._lock:
            self._on_return.append(listener)


@dataclass(frozen=True, slots=True)
class Clocks:
    """Seconds. `pause` lets other threads run; on an event loop of one thread it is never needed."""

    wall: Callable[[], float]
    monotonic: Callable[[], float]
    pause: Callable[[float], None]


class PartitionQueue:
    """Records that wait for one partition. `filled` is called when a portion of it is used up."""

    __slots__ = (
        "batch",
        "filled",
        "gate",
        "headers",
        "partition",
        "quiet",
        "records",
        "room",
        "runs",
        "sealed",
        "sealed_bytes",
        "tick",
        "topic",
        "unsent_bytes",
        "wants_flush",
        "wants_seal",
    )

    def __init__(self, topic: str, partition: int) -> None:
        self.topic = topic
        self.partition = partition
        self.gate: dict[int, None] = {OPEN: None}
        self.batch: ProducerBatch | None = None
        self.records: list[bytes | None] = []  # key, value, key, value: one step adds a record
        self.headers: dict[int, Headers] = {}  # by place in the batch; most records have none
        self.runs: list[tuple[int, int]] = []  # (place of the first record, its timestamp)
        self.room = _NO_ROOM
        self.tick = 0.0
        self.sealed: deque[ProducerBatch] = deque()
        self.unsent_bytes = 0
        self.sealed_bytes = 0  # ever
        self.wants_flush = False
        self.wants_seal = False
        self.quiet = TELL_ALL
        self.filled: Callable[[PartitionQueue], None] | None = None

    def taken_bytes(self) -> int:
        """Return the bytes of all records that were ever added."""
        return self.sealed_bytes + self.open_bytes()

    def open_bytes(self) -> int:
        batch = self.batch
        return 0 if batch is None else batch.size - max(0, self.room)


class RecordAccumulator:
    """`wake` is called, from any thread, when there is something in `told`."""

    def __init__(
        self, pool: BufferPool, batch_size: int, delivery_seconds: float, clocks: Clocks, wake: Callable[[], object]
    ) -> None:
        self.pool = pool
        self.told: deque[PartitionQueue] = deque()
        self.unresolved: dict[ProducerBatch, None] = {}  # in the order in which they were opened
        self._batch_size = batch_size
        self.portion = min(PORTION, batch_size)
        self._delivery_seconds = delivery_seconds
        self._clocks = clocks
        self._wake = wake
        self._queues: dict[tuple[str, int], PartitionQueue] = {}

    def queue(self, topic: str, partition: int) -> PartitionQueue:
        """The one of this partition, for ever. (`setdefault` gives every thread the same.)"""
        found = self._queues.get((topic, partition))
        return found or self._queues.setdefault((topic, partition), PartitionQueue(topic, partition))

    def now(self) -> float:
        """Return the time on the clock of `opened_at` and `deadline`."""
        return self._clocks.monotonic()

    def queues(self) -> Iterator[PartitionQueue]:
        return iter(list(self._queues.values()))

    def held_records(self) -> int:
        """Return about how many records were taken and are not delivered yet."""
        sealed = sum(batch.count for batch in list(self.unresolved))
        return sealed + sum(len(queue.records) >> 1 for queue in self.queues())

    # --- adding ---

    def append(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers = (),
        timestamp_ms: int | None = None,
    ) -> RecordFuture | None:
        """None: there is no room now."""
        while True:
            try:
                del queue.gate[OPEN]
                try:
                    return self._append(queue, key, value, headers, timestamp_ms)
                except BaseException:  # an interrupt: perhaps it has kept the loop from hearing of a batch
                    self.tell(queue)
                    raise
                finally:
                    queue.gate[OPEN] = None
            except KeyError:
                self._clocks.pause(_GATE_PAUSE)

    def append_batch(self, queue: PartitionQueue, content: Encodable, size: int) -> ProducerBatch | None:
        """A batch of its own, behind what was added before. None: there is no room now."""
        batch = self._new_batch(queue)
        try:
            self.unresolved[batch] = None
            if not self.pool.take(batch, size):
                self.let_go(batch)
                return None
            batch.seal(content)
            self._put_behind(queue, batch)
            self._tell_of_sealed(queue)
        except BaseException:
            if not batch.is_taken and batch not in queue.sealed:
                batch.resolve(Outcome())  # somebody who flushes may have seen it
                self.let_go(batch)
            self.tell(queue)
            raise
        return batch

    def _put_behind(self, queue: PartitionQueue, batch: ProducerBatch) -> None:
        while True:
            try:
                del queue.gate[OPEN]
                try:
                    self._seal(queue)
                    queue.unsent_bytes += batch.size
                    queue.sealed_bytes += batch.size
                    queue.sealed.append(batch)
                    return
                finally:
                    queue.gate[OPEN] = None
            except KeyError:
                self._clocks.pause(_GATE_PAUSE)

    def _append(
        self,
        queue: PartitionQueue,
        key: bytes | None,
        value: bytes | None,
        headers: Headers,
        timestamp_ms: int | None,
    ) -> RecordFuture | None:
        size = (0 if value is None else len(value)) + (0 if key is None else len(key)) + RECORD_BYTES
        if queue.wants_seal:
            self._seal(queue)
            self.tell(queue)
        if queue.room < size and not self._make_room(queue, size):
            return None
        batch = queue.batch
        assert batch is not None
        place = len(queue.records)
        if timestamp_ms is not None or self._clocks.wall() >= queue.tick:
            self._stamp(queue, place >> 1, timestamp_ms)
        if headers:
            queue.headers[place >> 1] = headers
        queue.room -= size
        queue.records.extend((key, value))
        return RecordFuture((batch, place))

    def _make_room(self, queue: PartitionQueue, size: int) -> bool:
        """Another portion for the open batch, or a new batch where it is full."""
        batch, used = queue.batch, queue.open_bytes()
        is_sealed = batch is not None and (used + size > self._batch_size or batch.count > 0)
        if is_sealed:  # a batch with a count: its sealing was interrupted
            self._seal(queue)
            batch, used = None, 0
        if batch is None:
            batch = queue.batch = self._new_batch(queue)
        self.unresolved[batch] = None
        granted = self.pool.take(batch, size, min(self.portion, self._batch_size - used))
        if not granted:
            if not queue.records:
                self._seal(queue)  # an empty one
            self.tell(queue)  # what is open has to go now, or there will never be room
            return False
        queue.room = max(0, queue.room) + granted
        if is_sealed:
            self._tell_of_sealed(queue)
        elif not used and queue.quiet == TELL_ALL:
            self.tell(queue)
        if queue.filled is not None:
            queue.filled(queue)
        return True

    def _new_batch(self, queue: PartitionQueue) -> ProducerBatch:
        now = self._clocks.monotonic()
        return ProducerBatch(queue.topic, queue.partition, now, now + self._delivery_seconds)

    def _stamp(self, queue: PartitionQueue, place: int, timestamp_ms: int | None) -> None:
        """Begin a run of records of one timestamp, unless the last one goes on."""
        tick = 0.0  # the next record is no part of this run
        if timestamp_ms is None:
            timestamp_ms = int(self._clocks.wall() * 1000)
            tick = (timestamp_ms + 1) / 1000
        if queue.runs and queue.runs[-1][0] == place:
            queue.runs[-1] = (place, timestamp_ms)  # of a record that an interrupt has kept out
        elif not queue.runs or queue.runs[-1][1] != timestamp_ms:
            queue.runs.append((place, timestamp_ms))
        queue.tick = tick  # last: records that come before that time have a run

    def _seal(self, queue: PartitionQueue) -> None:
        """Close the open batch, if there is one. To be called behind the gate."""
        batch = queue.batch
        if batch is None:
            return
        unused, queue.room = max(0, queue.room), _NO_ROOM  # from here on nothing is added to it
        self.pool.give_back(batch, unused)
        if not batch.count and queue.records:
            batch.seal(_columns(queue.records, queue.headers, queue.runs))
        if not batch.count:
            batch.resolve(Outcome())
            self.let_go(batch)
        elif not batch.is_taken and (not queue.sealed or queue.sealed[-1] is not batch):
            queue.unsent_bytes += batch.size
            queue.sealed_bytes += batch.size
            queue.sealed.append(batch)
        queue.records, queue.headers, queue.runs = [], {}, []
        queue.wants_seal = False
        queue.tick = 0.0
        queue.batch = None

    # --- taking: on the event loop ---

    def seal_open(self, queue: PartitionQueue) -> bool:
        """Let the open batch go. False: another thread is at it, and is asked to do it when it comes next.

        A thread that sends all the time mostly loses its turn there, so to come again would seldom help. It looks up
        when `tick` is over. Where it does not come again, the caller does, and finds the gate open.
        """
        try:
            del queue.gate[OPEN]
            try:
                self._seal(queue)
            finally:
                queue.gate[OPEN] = None
        except KeyError:
            queue.wants_seal = True
            queue.tick = 0.0
            return False
        return True

    def take(self, queue: PartitionQueue) -> ProducerBatch:
        """The next sealed batch. It stays unresolved until `let_go`."""
        batch = queue.sealed[0]
        batch.is_taken = True
        queue.sealed.popleft()
        queue.unsent_bytes -= batch.size
        return batch

    def let_go(self, batch: ProducerBatch) -> None:
        """Give the room of a resolved batch back."""
        if batch in self.unresolved:
            self.pool.give_back(batch, batch.size)
            self.unresolved.pop(batch, None)

    def _tell_of_sealed(self, queue: PartitionQueue) -> None:
        if queue.quiet != TELL_NOTHING:
            self.tell(queue)

    def tell(self, queue: PartitionQueue) -> None:
        """The event loop has to look at this queue. Told twice is no harm; a flag for it could be left behind."""
        self.told.append(queue)
        self._wake()

    def flush(self) -> list[ProducerBatch]:
        """Have everything sent that was taken until now; what that is."""
        batches = list(self.unresolved)
        open_ones = set()
        for queue in self.queues():
            if queue.batch is not None or queue.sealed:
                open_ones.add(queue.batch)
                queue.wants_flush = True
                self.tell(queue)
        return [batch for batch in batches if batch.count or batch in open_ones]  # an interrupt may leave an empty one


def _columns(records: list[bytes | None], headers: dict[int, Headers], runs: list[tuple[int, int]]) -> Columns:
    keys, values = records[0::2], records[1::2]
    ends = [place for place, _ in runs[1:]] + [len(values)]
    timestamps = tuple((end - place, timestamp) for (place, timestamp), end in zip(runs, ends, strict=True))
    by_place = [headers.get(place) for place in range(len(values))] if headers else None
    return Columns(keys, values, by_place, timestamps[0][1] if len(timestamps) == 1 else timestamps)

"""Work of many workers on the records of some partitions, and what of it may be committed. No clock, no thread.

A record belongs to a *queue*: that of its key, of its partition, or one of its own. One record of each queue is worked
on at a time; the others wait behind it.

    waiting   first of its queue, or behind another
    running   a worker has it
    delayed   it has failed, and waits to be tried again; what is behind it in its queue waits too
    done
    stuck     it has failed for good, and nobody may pass over it: its queue ends here

    waiting → running     running → done, delayed, stuck     delayed → running

What must stay true:
- Records of a queue are started in the order of their offsets, each only when the one before is done.
- What may be committed lies below every record that was taken and is not done (`offset_window.py`).
- No record of a partition that is being given up is started. The outcome of a record of a dropped partition changes
  nothing, whatever was granted since: a task belongs to the `_PartitionWork` under which it was taken.
- A partition holds at most `window` records from the oldest that is not done on, if whoever takes obeys `room`.
"""

from __future__ import annotations

import heapq
import itertools
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from typing import Any, Final

from raylog.actors.kernel.backoff import Backoff
from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.parallel.rules.offset_window import NOTHING_TAKEN, OffsetWindow

BY_KEY: Final = "key"
BY_PARTITION: Final = "partition"
UNORDERED: Final = "unordered"
ORDERS: Final = (BY_KEY, BY_PARTITION, UNORDERED)

RECORD_BYTES: Final = 200  # what Python needs for a record, beside its bytes


class Task:
    """One record, on its way through a handler."""

    __slots__ = ("attempts", "error", "is_given_up", "queue", "record", "size", "started_at")

    def __init__(self, record: ConsumerRecord, queue: _Queue, size: int) -> None:
        self.record = record
        self.queue = queue
        self.size = size
        self.attempts = 0  # begun
        self.started_at = 0.0
        self.error: BaseException | None = None  # of the last attempt
        self.is_given_up = False  # the handler has had its attempts; what is left to do is to put the record aside


class _Queue:
    __slots__ = ("key", "partition", "tasks")

    def __init__(self, key: object, partition: _PartitionWork) -> None:
        self.key = key
        self.partition = partition
        self.tasks: deque[Task] = deque()  # the first one is ready, running, delayed or stuck


class _PartitionWork:
    def __init__(self, partition: TopicPartition) -> None:
        self.partition = partition
        self.window = OffsetWindow()
        self.queues: dict[object, _Queue] = {}
        self.running: set[Task] = set()
        self.committed = NOTHING_TAKEN
        self.is_ending = False  # nothing more of it is started
        self.is_gone = False  # nothing more of it counts
        self.is_paused = False


class ParallelWork:
    """`window`: in records, of each partition; `memory`: in bytes, of all that is taken and not done.

    `retries`: how often a record is tried again; None: until it is done. `backoff`: how long after which attempt, in
    seconds.
    """

    def __init__(
        self,
        order: str,
        window: int,
        memory: int,
        retries: int | None,
        backoff: Backoff,
    ) -> None:
        self._order = order
        self._window = window
        self._memory = memory
        self._retries = retries
        self._backoff = backoff
        self._partitions: dict[TopicPartition, _PartitionWork] = {}
        self._ready: deque[_Queue] = deque()
        self._delayed: list[tuple[float, int, _Queue]] = []
        self._numbers = itertools.count()
        self._running: dict[Task, None] = {}  # in the order of their starts
        self.held_bytes = 0
        self.done_count = 0
        self.failed_count = 0  # attempts
        self.given_up_count = 0  # records
        self.thrown_away_count = 0  # results

    # --- records in -----------------------------------------------------------------------------------------------

    def room(self, most: int) -> int:
        """Return how many records may be taken now, of whichever partitions are not to be paused."""
        if self.held_bytes >= self._memory:
            return 0
        rooms = [self._window - len(each.window) for each in self._partitions.values() if not each.is_paused]
        return max(0, min(most, self._window, *rooms))

    def flow(self) -> tuple[list[TopicPartition], list[TopicPartition]]:
        """Partitions to pause now, for their windows are full, and to resume, for theirs are half empty."""
        pause, resume = [], []
        for each in self._partitions.values():
            if not each.is_paused and len(each.window) >= self._window:
                each.is_paused = True
                pause.append(each.partition)
            elif each.is_paused and len(each.window) <= self._window // 2:
                each.is_paused = False
                resume.append(each.partition)
        return pause, resume

    def take(self, partition: TopicPartition, records: Sequence[ConsumerRecord]) -> None:
        """The next records of a partition, in their order, with keys and values as bytes."""
        if not records:
            return
        work = self._partitions.get(partition)
        if work is not None and records[0].offset <= work.window.last_taken:
            self.drop([partition])  # the log was cut, or its topic made anew: what was taken before is of another log
            work = None
        if work is None:
            work = self._partitions[partition] = _PartitionWork(partition)
        for record in records:
            work.window.take(record.offset)
            size = len(record.key or b"") + len(record.value or b"") + RECORD_BYTES
            self.held_bytes += size
            key = self._queue_of(record)
            queue = work.queues.get(key)
            if queue is None:
                queue = work.queues[key] = _Queue(key, work)
                self._ready.append(queue)
            queue.tasks.append(Task(record, queue, size))

    def _queue_of(self, record: ConsumerRecord) -> object:
        if self._order == BY_PARTITION:
            return None
        if self._order == UNORDERED or record.key is None:
            return record.offset
        return record.key

    # --- work out -------------------------------------------------------------------------------------------------

    def start(self, now: float) -> Task | None:
        """The next record to work on; None: there is none now, and perhaps one at `due_at`."""
        while self._delayed and self._delayed[0][0] <= now:
            self._ready.append(heapq.heappop(self._delayed)[2])
        while self._ready:
            queue = self._ready.popleft()
            if not queue.tasks:
                continue  # its partition is being given up
            task = queue.tasks[0]
            task.started_at = now
            if not task.is_given_up:
                task.attempts += 1
            queue.partition.running.add(task)
            self._running[task] = None
            return task
        return None

    def due_at(self) -> float | None:
        """Return when the next record that has failed is to be tried again."""
        return self._delayed[0][0] if self._delayed else None

    def finish(self, task: Task) -> None:
        """Note that a record is done, or put aside."""
        if not self._stop_running(task):
            return
        self.done_count += 1
        self._remove(task)
        queue = task.queue
        queue.tasks.popleft()
        if queue.tasks:
            self._ready.append(queue)
        else:
            del queue.partition.queues[queue.key]

    def fail(self, task: Task, error: BaseException, now: float, *, is_final: bool = False) -> bool:
        """Whether it is tried again; else it is still running, and is to be put aside, or `stick`.

        `is_final`: no further attempt helps.
        """
        task.error = error
        self.failed_count += 1
        has_more = self._retries is None or task.attempts <= self._retries
        if task.queue.partition.is_gone or (has_more and not is_final):
            self.delay(task, now)
            return True
        task.is_given_up = True
        self.given_up_count += 1
        return False

    def delay(self, task: Task, now: float) -> None:
        """Start it again after a while."""
        if not self._stop_running(task):
            return
        if task.queue.partition.is_ending:
            return  # whoever gets the partition begins with it
        due = now + self._backoff.after(task.attempts)
        heapq.heappush(self._delayed, (due, next(self._numbers), task.queue))

    def stick(self, task: Task) -> None:
        """Leave the record as it is: nothing behind it in its queue is started, nothing from it on committed."""
        self._stop_running(task)

    def _stop_running(self, task: Task) -> bool:
        """Whether what has come of it counts."""
        del self._running[task]
        task.queue.partition.running.discard(task)
        if task.queue.partition.is_gone:
            self.thrown_away_count += 1
            return False
        return True

    def _remove(self, task: Task) -> None:
        task.queue.partition.window.finish(task.record.offset)
        self.held_bytes -= task.size

    # --- partitions that go ---------------------------------------------------------------------------------------

    def end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        """Start nothing more of these (None: of all); what is running may still be finished."""
        for work in self._known(partitions):
            work.is_ending = True
            for queue in work.queues.values():
                kept = deque(task for task in queue.tasks if task in work.running)
                self.held_bytes -= sum(task.size for task in queue.tasks if task not in work.running)
                queue.tasks = kept

    def is_running(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        """Whether any record of these (None: of all) is being worked on."""
        return any(work.running for work in self._known(partitions))

    def drop(self, partitions: Iterable[TopicPartition]) -> int:
        """Forget partitions that are another's: nothing of them counts any more. Returns how many records were still
        being worked on.
        """
        running = 0
        for work in self._known(list(partitions)):
            self.end([work.partition])
            work.is_gone = True
            running += len(work.running)
            self.held_bytes -= sum(task.size for task in work.running)
            del self._partitions[work.partition]
        if self._delayed:
            self._delayed = [each for each in self._delayed if not each[2].partition.is_gone]
            heapq.heapify(self._delayed)
        return running

    def _known(self, partitions: Iterable[TopicPartition] | None) -> list[_PartitionWork]:
        named = self._partitions if partitions is None else partitions
        return [self._partitions[each] for each in named if each in self._partitions]

    # --- what is done ---------------------------------------------------------------------------------------------

    def positions(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return the offsets that may be committed and are not, of these partitions (None: of all)."""
        known = self._known(partitions)
        return {each.partition: each.window.position for each in known if each.window.position != each.committed}

    def note_committed(self, positions: dict[TopicPartition, int]) -> None:
        """Note that these are committed, or are about to be. One that fails is put right by the next, or by the
        partition's next owner.
        """
        for work in self._known(positions):
            work.committed = positions[work.partition]

    def note_not_committed(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that a commit failed: these offsets must be committed again."""
        for work in self._known(partitions):
            work.committed = NOTHING_TAKEN

    @property
    def open_count(self) -> int:
        """The number of records that are taken and not done."""
        return sum(each.window.open_count for each in self._partitions.values())

    @property
    def has_paused(self) -> bool:
        return any(each.is_paused for each in self._partitions.values())

    def oldest(self) -> Task | None:
        """Return the task that has been running for longest."""
        return next(iter(self._running), None)

    def describe(self) -> dict[str, Any]:
        """Counts, for people."""
        return {
            "records_done": self.done_count,
            "records_given_up": self.given_up_count,
            "attempts_failed": self.failed_count,
            "results_thrown_away": self.thrown_away_count,
            "records_running": len(self._running),
            "records_delayed": len(self._delayed),
            "records_held": self.open_count,
            "bytes_held": self.held_bytes,
            "windows": {each.partition: len(each.window) for each in self._partitions.values()},
        }

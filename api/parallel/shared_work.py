"""Work that the workers of a ParallelConsumer and the polling thread share: `ParallelWork` behind one lock.

What must stay true:
- `ParallelWork` is touched under the lock only, and nothing is waited for under it but the lock itself.
- The polling thread takes the bare lock, and waits on a bare lock: Ctrl-C between two steps leaves none behind.
- Once it is halted, or closed, nothing is started any more; what is running may still be finished.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import Any, Final

from raylog.api.connection.records import ConsumerRecord, TopicPartition
from raylog.api.parallel.rules.parallel_work import ParallelWork, Task

_SLICE_SECONDS: Final = 0.5  # a signal that comes just before a thread goes to sleep does not wake it up


class Signal:
    """Ends a wait, also one that is about to begin. One thread waits; `wake` is safe in any, and in signal handlers."""

    def __init__(self) -> None:
        self._lock = threading.Lock()  # free: there is something to look at

    def expect(self) -> None:
        """Have whatever comes from here on end the next wait. To be called before one looks at what is there."""
        self._lock.acquire(blocking=False)

    def wait(self, seconds: float) -> None:
        """Wait for at most so long, and not for long at a time."""
        self._lock.acquire(timeout=max(0.0, min(seconds, _SLICE_SECONDS)))

    def wake(self) -> None:
        with contextlib.suppress(RuntimeError):  # it is free already
            self._lock.release()


class SharedWork:
    """`on_work` is called, on any thread and without the lock, when there may be something to start."""

    def __init__(self, work: ParallelWork) -> None:
        self.on_work: Callable[[], None] = _nobody
        self.progress = Signal()  # for the polling thread
        self.halted_by: BaseException | None = None
        self._work = work
        self._lock = threading.Lock()
        self._has_work = threading.Condition(self._lock)
        self._is_awaited = False  # the polling thread waits for what the workers do
        self.is_closed = False

    # --- for workers ----------------------------------------------------------------------------------------------

    def wait_for_task(self) -> Task | None:
        """None: there will be none any more."""
        with self._lock:
            while not self.is_closed:
                task = self._start()
                if task is not None:
                    return task
                due = self._due_at()
                self._has_work.wait(None if due is None else max(0.0, due - time.monotonic()))
        return None

    def start(self) -> tuple[Task | None, float | None]:
        """The next task, or None and when one may be due."""
        with self._lock:
            return self._start(), self._due_at()

    def _start(self) -> Task | None:
        if self.is_closed or self.halted_by is not None:
            return None
        return self._work.start(time.monotonic())

    def _due_at(self) -> float | None:
        """None also where nothing is started any more: who waits for what is due would not wait at all."""
        return None if self.is_closed or self.halted_by is not None else self._work.due_at()

    def finish(self, task: Task) -> None:
        with self._lock:
            self._work.finish(task)
            is_awaited = self._is_awaited
        if is_awaited:
            self.progress.wake()

    def fail(self, task: Task, error: Exception, *, is_final: bool) -> bool:
        """Whether it is tried again; see `ParallelWork.fail`."""
        with self._lock:
            is_tried_again = self._work.fail(task, error, time.monotonic(), is_final=is_final)
            self._has_work.notify()  # who waits may have to wake up earlier
        if is_tried_again:
            self._tell()
        return is_tried_again

    def delay(self, task: Task) -> None:
        with self._lock:
            self._work.delay(task, time.monotonic())
            self._has_work.notify()
        self._tell()

    def halt(self, task: Task | None, error: BaseException) -> None:
        """Nothing more is started; whoever polls hears why. The first reason counts."""
        with self._lock:
            if task is not None:
                self._work.stick(task)
            if self.halted_by is None:
                self.halted_by = error
        self.progress.wake()

    def _tell(self) -> None:
        self.on_work()
        self.progress.wake()

    # --- for the polling thread -----------------------------------------------------------------------------------

    def prepare(self, most: int) -> tuple[int, list[TopicPartition], list[TopicPartition]]:
        """Return how many records to take, and which partitions to pause and to resume before."""
        with self._lock:
            pause, resume = self._work.flow()
            room = self._work.room(most)
            self._is_awaited = room == 0 or self._work.has_paused
        return room, pause, resume

    def take(self, found: Mapping[TopicPartition, Sequence[ConsumerRecord]]) -> None:
        with self._lock:
            for partition, records in found.items():
                self._work.take(partition, records)
            self._has_work.notify(sum(map(len, found.values())))
        self.on_work()

    def await_progress(self) -> None:
        """Have whatever is done from here on wake `progress`."""
        with self._lock:
            self._is_awaited = True

    def end(self, partitions: Iterable[TopicPartition] | None = None) -> None:
        with self._lock:
            self._is_awaited = True
            self._work.end(partitions)

    def drop(self, partitions: Iterable[TopicPartition]) -> int:
        with self._lock:
            return self._work.drop(partitions)

    def is_running(self, partitions: Iterable[TopicPartition] | None = None) -> bool:
        with self._lock:
            return self._work.is_running(partitions)

    @property
    def open_count(self) -> int:
        with self._lock:
            return self._work.open_count

    def oldest(self) -> tuple[Task, float] | None:
        """Return the task that has been running for longest, and for how many seconds."""
        with self._lock:
            task = self._work.oldest()
            return None if task is None else (task, time.monotonic() - task.started_at)

    def to_commit(self, partitions: Collection[TopicPartition] | None = None) -> dict[TopicPartition, int]:
        """Return offsets to commit. From here on they count as committed, until `not_committed`."""
        with self._lock:
            found = self._work.positions(partitions)
            self._work.note_committed(found)
            return found

    def not_committed(self, partitions: Iterable[TopicPartition]) -> None:
        with self._lock:
            self._work.note_not_committed(partitions)

    def describe(self) -> dict[str, Any]:
        with self._lock:
            return self._work.describe()

    def close(self) -> None:
        with self._lock:
            self.is_closed = True
            self._has_work.notify_all()
        self.on_work()


def _nobody() -> None:
    """Do nothing: there are no workers yet, or they wait by themselves."""

"""A consumer that works on the records of a partition with many workers at once, and commits what is done.

    Consumer ──poll──► SharedWork (ParallelWork) ◄──► workers ──► handler
       ▲ commit, pause       │                          └─ failed for good ──► dead letter topic
       └─────────────────────┘

What must stay true:
- What is committed lies below every record that is not done. So a crash repeats records and loses none.
- Before a partition is given up, what is being worked on there is finished, within `revoke_timeout_ms`, and committed.
  What is done later, or after it was lost, is thrown away.
- The thread of `run` polls all the while: a slow handler costs no membership, and one that hangs is found.
"""

from __future__ import annotations

import logging
import math
import threading
import time
import weakref
from collections.abc import Callable
from random import Random
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

from raylog.actors.kernel.backoff import Backoff
from raylog.api.connection.option_help import lists_options
from raylog.api.connection.process_bound import ProcessBound
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.api.consumer.consumer import Consumer, core_of
from raylog.api.consumer.group.rebalance_listener import RebalanceListener
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.parallel.dead_letters import DeadLetters
from raylog.api.parallel.handler_workers import start_workers
from raylog.api.parallel.rules.parallel_options import ParallelOptions, ParallelSettings, parse
from raylog.api.parallel.rules.parallel_work import ParallelWork
from raylog.api.parallel.shared_work import SharedWork
from raylog.errors import (
    ConsumerClosed,
    HandlerTimedOut,
    InvalidConfig,
    RaylogError,
    UnknownTopic,
    WaitRefused,
)

if TYPE_CHECKING:
    from typing_extensions import Unpack


_CLOSE_SECONDS: Final = 30.0
_LEAVE_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 1.0
_LOOK_SHARE: Final = 5  # that part of max_poll_interval_ms, where it is less

_log = logging.getLogger(__name__)


@lists_options(ParallelSettings, ParallelOptions, ConsumerOptions, without=("consumer", "enable_auto_commit"))
class ParallelConsumer(ProcessBound):
    """Calls a handler for each record of a group's topics, for many records at once.

    >>> def handle(record):
    ...     charge(record.key, record.value)
    >>> with raylog.ParallelConsumer("orders", group_id="billing", handler=handle, workers=32) as consumer:
    ...     consumer.run()                                  # until `stop`, an error, or Ctrl-C

    Records of a key are handled one after the other, in their order, and others meanwhile (`order="key"`; records
    without a key wait for nobody). `order="partition"` keeps the order of each partition, `"unordered"` none. A
    coroutine function as handler runs on a loop of its own, up to `workers` records at once:

    >>> async def handle(record):
    ...     await model.score.remote(record.value)          # an actor of Ray, say

    A record is done when its handler returns. Each is handled at least once: offsets are committed every
    `auto_commit_interval_ms` up to the oldest record that is not done, so those behind it are handled again after a
    crash. One that raises is tried again, `retries` times with growing pauses, and goes to the `dead_letter_topic`
    then. Other options are those of `Consumer`; `raylog.api.parallel.rules.parallel_options.ParallelOptions` has these.
    """

    def __init__(self, *topics: str, **settings: Unpack[ParallelSettings]) -> None:
        self._options, for_consumer = parse(dict(settings))
        options = self._options
        work = ParallelWork(
            options.order,
            options.window,
            options.pending_memory,
            options.retries,
            Backoff(options.retry_pause_ms / 1000, options.longest_retry_pause_ms / 1000, Random()),
        )
        self._work = SharedWork(work)
        self._is_stopping = False  # until `run` has seen it
        self._is_closing = False
        self._is_closed = False
        self._is_torn = False  # records were polled, and perhaps not taken
        self._running = threading.Lock()  # held by the thread of `run`, or of `close`
        self._commit_at = 0.0
        self._look_seconds = min(_LOOK_SECONDS, options.consumer.max_poll_interval_ms / 1000 / _LOOK_SHARE)
        self._consumer = Consumer(**for_consumer)
        self._dead_letters: DeadLetters | None = None
        try:
            self._dead_letters = self._open_dead_letters(topics)
            core_of(self._consumer).on_arrival(self._work.progress.wake)
            self._listener = _Listener(self._work, self._consumer, options)
            self._consumer.subscribe(topics, options.pattern, self._listener)
        except BaseException:
            self._consumer.close()
            raise
        self._workers = start_workers(self._work, options, self._dead_letters)
        weakref.finalize(self, self._work.close).atexit = False  # one that is dropped lets its workers go

    def _open_dead_letters(self, topics: tuple[str, ...]) -> DeadLetters | None:
        name = self._options.dead_letter_topic
        if name is None:
            return None
        if name in topics:
            raise InvalidConfig("dead_letter_topic", name, "another topic than those that are read")
        if self._consumer.partitions_for_topic(name) is None:
            raise UnknownTopic(name)
        group = self._options.consumer.group_id
        assert group is not None
        return DeadLetters(name, group, self._options.consumer.cluster)

    def __enter__(self) -> ParallelConsumer:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close(drain=error is None)

    def __repr__(self) -> str:
        state = "closed" if self._is_closed else f"{self._work.open_count} records held"
        return f"ParallelConsumer({self._options.consumer.group_id!r}: {state})"

    # --- what programs call ---------------------------------------------------------------------------------------

    def run(self, timeout_ms: float | None = None) -> None:
        """Handle records until `stop`, or for so long, or until none has come for `consumer_timeout_ms`.

        HandlerFailed, HandlerTimedOut, DeadLetterFailed; and what `Consumer.poll` raises: then it may be called again.

        >>> signal.signal(signal.SIGTERM, lambda *_: consumer.stop())
        >>> consumer.run()
        """
        if not self._running.acquire(blocking=False):
            raise RuntimeError("Another thread is in run() or close() of this consumer.")
        try:
            self._run(None if timeout_ms is None else time.monotonic() + timeout_ms / 1000)
        finally:
            self._is_stopping = False
            self._running.release()

    def stop(self) -> None:
        """Let `run` return. From any thread, also in a handler or for a signal. Records that are taken are kept."""
        self._is_stopping = True
        self._work.progress.wake()

    def close(self, timeout_ms: float | None = None, *, drain: bool = True) -> None:
        """Take no more; finish what is taken, or what is being worked on (`drain=False`); commit; leave the group.

        What is not done in that time (30 s by default) is left to the group. Leaving a `with` block by an error is
        `close(drain=False)`. WaitRefused in a handler: that is for `stop`.
        """
        if self._workers.has_this_thread:
            raise WaitRefused
        self._is_closing = True
        self._work.progress.wake()
        deadline = time.monotonic() + (_CLOSE_SECONDS if timeout_ms is None else timeout_ms / 1000)
        if not self._running.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise ConsumerClosed("its run() goes on in another thread, which does not get to the end of it")
        try:
            if not self._is_closed:
                self._is_closed = True
                self._close(deadline, drain=drain)
        finally:
            self._running.release()

    def metrics(self) -> dict[str, Any]:
        """Counts since the consumer was made, and what it holds now. From any thread."""
        return self._work.describe()

    def positions(self) -> dict[TopicPartition, int | None]:
        """Return, of each partition that it has, the offset of the next record that it takes; None: not known yet.

        To be called by the thread of `run`, while it is not in it. There may be records before that are not done.
        """
        return {each: self._position(each) for each in self._consumer.assignment()}

    def _position(self, partition: TopicPartition) -> int | None:
        try:
            return self._consumer.position(partition, 0)
        except RaylogError:
            return None  # not known yet, or the partition has just gone

    # --- how ------------------------------------------------------------------------------------------------------

    def _run(self, until: float | None) -> None:
        idle_seconds = self._options.consumer.consumer_timeout_ms / 1000
        busy_at = time.monotonic()
        if self._is_closing:
            raise ConsumerClosed
        if self._is_torn:
            raise ConsumerClosed("it was interrupted while it took records")
        while not (self._is_stopping or self._is_closing):
            self._work.progress.expect()
            self._check()
            has_found = self._take()
            self._commit_when_due()
            now = time.monotonic()
            if has_found or self._work.open_count:
                busy_at = now
            if (until is not None and now >= until) or now - busy_at >= idle_seconds:
                return
            if not has_found:
                end = min(self._commit_at, busy_at + idle_seconds, math.inf if until is None else until)
                self._work.progress.wait(min(self._look_seconds, end - now))
        self._check()

    def _take(self) -> bool:
        """Whether there were records to be taken."""
        room, pause, resume = self._work.prepare(self._options.consumer.max_poll_records)
        if pause or resume:
            held = self._consumer.assignment()
            self._consumer.pause(*held.intersection(pause))
            self._consumer.resume(*held.intersection(resume))
        if not room:
            core_of(self._consumer).follow_group()
            return False
        self._is_torn = True
        try:
            found = self._consumer.poll(0, room)
        except RaylogError:
            self._is_torn = False  # it has handed out nothing
            raise
        if found:
            self._work.take(found)
        self._is_torn = False
        return bool(found)

    def _check(self) -> None:
        """Raises why nothing is started any more; HandlerTimedOut."""
        if self._work.halted_by is not None:
            raise self._work.halted_by
        oldest = self._work.oldest()
        if oldest is None:
            return
        task, seconds = oldest
        if seconds * 1000 >= self._options.consumer.max_poll_interval_ms:
            group, member, epoch, _ = self._consumer.group_metadata()
            record = task.record
            raise HandlerTimedOut(
                group, member, epoch, record.topic, record.partition, record.offset, round(seconds * 1000)
            )

    def _commit_when_due(self) -> None:
        now = time.monotonic()
        if now < self._commit_at:
            return
        self._commit_at = now + self._options.consumer.auto_commit_interval_ms / 1000
        positions = self._work.to_commit()
        if positions:
            self._consumer.commit_async(dict(positions), self._committed)

    def _committed(self, offsets: dict[TopicPartition, OffsetAndMetadata], error: Any) -> None:
        if error is not None:
            self._work.not_committed(offsets)
            _log.warning("%d partitions are not committed: %s", len(offsets), error)

    # --- ending ---------------------------------------------------------------------------------------------------

    def _close(self, deadline: float, *, drain: bool) -> None:
        try:
            if drain and self._work.halted_by is None:
                self._follow_until(deadline, lambda: not self._work.open_count or self._work.halted_by is not None)
            self._work.end()
            self._follow_until(deadline, lambda: not self._work.is_running())
        finally:
            try:
                self._listener.seconds, self._listener.commit_ms = 0.0, _LEAVE_SECONDS * 1000
                self._consumer.close(_LEAVE_SECONDS * 1000)  # its listener commits
            finally:
                self._workers.close(max(0.0, deadline - time.monotonic()))
                if self._dead_letters is not None:
                    self._dead_letters.close(_LEAVE_SECONDS)

    def _follow_until(self, deadline: float, is_over: Callable[[], bool]) -> None:
        """Take no more, and be a member of the group meanwhile."""
        work = self._work
        work.await_progress()
        while True:
            work.progress.expect()
            if is_over() or time.monotonic() >= deadline:
                return
            try:
                core_of(self._consumer).follow_group()
            except RaylogError as error:
                _log.warning("The group has ended before its records were done: %s", error)
                return
            work.progress.wait(min(self._look_seconds, deadline - time.monotonic()))


class _Listener(RebalanceListener):
    """Follows what becomes of the work when partitions go."""

    def __init__(self, work: SharedWork, consumer: Consumer, options: ParallelOptions) -> None:
        self._work = work
        self._consumer = weakref.ref(consumer)  # which holds this listener
        self.seconds = options.revoke_seconds
        self.commit_ms: float = options.consumer.request_timeout_ms

    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        """Finish what is being worked on, and commit it."""
        work = self._work
        work.end(partitions)
        deadline = time.monotonic() + self.seconds
        while True:
            work.progress.expect()
            if not work.is_running(partitions) or time.monotonic() >= deadline:
                break
            work.progress.wait(deadline - time.monotonic())
        positions = work.to_commit(partitions)
        consumer = self._consumer()
        try:
            if positions and consumer is not None:
                consumer.commit(dict(positions), self.commit_ms)
        except RaylogError as error:
            _log.warning("%d partitions are given up without a commit: %s", len(positions), error)
        finally:
            self._drop(partitions)

    def on_partitions_lost(self, partitions: set[TopicPartition]) -> None:
        self._drop(partitions)

    def _drop(self, partitions: set[TopicPartition]) -> None:
        running = self._work.drop(partitions)
        self._work.progress.wake()  # for `run`: what has come meanwhile may have ended the wait here
        if running:
            _log.warning("%d records were still worked on when their partitions went: others do them again.", running)

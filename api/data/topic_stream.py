"""`raylog.data.stream`: a topic without end, as one bounded Dataset after the other.

    planner's thread: ends of logs ──Cursor.step──► ranges ──► Dataset, materialized ahead ──► the program
    program: works on the batch before; then `commit`, or `transaction`, in the family of the group

What must stay true:
- The family of a stream has its group's name. A driver that begins takes it over: what a dead or cut-off driver's tasks
  have left is aborted before the group's offsets are read, and that driver commits nothing more. So a batch counts
  once, whoever works on it.
- A batch's results and the group's offsets are one decision: both or neither.
- Batches are numbered, and each number is committed once. So one whose commit had no known outcome may be worked on
  again, and none takes the place of another.
- At most one batch is ahead of the one that is worked on. A batch that failed, or that nobody got, is the next one.
"""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Iterator, Mapping
from concurrent.futures import Future, wait
from dataclasses import dataclass, field
from types import TracebackType
from typing import TYPE_CHECKING, Final

from raylog.actors.protocol.replication_messages import EARLIEST
from raylog.api.connection.records import TopicPartition
from raylog.api.data.own_errors import own_errors
from raylog.api.data.rules.stream_steps import Cursor, is_due
from raylog.api.data.stream_metrics import StreamMetrics
from raylog.api.data.topic_sink import TopicSink
from raylog.api.families.member_requests import FamilyWork
from raylog.api.families.transaction_family import TransactionFamily
from raylog.api.jobs.decisions import abort, commit, offsets_of_group
from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import ClusterUnreachable, ConsumerClosed, InvalidTransactionState

if TYPE_CHECKING:
    import ray.data

    from raylog.api.admin.cluster import Cluster
    from raylog.api.data.reading import ReadPlan

_LOOK_SECONDS: Final = 0.1  # between looks at the ends of logs
_BLOCK_MS: Final = 60_000
_CLOSE_SECONDS: Final = 10.0

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class StreamOptions:
    """`wait_seconds`: for a full batch. `idle_seconds`: without records, after which it ends; None: never."""

    group_id: str
    max_rows: int
    wait_seconds: float
    idle_seconds: float | None
    prefetches: bool


class TopicStream:
    """An iterator of batches. Close it, or use it in a `with`: then the group is free for another driver at once."""

    def __init__(self, plan: ReadPlan, options: StreamOptions, family: TransactionFamily, cursor: Cursor) -> None:
        self._plan = plan
        self._options = options
        self._family = family
        self._cursor = cursor
        self._number = family.last_batch
        self._open: dict[int, dict[TopicPartition, int]] = {}  # ends of batches that were not committed
        self._closed = threading.Event()
        self._ahead: Future[TopicBatch | None] | None = None
        self._metrics = StreamMetrics(plan.cluster.name, options.group_id, plan.questions.ends, cursor.offsets)

    def __iter__(self) -> Iterator[TopicBatch]:
        return self

    def __next__(self) -> TopicBatch:
        """Return the next batch, once it is full or has waited. ClusterUnreachable, RecordsLost, ConsumerClosed."""
        if self._closed.is_set():
            raise ConsumerClosed("its stream was closed")
        is_old = self._ahead is not None
        batch = self._awaited()
        if batch is None and is_old:  # there was nothing while the program worked on the batch before, but now?
            batch = self._awaited()
        if batch is None:
            raise StopIteration
        if self._options.prefetches:
            self._ahead = self._planned()
        return batch

    def _awaited(self) -> TopicBatch | None:
        """Return the batch that is ahead. A wait that is interrupted leaves it there."""
        self._ahead = self._ahead or self._planned()
        try:
            batch = self._ahead.result()
        except Exception:
            self._ahead = None
            raise
        self._ahead = None
        return batch

    def _planned(self) -> Future[TopicBatch | None]:
        """Return the next batch to come, of a thread that does not keep the process alive."""
        found: Future[TopicBatch | None] = Future()

        def plan() -> None:
            try:
                found.set_result(self._next())
            except BaseException as error:  # noqa: BLE001  whoever wants the batch is told
                found.set_exception(error)

        threading.Thread(target=plan, name="raylog stream", daemon=True).start()
        return found

    def __enter__(self) -> TopicStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """End it. What was not committed is read again by the next driver. Twice is once."""
        if not self._closed.is_set():
            self._closed.set()
            if self._ahead is not None:
                wait([self._ahead], _CLOSE_SECONDS)
            self._metrics.close()
            self._family.close()

    # --- on the planner's thread ----------------------------------------------------------------------------------

    def _next(self) -> TopicBatch | None:
        """None: nothing came for so long, or the stream was closed."""
        began = time.monotonic()
        since = began  # when there was something for the first time
        while not self._closed.is_set():
            ends = self._look()
            lag = self._cursor.lag(ends)
            now = time.monotonic()
            since = since if lag else now
            if is_due(lag, self._options.max_rows, now - since, self._options.wait_seconds):
                return self._batch(ends, lag)
            if not lag and self._options.idle_seconds is not None and now - began >= self._options.idle_seconds:
                return None
            self._closed.wait(_LOOK_SECONDS)
        return None

    def _look(self) -> Mapping[TopicPartition, int]:
        """Return the ends of all logs; the cursor learns of new partitions."""
        try:
            return self._ends()
        except ClusterUnreachable as error:
            _log.warning("The brokers of %r are looked for anew: %s", self._plan.cluster.name, error)
            self._plan.questions.find_again()
            return self._ends()

    def _ends(self) -> Mapping[TopicPartition, int]:
        there, questions = self._plan.places(), self._plan.questions
        fresh = there.keys() - self._cursor.offsets.keys()
        self._cursor = self._cursor.joined_by(there, questions.offsets(dict.fromkeys(fresh, EARLIEST)))
        if fresh:
            self._metrics.joined(self._cursor.offsets)
        return questions.ends(there.keys())

    def _batch(self, ends: Mapping[TopicPartition, int], lag: int) -> TopicBatch:
        ranges, cursor = self._cursor.step(ends, self._options.max_rows)
        dataset = self._plan.dataset(ranges)
        if self._options.prefetches:
            with own_errors():
                dataset = dataset.materialize()
        behind = lag - sum(each.size for each in ranges)
        self._cursor = cursor
        self._number += 1
        self._open = {number: ends for number, ends in self._open.items() if number > self._family.last_batch}
        self._open[self._number] = {each.place: each.end for each in ranges}
        offsets = {place: end for ends in self._open.values() for place, end in ends.items()}
        parts = (self._number, dataset, tuple(ranges), offsets, behind)
        return TopicBatch(*parts, self._plan.cluster, self._family, self._options.group_id, self._metrics)


@dataclass(frozen=True)
class TopicBatch:
    """Records that are worked on together.

    `offsets`: where the group goes on when this batch, and with it all before, is committed. `behind`: how many offsets
    there were beyond them.
    """

    number: int
    dataset: ray.data.Dataset
    ranges: tuple[OffsetRange, ...]
    offsets: Mapping[TopicPartition, int]
    behind: int
    _cluster: Cluster = field(repr=False)
    _family: TransactionFamily = field(repr=False)
    _group_id: str
    _metrics: StreamMetrics = field(repr=False)

    def commit(self) -> None:
        """Commit the group's offsets: the next driver begins behind this batch. It implies all batches before.

        FamilyFenced: another driver has taken over. GroupNotEmpty and others of groups. TransactionPending: the
        outcome is not known.
        """
        with self.transaction():
            pass

    def transaction(self, sink: TopicSink | None = None) -> BatchTransaction:
        """Return what writes results with the group's offsets, both or neither.

            with batch.transaction(scores) as out:
                out.write(batch.dataset.map_batches(score))
        """
        if self.number <= self._family.last_batch:
            raise InvalidTransactionState("This batch, or a later one, was committed already.")
        return BatchTransaction(self, sink)


class BatchTransaction:
    """The results of one batch. It is committed at the end of its `with`, and aborted if that is left by an error."""

    def __init__(self, batch: TopicBatch, sink: TopicSink | None) -> None:
        self._batch = batch
        self._sink = sink
        self._works: list[FamilyWork] = []

    def write(self, dataset: ray.data.Dataset, sink: TopicSink | None = None) -> int:
        """Write all rows to the sink; how many they were. What `raylog.data.write` raises of tasks."""
        chosen = sink or self._sink
        if chosen is None:
            raise InvalidTransactionState("There is no sink to write to: give one to `transaction` or to `write`.")
        works, count = chosen.write(dataset, self._batch._family.ticket)
        self._works += works
        return count

    def __enter__(self) -> BatchTransaction:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        family = self._batch._family
        if error is not None:
            abort(family)
            return
        try:
            self._stage()
        except BaseException:
            abort(family)
            raise
        commit(family, self._batch.number, self._works)
        self._batch._metrics.committed(self._batch.offsets)

    def _stage(self) -> None:
        batch = self._batch
        self._works.append(
            offsets_of_group(batch._family, batch._cluster, batch._group_id, batch.offsets, _BLOCK_MS)
        )

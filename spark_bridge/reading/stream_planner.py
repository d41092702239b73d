"""Plans what a streaming query reads next: one descriptor after the other, each when the one before is done with.

    new checkpoint ──► number 0: where it starts ──► planned ──the query has committed it──► the next ──► …
    plan_to_end ──► all there is now, in as many as the limits ask for ──► nothing more, until a query that has no end

What must stay true:
- At most one descriptor waits that no query has taken (but for `plan_to_end`), so a batch holds what there was when
  the batch before it was done, and never more than `maxOffsetsPerTrigger`.
- The cursor is that of the newest descriptor, which is written before anything is read: where a stream begins is
  settled once.
- That a topic was deleted is believed when several brokers had a moment to say otherwise: one may be cut off.
- Brokers that do not answer are asked again and again. What cannot go on ends the query with the reason: a line that
  makes this run's task fail, and no later run's. Where no line can be written the query is ended as failed, and so is
  each that is started later on the same frame.
- Nobody waits for the end of a query while holding the lock, which the query's last batch may wait for.
"""

from __future__ import annotations

import logging
import threading
import time
import uuid
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from raylog.api.connection.records import TopicPartition
from raylog.errors import CheckpointInUse, CheckpointOfOther, RaylogError, StreamFailed
from raylog.spark_bridge.reading.descriptor_folder import file_name
from raylog.spark_bridge.reading.rules.read_bounds import starts
from raylog.spark_bridge.reading.rules.read_options import EARLIEST, LATEST, ReadOptions
from raylog.spark_bridge.reading.rules.stream_plan import Cursor, Descriptor, Position, Step, advance, unknown_places
from raylog.spark_bridge.reading.running_queries import NOTHING, QueryWatch, Reader

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from raylog.api.admin.cluster import Cluster
    from raylog.api.jobs.log_questions import LogQuestions
    from raylog.spark_bridge.reading.descriptor_folder import DescriptorFolder

_BUSY_SECONDS: Final = 0.025
_IDLE_SECONDS: Final = 0.1
_FAILURE_SECONDS: Final = 1.0
_STOP_SECONDS: Final = 30.0
_GROUP_SECONDS: Final = 5.0
_BROKERS_SECONDS: Final = 30.0
_KEPT: Final = 10  # descriptors behind the newest that is done with, for people who look

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class SourceProgress:
    """The progress of a source. Offsets are those of the next record."""

    source: str
    committed: Mapping[TopicPartition, int]  # by the query
    planned: Mapping[TopicPartition, int]
    latest: Mapping[TopicPartition, int]
    last_error: str  # of what is tried again; empty: the last try was good

    @property
    def behind(self) -> dict[TopicPartition, int]:
        """Offsets between what the query has committed and the latest."""
        return {place: max(0, end - self.committed.get(place, 0)) for place, end in self.latest.items()}


class StreamPlanner:
    """The planner of one source. Its thread plans; `step`, and what else is public, may be called from any."""

    def __init__(
        self,
        spark: SparkSession,
        folder: DescriptorFolder,
        questions: LogQuestions,
        options: ReadOptions,
        checkpoint: str,
        handle: Cluster | None,
    ) -> None:
        self.run = uuid.uuid4().hex
        self.folder = folder
        self.options = options
        self._spark = spark
        self._questions = questions
        self._checkpoint = checkpoint
        self._handle = handle
        self._lock = threading.RLock()
        self._end = threading.Event()
        self._is_to_end = False  # what is planned is all that a query that ends is to read
        self._failure: RaylogError | None = None  # it cannot go on
        self._is_untold = False  # no descriptor tells of the failure
        self._number = NOTHING
        self._done = NOTHING
        self._told = NOTHING  # to the group
        self._uncounted = 0
        self._cursors: dict[int, Cursor] = {}
        self._ends: Mapping[TopicPartition, Position] = {}
        self._planned_at = self._found_at = time.monotonic()
        self._last_error = ""
        self._query = QueryWatch(spark, folder.path)
        self._thread = threading.Thread(target=self._turn, name="raylog planner", daemon=True)

    # --- beginning and ending -------------------------------------------------------------------------------------

    def begin(self) -> None:
        """Begin to plan. Raises what `settle` raises."""
        self.settle()
        self._thread.start()

    def settle(self) -> None:
        """Take over what was planned before, or settle where the stream starts.

        CheckpointOfOther, CheckpointDamaged, CheckpointInUse, UnknownTopic, InvalidSparkOptions.
        """
        numbers = self.folder.numbers()
        if numbers:
            newest = self.folder.read(numbers[-1])
            self._check_ours(newest)
            self._number = newest.number
            self._cursors[newest.number] = newest.step.cursor
            self._oldest = numbers[0]
        else:
            self._oldest = 0
            self._write(Step((), (), self._first_cursor()))

    def stop(self) -> None:
        self._end.set()
        if self._thread.is_alive() and self._thread is not threading.current_thread():
            self._thread.join(_STOP_SECONDS)

    def _check_ours(self, found: Descriptor) -> None:
        reads = self.options.subscription.describe()
        cluster = self._questions.access.cluster_id
        if (found.cluster_id, found.reads) != (cluster, reads):
            belongs_to = f"{found.reads} of cluster {found.cluster_id}"
            raise CheckpointOfOther(self.folder.path, belongs_to, f"{reads} of cluster {cluster}")

    def _first_cursor(self) -> Cursor:
        ids = self._questions.topics(self.options.subscription)
        begins = starts(self.options, ids, self._questions.offsets)
        return {place: Position(ids[place], offset) for place, offset in begins.items()}

    # --- what the sink says ---------------------------------------------------------------------------------------

    def plan_to_end(self) -> None:
        """All there is now; and nothing that comes later, until a query is started that does not end by itself."""
        with self._lock:
            self._check_goes_on()
            ends = self._look()
            while (step := self._next(ends, float("inf"))) is not None:
                self._write(step)
            self._is_to_end = True

    def batch_committed(self, batch_id: int) -> None:
        """Hear of a committed batch from a sink, which knows before Spark does, while the query still runs, and also
        for its last batch.

        What ended the planning: then there will be no other batch.
        """
        with self._lock:
            self._check_goes_on()
            reader = self._see()
            if reader is not None:
                number = min(reader.taken + self._uncounted, self._number)
                _log.debug("Batch %d has committed file %d of %s.", batch_id, number, self.folder.path)
                self._tell_group(number)

    def _tell_group(self, number: int) -> None:
        """Let the group's offsets say how far the query is. That fails no batch: the checkpoint is what counts."""
        group = self.options.group_id
        with self._lock:
            if group is None or self._handle is None or number <= self._told:
                return
            offsets = {(place.topic, place.partition): at.offset for place, at in self._cursor(number).items()}
            try:
                self._handle.alter_group_offsets(group, offsets, timeout=_GROUP_SECONDS)
            except RaylogError as error:
                _log.warning("The offsets of group %r do not say how far the query is: %s", group, error)
            self._told = number

    def progress(self) -> SourceProgress:
        """Return the progress; raises what ended the planning."""
        with self._lock:
            self._check_goes_on()
            self._see()
            committed = self._cursor(self._done) if self._done != NOTHING else {}
            return SourceProgress(
                self.options.source_name,
                {place: at.offset for place, at in committed.items()},
                {place: at.offset for place, at in self._cursors[self._number].items()},
                {place: at.offset for place, at in self._look().items()},
                self._last_error,
            )

    # --- planning -------------------------------------------------------------------------------------------------

    def step(self) -> bool:
        """Whether something was planned, or may be within moments."""
        with self._lock:
            if self._failure is not None:
                return False
            reader = self._see(self._query.glance)
            if reader is None or (self._is_to_end and reader.is_finite):
                return False
            self._is_to_end = False
            self._check_reader(reader)
            self._tell_group(self._done)
            if self._done < self._number:
                return True
            self._forget_old()
            waited = 1000 * (time.monotonic() - self._planned_at)
            planned = self._next(self._look(), waited)
            if planned is not None:
                if time.monotonic() - self._found_at > _BROKERS_SECONDS:
                    self._find_brokers_again()
                self._write(planned)
            return planned is not None

    def _see(self, look: Callable[[str], Reader | None] | None = None) -> Reader | None:
        """Spark's count is that of the files, but for a query that has once taken several for one batch (`once`)."""
        with self._lock:
            reader = (look or self._query.look)(file_name(self._number))
            if reader is not None:
                if reader.has_all:
                    self._uncounted = self._number - reader.done
                self._done = max(self._done, reader.done + self._uncounted)
            return reader

    def _check_reader(self, reader: Reader) -> None:
        """Files and the query's count of them belong together only within the one checkpoint."""
        if not self.folder.path.startswith(reader.checkpoint.rstrip("/") + "/"):
            raise CheckpointOfOther(self.folder.path, f"the checkpoint {self._checkpoint}", reader.checkpoint)

    def _look(self) -> Mapping[TopicPartition, Position]:
        ids = self._topics()
        if self._misses(ids):
            self._questions.hear_others()
            ids = self._topics()
        offsets = self._questions.offsets(dict.fromkeys(ids, LATEST))
        self._ends = {place: Position(ids[place], offset) for place, offset in offsets.items()}
        return self._ends

    def _topics(self) -> Mapping[TopicPartition, bytes]:
        return self._questions.topics(self.options.subscription, all_of_them=False)

    def _misses(self, ids: Mapping[TopicPartition, bytes]) -> bool:
        """Whether something that was read is not there, or is another topic."""
        return any(ids.get(place) != at.topic_id for place, at in self._cursors[self._number].items())

    def _next(self, ends: Mapping[TopicPartition, Position], waited_ms: float) -> Step | None:
        cursor = self._cursors[self._number]
        begins = self._questions.offsets(dict.fromkeys(unknown_places(cursor, ends), EARLIEST))
        return advance(cursor, ends, begins, self.options, waited_ms)

    def _write(self, step: Step, failure: tuple[str, str] = ("", "")) -> None:
        number = self._number + 1
        access, reads = self._questions.access, self.options.subscription.describe()
        self.folder.create(Descriptor(number, access.cluster_id, reads, step, access.brokers, failure))
        self._number = number
        self._cursors[number] = step.cursor
        self._planned_at = time.monotonic()

    def _cursor(self, number: int) -> Cursor:
        if number not in self._cursors:
            self._cursors[number] = self.folder.read(number).step.cursor
        return self._cursors[number]

    def _forget_old(self) -> None:
        """Forget what Spark is done with and never reads again; a few steps stay for people."""
        while self._oldest < self._done - _KEPT:
            self.folder.delete(self._oldest)
            self._cursors.pop(self._oldest, None)
            self._oldest += 1

    # --- the thread -----------------------------------------------------------------------------------------------

    def _turn(self) -> None:
        while not self._end.is_set():
            try:
                pause = _BUSY_SECONDS if self.step() else _IDLE_SECONDS
                self._last_error = ""
                self.end_query_untold()
            except Exception as error:  # noqa: BLE001  it is told to the query, and ends it
                if self._end.is_set() or not self._goes_on_after(error):
                    return
                pause = _FAILURE_SECONDS
            self._end.wait(pause)

    def _goes_on_after(self, error: Exception) -> bool:
        if self._is_gone():
            return False
        if self._failure is not None:
            _log.warning("%s: the query could not be told why it cannot go on: %s", self.folder.path, error)
            return True
        self._last_error = str(error)
        if isinstance(error, RaylogError) and error.retriable:
            _log.warning("%s: nothing is planned for now: %s", self.folder.path, error)
            self._find_brokers_again()
            return True
        _log.error("%s: the stream cannot go on: %s", self.folder.path, error, exc_info=error)
        self._fail(error)
        return self._is_untold

    def _find_brokers_again(self) -> None:
        """Tasks know them only from here, and brokers that are started again have other addresses."""
        self._found_at = time.monotonic()
        try:
            self._questions.find_again()
        except RaylogError as error:
            _log.warning("%s: no brokers are found: %s", self.folder.path, error)

    def _fail(self, error: Exception) -> None:
        """Let a task say it. Where another driver has the next number, or nothing can be written, none can."""
        with self._lock:
            reason = f"{type(error).__name__}: {error}"
            self._failure = error if isinstance(error, RaylogError) else StreamFailed(reason)
            try:
                if isinstance(error, CheckpointInUse):
                    raise error
                self._write(Step((), (), self._cursors[self._number]), (self.run, reason))
            except Exception as untold:  # noqa: BLE001  the query is told all the same
                _log.error("%s: the query is ended: %s", self.folder.path, untold)
                self._is_untold = True

    def end_query_untold(self) -> None:
        """End the query that reads this, if it cannot go on and no task will say so."""
        if self._failure is not None and self._is_untold:
            reader = self._see()
            if reader is not None:
                self._query.fail(reader, f"{type(self._failure).__name__}: {self._failure}")

    def _check_goes_on(self) -> None:
        """A planner that was replaced has no say any more."""
        if self._failure is not None and not self._end.is_set():
            raise self._failure

    def _is_gone(self) -> bool:
        """Whether Spark was stopped: then there is nobody to plan for."""
        from pyspark import SparkContext

        return SparkContext._active_spark_context is not self._spark.sparkContext

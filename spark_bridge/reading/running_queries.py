"""Progress of Spark's queries with a source, as Spark itself knows it; and ending one with a reason."""

from __future__ import annotations

import json
import re
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING: Final = -1
_LATER: Final = 2**62  # than any file: so that only the name counts
_TRUSTED_SECONDS: Final = 0.25
_FAILED: Final = "STREAM_FAILED"  # Spark's class of errors that end queries
_DIES_OF: Final = "streamDeathCause_$eq"  # Scala's name of what sets it
_FINITE: Final = ("AvailableNowTrigger", "OneTimeTrigger")


@dataclass(frozen=True)
class Reader:
    """A query that reads a source. Spark counts how often it has taken files: once a batch, mostly one file."""

    query: Any
    checkpoint: str
    taken: int  # by that count, as of the batch that is under way
    done: int  # and of the last one that was committed
    has_all: bool  # the newest file is among those that were taken, and all of them are committed
    is_finite: bool = False  # it ends with what was there when it began


class QueryWatch:
    """An eye on the query that reads the files of one folder.

    Looking asks Java some twenty times, which takes it and Python 5 ms. Most looks would find what the one before has
    found: nothing is done with before a batch ends, and Spark counts those.
    """

    def __init__(self, spark: SparkSession, folder: str) -> None:
        self._spark = spark
        self._folder = folder
        self._execution: Any = None
        self._source: Any = None
        self._is_finite = False
        self._seen_at: tuple[int, str, float] = (NOTHING, "", 0.0)  # batch, newest file, when
        self._seen: Reader | None = None

    def glance(self, newest: str) -> Reader | None:
        """Do what `look` does; but the result may be of any time since the last batch ended, or a quarter of a second
        old.
        """
        batch, name, at = self._seen_at
        if self._seen is not None and name == newest and time.monotonic() < at + _TRUSTED_SECONDS:
            execution = self._execution
            if execution.isActive() and int(execution.currentBatchId()) == batch:
                return self._seen
        return self.look(newest)

    def look(self, newest: str) -> Reader | None:
        """The query, of which this is the newest file; None: none runs, or has looked for files yet.

        Whether a file was taken is asked first. Spark takes it and counts in one go, behind a lock that asking for the
        count waits for; so a count that is committed, asked for later, is with that file.
        """
        self._seen = None
        if self._execution is None or not self._execution.isActive():
            self._find()
        if self._execution is not None:
            execution, source = self._execution, self._source
            self._seen_at = (int(execution.currentBatchId()), newest, time.monotonic())
            was_taken = self._has_taken(newest)
            count = int(source.currentLogOffset())
            taken = _offset(execution.availableOffsets(), source)
            done = _offset(execution.committedOffsets(), source)
            has_all = was_taken and done == count
            checkpoint = execution.resolvedCheckpointRoot()
            self._seen = Reader(execution, checkpoint, taken, done, has_all, self._is_finite)
        return self._seen

    def fail(self, reader: Reader, reason: str) -> None:
        """End this query as one that has failed: `awaitTermination` raises the reason, and `exception` tells it.

        Returns when it has ended: not while anybody waits for what the caller holds.
        """
        try:
            getattr(reader.query, _DIES_OF)(self._death(reader.query, reason))
        finally:
            reader.query.stop()

    def _death(self, query: Any, reason: str) -> Any:
        """Return the exception that Spark would have caught, had it been raised on the query's own thread."""
        jvm: Any = self._spark._jvm
        told = jvm.java.util.HashMap()
        for name, value in (("id", query.id()), ("runId", query.runId()), ("message", reason)):
            told.put(name, str(value))
        spark = jvm.org.apache.spark
        parameters = spark.api.python.PythonUtils.toScalaMap(told)
        cause = jvm.java.lang.IllegalStateException(reason)
        return spark.sql.streaming.StreamingQueryException("", reason, cause, "", "", _FAILED, parameters)

    def _find(self) -> None:
        self._execution = self._source = None
        manager: Any = self._spark._jsparkSession.streams()
        for query in manager.active():
            execution = query.streamingQuery()
            source = next((each for each in _items(execution.sources()) if _reads(each, self._folder)), None)
            if source is not None:
                self._execution, self._source = execution, source
                self._is_finite = execution.trigger().toString() in _FINITE
                return

    def _has_taken(self, name: str) -> bool:
        jvm: Any = self._spark._jvm
        path = jvm.org.apache.spark.paths.SparkPath.fromPath(jvm.org.apache.hadoop.fs.Path(f"{self._folder}/{name}"))
        return not self._source.seenFiles().isNewFile(path, _LATER)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _reads(source: Any, folder: str) -> bool:
    return folder in re.findall(r"\[(.*)\]", source.toString())


def _offset(offsets: Any, source: Any) -> int:
    found = offsets.get(source)
    return int(json.loads(found.get().json())["logOffset"]) if found.isDefined() else NOTHING

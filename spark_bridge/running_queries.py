"""How far Spark's queries have got with a source, as Spark itself knows it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING: Final = -1


_LATER: Final = 2**62  # than any file: so that only the name counts


@dataclass(frozen=True)
class Reader:
    """A query that reads a source. Spark counts how often it has taken files: once a batch, mostly one file."""

    query: Any
    checkpoint: str
    taken: int  # by that count, as of the batch that is under way
    done: int  # and of the last one that was committed
    has_all: bool  # the newest file is among those that were taken, and all of them are committed


def reader_of(spark: SparkSession, folder: str, newest: str) -> Reader | None:
    """The query that reads the files of this folder, of which this is the newest; None: none runs, or has looked yet.

    Whether a file was taken is asked first. Spark takes it and counts in one go, behind a lock that asking for the
    count waits for; so a count that is committed, asked for later, is with that file.
    """
    manager: Any = spark._jsparkSession.streams()
    for query in manager.active():
        execution = query.streamingQuery() if hasattr(query, "streamingQuery") else query
        source = next((each for each in _items(execution.sources()) if _reads(each, folder)), None)
        if source is not None:
            was_taken = _has_taken(spark, source, f"{folder}/{newest}")
            count = int(source.currentLogOffset())
            taken = _offset(execution.availableOffsets(), source)
            done = _offset(execution.committedOffsets(), source)
            return Reader(query, execution.resolvedCheckpointRoot(), taken, done, was_taken and done == count)
    return None


def _has_taken(spark: SparkSession, source: Any, path: str) -> bool:
    jvm: Any = spark._jvm
    named = jvm.org.apache.spark.paths.SparkPath.fromPath(jvm.org.apache.hadoop.fs.Path(path))
    return not source.seenFiles().isNewFile(named, _LATER)


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _reads(source: Any, folder: str) -> bool:
    return folder in re.findall(r"\[(.*)\]", source.toString())


def _offset(offsets: Any, source: Any) -> int:
    found = offsets.get(source)
    return int(json.loads(found.get().json())["logOffset"]) if found.isDefined() else NOTHING

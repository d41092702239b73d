"""How far Spark's queries have got with a source, as Spark itself knows it."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOTHING: Final = -1


@dataclass(frozen=True)
class Reader:
    """A query that reads a source: which of its files it has taken, and which it is done with."""

    query: Any
    checkpoint: str
    taken: int
    done: int


def reader_of(spark: SparkSession, folder: str) -> Reader | None:
    """The query that reads the files of this folder; None: none runs, or has looked there yet.

    Spark numbers the files it takes. With one a batch, those numbers are the files' own.
    """
    manager: Any = spark._jsparkSession.streams()
    for query in manager.active():
        execution = query.streamingQuery() if hasattr(query, "streamingQuery") else query
        sources = [source for source in _items(execution.sources()) if _reads(source, folder)]
        if sources:
            taken = _offset(execution.availableOffsets(), sources[0])
            done = _offset(execution.committedOffsets(), sources[0])
            return Reader(query, execution.resolvedCheckpointRoot(), taken, done)
    return None


def _items(sequence: Any) -> list[Any]:
    return [sequence.apply(index) for index in range(sequence.size())]


def _reads(source: Any, folder: str) -> bool:
    return folder in re.findall(r"\[(.*)\]", source.toString())


def _offset(offsets: Any, source: Any) -> int:
    found = offsets.get(source)
    return int(json.loads(found.get().json())["logOffset"]) if found.isDefined() else NOTHING

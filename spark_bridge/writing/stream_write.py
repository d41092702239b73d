"""`spark_bridge.write_stream`: a streaming DataFrame into topics, each micro-batch once.

    query starts ─► first batch: the driver takes over the family that has the query's id ─► its tasks write ─► commit
    driver dies  ─► Spark repeats the batch that it has not written down as done ─► its number is committed already,
                    or what the dead driver's tasks have left is aborted, and it is written again

What must stay true:
- The query's id, which is kept in its checkpoint, names the family, and the batch's number is committed with the
  batch. So a batch counts once, whoever repeats it, and a driver that was replaced commits nothing more.
- A batch that is repeated after it was committed is computed all the same, into nothing: Spark's state and watermark
  come out as if it had been written now.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from raylog.api.families.transaction_family import TransactionFamily
from raylog.errors import InvalidConfig, ResultNotReady, TransactionAborted
from raylog.spark_bridge.reading.checkpoint_files import choose_file_manager
from raylog.spark_bridge.reading.stream_sources import sources_of
from raylog.spark_bridge.writing.family_write import Sink

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

    from raylog.api.admin.cluster import Cluster

_TRIGGERS: Final = ("processingTime", "availableNow", "once")
_DEFAULT_TRIGGER: Final = {"processingTime": "500 milliseconds"}  # without one, an idle query lists files all the time
_START_SECONDS: Final = 120.0
_TRIES: Final = 3
_NO_BROADCAST: Final = "spark.sql.autoBroadcastJoinThreshold"

_log = logging.getLogger(__name__)


def write_stream(
    frame: DataFrame,
    topic: str | None = None,
    *,
    checkpointLocation: str,  # noqa: N803 (Spark's names)
    trigger: Mapping[str, Any] | None = None,
    queryName: str | None = None,  # noqa: N803
    outputMode: str = "append",  # noqa: N803
    cluster: Cluster | str | None = None,
    **options: object,
) -> StreamingQuery:
    """Start a query that writes each micro-batch in one transaction, exactly once.

        query = spark_bridge.write_stream(frame, topic="counts", checkpointLocation=path,
                                          trigger={"availableNow": True}, outputMode="update")
        query.awaitTermination()

    Columns and options are those of `write`. `trigger`: processingTime (by default half a second) or availableNow.
    After any crash it goes on from the checkpoint; a driver that was replaced is fenced (FamilyFenced in
    `query.exception()`). FrameNotWritable, UnknownSparkOption, InvalidConfig, UnknownTopic: nothing was started.
    """
    if not frame.isStreaming:
        raise InvalidConfig("frame", "a batch DataFrame", "a streaming one; `write` takes the others")
    chosen = _checked(trigger)
    sink = Sink.parse(topic, cluster, options)
    sink.columns(frame)
    if "processingTime" not in chosen:
        for source in sources_of(checkpointLocation):
            source.plan_to_end()
    stream = _StreamSink(sink, checkpointLocation)
    writer = frame.writeStream.outputMode(outputMode).option("checkpointLocation", checkpointLocation)
    if queryName is not None:
        writer = writer.queryName(queryName)
    choose_file_manager(frame.sparkSession, checkpointLocation)
    with _without_broadcasts(frame.sparkSession):
        query = writer.trigger(**chosen).foreachBatch(stream.write).start()
    stream.started(query)
    return query


class _StreamSink:
    """The sink of one query, from its start to its end."""

    def __init__(self, sink: Sink, checkpoint: str) -> None:
        self._sink = sink
        self._checkpoint = checkpoint
        self._name: str | None = None
        self._is_named = threading.Event()
        self._family: TransactionFamily | None = None

    def started(self, query: StreamingQuery) -> None:
        self._name = query.id
        self._is_named.set()
        threading.Thread(target=self._close_after, args=(query,), name="raylog sink", daemon=True).start()

    def write(self, frame: DataFrame, batch: int) -> None:
        """Write a batch, on Spark's thread, one after the other."""
        family = self._taken_over()
        if batch <= family.last_batch:
            _log.info("Batch %d of %r was committed before.", batch, family.name)
            frame.write.format("noop").mode("overwrite").save()
        else:
            self._write(frame, family, batch)
        for source in sources_of(self._checkpoint):
            source.batch_committed(batch)

    def _write(self, frame: DataFrame, family: TransactionFamily, batch: int) -> None:
        for attempt in range(1, _TRIES + 1):
            try:
                self._sink.write(frame, family, batch)
                return
            except TransactionAborted as error:
                if attempt == _TRIES:
                    raise
                _log.warning("Batch %d of %r is written again: %s", batch, family.name, error)

    def _taken_over(self) -> TransactionFamily:
        """Take the family over with the first batch, since before that a query has no id."""
        if self._family is None:
            if not self._is_named.wait(_START_SECONDS):
                raise ResultNotReady("The start of the query", round(_START_SECONDS * 1000))
            assert self._name is not None
            self._family = self._sink.family(self._name, None)
        return self._family

    def _close_after(self, query: StreamingQuery) -> None:
        try:
            query.awaitTermination()
        except Exception as error:  # noqa: BLE001  whoever holds the query is told
            _log.debug("The query %s has ended: %s", self._name, error)
        finally:
            if self._family is not None:
                self._family.close()


def _checked(trigger: Mapping[str, Any] | None) -> dict[str, Any]:
    chosen = dict(trigger or _DEFAULT_TRIGGER)
    if len(chosen) != 1 or next(iter(chosen)) not in _TRIGGERS:
        raise InvalidConfig("trigger", trigger, "one of " + ", ".join(_TRIGGERS) + ", with its value")
    return chosen


@contextmanager
def _without_broadcasts(spark: SparkSession) -> Iterator[None]:
    """A query keeps the settings that its session has when it starts. Spark would judge a topic by the few bytes that
    describe it, and send it whole to every task of a join."""
    before = str(spark.conf.get(_NO_BROADCAST))
    spark.conf.set(_NO_BROADCAST, "-1")
    try:
        yield
    finally:
        spark.conf.set(_NO_BROADCAST, before)

"""`spark_bridge.read_stream`: a streaming DataFrame of what topics hold and will hold.

    stream_planner ──descriptors──► files ──Spark's file source, one a batch──► lines ──► tasks: `range_reader` ──► rows

Spark 3.5 has no streaming source in Python; so its own source of text files is given files that name ranges of offsets.
What must stay true: what a line says never changes, so a batch that Spark repeats reads the same records.
"""

from __future__ import annotations

import json
import logging
import re
import socket
import threading
import uuid
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlparse

from raylog.api.jobs.rules.offset_ranges import OffsetRange
from raylog.errors import CheckpointNotShared, InvalidConfig, SparkDataLoss, StreamFailed
from raylog.spark_bridge.reading.batch_read import reading
from raylog.spark_bridge.reading.checkpoint_files import choose_file_manager
from raylog.spark_bridge.reading.rules.read_options import ReadOptions
from raylog.spark_bridge.reading.rules.stream_plan import brokers_of
from raylog.spark_bridge.reading.stream_planner import SourceProgress, StreamPlanner
from raylog.spark_bridge.reading.stream_sources import add_source

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from raylog.api.admin.cluster import Cluster
    from raylog.api.jobs.range_reader import RangeReading

_FOLDER: Final = "raylog-sources"
_NAME: Final = re.compile(r"[A-Za-z0-9_-]{1,100}")
# The log of a file source is folded together after so many batches, and holds a line per file for ever.
_COMPACT: Final = ("spark.sql.streaming.fileSource.log.compactInterval", "100")
# Spark would judge a topic by the few bytes that describe it, and send it whole to every task of a join.
_NO_BROADCAST: Final = ("spark.sql.autoBroadcastJoinThreshold", "-1")

_log = logging.getLogger(__name__)
_planners: dict[str, StreamPlanner] = {}
_lock = threading.Lock()


def read_stream(
    spark: SparkSession,
    *,
    checkpointLocation: str,  # noqa: N803 (Spark's names)
    cluster: Cluster | str | None = None,
    **options: object,
) -> DataFrame:
    """Records of topics as a stream, with the columns and the options of Spark's Kafka source.

        frame = spark_bridge.read_stream(spark, subscribe="clicks", startingOffsets="earliest", checkpointLocation=path)

    The query has to be started with the same `checkpointLocation`. Two sources of one query need a `sourceName` each.
    Broadcast joins are turned off for the session. UnknownSparkOption, InvalidSparkOptions, InvalidConfig,
    UnknownTopic, CheckpointOfOther, CheckpointDamaged, CheckpointNotShared, and what `raylog.connect` raises. The
    query fails with SparkDataLoss, RangeNotRead, StreamFailed or CheckpointInUse.
    """
    from raylog.api.jobs.log_questions import LogQuestions
    from raylog.spark_bridge.reading.descriptor_folder import DescriptorFolder

    chosen = ReadOptions.of_stream(options)
    if not _NAME.fullmatch(chosen.source_name):
        raise InvalidConfig("sourceName", chosen.source_name, "letters, digits, _ and -")
    handle = _handle(cluster) if chosen.group_id is not None else None
    questions = LogQuestions(handle or cluster, chosen.reads_committed)
    choose_file_manager(spark, checkpointLocation)
    folder = DescriptorFolder(spark, f"{checkpointLocation.rstrip('/')}/{_FOLDER}/{chosen.source_name}")
    _check_is_shared(spark, folder.path)
    planner = StreamPlanner(spark, folder, questions, chosen, checkpointLocation, handle)
    with _lock:
        _make_way(folder.path, chosen)
        planner.begin()
        _planners[folder.path] = planner
    add_source(checkpointLocation, planner)
    for name, value in (_COMPACT, _NO_BROADCAST):
        spark.conf.set(name, value)
    tasks = max(chosen.min_partitions or 1, spark.sparkContext.defaultParallelism)
    lines = spark.readStream.format("text").option("maxFilesPerTrigger", 1).load(folder.path).repartition(tasks)
    how = reading(chosen, questions.access)
    return _rows_of(lines, how, planner.run)


def plan_to_end(frame: DataFrame) -> None:
    """Plan all that is there now. To be called before a query of this frame is started that ends with that
    (`availableNow`).

    `write_stream` does so by itself. StreamFailed, or what else has ended the planning.
    """
    for planner in _planners_of(frame):
        planner.plan_to_end()


def stream_progress(frame: DataFrame) -> list[SourceProgress]:
    """Return how far each source of a streaming DataFrame is, and how far behind the latest offsets.

    What cannot go on is raised: CheckpointInUse, where another driver has taken over, StreamFailed, ….
    """
    return [planner.progress() for planner in _planners_of(frame)]


def stop_planners() -> None:
    """Stop the planners of all sources of this process."""
    with _lock:
        planners = list(_planners.values())
        _planners.clear()
    for planner in planners:
        planner.stop()


def _planners_of(frame: DataFrame) -> list[StreamPlanner]:
    """A streaming DataFrame says where it comes from only by the folders in its plan."""
    plan = frame._jdf.queryExecution().analyzed().toString()
    return [planner for path, planner in sorted(_planners.items()) if path in plan]


def _make_way(path: str, options: ReadOptions) -> None:
    """A source that is read anew, after its query has ended, gets a new planner. InvalidSparkOptions."""
    before = _planners.pop(path, None)
    if before is None:
        return
    before.stop()
    if before.options.subscription != options.subscription:
        _log.info("%s was read by this process for %s.", path, before.options.subscription.describe())


def _handle(cluster: Cluster | str | None) -> Cluster:
    from raylog.api.admin.formation import connect

    if cluster is None or isinstance(cluster, str):
        return connect() if cluster is None else connect(cluster)
    return cluster


# --- what tasks run ---------------------------------------------------------------------------------------------------


def _rows_of(lines: DataFrame, how: RangeReading, run: str) -> DataFrame:
    from raylog.spark_bridge.reading.rules.spark_columns import spark_schema

    return lines.mapInArrow(_StreamExpansion(how, run), spark_schema(how.includes_headers))


@dataclass(frozen=True)
class _StreamExpansion:
    """The work of a task: from lines of descriptors to rows."""

    how: RangeReading
    run: str

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for line in batch.column(0).to_pylist():
                yield from self._expanded(json.loads(line))

    def _expanded(self, told: dict[str, Any]) -> Iterator[pa.RecordBatch]:
        if "topic" in told:
            yield from self.how.told_of(brokers_of(told["brokers"])).rows(OffsetRange.of(told))
        elif "lost" in told and self.how.fails_on_data_loss:
            raise SparkDataLoss(told["lost"], told["reason"])
        elif "lost" in told:
            _log.warning("%s: records were lost: %s", told["lost"], told["reason"])
        elif told.get("run") == self.run:
            raise StreamFailed(told["failed"])


# --- the folder -------------------------------------------------------------------------------------------------------


def _check_is_shared(spark: SparkSession, path: str) -> None:
    """Raise CheckpointNotShared where executors on other hosts do not see what the driver writes to a folder of its
    disk.

    Other file systems are the same everywhere. Tasks are spread over all executors; one that cannot see the file says
    so, and is not tried again somewhere else.
    """
    context: Any = spark.sparkContext
    executors = _names(context._jsc.sc().getExecutorMemoryStatus().keys())
    if not path.startswith("file:") or len({name.rpartition(":")[0] for name in executors}) < 2:
        return
    probe = Path(f"{urlparse(path).path}-probe-{uuid.uuid4().hex}")
    probe.write_text("Executors look whether they see this.")
    try:
        tasks = 4 * len(executors)
        answers = context.parallelize(range(tasks), tasks).map(partial(_look_for, str(probe))).collect()
    finally:
        probe.unlink()
    blind = sorted({host for host, sees in answers if not sees})
    if blind:
        raise CheckpointNotShared(path, f"what the driver has written there is not to be seen on {', '.join(blind)}")


def _look_for(path: str, _: int) -> tuple[str, bool]:
    """Return, in a Python worker, its host, and whether there is such a file."""
    return socket.gethostname(), Path(path).exists()


def _names(keys: Any) -> list[str]:
    """Return the names of Spark's executors and its driver: host:port."""
    iterator, found = keys.iterator(), []
    while iterator.hasNext():
        found.append(iterator.next())
    return found



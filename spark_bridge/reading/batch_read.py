"""`spark_bridge.read`: a batch DataFrame of what topics hold.

    driver: offsets ──► ranges ──one line each──► tasks: `range_reader` ──► rows

What must stay true: the offsets are fixed when `read` returns, so whatever is computed twice of the DataFrame is of the
same records.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING, Any

from raylog.api.jobs.rules.offset_ranges import OffsetRange, split
from raylog.errors import SparkDataLoss
from raylog.spark_bridge.reading.rules.read_bounds import ranges
from raylog.spark_bridge.reading.rules.read_options import ReadOptions

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from raylog.actors.machine.cluster_access import ClusterAccess
    from raylog.api.admin.cluster import Cluster
    from raylog.api.jobs.range_reader import RangeReading

LINE = "value"  # the column of the lines, as Spark's text source calls it


def read(spark: SparkSession, *, cluster: Cluster | str | None = None, **options: object) -> DataFrame:
    """Records of topics, with the columns and the options of Spark's Kafka source.

        frame = spark_bridge.read(spark, subscribe="clicks", startingOffsets="earliest", endingOffsets="latest")

    Columns: key, value, topic, partition, offset, timestamp, timestampType, and headers with includeHeaders.
    UnknownSparkOption, InvalidSparkOptions, InvalidConfig, UnknownTopic, SparkDataLoss, and what `raylog.connect`
    raises. Tasks raise SparkDataLoss and RangeNotRead.
    """
    from raylog.api.jobs.log_questions import LogQuestions

    chosen = ReadOptions.of_batch(options)
    questions = LogQuestions(cluster, chosen.reads_committed)
    planned = ranges(chosen, questions.topics(chosen.subscription), questions.offsets)
    pieces = split(planned, chosen.min_partitions)
    return rows_of(_lines(spark, pieces), reading(chosen, questions.access))


def reading(options: ReadOptions, access: ClusterAccess) -> RangeReading:
    from raylog.api.jobs.range_reader import RangeReading

    return RangeReading(
        access, options.reads_committed, options.fails_on_data_loss, options.includes_headers, SparkDataLoss
    )


def rows_of(lines: DataFrame, how: RangeReading) -> DataFrame:
    """The records of the ranges in these lines."""
    from raylog.spark_bridge.reading.rules.spark_columns import spark_schema

    return lines.mapInArrow(_Expansion(how), spark_schema(how.includes_headers))


class _Expansion:
    """The work of a task: from lines to rows."""

    def __init__(self, how: RangeReading) -> None:
        self._how = how

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        for batch in batches:
            for line in batch.column(0).to_pylist():
                yield from self._how.rows(OffsetRange.of(json.loads(line)))


def _lines(spark: SparkSession, pieces: list[OffsetRange]) -> DataFrame:
    """One task each.

    Made of an RDD of Python's, of which Spark does not know the size: it takes it for large, and does not send the
    records of a topic to every task of a join because the lines are short.
    """
    from pyspark.sql import DataFrame

    context: Any = spark.sparkContext
    rdd = context.parallelize([(piece.to_line(),) for piece in pieces], max(1, len(pieces)))
    rows = context._jvm.SerDeUtil.toJavaArray(rdd._to_java_object_rdd())
    schema = f'{{"type":"struct","fields":[{{"name":"{LINE}","type":"string","nullable":false,"metadata":{{}}}}]}}'
    session: Any = spark._jsparkSession
    return DataFrame(session.applySchemaToPythonRDD(rows.rdd(), schema), spark)

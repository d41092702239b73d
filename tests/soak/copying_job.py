"""A driver that copies one topic to another with Spark until it is killed. It writes down the pids of its executors."""

from __future__ import annotations

import sys
from pathlib import Path

from raylog import spark_bridge
from tests.spark.processes import executor_pids


def main(source: str, sink: str, checkpoint: str, executors: str) -> None:
    spark = spark_bridge.session("copying", executor_memory="512m", configs={"spark.ui.enabled": False})
    Path(executors).write_text(" ".join(map(str, executor_pids(spark))))
    frame = spark_bridge.read_stream(
        spark, subscribe=source, startingOffsets="earliest", maxOffsetsPerTrigger=5000, checkpointLocation=checkpoint
    )
    query = spark_bridge.write_stream(
        frame.select("key", "value"), topic=sink, checkpointLocation=checkpoint, trigger={"processingTime": "0 seconds"}
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:])

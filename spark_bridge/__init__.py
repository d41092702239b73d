"""Spark on Ray reads and writes the log. Needs the extra: pip install raylog[spark]

    from raylog import spark_bridge

    spark = spark_bridge.session("job", executors=2)
    frame = spark_bridge.read(spark, subscribe="clicks", startingOffsets="earliest")
    spark_bridge.stop(spark)

Names are looked up on first use, so that importing this brings neither Spark nor Ray. No module here may have a
public name: importing it would put it in that name's place.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from raylog.lazy_names import lazy_names

if TYPE_CHECKING:
    from raylog.spark_bridge.reading.batch_read import read
    from raylog.spark_bridge.reading.stream_planner import SourceProgress
    from raylog.spark_bridge.reading.stream_read import plan_to_end, read_stream, stream_progress
    from raylog.spark_bridge.sessions.spark_session import session, stop
    from raylog.spark_bridge.writing.batch_write import write
    from raylog.spark_bridge.writing.stream_write import write_stream

__all__ = [
    "SourceProgress",
    "plan_to_end",
    "read",
    "read_stream",
    "session",
    "stop",
    "stream_progress",
    "write",
    "write_stream",
]

_HOMES = {
    "SourceProgress": "raylog.spark_bridge.reading.stream_planner",
    "plan_to_end": "raylog.spark_bridge.reading.stream_read",
    "read": "raylog.spark_bridge.reading.batch_read",
    "read_stream": "raylog.spark_bridge.reading.stream_read",
    "session": "raylog.spark_bridge.sessions.spark_session",
    "stop": "raylog.spark_bridge.sessions.spark_session",
    "stream_progress": "raylog.spark_bridge.reading.stream_read",
    "write": "raylog.spark_bridge.writing.batch_write",
    "write_stream": "raylog.spark_bridge.writing.stream_write",
}

if not TYPE_CHECKING:
    __getattr__, __dir__ = lazy_names(globals(), _HOMES)

"""A cluster, and Spark, on this machine, in a folder that is removed again. Your programs call `raylog.connect()`."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import raylog
from raylog import spark_bridge
from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@contextmanager
def small_cluster(*, kafka: str | None = None) -> Iterator[tuple[Cluster, Path]]:
    """Three brokers, and a folder for whatever the example keeps. `kafka`: where Kafka clients are served."""
    folder = Path(tempfile.mkdtemp(prefix="raylog-"))
    cluster = raylog.start(folder / "data", brokers=3, kafka=kafka)
    try:
        yield cluster, folder
    finally:
        cluster.shutdown()
        shutil.rmtree(folder, ignore_errors=True)


def eventually(expected: object, read: Callable[[], object], seconds: float = 60.0) -> bool:
    """Read until it is `expected`: on a busy machine a reader may hear of nothing for a while, or of half of it."""
    until = time.monotonic() + seconds
    while read() != expected:
        if time.monotonic() > until:
            return False
        time.sleep(0.2)
    return True


@contextmanager
def small_spark(name: str, executors: int = 1) -> Iterator[SparkSession]:
    spark = spark_bridge.session(name, executors=executors, executor_memory="512m")
    try:
        yield spark
    finally:
        spark_bridge.stop(spark)

"""The processes behind Spark's executors and raylog's replicas, to be killed."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


def executor_pids(spark: SparkSession) -> list[int]:
    """Return the executors that have run one of some tasks."""
    context = spark.sparkContext
    return sorted(set(context.parallelize(range(16), 16).map(_java_of_worker).collect()))


def kill_leader(cluster: Cluster, topic: str, partition: int) -> None:
    [leader] = [
        each.pid for each in cluster.describe_replicas(topic) if each.partition == partition and each.role == "leader"
    ]
    os.kill(leader, signal.SIGKILL)


def _java_of_worker(_: int) -> int:
    """A Python worker is a child of a daemon, which is a child of the executor."""
    return int(Path(f"/proc/{os.getppid()}/stat").read_text().rsplit(")", 1)[1].split()[1])

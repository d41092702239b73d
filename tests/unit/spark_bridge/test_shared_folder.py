"""Whether executors on other hosts see a checkpoint's folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.errors import CheckpointNotShared
from raylog.spark_bridge.reading import stream_read


class Keys:
    """Of a map of Java's."""

    def __init__(self, names: list[str]) -> None:
        self._names = names

    def iterator(self) -> Any:
        left = list(self._names)
        return SimpleNamespace(hasNext=lambda: bool(left), next=lambda: left.pop(0))


class Tasks:
    def __init__(self, numbers: range, ran: list[int]) -> None:
        self._numbers, self._ran = numbers, ran

    def map(self, task: Callable[[int], Any]) -> Any:
        self._ran.extend(self._numbers)
        return SimpleNamespace(collect=lambda: [task(number) for number in self._numbers])


def spark_on(*executors: str) -> Any:
    ran: list[int] = []
    status = SimpleNamespace(getExecutorMemoryStatus=lambda: SimpleNamespace(keys=lambda: Keys(list(executors))))
    context = SimpleNamespace(
        _jsc=SimpleNamespace(sc=lambda: status), parallelize=lambda numbers, _: Tasks(numbers, ran), ran=ran
    )
    return SimpleNamespace(sparkContext=context)


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[str]:
    (tmp_path / "source").mkdir()
    yield f"file:{tmp_path}/source"
    assert [each.name for each in tmp_path.iterdir()] == ["source"]  # the probe is gone


def test_on_one_host_there_is_nothing_to_look_for(folder: str) -> None:
    spark = spark_on("10.0.0.1:1", "10.0.0.1:2")
    stream_read._check_is_shared(spark, folder)
    assert spark.sparkContext.ran == []


def test_other_file_systems_are_the_same_everywhere() -> None:
    spark = spark_on("10.0.0.1:1", "10.0.0.2:2")
    stream_read._check_is_shared(spark, "hdfs://name/source")
    assert spark.sparkContext.ran == []


def test_each_executor_looks_for_a_file_that_the_driver_has_written(folder: str) -> None:
    spark = spark_on("10.0.0.1:1", "10.0.0.2:2")
    stream_read._check_is_shared(spark, folder)
    assert len(spark.sparkContext.ran) == 8


def test_one_that_does_not_see_it_is_named(folder: str, monkeypatch: pytest.MonkeyPatch) -> None:
    answers = {0: ("here", True), 1: ("elsewhere", False)}
    monkeypatch.setattr(stream_read, "_look_for", lambda path, number: answers[number % 2])
    with pytest.raises(CheckpointNotShared, match="not to be seen on elsewhere"):
        stream_read._check_is_shared(spark_on("10.0.0.1:1", "10.0.0.2:2"), folder)

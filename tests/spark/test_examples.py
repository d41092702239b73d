"""The pipelines of `examples/`, as programs on this process's cluster and Spark; then what they do when they go on.

That they bring a cluster of their own is tried in `tests/cluster/test_examples.py`, a Spark of its own by `make demo`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from examples import change_table, click_counts, drain_backlog
from examples.small_cluster import eventually
from raylog.api.admin.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)

Program = Callable[[ModuleType], set[str]]


@pytest.fixture
def program(
    cluster: Cluster,
    spark: SparkSession,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> Program:
    """Runs one, and returns the lines that it prints; there may be others, of Ray's."""

    @contextmanager
    def ours() -> Iterator[tuple[Cluster, Path]]:
        yield cluster, tmp_path

    @contextmanager
    def our_spark(*_: Any, **__: Any) -> Iterator[SparkSession]:
        yield spark

    def run(module: ModuleType) -> set[str]:
        monkeypatch.setattr(module, "small_cluster", ours)
        monkeypatch.setattr(module, "small_spark", our_spark)
        capsys.readouterr()
        module.main(replicas=1)
        return set(capsys.readouterr().out.splitlines())

    return run


def test_clicks_become_counts_across_two_runs(
    program: Program, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    assert "counts are right" in program(click_counts)
    expected = click_counts.read_counts(cluster)
    assert sum(expected.values()) == 1000
    for name, count in click_counts.click(cluster, 1000, 400).items():
        expected[name] = expected.get(name, 0) + count
    assert click_counts.count_clicks(spark, tmp_path / "checkpoint", availableNow=True).awaitTermination(90)
    assert eventually(expected, lambda: click_counts.read_counts(cluster))


def test_a_table_follows_the_changes_of_its_rows(
    program: Program, cluster: Cluster, spark: SparkSession, tmp_path: Path
) -> None:
    assert "87 customers, and the table is right" in program(change_table)
    expected = change_table.change_rows(cluster, 0, 600)  # which are all customers again
    query = change_table.apply_changes(spark, tmp_path / "customers.sqlite", tmp_path / "checkpoint")
    assert eventually(expected, lambda: change_table.read_table(tmp_path / "customers.sqlite"))
    query.stop()


def test_a_backlog_is_drained_once(program: Program) -> None:
    assert program(drain_backlog) >= {
        "19000 orders were billed by the temporary job",
        "the invoices of 20100 orders are right",
    }

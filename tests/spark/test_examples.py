"""The pipelines of `examples/`, in this process's cluster and Spark, with their faults."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from examples import change_table, click_counts, drain_backlog, unique_key_consumer
from raylog.api.cluster import Cluster

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)


def eventually(expected: object, read: Callable[[], object], seconds: float = 60.0) -> None:
    """On a busy machine a reader may hear of nothing for longer than the examples wait."""
    until = time.monotonic() + seconds
    while (found := read()) != expected and time.monotonic() < until:
        pass
    assert found == expected


def test_a_payment_is_booked_once_although_its_consumer_crashed(cluster: Cluster, tmp_path: Path) -> None:
    expected = unique_key_consumer.pay(cluster, 300, replicas=1)
    path = tmp_path / "ledger.sqlite"
    assert unique_key_consumer.book_all(cluster, path, 300, commits=False) == (300, 0)
    assert unique_key_consumer.book_all(cluster, path, 300) == (0, 300)
    assert unique_key_consumer.balances(path) == expected


def test_clicks_become_counts_across_two_runs(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    click_counts.make_topics(cluster, replicas=1)
    expected: dict[str, int] = {}
    for first in (0, 400):
        for name, count in click_counts.click(cluster, first, 400).items():
            expected[name] = expected.get(name, 0) + count
        assert click_counts.count_clicks(spark, tmp_path / "checkpoint", availableNow=True).awaitTermination(90)
    eventually(expected, lambda: click_counts.read_counts(cluster))


def test_a_table_follows_the_changes_of_its_rows(cluster: Cluster, spark: SparkSession, tmp_path: Path) -> None:
    cluster.create_topic(change_table.CHANGES, partitions=3, replication_factor=1)
    expected = change_table.change_rows(cluster, 0, 500)
    table, checkpoint = tmp_path / "customers.sqlite", tmp_path / "checkpoint"
    query = change_table.apply_changes(spark, table, checkpoint)
    assert change_table.wait_for_table(table, expected)
    query.stop()
    expected = change_table.change_rows(cluster, 0, 600)
    query = change_table.apply_changes(spark, table, checkpoint)
    assert change_table.wait_for_table(table, expected)
    query.stop()


def test_a_backlog_is_drained_once(cluster: Cluster, spark: SparkSession) -> None:
    drain_backlog.make_topics(cluster, replicas=1)
    drain_backlog.order(cluster, 0, 2000)
    drain_backlog.bill_some(cluster, 300)
    assert drain_backlog.drain(cluster, spark) == 1700
    drain_backlog.order(cluster, 2000, 100)
    drain_backlog.bill_some(cluster, 100)
    expected = sorted(b"invoice for order %d" % each for each in range(2100))
    eventually(expected, lambda: drain_backlog.read_invoices(cluster))

"""`raylog.data.stream` on a real cluster: each record's result once, whichever driver dies."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path
from random import Random
from typing import Any

import pytest

import raylog
from raylog.api.data.topic_sink import TopicSink
from raylog.api.data.topic_stream import TopicBatch
from raylog.errors import (
    FamilyFenced,
    InvalidConfig,
    InvalidTransactionState,
    RecordsLost,
    RowNotWritable,
    UnknownGroup,
    UnknownTopic,
)
from tests.data.stream_kills import KilledStream
from tests.data.streaming_driver import copy_all

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]

ENDS: dict[str, Any] = {"max_wait_ms": 50, "idle_timeout_ms": 500}


def fill(topic: str, count: int, first: int = 0) -> None:
    with raylog.Producer() as producer:
        producer.send_many(topic, [b"%d" % number for number in range(first, first + count)]).result(30)


def values(topic: str) -> Counter[bytes]:
    found = raylog.data.read(topic, columns=["value"], override_num_blocks=2)
    return Counter(row["value"] for row in found.take_all())


def numbers(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


def test_batches_are_bounded_and_a_group_goes_on_where_it_has_committed(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-steps", partitions=2)
    fill("data-steps", 250)
    with raylog.data.stream("data-steps", group_id="steps", max_rows=100, **ENDS) as batches:
        first, second = next(batches), next(batches)
        assert (first.dataset.count(), first.behind) == (100, 150)
        first.commit()
        with pytest.raises(InvalidTransactionState):
            first.commit()
    read = Counter(row["value"] for row in first.dataset.take_all())
    assert cluster.list_group_offsets("steps").keys() == first.offsets.keys()
    with raylog.data.stream("data-steps", group_id="steps", max_rows=100, prefetch=False, **ENDS) as batches:
        assert next(batches).ranges == second.ranges, "what was not committed is read again"
    with raylog.data.stream("data-steps", group_id="steps", max_rows=100, **ENDS) as batches:
        for batch in batches:
            read += Counter(row["value"] for row in batch.dataset.take_all())
            batch.commit()
    assert read == numbers(250)
    assert cluster.describe_group("steps").lag == 0


def test_results_and_offsets_are_committed_together_or_not_at_all(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-orders", partitions=2)
    cluster.create_topic("data-bills")
    fill("data-orders", 100)
    bills = raylog.data.sink("data-bills")
    with raylog.data.stream("data-orders", group_id="bills", max_rows=60, **ENDS) as batches:
        batch = next(batches)
        for good, error in ((False, RowNotWritable), (True, KeyError)):
            with pytest.raises(error):
                fail_after_a_write(batch, bills, good)
            assert values("data-bills") == Counter()
    with pytest.raises(UnknownGroup):
        cluster.list_group_offsets("bills")
    assert copy_all("data-orders", "data-bills", "bills", max_rows=60, **ENDS) == 100
    assert values("data-bills") == numbers(100)


def fail_after_a_write(batch: TopicBatch, sink: TopicSink, later_rows_are_good: bool) -> None:
    with batch.transaction(sink) as out:
        out.write(batch.dataset)
        if later_rows_are_good:
            raise KeyError("of the program")
        out.write(batch.dataset.map(lambda _: {"value": {"x": float("nan")}}))


def test_a_driver_that_was_replaced_commits_nothing(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-source", partitions=2)
    cluster.create_topic("data-result")
    fill("data-source", 200)
    sink = raylog.data.sink("data-result")
    with raylog.data.stream("data-source", group_id="replaced", max_rows=100, **ENDS) as old:
        batch = next(old)
        transaction = batch.transaction(sink)
        transaction.__enter__()
        transaction.write(batch.dataset)
        assert copy_all("data-source", "data-result", "replaced", max_rows=100, **ENDS) == 200
        with pytest.raises(FamilyFenced):
            transaction.__exit__(None, None, None)
    assert values("data-result") == numbers(200)


def test_killed_drivers_and_workers_copy_each_record_once(
    cluster: raylog.Cluster, process_ray: Path, tmp_path: Path
) -> None:
    import ray

    cluster.create_topic("data-in", partitions=2)
    cluster.create_topic("data-out", partitions=2)
    fill("data-in", 600)
    address = ray.get_runtime_context().gcs_address
    arguments = [sys.executable, "-m", "tests.data.streaming_driver", address, "data-in", "data-out", str(tmp_path)]
    for number in range(2):
        driver = subprocess.Popen([*arguments, str(number)], stdout=subprocess.PIPE, text=True)
        assert driver.stdout is not None
        assert "written, not committed\n" in driver.stdout  # Ray has lines of its own about the killed worker
        os.kill(driver.pid, signal.SIGKILL)
        driver.communicate(timeout=20)
    assert 0 < values("data-out").total() < 600, "the first driver has committed a batch before it was killed"
    assert copy_all("data-in", "data-out", "copies", max_rows=200, **ENDS) > 0
    assert values("data-out") == numbers(600)
    assert (tmp_path / "killed").exists(), "a worker was killed"


@pytest.mark.timeout(300)
def test_a_stream_at_work_copies_each_record_once_while_its_parts_are_killed(
    cluster: raylog.Cluster, tmp_path: Path
) -> None:
    """The long form is a soak test."""
    with KilledStream(cluster, Random(5), tmp_path, "data-events", "data-copies") as stream:
        stream.run(kills=4)
        stream.check()


def test_new_partitions_and_later_records_are_read(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-late")
    seen: Counter[Any] = Counter()
    with raylog.data.stream("data-late", group_id="late", max_wait_ms=0, idle_timeout_ms=1_000) as batches:
        fill("data-late", 10)
        seen += Counter(row["value"] for row in next(batches).dataset.take_all())
        cluster.create_partitions("data-late", 2)
        with raylog.Producer() as producer:
            producer.send("data-late", b"10", partition=1).result(30)
        last = next(batches)
        seen += Counter(row["value"] for row in last.dataset.take_all())
        last.commit()
        committed = {place: each.offset for place, each in cluster.list_group_offsets("late").items()}
        assert committed == last.offsets == {("data-late", 0): 10, ("data-late", 1): 1}, "it implies all before"
        began = time.monotonic()
        assert next(batches, None) is None
        assert time.monotonic() - began < 30
    assert seen == numbers(11)


def test_deleted_topics_end_the_stream(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-gone")
    fill("data-gone", 10)
    with raylog.data.stream("data-gone", group_id="gone", prefetch=False, **ENDS) as batches:
        next(batches)
        cluster.delete_topic("data-gone")
        cluster.create_topic("data-gone")
        with pytest.raises((RecordsLost, UnknownTopic)):
            list(batches)


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topics": "nobody"}, UnknownTopic),
        ({"group_id": ""}, InvalidConfig),
        ({"max_rows": 0}, InvalidConfig),
        ({"max_wait_ms": -1}, InvalidConfig),
        ({"idle_timeout_ms": 1.5}, InvalidConfig),
        ({"start": "soon"}, InvalidConfig),
    ],
)
def test_wrong_arguments_are_refused(cluster: raylog.Cluster, wrong: dict[str, Any], error: type[Exception]) -> None:
    if "data-wrong" not in cluster.list_topics():
        cluster.create_topic("data-wrong")
    with pytest.raises(error):
        raylog.data.stream(**{"topics": "data-wrong", "group_id": "wrong", **wrong})

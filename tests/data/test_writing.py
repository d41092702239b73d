"""`raylog.data.write` on a real cluster: all rows or none, whatever happens to tasks."""

from __future__ import annotations

import os
import signal
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import raylog
from raylog.errors import (
    DatasetNotWritable,
    InvalidConfig,
    RecordTooLarge,
    RowNotWritable,
    UnknownConfig,
    UnknownPartition,
    UnknownTopic,
)

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore")]


def rows(count: int, blocks: int = 3) -> Any:
    import ray.data

    return ray.data.range(count, override_num_blocks=blocks).map(
        lambda row: {"key": f"k{row['id'] % 10}", "value": b"%d" % row["id"], "id": row["id"]}
    )


def values(topic: str, isolation: Any = "read_committed") -> Counter[Any]:
    found = raylog.data.read(topic, columns=["value"], isolation=isolation, override_num_blocks=2)
    return Counter(row["value"] for row in found.take_all())


def numbers(count: int) -> Counter[bytes]:
    return Counter(b"%d" % number for number in range(count))


def test_a_dataset_comes_back_as_it_was(cluster: raylog.Cluster) -> None:
    import pyarrow as pa

    cluster.create_topic("data-written", partitions=3)
    count = raylog.data.write(rows(1_000), "data-written", key="key", value=["key", "id"], compression_type="lz4")
    fields = raylog.data.Json(pa.schema([("key", pa.string()), ("id", pa.int64())]))
    found = raylog.data.read("data-written", schema=fields, columns=["key", "id", "partition"]).take_all()
    assert count == len(found) == 1_000
    assert sorted(row["id"] for row in found) == list(range(1_000))
    assert all(row["key"] == f"k{row['id'] % 10}" for row in found)
    partitions = {(row["key"], row["partition"]) for row in found}
    assert len(partitions) == 10, "a key has one partition"
    with raylog.Producer() as producer:
        assert ("k3", producer.send("data-written", b"", key=b"k3").result(30).partition) in partitions


def test_what_was_read_can_be_written(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-original", partitions=2)
    cluster.create_topic("data-copy", partitions=2)
    with raylog.Producer() as producer:
        for number in range(100):
            value = None if number == 7 else b"%d" % number
            producer.send("data-original", value, key=b"k%d" % number, headers=[("n", b"%d" % number)])
    columns = ["key", "value", "partition", "headers"]
    original = raylog.data.read("data-original", columns=columns)
    raylog.data.write(original, "data-copy", key="key", partition="partition", headers="headers")
    copy = raylog.data.read("data-copy", columns=columns)
    assert sorted(map(repr, copy.take_all())) == sorted(map(repr, original.take_all()))


def test_frames_of_pandas_are_written_too(cluster: raylog.Cluster) -> None:
    import pandas as pd
    import ray.data

    cluster.create_topic("data-pandas")
    frame = pd.DataFrame({"value": [b"a", b"b", None], "number": [1.5, 2.0, 3.0]})
    assert raylog.data.write(ray.data.from_pandas(frame), "data-pandas") == 3
    assert values("data-pandas") == Counter([b"a", b"b", None])
    assert raylog.data.write(ray.data.from_pandas(frame.head(0)), "data-pandas") == 0


def test_rows_that_the_writing_task_makes_itself_are_written(cluster: raylog.Cluster) -> None:
    import ray.data

    cluster.create_topic("data-made")
    numbers_only = ray.data.range(50, override_num_blocks=2).materialize()
    made = numbers_only.map_batches(lambda batch: {"value": [b"%d" % each for each in batch["id"]]})
    assert raylog.data.write(made, "data-made") == 50
    assert values("data-made") == numbers(50)


def test_killed_tasks_write_each_row_once(
    cluster: raylog.Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import ray.data

    cluster.create_topic("data-killed", partitions=2)
    monkeypatch.setattr(ray.data.DataContext.get_current(), "target_max_block_size", 500)  # tasks write many blocks
    mark = str(tmp_path / "mark-")

    def die_once(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
        """Hand on the rows; in the middle of each task die, the first time, when they are in the log."""
        yield batch
        (middle,) = [number for number in batch["id"] if number % 100 == 50] or [None]
        if middle is not None and not Path(f"{mark}{middle}").exists():
            Path(f"{mark}{middle}").touch()
            time.sleep(0.5)
            os.kill(os.getpid(), signal.SIGKILL)

    dataset = rows(300).map_batches(die_once, batch_size=None)
    assert raylog.data.write(dataset, "data-killed", linger_ms=0) == 300
    assert values("data-killed") == numbers(300)
    assert len(list(tmp_path.iterdir())) == 3, "each of the three tasks was killed"
    written = raylog.data.read("data-killed", isolation="read_uncommitted", columns=["offset"]).count()
    assert written > 300, "what killed tasks had written is in the log"


def test_without_exactly_once_each_row_is_there(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-plain", partitions=2)
    assert raylog.data.write(rows(500), "data-plain", exactly_once=False) == 500
    assert values("data-plain", "read_uncommitted") == numbers(500)


def test_of_a_write_that_fails_nothing_is_seen(cluster: raylog.Cluster) -> None:
    cluster.create_topic("data-failed")
    last_fails = rows(100).map(lambda row: {"value": {"x": float("nan") if row["id"] == 99 else 1.0}})
    with pytest.raises(RowNotWritable, match="cannot become a JSON object"):
        raylog.data.write(last_fails, "data-failed")
    elsewhere = rows(10).map(lambda row: {**row, "partition": 0 if row["id"] < 9 else 5})
    with pytest.raises(UnknownPartition):
        raylog.data.write(elsewhere, "data-failed", partition="partition")
    large = rows(10).map(lambda row: {"value": b"x" * (3_000_000 if row["id"] == 9 else 1)})
    with pytest.raises(RecordTooLarge):
        raylog.data.write(large, "data-failed")
    assert values("data-failed") == Counter()
    raylog.data.write(rows(10), "data-failed")
    assert values("data-failed") == numbers(10), "what failed keeps nobody waiting"


@pytest.mark.parametrize(
    ("wrong", "error"),
    [
        ({"topic": "nobody"}, UnknownTopic),
        ({"dataset": [1, 2]}, InvalidConfig),
        ({"value": []}, InvalidConfig),
        ({"key": 7}, InvalidConfig),
        ({"compression": "lz4"}, UnknownConfig),
        ({"compression_type": "rar"}, InvalidConfig),
        ({"value": "valeu"}, DatasetNotWritable),
        ({"value": "id"}, DatasetNotWritable),
        ({"key": "id"}, DatasetNotWritable),
        ({"partition": "key"}, DatasetNotWritable),
        ({"headers": "key"}, DatasetNotWritable),
    ],
)
def test_wrong_arguments_are_refused(cluster: raylog.Cluster, wrong: dict[str, Any], error: type[Exception]) -> None:
    if "data-refused" not in cluster.list_topics():
        cluster.create_topic("data-refused")
    with pytest.raises(error):
        raylog.data.write(**{"dataset": rows(4, blocks=1), "topic": "data-refused", **wrong})
    assert not values("data-refused", "read_uncommitted")

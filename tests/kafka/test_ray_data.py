"""Ray Data's own connector for Kafka writes and reads a topic."""

from __future__ import annotations

from pathlib import Path

import pytest

import raylog

pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")
pytest.importorskip("pyarrow", reason="the extra `arrow` is not installed")

# Ray Data warns of settings of its own when it is imported.
pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120), pytest.mark.filterwarnings("ignore::DeprecationWarning")]


def test_a_dataset_goes_through_a_topic(process_ray: Path, cluster: raylog.Cluster, bootstrap: str) -> None:
    import ray.data

    if not hasattr(ray.data, "read_kafka"):
        pytest.skip("this version of Ray has no connector for Kafka")
    topic = "dataset"
    cluster.create_topic(topic, partitions=2)
    rows = [{"number": number} for number in range(500)]
    ray.data.from_items(rows, override_num_blocks=2).write_kafka(topic, bootstrap)
    read = ray.data.read_kafka(topic, bootstrap_servers=bootstrap, timeout_ms=20_000)
    found = read.take_all()
    assert {(each["partition"], each["offset"]) for each in found} == places(cluster, topic)
    assert sorted(each["value"] for each in found) == sorted(b'{"number": %d}' % number for number in range(500))


def places(cluster: raylog.Cluster, topic: str) -> set[tuple[int, int]]:
    return {
        (each.partition, offset)
        for each in cluster.describe_topic(topic).partitions
        for offset in range(each.high_watermark)
    }

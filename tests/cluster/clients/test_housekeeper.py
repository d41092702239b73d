"""A broker's housekeeper comes when a log is to be compacted."""

from __future__ import annotations

import os

import pytest
import ray

import raylog
from tests.cluster.conftest import until

pytestmark = pytest.mark.cluster

_ROUNDS = 200
_SETTINGS = {"cleanup.policy": "compact", "segment.bytes": "20000", "min.cleanable.dirty.ratio": "0.1"}


def housekeepers() -> set[str]:
    """The names of those that live."""
    names = (each["name"] for each in ray.util.list_named_actors(all_namespaces=True))
    return {name for name in names if name.startswith("housekeeper-")}


def test_it_comes_when_a_log_is_to_be_compacted(cluster: raylog.Cluster) -> None:
    cluster.create_topic("compacted", partitions=1, config=_SETTINGS)
    with raylog.Producer(cluster=cluster) as producer:
        for number in range(_ROUNDS):
            producer.send("compacted", os.urandom(900), key=b"key-%d" % (number % 4))
            if number % 10 == 0:
                producer.flush()
    until(lambda: size(cluster) > _ROUNDS * 900)
    before = size(cluster)
    until(lambda: size(cluster) < before / 2, 100.0)
    assert housekeepers()


def size(cluster: raylog.Cluster) -> int:
    return max(each.size_bytes for each in cluster.describe_replicas("compacted"))

"""Assignors of a user's on a real cluster: allowed by name, in processes of their own, and harmless to others."""

from __future__ import annotations

import time
from collections.abc import Iterator

import pytest

import raylog
from raylog.errors import UnknownAssignor
from tests.cluster.support import foreign_assignors

pytestmark = pytest.mark.cluster

_NAMES = [f"{foreign_assignors.__name__}.{each}" for each in ("first_takes_all", "leaves", "never_ends")]
_GOOD, _LEAVES, _NEVER_ENDS = _NAMES


@pytest.fixture
def topic(cluster: raylog.Cluster) -> Iterator[str]:
    cluster.create_topic("assigned", partitions=4)
    with raylog.Producer(cluster=cluster) as producer:
        for partition in range(4):
            producer.send("assigned", b"v", partition=partition).result(timeout=30)
    yield "assigned"
    cluster.alter_cluster_config({"group.assignors": None})
    cluster.delete_topic("assigned")


def _read(cluster: raylog.Cluster, topic: str, group: str, assignor: str, count: int) -> int:
    """Return how many records a new member reads; it ends when it has `count`."""
    found = 0
    with raylog.Consumer(
        cluster=cluster, group_id=group, auto_offset_reset="earliest", group_remote_assignor=assignor,
        enable_auto_commit=False,
    ) as consumer:  # fmt: skip
        consumer.subscribe([topic])
        deadline = time.monotonic() + 60.0
        while found < count and time.monotonic() < deadline:
            found += sum(map(len, consumer.poll(timeout_ms=500).values()))
    return found


def _problem(cluster: raylog.Cluster, topic: str, group: str, assignor: str) -> str:
    """Return why a group that has a member has no assignment."""
    with raylog.Consumer(cluster=cluster, group_id=group, group_remote_assignor=assignor) as consumer:
        consumer.subscribe([topic])
        deadline = time.monotonic() + 40.0
        while time.monotonic() < deadline:
            assert not consumer.poll(timeout_ms=500)
            if problem := cluster.describe_group(group).problem:
                return problem
    return ""


@pytest.mark.timeout(300)
def test_foreign_assignors_are_allowed_by_name_and_do_no_harm(cluster: raylog.Cluster, topic: str) -> None:
    with pytest.raises(UnknownAssignor):
        _read(cluster, topic, "mine", _GOOD, 4)
    cluster.alter_cluster_config({"group.assignors": ",".join(_NAMES)})
    assert cluster.describe_cluster_config()["group.assignors"] == ",".join(sorted(_NAMES))
    deadline = time.monotonic() + 60.0
    while True:  # the coordinators begin anew
        try:
            assert _read(cluster, topic, "mine", _GOOD, 4) == 4
            break
        except UnknownAssignor:
            assert time.monotonic() < deadline
            time.sleep(0.2)
    assert "SystemExit: I am gone" in _problem(cluster, topic, "theirs", _LEAVES)
    assert "took more than 5 s" in _problem(cluster, topic, "stuck", _NEVER_ENDS)
    assert _read(cluster, topic, "others", "range", 4) == 4
    assert _read(cluster, topic, "mine again", _GOOD, 4) == 4
    with pytest.raises(UnknownAssignor):
        _read(cluster, topic, "more", "unittest.main", 4)

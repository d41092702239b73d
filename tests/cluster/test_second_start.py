"""A start that cannot succeed says why, ends what it made, and takes nothing from a cluster that runs."""

from __future__ import annotations

import fcntl
import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

import raylog
from raylog.actors.machine.socket_directory import socket_directory
from raylog.actors.on_ray.runtime.nodes import living_nodes
from raylog.api.admin.cluster_shutdown import actor_names
from raylog.errors import BrokersNotAdded, BrokerWasRemoved, ClusterRunsAlready, DirectoryLocked
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("process_ray")]


def sockets_of(cluster_id: str) -> dict[str, int]:
    """Name each socket of the cluster with its inode, which tells when another process put its own there."""
    folder = Path(socket_directory(cluster_id, living_nodes()[0].host))
    return {each.name: each.stat().st_ino for each in folder.iterdir()}


@contextmanager
def locked(directory: Path) -> Iterator[None]:
    """Hold the lock, as another process would."""
    fd = os.open(directory / ".lock", os.O_RDWR)
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    try:
        yield
    finally:
        os.close(fd)


def one_record(cluster: raylog.Cluster, group: str) -> list[bytes]:
    with raylog.Consumer("clicks", cluster=cluster, group_id=group, auto_offset_reset="earliest") as consumer:
        polled = consumer.poll(30_000)
        consumer.commit()
        return [record.value for records in polled.values() for record in records]


@pytest.mark.timeout(240)
def test_a_second_name_takes_nothing_from_a_running_cluster(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=3, cluster="first")
    cluster.create_topic("clicks", replication_factor=3)
    with raylog.Producer(cluster=cluster) as producer:
        producer.send("clicks", b"click").result(30)
    assert one_record(cluster, "before") == [b"click"]
    sockets = sockets_of(cluster.cluster_id)

    began = time.monotonic()
    with pytest.raises(ClusterRunsAlready, match=r"as 'second'.*broker-0.*runs as 'first'"):
        raylog.start(tmp_path, brokers=3, cluster="second")
    assert time.monotonic() - began < 1.0 + 4.0  # beside a load; a controller that is made takes longer
    assert actor_names("second") == []
    now = sockets_of(cluster.cluster_id)
    assert sockets.items() <= now.items()
    # The first cluster still makes its spare hosts. What the second would have made first is a controller.
    assert [name for name in now.keys() - sockets.keys() if not name.startswith("host-")] == []

    assert one_record(cluster, "after") == [b"click"]
    cluster.shutdown()
    assert sockets_of(cluster.cluster_id) == {}


@pytest.mark.timeout(240)
def test_a_broker_that_cannot_come_up_is_named_and_nothing_is_left(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=3, cluster="locked")
    cluster.create_topic("clicks", replication_factor=3)
    cluster.shutdown()
    with locked(tmp_path / "broker-1"), pytest.raises(DirectoryLocked, match="broker-1"):
        raylog.start(tmp_path, cluster="locked")
    assert actor_names("locked") == []

    again = raylog.start(tmp_path, cluster="locked")
    described = again.describe_cluster()  # at once: start returns when all is there
    assert [each.alive for each in described.brokers] == [True, True, True]
    assert described.offline == 0
    again.shutdown()


@pytest.mark.timeout(240)
def test_a_start_does_not_hang_for_a_partition_whose_only_copy_is_away(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = raylog.start(tmp_path, brokers=2, cluster="halved")
    cluster.create_topic("clicks", assignment=[[0], [1]])
    cluster.shutdown()
    (tmp_path / "broker-1").rename(tmp_path / "away")
    again = raylog.start(tmp_path, cluster="halved")
    assert "clicks-1 (what was acknowledged is on broker 1" in caplog.text
    assert [each.leader for each in again.describe_topic("clicks").partitions] == [0, -1]
    until(lambda: [each.alive for each in again.describe_cluster().brokers] == [True, False])
    again.shutdown()


def directories_of(cluster: raylog.Cluster) -> dict[int, str]:
    return {each.broker: each.directory for each in cluster.describe_cluster().brokers}


@pytest.mark.timeout(240)
def test_a_start_with_another_folder_adds_no_brokers_unless_it_is_told_to(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path / "data", brokers=2, cluster="adding")
    with pytest.raises(BrokersNotAdded, match=r"'adding' runs.*/data\. .*/other would.*add_brokers=True"):
        raylog.start(tmp_path / "other", brokers=3, cluster="adding")
    assert sorted(directories_of(cluster)) == [0, 1]
    assert not (tmp_path / "other").exists()

    raylog.start(tmp_path / "other", cluster="adding", add_brokers=True)
    assert directories_of(cluster)[2] == f"{tmp_path}/other/broker-0"
    raylog.start(tmp_path / "other", cluster="adding")  # it is one of its folders now
    raylog.start(tmp_path / "data", brokers=3, cluster="adding")  # more were asked for, where there are some
    assert directories_of(cluster)[3] == f"{tmp_path}/data/broker-2"
    cluster.shutdown()


@pytest.mark.timeout(240)
def test_a_removed_broker_does_not_come_back_with_its_directory(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    cluster = raylog.start(tmp_path / "data", brokers=3, cluster="removing")
    raylog.start(tmp_path / "other", cluster="removing", add_brokers=True)
    cluster.drain_broker(3)
    cluster.remove_broker(3)
    with pytest.raises(BrokerWasRemoved, match=r"other/broker-0 belonged to broker 3.*delete the directory"):
        raylog.start(tmp_path / "other", cluster="removing")
    (tmp_path / "other" / "broker-0").rename(tmp_path / "data" / "broker-9")
    for _ in range(2):  # the cluster runs, and then it does not
        caplog.clear()
        again = raylog.start(tmp_path / "data", cluster="removing")
        assert "data/broker-9 is left as it is: its broker was removed" in caplog.text
        assert {each.broker: each.alive for each in again.describe_cluster().brokers} == {0: True, 1: True, 2: True}
        again.shutdown()

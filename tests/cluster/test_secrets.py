"""The secrets of a cluster on a real one: changed under load, and drawn anew for an older directory."""

from __future__ import annotations

import threading
import time
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.actors.machine.secret_files import SECRET_FILE, read_secrets
from raylog.actors.protocol.actor_names import CONTROLLER, namespace
from raylog.actors.protocol.cluster_secrets import ClusterSecrets
from raylog.errors import ControllerLost, PeerNotAdmitted, TopicExists
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("process_ray")]

_GRACE = 2.0


def held(data_dir: Path) -> list[ClusterSecrets | None]:
    return [read_secrets(str(each)) for each in sorted(data_dir.glob("broker-*"))]


def values_of(cluster: raylog.Cluster, count: int) -> list[Any]:
    """Return what a consumer finds, once it is so much."""
    values: list[Any] = []
    with raylog.Consumer("clicks", cluster=cluster, auto_offset_reset="earliest") as consumer:
        deadline = time.monotonic() + 60.0
        while len(values) < count and time.monotonic() < deadline:
            values += [each.value for polled in consumer.poll(timeout_ms=500).values() for each in polled]
    return values


def create_once(cluster: raylog.Cluster, topic: str) -> None:
    """Create a topic, whatever becomes of the controller meanwhile."""
    for _ in range(5):
        try:
            cluster.create_topic(topic, timeout=60.0)
        except ControllerLost:
            time.sleep(1.0)
        except TopicExists:
            return
        else:
            return
    raise AssertionError(f"{topic} was not created.")


def test_secrets_change_without_an_error_for_whoever_reaches_ray(tmp_path: Path) -> None:
    name = "rotating"
    cluster = raylog.start(tmp_path, brokers=3, cluster=name)
    cluster.create_topic("clicks", partitions=3, config={"min.insync.replicas": "2"})
    before, former = held(tmp_path), cluster.access()
    assert not former.secrets.internal
    is_over = threading.Event()
    written: list[raylog.RecordMetadata] = []

    def write() -> None:
        with raylog.Producer(cluster=cluster, acks="all") as producer:
            while not is_over.is_set():
                written.append(producer.send("clicks", value=b"v", key=b"%d" % len(written)).result(30.0))

    writing = threading.Thread(target=write)
    writing.start()
    try:
        until(lambda: len(written) > 10)
        cluster.rotate_secrets(grace=_GRACE)
        assert all(each is not None and each.has_previous for each in held(tmp_path))
        assert held(tmp_path) != before
        until(lambda: all(each is not None and not each.has_previous for each in held(tmp_path)))
        time.sleep(6.0)  # in which streams of the former secrets end
        count = len(written)
        until(lambda: len(written) > count + 10)
        controller = ray.get_actor(CONTROLLER, namespace=namespace(name))
        ray.kill(controller, no_restart=False)  # it is told the first secrets again
        create_once(cluster, "views")
    finally:
        is_over.set()
        writing.join(60.0)
    assert len(values_of(cluster, len(written))) == len(written)
    with pytest.raises(PeerNotAdmitted), raylog.Producer(cluster=former) as stranger:
        stranger.send("clicks", value=b"late").result(30.0)
    cluster.shutdown()
    raylog.start(tmp_path, cluster=name).shutdown()


def test_the_one_secret_of_an_older_directory_is_replaced_by_two(tmp_path: Path) -> None:
    name = "older"
    cluster = raylog.start(tmp_path, cluster=name)
    cluster.create_topic("clicks")
    with raylog.Producer(cluster=cluster) as producer:
        producer.send("clicks", value=b"v").result(30.0)
    cluster.shutdown()
    (tmp_path / "broker-0" / SECRET_FILE).write_text("ab" * 32)
    again = raylog.start(tmp_path, cluster=name)
    (found,) = held(tmp_path)
    assert found is not None
    assert bytes.fromhex("ab" * 32) not in (*found.internal, *found.client)
    assert values_of(again, 1) == [b"v"]
    again.shutdown()

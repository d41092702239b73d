"""Transactions on a real cluster: what readers see, a fenced producer, coordinators that are killed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
import ray

import raylog
from raylog.actors.coordinator_state import TRANSACTIONS_TOPIC
from raylog.api.cluster import Cluster
from raylog.errors import ProducerFenced

pytestmark = pytest.mark.cluster
_TOPIC = "accounts"


@pytest.fixture(scope="module")
def cluster(module_ray: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    running = raylog.start(tmp_path_factory.mktemp("transactions"), brokers=3, name="transactions")
    running.create_topic(_TOPIC, partitions=3, replication_factor=3)
    yield running
    running.shutdown()


def read(cluster: Cluster, isolation: str, count: int) -> list[bytes]:
    """Values, sorted, once there are so many and no more come."""
    found: list[bytes] = []
    with raylog.Consumer(_TOPIC, cluster=cluster, auto_offset_reset="earliest", isolation_level=isolation) as consumer:
        until = time.monotonic() + 20
        while len(found) < count and time.monotonic() < until:
            for records in consumer.poll(timeout_ms=500).values():
                found += [each.value or b"" for each in records]
        for records in consumer.poll(timeout_ms=500).values():
            found += [each.value or b"" for each in records]
    return sorted(found)


def write(producer: raylog.Producer, name: str) -> list[bytes]:
    """Into all partitions, in the open transaction."""
    values = [f"{name} {partition}".encode() for partition in range(3)]
    for partition, value in enumerate(values):
        producer.send(_TOPIC, value, partition=partition)
    return values


@pytest.mark.timeout(120)
def test_readers_see_whole_transactions(cluster: Cluster) -> None:
    committed: list[bytes] = []
    written: list[bytes] = []
    with raylog.Producer(cluster=cluster, transactional_id="transfers") as producer:
        producer.init_transactions()
        for number in range(4):
            with producer.transaction():
                committed += write(producer, f"committed {number}")
            producer.begin_transaction()
            written += write(producer, f"aborted {number}")
            producer.flush(20)
            producer.abort_transaction()
        with producer.transaction():
            committed += write(producer, "while its coordinator is killed")
            kill_coordinators()
        producer.begin_transaction()
        written += write(producer, "open")
        producer.flush(20)
        with raylog.Producer(cluster=cluster, transactional_id="transfers") as second:
            second.init_transactions()
            with second.transaction():
                committed += write(second, "of the second")
            with pytest.raises(ProducerFenced) as raised:
                producer.commit_transaction()
            assert raised.value.fatal
    assert read(cluster, "read_committed", len(committed)) == sorted(committed)
    everything = committed + written
    assert read(cluster, "read_uncommitted", len(everything)) == sorted(everything)


def kill_coordinators() -> None:
    prefix = f"coordinator-{TRANSACTIONS_TOPIC}-"
    names = [each for each in ray.util.list_named_actors(all_namespaces=True) if each["name"].startswith(prefix)]
    assert len(names) == 3
    for each in names:
        actor = ray.get_actor(each["name"], namespace=each["namespace"])
        os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0), signal.SIGKILL)

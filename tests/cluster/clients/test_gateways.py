"""The gateways for Kafka clients as processes: kept running beside their brokers, at addresses that are known."""

from __future__ import annotations

import os
import signal
import socket
from pathlib import Path
from typing import Any

import pytest
import ray

import raylog
from raylog.api.admin.cluster_shutdown import actor_names
from raylog.errors import KafkaAddressTaken, KafkaListenersDiffer
from tests.cluster.conftest import until

confluent: Any = pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")
pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]


def kill_gateway(broker_id: int) -> None:
    """SIGKILL for the process of a gateway."""
    actor = ray.get_actor(f"gateway-{broker_id}", namespace="raylog/default")
    os.kill(ray.get(actor.__ray_call__.remote(lambda _: os.getpid()), timeout=20.0), signal.SIGKILL)


def write(addresses: list[str], value: bytes) -> int:
    """Return the offset of the record."""
    producer = confluent.Producer({"bootstrap.servers": ",".join(addresses), "enable.idempotence": True})
    offsets: list[int] = []
    producer.produce("through-gateways", value, on_delivery=lambda _, written: offsets.append(written.offset()))
    assert producer.flush(30) == 0
    return offsets[0]


def test_a_gateway_that_dies_is_made_again(cluster: raylog.Cluster) -> None:
    cluster.create_topic("through-gateways", partitions=1)
    before = cluster.kafka_addresses()
    assert write(before, b"first") == 0
    for broker_id in range(3):
        kill_gateway(broker_id)
    until(lambda: len(set(cluster.kafka_addresses()) - set(before)) == 3)  # port 0: each takes another one
    assert write(cluster.kafka_addresses(), b"second") == 1


def test_a_port_that_is_taken_fails_the_start_and_leaves_nothing(process_ray: Path, tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        address = f"127.0.0.1:{other.getsockname()[1]}"
        with pytest.raises(KafkaAddressTaken, match=f"broker 0 cannot listen at {address}.* in use"):
            raylog.start(tmp_path, brokers=1, cluster="taken", kafka=address)
    assert actor_names("taken") == []


def test_a_cluster_that_runs_keeps_its_listeners(cluster: raylog.Cluster, tmp_path: Path) -> None:
    with pytest.raises(KafkaListenersDiffer, match="and not at 127"):
        raylog.start(tmp_path, kafka="127.0.0.1:1")
    assert len(cluster.describe_cluster().brokers) == 3

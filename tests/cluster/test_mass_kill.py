"""All replicas are killed at once, raylog's own too: nothing is lost, and writes go on before all are back."""

from __future__ import annotations

import os
import signal
import sys
import time
from pathlib import Path

import pytest

import raylog
from raylog.actors.cluster.coordinator_state import COORDINATORS
from raylog.actors.cluster.descriptions import ReplicaDescription
from raylog.actors.protocol.names import COORDINATED_TOPICS
from tests.cluster.conftest import until
from tests.cluster.support.chaos_clients import Clients, longest_silence

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("process_ray")]


def all_replicas(cluster: raylog.Cluster) -> list[ReplicaDescription]:
    return [each for topic in cluster.list_topics(internal=True) for each in cluster.describe_replicas(topic)]


def are_back(cluster: raylog.Cluster, killed: set[int]) -> bool:
    return all(each.in_sync and each.role != "offline" and each.pid not in killed for each in all_replicas(cluster))


@pytest.mark.timeout(300)
def test_writes_go_on_after_all_replicas_were_killed_at_once(tmp_path: Path) -> None:
    cluster = raylog.start(tmp_path, brokers=3, cluster="mass-kill", timeout=90)
    cluster.create_topic("clicks", replication_factor=3, config={"min.insync.replicas": 2}, timeout=90)
    with raylog.Consumer("clicks", cluster=cluster, group_id="g") as consumer:
        consumer.poll(1_000)  # so that there are coordinators, and their topic
    until(lambda: are_back(cluster, set()), 60.0)
    clients = Clients(cluster.access(), "clicks")
    clients.until_acknowledged(5)

    replicas = all_replicas(cluster)
    killed = {each.pid for each in replicas}
    assert len(replicas) == 3 * (1 + len(COORDINATED_TOPICS) * COORDINATORS)
    assert len(killed) == 6  # those of raylog's own topics share a host on each broker
    at = time.monotonic()
    for pid in killed:
        os.kill(pid, signal.SIGKILL)
    clients.until_acknowledged(2)
    times = [acknowledged for acknowledged, _ in clients.writer.acknowledged]
    silence = longest_silence(times, at, time.monotonic())
    until(lambda: are_back(cluster, killed), 120.0)
    whole = time.monotonic() - at

    records = clients.finish()
    assert clients.history.acknowledged.items() <= {value: offset for offset, value in records}.items()
    sys.stderr.write(f"{silence:.1f} s without an acknowledgement; all replicas were back after {whole:.1f} s\n")
    cluster.shutdown()

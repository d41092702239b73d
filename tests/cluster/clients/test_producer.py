"""Producers on a real cluster: leaders that are killed under load, memory, the end of a process, Ctrl-C."""

from __future__ import annotations

import os
import resource
import signal
import subprocess
import time
from pathlib import Path

import pytest

import raylog
from raylog.api.admin.cluster import Cluster
from raylog.config import MIB
from tests.cluster.conftest import StartProgram

pytestmark = pytest.mark.cluster


def read_all(cluster: Cluster, topic: str, count: int) -> dict[int, list[tuple[bytes | None, bytes | None]]]:
    """(key, value) of each partition, once there are so many, or no more come."""
    found: dict[int, list[tuple[bytes | None, bytes | None]]] = {}
    with raylog.Consumer(topic, cluster=cluster, auto_offset_reset="earliest") as consumer:
        quiet = time.monotonic() + 10
        while sum(map(len, found.values())) < count and time.monotonic() < quiet:
            for partition, records in consumer.poll(timeout_ms=500).items():
                found.setdefault(partition.partition, []).extend((each.key, each.value) for each in records)
                quiet = time.monotonic() + 10
        extra = consumer.poll(timeout_ms=500)
        assert not extra, f"more than {count} records are there"
    return found


@pytest.mark.timeout(300)
def test_killed_leaders_lose_repeat_and_reorder_nothing(cluster: Cluster) -> None:
    cluster.create_topic("killed", partitions=2, replication_factor=3)
    sent: list[tuple[bytes, bytes]] = []
    futures = []
    with raylog.Producer(cluster=cluster, batch_size=20_000) as producer:
        for kill in range(3):
            until = time.monotonic() + 2.0
            while time.monotonic() < until:
                for _ in range(100):
                    number = len(sent)
                    sent.append((b"key-%d" % (number % 7), b"%d" % number))
                    futures.append(producer.send("killed", sent[-1][1], sent[-1][0]))
                time.sleep(0.005)
            leader = cluster.describe_topic("killed").partitions[kill % 2].leader
            replicas = [each for each in cluster.describe_replicas("killed") if each.broker == leader]
            os.kill(replicas[kill % len(replicas)].pid, signal.SIGKILL)
        producer.flush(100)
    offsets = [(future.result(0).partition, future.result(0).offset) for future in futures]
    found = read_all(cluster, "killed", len(sent))
    assert sum(map(len, found.values())) == len(sent)
    for record, (partition, offset) in zip(sent, offsets, strict=True):
        assert found[partition][offset] == record
    for records in found.values():
        for key in {key for key, _ in records}:
            numbers = [int(value or b"") for each, value in records if each == key]
            assert numbers == sorted(numbers)


@pytest.mark.timeout(180)
def test_memory_stays_flat_while_a_producer_outruns_the_cluster(cluster: Cluster) -> None:
    cluster.create_topic("outrun", partitions=3, replication_factor=3)
    values = [b"%01000d" % number for number in range(20_000)]
    with raylog.Producer(cluster=cluster, buffer_memory=16 * MIB) as producer:
        producer.send_many("outrun", values).result(60)
        before = most = resident()
        full = 0
        until = time.monotonic() + 10
        while time.monotonic() < until:
            producer.send_many("outrun", values)
            full += producer.metrics()["buffer-available-bytes"] < MIB
            most = max(most, resident())
    assert full > 0, "the cluster was faster"
    assert most - before < 80 * MIB
    cluster.delete_topic("outrun")


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


_CONNECTED = """
import raylog
producer = raylog.Producer(linger_ms={linger})
"""


def test_the_end_of_a_process_delivers_what_it_holds(cluster: Cluster, start_program: StartProgram) -> None:
    cluster.create_topic("ending", partitions=3, replication_factor=3)
    send = "for number in range(5000): producer.send('ending', b'%d' % number, b'%d' % (number % 50))\n"
    program = start_program(_CONNECTED.format(linger=10_000) + send, RAY_ADDRESS=address())
    assert program.wait(60) == 0
    found = read_all(cluster, "ending", 5000)
    assert sorted(int(value or b"") for records in found.values() for _, value in records) == list(range(5000))


def test_ctrl_c_ends_a_wait(cluster: Cluster, start_program: StartProgram) -> None:
    cluster.create_topic("waited", partitions=1, replication_factor=1)
    wait = "future = producer.send('waited', b'v')\nprint('waits', flush=True)\nfuture.result()\n"
    program = start_program(_CONNECTED.format(linger=30_000) + wait, RAY_ADDRESS=address())
    assert program.stdout is not None
    assert program.stdout.readline() == "waits\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    assert finishes(program, 20) != 0
    assert read_all(cluster, "waited", 1) == {0: [(None, b"v")]}, "what was taken is delivered all the same"


def finishes(program: subprocess.Popen[str], seconds: float) -> int:
    began = time.monotonic()
    code = program.wait(60)
    assert time.monotonic() - began < seconds
    return code


def address() -> str:
    import ray

    found: str = ray.get_runtime_context().gcs_address
    return found

"""Consumers on a real cluster: leaders that are killed while they read, files of the same node, memory, Ctrl-C."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from pathlib import Path

import pytest

import raylog
from raylog.api.admin.cluster import Cluster
from raylog.config import MIB
from raylog.errors import ClusterNotFound, UnknownTopic
from tests.cluster.clients.test_producer import address, finishes
from tests.cluster.conftest import StartProgram

pytestmark = pytest.mark.cluster


class Reader(threading.Thread):
    """Reads a topic until it has seen so many records; what it saw, by partition."""

    def __init__(self, cluster: Cluster, topic: str, count: int, **options: object) -> None:
        super().__init__(daemon=True)
        self.found: dict[int, list[tuple[int, bytes]]] = {}
        self.consumer = raylog.Consumer(
            topic,
            cluster=cluster,
            auto_offset_reset="earliest",
            consumer_timeout_ms=60_000,
            **options,  # type: ignore[arg-type]
        )
        self._count = count
        self.start()

    def run(self) -> None:
        left = self._count
        with self.consumer:
            for record in self.consumer:
                self.found.setdefault(record.partition, []).append((record.offset, record.value))
                left -= 1
                if left == 0:
                    return


@pytest.mark.timeout(300)
def test_each_record_is_read_once_while_leaders_are_killed(cluster: Cluster) -> None:
    cluster.create_topic("killed-while-read", partitions=2, replication_factor=3)
    count = 6000
    readers = [Reader(cluster, "killed-while-read", count, use_local_files=local) for local in (True, False)]
    with raylog.Producer(cluster=cluster) as producer:
        futures = []
        for number in range(count):
            futures.append(producer.send("killed-while-read", b"%d" % number, partition=number % 2))
            time.sleep(0.001)
            if number % 2000 == 1000:
                leader = cluster.describe_topic("killed-while-read").partitions[0].leader
                pids = [each.pid for each in cluster.describe_replicas("killed-while-read") if each.broker == leader]
                os.kill(pids[0], signal.SIGKILL)
        producer.flush(100)
    sent = [(future.result(0).partition, (future.result(0).offset, b"%d" % n)) for n, future in enumerate(futures)]
    for reader in readers:
        reader.join(100)
        assert not reader.is_alive()
        for partition in (0, 1):
            assert reader.found[partition] == sorted(each for number, each in sent if number == partition)


@pytest.mark.timeout(300)
def test_memory_stays_flat_while_a_consumer_sleeps_on_a_backlog(cluster: Cluster) -> None:
    cluster.create_topic("backlog", partitions=2, replication_factor=1)
    value = os.urandom(1000)
    with raylog.Producer(cluster=cluster, acks=1) as producer:
        for _ in range(40):
            producer.send_many("backlog", [value] * 10_000).result(60)
    for local in (True, False):
        with raylog.Consumer(
            "backlog", cluster=cluster, auto_offset_reset="earliest", use_local_files=local
        ) as consumer:
            assert consumer.poll(timeout_ms=10_000, max_records=1)
            before = resident()
            time.sleep(3.0)
            assert resident() - before < 64 * MIB
            assert sum(consumer.metrics()["records_lag"].values()) == 40 * 10_000 - 1


def test_what_is_not_there_is_said(cluster: Cluster) -> None:
    with pytest.raises(UnknownTopic):
        raylog.Consumer("nope", cluster=cluster)
    with pytest.raises(ClusterNotFound):
        raylog.Consumer("nope", cluster="no-such-cluster")


def test_offsets_are_told(cluster: Cluster) -> None:
    cluster.create_topic("offsets", partitions=1, replication_factor=3)
    partition = raylog.TopicPartition("offsets", 0)
    with raylog.Producer(cluster=cluster) as producer:
        first = producer.send("offsets", b"a").result(30)
        time.sleep(0.01)
        second = producer.send("offsets", b"b").result(30)
    with raylog.Consumer("offsets", cluster=cluster) as consumer:
        assert consumer.position(partition) == 2
        assert consumer.beginning_offsets([partition]) == {partition: 0}
        assert consumer.end_offsets([partition]) == {partition: 2}
        found = consumer.offsets_for_times({partition: first.timestamp + 1})[partition]
        assert found is not None
        assert (found.offset, found.timestamp) == (1, second.timestamp)
        assert "offsets" in consumer.topics()


def test_ctrl_c_ends_an_iteration(cluster: Cluster, start_program: StartProgram) -> None:
    cluster.create_topic("quiet", partitions=1, replication_factor=1)
    program = start_program(
        "import raylog\n"
        "consumer = raylog.Consumer('quiet')\n"
        "print('waits', flush=True)\n"
        "for record in consumer: pass\n",
        RAY_ADDRESS=address(),
    )
    assert program.stdout is not None
    assert program.stdout.readline() == "waits\n"
    time.sleep(0.3)
    program.send_signal(signal.SIGINT)
    assert finishes(program, 20) != 0


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()

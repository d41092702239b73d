"""The last copy of a partition is damaged, the other one away: nobody leads, nothing is wiped, a person decides."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

import raylog
from raylog.actors.cluster.descriptions import PartitionDescription
from raylog.errors import DirectoryLocked, LossNotAccepted
from raylog.storage.disk.local_disk import LocalDisk
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.usefixtures("process_ray")]

_TOPIC = "clicks"
_FIRST, _OTHER = 1, 2  # brokers of the partition; a third one keeps the majority of the metadata log
_SHARED, _ALONE = 200, 100  # records that both have, and that the first has acknowledged alone
_STILL_SECONDS = 12.0  # longer than an election in doubt would wait for other replicas


def partition_of(cluster: raylog.Cluster) -> PartitionDescription:
    return cluster.describe_topic(_TOPIC).partitions[0]


def produce(cluster: raylog.Cluster, first: int, count: int) -> None:
    with raylog.Producer(cluster=cluster, acks="all") as producer:
        for number in range(first, first + count):
            producer.send(_TOPIC, b"record %d" % number).result(timeout=30)


def pid_of_replica(cluster: raylog.Cluster, broker: int) -> int:
    return next(each.pid for each in cluster.describe_replicas(_TOPIC) if each.broker == broker)


@contextmanager
def broker_away(cluster: raylog.Cluster, data: Path, broker: int) -> Iterator[None]:
    """Kill a broker's processes, and hold its directory so that no other one can have it."""
    directory = data / f"broker-{broker}"
    replica = pid_of_replica(cluster, broker)
    os.kill(int((directory / ".lock").read_text().split()[1]), signal.SIGKILL)
    while True:
        try:
            lock = LocalDisk().lock_directory(str(directory))
            break
        except DirectoryLocked:
            time.sleep(0.001)
    os.kill(replica, signal.SIGKILL)
    try:
        yield
    finally:
        lock.release()


def damage(cluster: raylog.Cluster, data: Path, broker: int) -> None:
    """A byte in the middle of its log is another one, and its process ends."""
    file = max((data / f"broker-{broker}" / f"{_TOPIC}-0").glob("*.log"))
    pid = pid_of_replica(cluster, broker)
    with file.open("r+b") as open_file:  # in place: its process may be gone, and another one there
        os.kill(pid, signal.SIGKILL)
        open_file.seek(70)
        byte = open_file.read(1)[0]
        open_file.seek(70)
        open_file.write(bytes([byte ^ 0xFF]))


def logs_of(data: Path, broker: int) -> dict[str, bytes]:
    """Return the bytes of its segments, by name."""
    files = (data / f"broker-{broker}" / f"{_TOPIC}-0").glob("*.log")
    return {file.name: file.read_bytes() for file in files}


def values(cluster: raylog.Cluster) -> list[bytes]:
    with raylog.Consumer(_TOPIC, cluster=cluster, auto_offset_reset="earliest") as consumer:
        found: list[bytes] = []
        deadline = time.monotonic() + 30
        while len(found) < partition_of(cluster).high_watermark and time.monotonic() < deadline:
            for records in consumer.poll(1000).values():
                found += [record.value or b"" for record in records]
        return found


def led_by_the_first(tmp_path: Path, name: str) -> raylog.Cluster:
    cluster = raylog.start(tmp_path, brokers=3, cluster=name)
    config = {"min.insync.replicas": 1, "segment.bytes": 4096}
    cluster.create_topic(_TOPIC, assignment=[[_FIRST, _OTHER]], config=config)
    produce(cluster, 0, _SHARED)
    until(lambda: partition_of(cluster).isr == (_FIRST, _OTHER))
    return cluster


def states(cluster: raylog.Cluster) -> list[str]:
    return [each.state for each in cluster.describe_copies(_TOPIC, 0).copies]


def is_whole(cluster: raylog.Cluster) -> bool:
    partition = partition_of(cluster)
    return len(partition.isr) == 2 and 0 <= partition.log_end_offset == partition.high_watermark


@pytest.mark.timeout(240)
def test_an_older_copy_is_kept_and_a_person_brings_its_records_back(tmp_path: Path) -> None:
    cluster = led_by_the_first(tmp_path, "recovery")
    with broker_away(cluster, tmp_path, _OTHER):
        until(lambda: partition_of(cluster).isr == (_FIRST,))
        produce(cluster, _SHARED, _ALONE)
        older = logs_of(tmp_path, _OTHER)
        damage(cluster, tmp_path, _FIRST)
        until(lambda: states(cluster) == ["blank", "down", "damaged"])
        assert partition_of(cluster).leader == -1
    until(lambda: states(cluster) == ["blank", "live", "damaged"])
    time.sleep(_STILL_SECONDS)
    waiting = partition_of(cluster)
    assert (waiting.leader, waiting.isr) == (-1, ())
    assert f"raylog topic recover {_TOPIC} -p 0" in waiting.waits
    assert [each.partition for each in cluster.describe_cluster().waiting] == [0]
    assert logs_of(tmp_path, _OTHER) == older

    blank, whole, damaged = cluster.describe_copies(_TOPIC, 0).copies
    assert (blank.log_end_offset, whole.log_end_offset) == (0, _SHARED)
    with pytest.raises(LossNotAccepted):
        cluster.recover_partition(_TOPIC, 0, from_broker=_OTHER)
    assert _SHARED < damaged.log_end_offset < _SHARED + _ALONE
    assert cluster.recover_partition(_TOPIC, 0, from_broker=_OTHER, accept_loss=True).leader == _OTHER
    until(lambda: is_whole(cluster))
    assert values(cluster) == [b"record %d" % number for number in range(_SHARED)]

    (aside,) = cluster.list_set_aside().logs
    directory = tmp_path / f"broker-{_FIRST}" / aside.name
    assert (aside.broker, aside.why, aside.unusable, directory.exists()) == (_FIRST, "damaged", "", True)
    after = cluster.recover_partition(_TOPIC, 0, from_broker=_FIRST, aside=aside.name, accept_loss=True)
    assert after.leader == _FIRST
    until(lambda: is_whole(cluster))
    assert values(cluster) == [b"record %d" % number for number in range(damaged.log_end_offset)]
    assert aside in cluster.list_set_aside().logs
    assert cluster.drop_set_aside(aside.name) == _FIRST
    assert not directory.exists()
    cluster.shutdown()


@pytest.mark.timeout(240)
def test_what_a_bad_choice_cuts_is_set_aside_and_can_be_restored(tmp_path: Path) -> None:
    cluster = led_by_the_first(tmp_path, "restore")
    with ExitStack() as first_away:
        with broker_away(cluster, tmp_path, _OTHER):
            until(lambda: partition_of(cluster).isr == (_FIRST,))
            produce(cluster, _SHARED, _ALONE)
            first_away.enter_context(broker_away(cluster, tmp_path, _FIRST))
        until(lambda: states(cluster) == ["down", "live"])
        assert cluster.recover_partition(_TOPIC, 0, from_broker=_OTHER, accept_loss=True).leader == _OTHER
    until(lambda: is_whole(cluster))
    assert partition_of(cluster).high_watermark == _SHARED
    (aside,) = cluster.list_set_aside().logs
    assert (aside.broker, aside.log_end_offset, aside.unusable) == (_FIRST, _SHARED + _ALONE, "")
    assert aside.why.startswith("unclean-")

    after = cluster.recover_partition(_TOPIC, 0, from_broker=_FIRST, aside=aside.name, accept_loss=True)
    assert after.leader == _FIRST
    until(lambda: is_whole(cluster))
    assert values(cluster) == [b"record %d" % number for number in range(_SHARED + _ALONE)]
    cluster.shutdown()

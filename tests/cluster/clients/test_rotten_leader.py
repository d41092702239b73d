"""A bit flips in the leader's newest sealed segment while it is written and read (rules 1, 14)."""

from __future__ import annotations

import os
import threading
import time
from pathlib import Path

import pytest

import raylog
from raylog.api.admin.cluster import Cluster
from raylog.storage.format.record_batch import HEADER_BYTES, LENGTH_PREFIX_BYTES, read_header
from tests.cluster.conftest import until
from tests.cluster.support.client_programs import Written, check, on_thread, read, write

pytestmark = pytest.mark.cluster

_HANDED_OVER_SECONDS = 2.0


def data_directory(cluster: Cluster, broker_id: int) -> Path:
    return Path(next(each.directory for each in cluster.describe_cluster().brokers if each.broker == broker_id))


def sealed_segments(directory: Path) -> list[Path]:
    return sorted(directory.glob("*.log"))[:-1]


def flip_in_a_payload(segment: Path) -> int:
    """The offset of the batch that is hit, one in the middle of the file."""
    data = segment.read_bytes()
    position = 0
    while position + read_header(data, position).size < len(data) // 2:
        position += read_header(data, position).size
    header = read_header(data, position)
    assert header.size > HEADER_BYTES > LENGTH_PREFIX_BYTES
    byte = position + header.size - 1
    with segment.open("r+b") as file:
        file.seek(byte)
        file.write(bytes([data[byte] ^ 1]))
    return header.base_offset


def records_through(cluster: Cluster, topic: str, offset: int, reads_files: bool) -> None:
    """Read from the beginning until behind `offset`."""
    with raylog.Consumer(cluster=cluster, auto_offset_reset="earliest", use_local_files=reads_files) as consumer:
        partition = raylog.TopicPartition(topic, 0)
        consumer.assign([partition])
        deadline = time.monotonic() + 20.0
        while consumer.position(partition) <= offset:
            consumer.poll(timeout_ms=100)
            assert time.monotonic() < deadline


@pytest.mark.timeout(180)
@pytest.mark.parametrize("reads_files", [False, True])
def test_a_flipped_bit_costs_no_record_and_a_healthy_leader_is_there_soon(cluster: Cluster, reads_files: bool) -> None:
    topic = f"rotten-{reads_files}".lower()
    cluster.create_topic(topic, partitions=1, replication_factor=3, config={"segment.bytes": 100_000})
    before = cluster.describe_topic(topic).partitions[0]
    directory = data_directory(cluster, before.leader) / f"{topic}-0"
    is_over = threading.Event()
    writers = [on_thread(write, cluster.access(), topic, 1, f"w{number}", 12.0) for number in range(2)]
    reader = on_thread(read, cluster.access(), topic, 1, is_over)
    until(lambda: len(sealed_segments(directory)) >= 3)
    hit = flip_in_a_payload(sealed_segments(directory)[-1])
    until(lambda: cluster.describe_topic(topic).partitions[0].high_watermark > hit + 100)

    began = time.monotonic()
    late = on_thread(records_through, cluster, topic, hit, reads_files)
    until(lambda: cluster.describe_topic(topic).partitions[0].leader not in (-1, before.leader), 20.0)
    handed_over = time.monotonic() - began
    late.result(30.0)
    read_past = time.monotonic() - began
    results: list[Written] = [each.result(90.0) for each in writers]
    is_over.set()
    found = [reader.result(90.0)]
    everything = on_thread(read, cluster.access(), topic, 1, is_over).result(90.0)
    assert not [error for each in [*results, *found, everything] for error in each.errors]
    count = check(topic, 1, results, [*found, everything])
    print(  # noqa: T201 (the figure of a run)
        f"\n{'local files' if reads_files else 'stream'}: {count} records, 0 lost, 0 wrong; another leader "
        f"{handed_over:.2f} s after the reader began, which was past the damage after {read_past:.2f} s"
    )
    assert handed_over < _HANDED_OVER_SECONDS
    until(lambda: len(cluster.describe_topic(topic).partitions[0].isr) == 3)
    aside = [name for name in os.listdir(directory.parent) if name.startswith(f"{topic}-0@")]
    assert len(aside) == 1, "the damaged copy is kept for whoever wants to look into it"
    assert (directory.parent / aside[0] / "quarantine").exists()

"""Clients that misbehave, and many that do nothing: the others notice nothing of them."""

from __future__ import annotations

import os
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from random import Random
from typing import Any, Final

import pytest

import raylog
from bench.gateway.connections import frame
from bench.partitions.processes import listener_at, private_mib
from raylog.api.kafka.protocol.codecs import request_frame
from raylog.api.kafka.protocol.message_types import message_type
from tests.cluster.conftest import until

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

from tests.kafka.libraries import confluent
from tests.kafka.libraries.records import Record

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

_SECONDS: Final = 10.0
_API_VERSIONS: Final = 18
_METADATA: Final = 3
_IDLE: Final = 500
_MOST_MIB: Final = 64  # what a gateway may hold for one client, and for the others meanwhile
_HEAVY: Final = 16
_NEVER_READING: Final = 60  # each of which asks for 14 MiB
_GATEWAY_MIB: Final = 256 + 2 * _MOST_MIB
_ALL: Final = 2**31 - 1
_RECORDS: Final = [Record(number, 1_700_000_000_000, None, b"%d" % number, ()) for number in range(200)]


@contextmanager
def at_work(client: Callable[[threading.Event], None]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=client, args=(over,))
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def dial(address: str) -> socket.socket:
    host, _, port = address.rpartition(":")
    return socket.create_connection((host, int(port)), timeout=_SECONDS)


@pytest.fixture(scope="module")
def topic(cluster: raylog.Cluster) -> str:
    """A topic with a partition for each of these tests."""
    cluster.create_topic("beside-others", partitions=4)
    return "beside-others"


def check_others(address: str, topic: str, partition: int) -> None:
    """Write and read through the same gateway."""
    confluent.write(address, topic, partition, _RECORDS)
    assert confluent.read(address, topic, partition, len(_RECORDS)) == _RECORDS


def test_garbage_ends_its_own_connection_only(cluster: raylog.Cluster, topic: str) -> None:
    address = cluster.kafka_addresses()[0]
    random = Random(6)
    with dial(address) as quiet:
        for body in (b"", b"\x00", bytes(1_000), random.randbytes(1_000), frame(_API_VERSIONS, 0)[4:-1]):
            for length in (len(body), -1, 2**31 - 1):
                with dial(address) as client:
                    client.sendall(struct.pack(">i", length) + body)
                    assert _is_closed(client), (length, body[:20])
        quiet.sendall(frame(_API_VERSIONS, 0))
        assert quiet.recv(4096)
    check_others(address, topic, 0)


def _is_closed(client: socket.socket) -> bool:
    try:
        return client.recv(4096) == b""
    except ConnectionResetError:
        return True


def test_a_client_that_reads_nothing_is_asked_for_nothing_more(cluster: raylog.Cluster, topic: str) -> None:
    address = cluster.kafka_addresses()[0]
    pid = listener_at(int(address.rpartition(":")[2]))
    asked = frame(_METADATA, 1, struct.pack(">i", -1)) * 1_000
    sent = 0

    def read_nothing(over: threading.Event) -> None:
        nonlocal sent
        with dial(address) as client:
            client.settimeout(0.05)
            while not over.is_set():
                try:
                    sent += client.send(asked)
                except TimeoutError:
                    time.sleep(0.05)

    before = private_mib([pid])
    with at_work(read_nothing):
        check_others(address, topic, 1)
        until(lambda: _stands_still(lambda: sent), _SECONDS)
        grown = private_mib([pid]) - before
    assert grown < _MOST_MIB


def _stands_still(count: Callable[[], int]) -> bool:
    """Whether the kernel's buffers are full, and the gateway takes nothing out of them."""
    before = count()
    time.sleep(0.5)
    return count() == before


def test_idle_clients_cost_little(cluster: raylog.Cluster, topic: str) -> None:
    address = cluster.kafka_addresses()[1]
    pid = listener_at(int(address.rpartition(":")[2]))
    before = private_mib([pid])
    with ExitStack() as all_of_them:
        for _ in range(_IDLE):
            client = all_of_them.enter_context(dial(address))
            client.sendall(frame(_API_VERSIONS, 0))
            assert client.recv(65536)
        assert private_mib([pid]) - before < _IDLE * 16 / 1024  # MiB, of 16 KiB each
        check_others(address, topic, 2)
    assert os.path.exists(f"/proc/{pid}")


def test_many_clients_that_never_read_hold_no_more_than_their_gateway_gives(
    cluster: raylog.Cluster, topic: str
) -> None:
    address = cluster.kafka_addresses()[2]
    pid = listener_at(int(address.rpartition(":")[2]))
    cluster.create_topic("heavy", partitions=1)
    heavy = [Record(number, 1_700_000_000_000, None, os.urandom(900_000), ()) for number in range(_HEAVY)]
    confluent.write(address, "heavy", 0, heavy)
    asked = b"".join(request_frame("Fetch", 12, message_type("FetchRequest")(**fetched_all("heavy")), correlation_id=1))
    before = private_mib([pid])
    with ExitStack() as all_of_them:
        for _ in range(_NEVER_READING):
            all_of_them.enter_context(dial(address)).sendall(asked)
        check_others(address, topic, 3)
        until(lambda: _stands_still(lambda: round(private_mib([pid]))), _SECONDS)
        grown = private_mib([pid]) - before
        assert confluent.read(address, "heavy", 0, _HEAVY) == heavy
    assert grown < _GATEWAY_MIB


def fetched_all(topic: str) -> dict[str, Any]:
    """Return a fetch of as much as there is."""
    part, of_topic = (message_type("FetchRequest", name) for name in ("FetchPartition", "FetchTopic"))
    parts = [part(0, fetch_offset=0, partition_max_bytes=_ALL)]
    return {"max_wait_ms": 500, "min_bytes": 1, "max_bytes": _ALL, "topics": [of_topic(topic, bytes(16), parts)]}

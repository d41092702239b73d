"""Many clients that do nothing, one that sends garbage, one that reads nothing: what they cost, and what others notice.

What others notice is the time of a record there and back, 100 a second, at the same gateway.
"""

from __future__ import annotations

import resource
import socket
import struct
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from typing import Final

from bench.gateway.comparing import RAYLOG, Server
from bench.gateway.reading import go_to_end
from bench.measuring import Figure
from bench.partitions.processes import listener_at, private_mib, processor_share

_IDLE: Final = 10_000
_IDLE_SECONDS: Final = 10.0
_NAME: Final = "beside"
_TOPIC: Final = "raylog-bench-beside"
_RECORDS: Final = 500
_PAUSE_SECONDS: Final = 0.01
_WAIT_SECONDS: Final = 30.0
_WARM: Final = 100
_METADATA: Final = 3
_API_VERSIONS: Final = 18
_AT_ONCE: Final = 1_000  # requests whose answers nobody reads


def run(found: Sequence[Server]) -> Iterator[Figure]:
    (ours,) = (server for server in found if server.name == RAYLOG)
    host, _, port = ours.address.split(",")[0].rpartition(":")
    place, pid = (host, int(port)), listener_at(int(port))
    ours.admin.create(_NAME, 1, 3)
    address = f"{host}:{port}"
    yield _noticed("a record there and back, p99, nobody else", address)
    yield from _beside_idle(place, pid, address)
    for name, client in (("garbage", _send_garbage), ("answers unread", _read_nothing)):
        before = private_mib([pid])
        with _at_work(client, place):
            yield _noticed(f"the same beside a client with {name}", address)
            yield Figure(f"memory beside a client with {name}", [private_mib([pid]) - before], "MiB")
    ours.admin.delete(_NAME)


def _beside_idle(place: tuple[str, int], pid: int, address: str) -> Iterator[Figure]:
    _, most = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    before, before_share = private_mib([pid]), processor_share([pid], _IDLE_SECONDS)
    with ExitStack() as all_of_them:
        began = time.perf_counter()
        for _ in range(_IDLE):
            client = all_of_them.enter_context(socket.create_connection(place, timeout=_WAIT_SECONDS))
            client.sendall(frame(_API_VERSIONS, 0))
            assert len(client.recv(65536)) > 4
        name = f"{_IDLE:,} idle connections"
        yield Figure(f"{name}, opened in", [time.perf_counter() - began], "s")
        kib = (private_mib([pid]) - before) * 1024 / _IDLE
        yield Figure(f"{name}, memory of each", [kib], "KiB", 4.0, smaller_is_better=True)
        share = processor_share([pid], _IDLE_SECONDS) - before_share
        yield Figure(f"{name}, processor", [max(share, 0.0)], "% of a core", 1.0, smaller_is_better=True)
        yield _noticed(f"a record there and back, p99, beside {name}", address)


def _noticed(name: str, address: str) -> Figure:
    from confluent_kafka import Consumer, Producer

    producer = Producer({"bootstrap.servers": address, "acks": "all", "linger.ms": 0})
    settings = {"group.id": _NAME, "enable.auto.commit": False, "fetch.wait.max.ms": 100}
    consumer = Consumer({"bootstrap.servers": address, **settings})
    go_to_end(consumer, _TOPIC)
    taken = []
    for _ in range(_RECORDS):
        began = time.perf_counter()
        producer.produce(_TOPIC, b"there")
        producer.poll(0)
        message = consumer.poll(_WAIT_SECONDS)
        if message is None or message.error() is not None:
            raise TimeoutError(f"{name}: no record within {_WAIT_SECONDS:.0f} s")
        taken.append(1_000 * (time.perf_counter() - began))
        time.sleep(_PAUSE_SECONDS)
    producer.flush(_WAIT_SECONDS)
    consumer.close()
    ordered = sorted(taken[_WARM:])
    return Figure(name, [ordered[len(ordered) * 99 // 100]], "ms")


# --- those who misbehave ------------------------------------------------------------------------------------------


@contextmanager
def _at_work(client: Callable[[tuple[str, int], threading.Event], None], place: tuple[str, int]) -> Iterator[None]:
    over = threading.Event()
    thread = threading.Thread(target=client, args=(place, over))
    thread.start()
    yield
    over.set()
    thread.join()


def _send_garbage(place: tuple[str, int], over: threading.Event) -> None:
    """Frames of a length that fits, and nothing that is a request; a new connection as soon as one is closed."""
    number = 0
    while not over.is_set():
        number += 1
        with socket.create_connection(place, timeout=_WAIT_SECONDS) as client:
            client.sendall(struct.pack(">i", 1_000) + bytes([number % 256]) * 1_000)
            while client.recv(4096):
                pass


def _read_nothing(place: tuple[str, int], over: threading.Event) -> None:
    """Ask for all metadata as fast as the gateway takes it, and leave the answers."""
    with socket.create_connection(place, timeout=_WAIT_SECONDS) as client:
        client.setblocking(False)
        asked = frame(_METADATA, 1, struct.pack(">i", -1)) * _AT_ONCE
        left = memoryview(asked)
        while not over.is_set():
            try:
                left = left[client.send(left) :] or memoryview(asked)
            except BlockingIOError:
                time.sleep(_PAUSE_SECONDS)


def frame(key: int, version: int, body: bytes = b"") -> bytes:
    """Return a request with the old kind of header."""
    head = struct.pack(">hhih", key, version, 1, -1) + body
    return struct.pack(">i", len(head)) + head

"""Memory of this process's producers and consumers when they are ahead of the others, or behind."""

from __future__ import annotations

import os
import resource
import signal
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

import raylog
from raylog.api.admin.cluster import Cluster
from raylog.config import MIB

_VALUE: Final = 1_000
_AT_ONCE: Final = 20_000
_STOPPED_SECONDS: Final = 0.1  # far less than a lease
_RUNNING_SECONDS: Final = 0.05
_LOOK_SECONDS: Final = 0.5


def resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * resource.getpagesize()


@dataclass
class Growth:
    """Bytes of this process."""

    before: int
    most: int
    met: int  # times that the buffer was full, or bytes that wait to be read

    def __str__(self) -> str:
        return f"{self.before / MIB:.0f} MiB before, {self.most / MIB:.0f} at the most ({self.met})"

    @property
    def grown(self) -> int:
        return self.most - self.before


def outrun(cluster: Cluster, topic: str, seconds: float, buffer_memory: int, slowed: Sequence[int] = ()) -> Growth:
    """Send as fast as may be, with a buffer that is full nearly always. `slowed`: processes that run now and then."""
    values = [b"%0*d" % (_VALUE, number) for number in range(_AT_ONCE)]
    with raylog.Producer(cluster=cluster, buffer_memory=buffer_memory) as producer:
        producer.send_many(topic, values).result(60)
        growth = Growth(resident(), 0, 0)
        until = time.monotonic() + seconds
        with running_now_and_then(slowed):
            while time.monotonic() < until:
                producer.send_many(topic, values)
                growth.met += producer.metrics()["buffer-available-bytes"] < MIB
                growth.most = max(growth.most, resident())
    return growth


@contextmanager
def running_now_and_then(processes: Sequence[int]) -> Iterator[None]:
    is_over = threading.Event()

    def tell_all(what: signal.Signals) -> None:
        for process in processes:
            with suppress(ProcessLookupError):  # it was taken for dead after all, and is replaced
                os.kill(process, what)

    def slow_down() -> None:
        while not is_over.wait(_RUNNING_SECONDS):
            tell_all(signal.SIGSTOP)
            is_over.wait(_STOPPED_SECONDS)
            tell_all(signal.SIGCONT)

    thread = threading.Thread(target=slow_down)
    thread.start()
    try:
        yield
    finally:
        is_over.set()
        thread.join(10)


def write_backlog(cluster: Cluster, topic: str, size: int) -> int:
    """Write a backlog. Return how many records that are."""
    values = [os.urandom(_VALUE)] * _AT_ONCE
    rounds = size // (_VALUE * _AT_ONCE)
    with raylog.Producer(cluster=cluster, acks=1) as producer:
        for _ in range(rounds):
            producer.send_many(topic, values).result(60)
    return rounds * _AT_ONCE


def sleep_on_backlog(cluster: Cluster, topic: str, seconds: float, use_local_files: bool) -> Growth:
    """A consumer that takes one record, and then nothing; what is before it is what it has when it was given that."""
    with raylog.Consumer(
        topic, cluster=cluster, auto_offset_reset="earliest", use_local_files=use_local_files
    ) as consumer:
        assert consumer.poll(timeout_ms=10_000, max_records=1)
        growth = Growth(resident(), 0, 0)
        until = time.monotonic() + seconds
        while time.monotonic() < until:
            time.sleep(_LOOK_SECONDS)
            growth.most = max(growth.most, resident())
        growth.met = sum(consumer.metrics()["records_lag"].values())
    return growth

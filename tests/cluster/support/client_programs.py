"""Programs that write and read through `raylog.Producer` and `raylog.Consumer`, and report all that they were told.

They run on threads of the test, or in processes of their own that know nothing of Ray: those get a pickled call on
standard input, and give a pickled report on standard output.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field
from typing import Any, Final

import raylog
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.errors import RaylogError
from tests.simulator.checks.history import PartitionHistory

_BURST: Final = 5
_BURST_PAUSE: Final = 0.004
_POLL_MS: Final = 200
_END_SECONDS: Final = 60.0
_PROGRAM: Final = "from tests.cluster.support.client_programs import main; main()"


@dataclass
class Written:
    """`sent` holds (partition, value) in the order of sending, `acknowledged` (partition, value, offset)."""

    name: str
    sent: list[tuple[int, bytes]] = field(default_factory=list)
    acknowledged: list[tuple[int, bytes, int]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


@dataclass
class Read:
    """(partition, offset, value), in the order in which they came."""

    records: list[tuple[int, int, bytes]] = field(default_factory=list)
    errors: list[str] = field(default_factory=list)


def write(access: ClusterAccess, topic: str, partitions: int, name: str, seconds: float) -> Written:
    """Write to all partitions in turn for so long, and then wait until all of it is acknowledged."""
    written = Written(name)
    futures = []
    deadline = time.monotonic() + seconds
    number = 0
    with raylog.Producer(cluster=access) as producer:
        while time.monotonic() < deadline:
            for _ in range(_BURST):
                partition, value = number % partitions, b"%s-%d" % (name.encode(), number)
                written.sent.append((partition, value))
                futures.append(producer.send(topic, value, partition=partition))
                number += 1
            time.sleep(_BURST_PAUSE)
        producer.flush(timeout=_END_SECONDS)
    for (partition, value), future in zip(written.sent, futures, strict=True):
        try:
            written.acknowledged.append((partition, value, future.result(timeout=0).offset))
        except RaylogError as error:
            written.errors.append(f"{value!r}: {error!r}")
    return written


def read(access: ClusterAccess, topic: str, partitions: int, is_over: threading.Event) -> Read:
    """Read from the beginning; once it is over, up to the end that there is then."""
    found = Read()
    assigned = [raylog.TopicPartition(topic, number) for number in range(partitions)]
    with raylog.Consumer(cluster=access, auto_offset_reset="earliest") as consumer:
        consumer.assign(assigned)
        ends: dict[Any, int] | None = None
        deadline = float("inf")
        while ends is None or any(consumer.position(each) < ends[each] for each in assigned):
            if time.monotonic() > deadline:
                found.errors.append(f"it did not get to the end: {ends}")
                break
            try:
                for polled in consumer.poll(timeout_ms=_POLL_MS).values():
                    found.records += [(each.partition, each.offset, each.value) for each in polled]
                if ends is None and is_over.is_set():
                    ends = consumer.end_offsets(assigned)
                    deadline = time.monotonic() + _END_SECONDS
            except RaylogError as error:
                found.errors.append(repr(error))
    return found


# --- where they run -----------------------------------------------------------------------------------------------


def on_thread(call: Callable[..., Any], *arguments: object) -> Future[Any]:
    """Not in a pool: Python would wait for its threads at the end, also where a test has failed."""
    future: Future[Any] = Future()

    def run() -> None:
        try:
            future.set_result(call(*arguments))
        except BaseException as error:  # noqa: BLE001 (it is raised where the result is wanted)
            future.set_exception(error)

    threading.Thread(target=run, daemon=True).start()
    return future


class InProcess:
    """`write` in a process of its own."""

    def __init__(self, *arguments: object) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        self._call = pickle.dumps(arguments)
        self._answer = on_thread(self._process.communicate, self._call)

    def result(self, timeout: float) -> Written:
        written: Written = pickle.loads(self._answer.result(timeout)[0])
        assert self._process.returncode == 0
        return written

    def kill(self) -> None:
        self._process.kill()


def main() -> None:
    written = write(*pickle.load(sys.stdin.buffer))
    assert "ray" not in sys.modules, "a client that is given what it needs has no use for Ray"
    sys.stdout.buffer.write(pickle.dumps(written))


# --- the reckoning ------------------------------------------------------------------------------------------------


def check(topic: str, partitions: int, writers: list[Written], readers: list[Read]) -> int:
    """InvariantBroken, unless each reader read each acknowledged record once and in order. How many there were."""
    for number in range(partitions):
        history = PartitionHistory(f"{topic}-{number}")
        for written in writers:
            values = [value for partition, value in written.sent if partition == number]
            history.will_send(written.name.encode(), values, ordered=True)
            for partition, value, offset in written.acknowledged:
                if partition == number:
                    history.was_acknowledged([value], offset)
        for found in readers:
            records = [(offset, value) for partition, offset, value in found.records if partition == number]
            history.check_final(records, 0, records[-1][0] + 1 if records else 0)
    return sum(len(written.acknowledged) for written in writers)

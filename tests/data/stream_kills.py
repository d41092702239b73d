"""A stream copies a topic exactly once while its driver, its workers, leaders and coordinators are killed.

    a writer ──► source ──`raylog.data.stream`, in a process of its own──► result ──► a reader of committed records

A driver that has ended, killed or by an error, is started anew, as a supervisor does. Each kill waits until results of
the time after the kill before are there, so that it hits a stream at work.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from types import TracebackType
from typing import Final

import ray

import raylog
from raylog.errors import RaylogError
from tests.cluster.support.cluster_kills import ClusterKills

_PARTITIONS: Final = 3
_PROGRESS_SECONDS: Final = 120.0
_END_SECONDS: Final = 180.0
_BUSY_SECONDS: Final = 5.0
_ROWS: Final = 50  # that are written together, twenty times a second
_MOST_PAUSE_SECONDS: Final = 1.0
_MANY: Final = 100_000
_READ_SECONDS: Final = 5.0


@dataclass
class StreamReport:
    written: int = 0
    aborted: int = 0  # copies that are in the log, and do not count
    kills: Counter[str] = field(default_factory=Counter)
    starts: int = 0  # of the driver
    errors: Counter[str] = field(default_factory=Counter)  # with which drivers have ended by themselves
    seconds: float = 0.0
    longest_pause: float = 0.0  # between a kill and the next results

    @property
    def killed(self) -> int:
        return sum(count for what, count in self.kills.items() if not what.startswith("none"))


class KilledStream:
    """Made of two new topics, of these names; used in a `with`."""

    def __init__(self, cluster: raylog.Cluster, random: Random, folder: Path, source: str, result: str) -> None:
        self.report = StreamReport()
        self._cluster = cluster
        self._random = random
        self._result = result
        for topic in (source, result):
            cluster.create_topic(topic, _PARTITIONS, 3, {"min.insync.replicas": 2})
        self._kills = ClusterKills(cluster, random, (source, result))
        self._driver = _Driver(folder, source, result)
        self._writer = _Writer(cluster, source)
        self._seen: Counter[bytes | None] = Counter()
        self._reader = raylog.Consumer(
            result, cluster=cluster, isolation_level="read_committed", auto_offset_reset="earliest",
            max_poll_records=_MANY,
        )  # fmt: skip

    def __enter__(self) -> KilledStream:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._driver.kill()
        self._reader.close()
        self._writer.stop()

    def run(self, kills: int, tell: Callable[[str], None] = lambda _: None) -> None:
        """Kill as many things, each kind as often as any other."""
        began = time.monotonic()
        kinds: list[Callable[[], str]] = []
        while self.report.killed < kills:
            pause = self._until_seen(self._seen.total() + 1, _PROGRESS_SECONDS)
            self.report.longest_pause = max(self.report.longest_pause, pause)
            time.sleep(self._random.uniform(0.0, _MOST_PAUSE_SECONDS))
            every = (self._driver.kill, self._kill_worker, self._kills.leader, self._kills.coordinator)
            kinds = kinds or self._random.sample(every, len(every))
            try:
                victim = kinds.pop()()
            except RaylogError as error:  # the controller says nothing of leaders just now: another time
                victim = f"none: {type(error).__name__}"
            self.report.kills[victim] += 1
            tell(f"{self.report.killed:4} {victim:30} {pause:6.1f}s {self._seen.total()} copies")
            self._read(0.5)  # what was committed before the kill tells nothing of the time after it
        self.report.seconds = time.monotonic() - began

    def check(self) -> None:
        """Each record was copied once."""
        self.report.written = written = self._writer.stop()
        self._until_seen(written, _END_SECONDS)
        self._driver.kill()
        all_read = raylog.data.read(self._result, isolation="read_uncommitted", columns=["offset"])
        self.report.aborted = all_read.count() - written
        self._read(5.0)
        self.report.starts, self.report.errors = self._driver.starts, self._driver.errors()
        wanted: Counter[bytes | None] = Counter(b"%d" % number for number in range(written))
        missing, doubled = (wanted - self._seen).total(), (self._seen - wanted).total()
        assert (missing, doubled) == (0, 0), f"{missing} are missing, {doubled} too many; {self.report}"

    def _until_seen(self, count: int, seconds: float) -> float:
        """Return how long it took until so many copies were there."""
        began = time.monotonic()
        while self._seen.total() < count:
            self._driver.keep_running()
            self._read()
            passed = time.monotonic() - began
            assert passed < seconds, f"{self._seen.total()} of {count}; {self.report}; {self._driver.log()[-2000:]}"
        return time.monotonic() - began

    def _read(self, seconds: float = 0.2) -> None:
        """Read all there is, and wait so long for more; of a stream that runs, some."""
        deadline = time.monotonic() + _READ_SECONDS
        while time.monotonic() < deadline and (polled := self._reader.poll(timeout_ms=round(seconds * 1000))):
            for records in polled.values():
                self._seen.update(record.value for record in records)

    def _kill_worker(self) -> str:
        """Kill a process of Ray's that runs a task of the stream; one that has none just now where all wait."""
        deadline = time.monotonic() + _BUSY_SECONDS
        while True:
            titles = {pid: _title(pid) for pid in self._driver.workers()}
            busy = sorted(pid for pid, title in titles.items() if title.startswith("ray::") and "IDLE" not in title)
            idle = sorted(pid for pid, title in titles.items() if title.startswith("ray::IDLE"))
            if busy or time.monotonic() > deadline:
                break
        if not busy and not idle:
            return "none: no worker is there"
        with suppress(ProcessLookupError):
            os.kill(self._random.choice(busy or idle), signal.SIGKILL)
        return "worker at work" if busy else "idle worker"


def _title(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text().rstrip("\0")
    except OSError:
        return ""


class _Driver:
    """A process, again and again until `kill`."""

    def __init__(self, folder: Path, source: str, result: str) -> None:
        self.starts = 0
        self._log = folder / "driver.log"
        self._pids = folder / "pids"
        self._pids.mkdir()
        address = ray.get_runtime_context().gcs_address
        self._command = [sys.executable, "-m", "tests.data.endless_driver", address, source, result, str(self._pids)]
        self._process: subprocess.Popen[bytes] | None = None

    def keep_running(self) -> None:
        if self._process is not None and self._process.poll() is None:
            return
        self.starts += 1
        with self._log.open("ab") as log:
            self._process = subprocess.Popen(self._command, stdout=log, stderr=log)

    def kill(self) -> str:
        if self._process is None or self._process.poll() is not None:
            return "none: the driver has ended"
        self._process.kill()
        self._process.wait(30.0)
        return "driver"

    def workers(self) -> list[int]:
        """Return the processes that have run its tasks."""
        return [int(each.name) for each in self._pids.iterdir()]

    def log(self) -> str:
        return self._log.read_text() if self._log.exists() else ""

    def errors(self) -> Counter[str]:
        return Counter(line.split(":")[0] for line in self.log().splitlines() if line.startswith("raylog.errors."))


class _Writer:
    """Numbers into the source, until it is stopped."""

    def __init__(self, cluster: raylog.Cluster, topic: str) -> None:
        self._cluster = cluster
        self._topic = topic
        self._count = 0
        self._has_all = False
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self._thread.start()

    def _run(self) -> None:
        sent: list[raylog.BulkFuture] = []
        with raylog.Producer(cluster=self._cluster, delivery_timeout_ms=180_000) as producer:
            while not self._is_over.wait(0.05):
                values = [b"%d" % number for number in range(self._count, self._count + _ROWS)]
                sent.append(producer.send_many(self._topic, values, keys=values))
                self._count += len(values)
            for each in sent:
                each.result(_END_SECONDS)
            self._has_all = True

    def stop(self) -> int:
        """Return how many there are."""
        self._is_over.set()
        self._thread.join(_END_SECONDS)
        assert self._has_all, "a record was not acknowledged"
        return self._count

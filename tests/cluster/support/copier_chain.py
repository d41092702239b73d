"""A chain of copiers on a real cluster, each record once and in the order of its key, whatever is killed meanwhile.

    a writer ──► `in` ──two copiers of a group──► `middle` ──one copier──► `out` ──► a reader of committed records

Copiers are processes of their own that run the loop of `examples/read_process_write.py`; who has ended is started anew
under the same transactional id, as a supervisor does. Killed are copiers, coordinators of both kinds, and leaders.
"""

from __future__ import annotations

import pickle
import subprocess
import sys
import tempfile
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import Final

import raylog
from examples.read_process_write import copy
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.errors import RaylogError
from tests.cluster.support.cluster_kills import ClusterKills

TOPICS: Final = ("in", "middle", "out")
PARTITIONS: Final = 3
KEYS: Final = 20
_COPIERS: Final = (("one", "in", "middle"), ("two", "in", "middle"), ("three", "middle", "out"))
_PROGRAM: Final = "from tests.cluster.support.copier_chain import main; main()"
_END_SECONDS: Final = 180.0


@dataclass
class ChainReport:
    written: int = 0
    kills: Counter[str] = field(default_factory=Counter)
    restarts: int = 0
    errors: Counter[str] = field(default_factory=Counter)  # with which copiers have ended by themselves


    @property
    def killed(self) -> int:
        return sum(count for what, count in self.kills.items() if not what.startswith("none"))


class Copier:
    """A process, again and again until `stop`."""

    def __init__(self, access: ClusterAccess, name: str, source: str, target: str) -> None:
        self._call = pickle.dumps((access, name, source, target))
        self._log = tempfile.TemporaryFile()  # noqa: SIM115  (as long as this)
        self._process = self._start()

    def keep_running(self) -> bool:
        """Start it if it has ended."""
        if self._process.poll() is None:
            return False
        self._process = self._start()
        return True

    def _start(self) -> subprocess.Popen[bytes]:
        process = subprocess.Popen(
            [sys.executable, "-c", _PROGRAM], stdin=subprocess.PIPE, stderr=self._log, stdout=subprocess.DEVNULL
        )
        assert process.stdin is not None
        process.stdin.write(self._call)
        process.stdin.close()
        return process

    def close(self) -> None:
        self.kill()
        self._log.close()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait(10.0)

    def errors(self) -> Counter[str]:
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").splitlines()
        return Counter(line.split(":")[0] for line in lines if line.startswith("raylog.errors."))


def main() -> None:
    """A copier."""
    access, name, source, target = pickle.load(sys.stdin.buffer)
    with (
        raylog.Consumer(
            source, cluster=access, group_id=f"from {source}", enable_auto_commit=False, max_poll_records=200,
            isolation_level="read_committed", auto_offset_reset="earliest", session_timeout_ms=6000,
        ) as consumer,
        raylog.Producer(cluster=access, transactional_id=name, transaction_timeout_ms=10_000) as producer,
    ):  # fmt: skip
        copy(consumer, producer, target, is_done=lambda: False)


class Chain:
    def __init__(self, cluster: raylog.Cluster, random: Random) -> None:
        self.report = ChainReport()
        self._cluster = cluster
        self._random = random
        self._kills = ClusterKills(cluster, random, TOPICS)
        for topic in TOPICS:
            cluster.create_topic(topic, PARTITIONS, 3, {"min.insync.replicas": 2})
        access = cluster.access()
        self._copiers = [Copier(access, *each) for each in _COPIERS]

    def run(self, seconds: float, pause: float) -> None:
        """Write for so long, and kill something every `pause` seconds."""
        began = time.monotonic()
        next_kill = began + pause
        with raylog.Producer(cluster=self._cluster) as producer:
            while (now := time.monotonic()) < began + seconds:
                for _ in range(KEYS):
                    number = self.report.written
                    producer.send("in", b"%d" % (number // KEYS), key=b"k%d" % (number % KEYS))
                    self.report.written += 1
                self._keep_running()
                if now >= next_kill:
                    self._kill_something()
                    next_kill = time.monotonic() + pause
                time.sleep(0.05)
            producer.flush(_END_SECONDS)

    def check(self) -> None:
        """All of it is in `out` once, and in order."""
        found: dict[bytes, list[int]] = {}
        count = 0
        deadline = time.monotonic() + _END_SECONDS
        with raylog.Consumer(
            "out", cluster=self._cluster, isolation_level="read_committed", auto_offset_reset="earliest"
        ) as reader:
            while time.monotonic() < deadline:
                self._keep_running()
                polled = reader.poll(timeout_ms=1000)
                if not polled and count >= self.report.written:
                    break
                for record in (each for records in polled.values() for each in records):
                    found.setdefault(record.key or b"", []).append(int(record.value or b""))
                    count += 1
        for each in self._copiers:
            self.report.errors.update(each.errors())
        rounds = self.report.written // KEYS
        wrong = {key: _first_wrong(numbers, rounds) for key, numbers in found.items() if numbers != [*range(rounds)]}
        assert not wrong, f"{count} of {self.report.written}; the first that is wrong: {wrong}; {self.report}"
        assert len(found) == KEYS

    def close(self) -> None:
        for each in self._copiers:
            each.close()

    def _keep_running(self) -> None:
        self.report.restarts += sum(each.keep_running() for each in self._copiers)

    # --- kills ----------------------------------------------------------------------------------------------------

    def _kill_something(self) -> None:
        kill = self._random.choice((self._kill_copier, self._kills.coordinator, self._kills.leader))
        try:
            self.report.kills[kill()] += 1
        except RaylogError as error:  # the controller says nothing of leaders just now: another time
            self.report.kills[f"none: {type(error).__name__}"] += 1

    def _kill_copier(self) -> str:
        self._random.choice(self._copiers).kill()
        return "copier"


def _first_wrong(numbers: list[int], rounds: int) -> str:
    for place, number in enumerate(numbers):
        if number != place:
            return f"{number} in place {place} of {len(numbers)}"
    return f"{len(numbers)} of {rounds}"

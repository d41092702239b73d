"""Several producers and consumers of a topic on three brokers, while one leader after the other is killed."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final

import raylog
from raylog.errors import RaylogError
from tests.cluster.support.chaos import ChaosCluster
from tests.cluster.support.client_programs import InProcess, Read, Written, check, on_thread, read, write

TOPIC: Final = "orders"
PARTITIONS: Final = 3
_WHOLE_SECONDS: Final = 60.0
_LOOK_SECONDS: Final = 0.1
_FINISH_SECONDS: Final = 120.0


@dataclass
class Reckoning:
    acknowledged: int
    kills: int
    errors: list[str]  # that writers and readers were told


def leaders_die(chaos: ChaosCluster, seconds: float, pause: float, random: Random) -> Reckoning:
    """Two producers on threads and one in a process, two consumers; a leader is killed every `pause` seconds."""
    cluster = chaos.cluster
    cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})
    access = cluster.access()
    are_written = threading.Event()
    readers = [on_thread(read, access, TOPIC, PARTITIONS, are_written) for _ in range(2)]
    writers = [on_thread(write, access, TOPIC, PARTITIONS, f"w{number}", seconds) for number in range(2)]
    process = InProcess(access, TOPIC, PARTITIONS, "process", seconds)
    try:
        kills = _kill_leaders(cluster, seconds, pause, random)
        written: list[Written] = [each.result(_FINISH_SECONDS) for each in writers]
        written.append(process.result(_FINISH_SECONDS))
        are_written.set()
        found: list[Read] = [each.result(_FINISH_SECONDS) for each in readers]
    finally:
        process.kill()
        are_written.set()
    errors = [error for each in written for error in each.errors] + [error for each in found for error in each.errors]
    return Reckoning(check(TOPIC, PARTITIONS, written, found), kills, errors)


def _kill_leaders(cluster: raylog.Cluster, seconds: float, pause: float, random: Random) -> int:
    deadline = time.monotonic() + seconds
    kills = 0
    while time.monotonic() + pause < deadline:
        time.sleep(pause)
        _until(lambda: _can_lose_one(cluster))
        leaders = [each for each in cluster.describe_replicas(TOPIC) if each.role == "leader"]
        os.kill(random.choice(leaders).pid, signal.SIGKILL)
        kills += 1
    return kills


def _can_lose_one(cluster: raylog.Cluster) -> bool:
    """All partitions are led and all their replicas in sync: what is killed next takes no promise with it."""
    partitions = cluster.describe_topic(TOPIC).partitions
    return all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in partitions)


def _until(condition: Callable[[], bool]) -> None:
    deadline = time.monotonic() + _WHOLE_SECONDS
    while True:
        try:
            if condition():
                return
        except RaylogError as error:
            reason = str(error)
        else:
            reason = "a partition is not whole"
        assert time.monotonic() < deadline, reason
        time.sleep(_LOOK_SECONDS)

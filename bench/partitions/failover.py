"""A host, then a broker, that leads a thousand partitions is killed: when all are led again, and how long writers wait.

A producer sends a record to each partition in turn, so that each gets one every two seconds. The gap is the longest
time from a `send` to its acknowledgement: what a writer of the partition that waits longest notices.
"""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import Final

from bench.measuring import Figure
from bench.partitions.clusters import LEADER, LIMIT_SECONDS, PARTITIONS, leading_pid, made
from bench.partitions.kafka import KafkaCluster
from bench.real_cluster import actor_pids, real_cluster
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.protocol.actor_names import broker_name, housekeeper_name
from raylog.api.admin.cluster import Cluster
from raylog.api.producer.buffer.record_future import RecordFuture
from raylog.api.producer.producer import Producer

_TOPIC: Final = "led-by-one"
_EACH_SECONDS: Final = 2.0  # between two records of a partition
_AT_ONCE: Final = 10  # records between two looks at the clock
_CALM_SECONDS: Final = 6.0  # each partition gets its first record in that time, which finds its leader
_AFTERWARDS_SECONDS: Final = 5.0
_LOOK_SECONDS: Final = 0.05
_HOST_GOAL: Final = 3.0
_BROKER_GOAL: Final = 5.0


def run(_kafka: KafkaCluster | None) -> Iterator[Figure]:
    yield from _killed("host of {} leaders killed", lambda cluster: [leading_pid(cluster, _TOPIC)], _HOST_GOAL)
    yield from _killed("broker of {} leaders lost", _of_broker, _BROKER_GOAL)


def _of_broker(_cluster: Cluster) -> list[int]:
    """All processes of a broker, itself first, so that it cannot tell of the others' end."""
    names = (broker_name(LEADER), f"host-{LEADER}-", housekeeper_name(LEADER))
    return [pid for name in names for pid in actor_pids(name)]


def _killed(what: str, pids: Callable[[Cluster], list[int]], goal: float) -> Iterator[Figure]:
    with real_cluster() as cluster:
        made(cluster, _TOPIC, PARTITIONS, leader=LEADER)
        with Writer(cluster.access(), _TOPIC, PARTITIONS) as writer:
            time.sleep(_CALM_SECONDS)
            calm = writer.take_longest()
            before = {each.partition: each.leader_epoch for each in cluster.describe_topic(_TOPIC).partitions}
            doomed = pids(cluster)
            began = time.perf_counter()
            for pid in doomed:
                os.kill(pid, signal.SIGKILL)
            _until_led_anew(cluster, before, began)
            led = time.perf_counter() - began
            time.sleep(_AFTERWARDS_SECONDS)
        longest = writer.take_longest()
    name = what.format(f"{PARTITIONS:,}")
    yield Figure(f"{name}: all led again", [led], "s", goal, smaller_is_better=True, note=f"{len(doomed)} processes")
    note = f"acks=all, a record to each partition every {_EACH_SECONDS:g} s; {calm:.2f} s before"
    yield Figure(f"{name}: longest gap of a producer", [longest], "s", goal, smaller_is_better=True, note=note)


def _until_led_anew(cluster: Cluster, before: dict[int, int], began: float) -> None:
    while True:
        found = cluster.describe_topic(_TOPIC).partitions
        left = sum(each.is_offline or each.leader_epoch == before[each.partition] for each in found)
        if not left:
            return
        if time.perf_counter() - began > LIMIT_SECONDS:
            raise TimeoutError(f"{left} partitions have no new leader after {LIMIT_SECONDS:.0f} s")
        time.sleep(_LOOK_SECONDS)


class Writer:
    """Writes to all partitions in turn from a thread of its own, as long as it is entered."""

    def __init__(self, access: ClusterAccess, topic: str, partitions: int) -> None:
        self._access = access
        self._topic = topic
        self._partitions = partitions
        self._is_over = threading.Event()
        self._longest = 0.0
        self._failures: list[Exception] = []
        self._thread = threading.Thread(target=self._write, daemon=True)

    def __enter__(self) -> Writer:
        self._thread.start()
        return self

    def __exit__(self, failure: type[BaseException] | None, *_: object) -> None:
        """Wait for all acknowledgements. The first failure of a record is raised."""
        self._is_over.set()
        if failure is None:
            self._thread.join()
            if self._failures:
                raise self._failures[0]

    def take_longest(self) -> float:
        """Return the longest wait so far, and begin anew."""
        longest, self._longest = self._longest, 0.0
        return longest

    def _write(self) -> None:
        with Producer(cluster=self._access) as producer:
            pause = _EACH_SECONDS * _AT_ONCE / self._partitions
            due, partition = time.perf_counter(), 0
            while not self._is_over.wait(max(0.0, due - time.perf_counter())):
                for _ in range(_AT_ONCE):
                    self._send(producer, partition)
                    partition = (partition + 1) % self._partitions
                due = max(due + pause, time.perf_counter())

    def _send(self, producer: Producer, partition: int) -> None:
        sent = time.perf_counter()

        def told(future: RecordFuture) -> None:
            self._longest = max(self._longest, time.perf_counter() - sent)
            if (failure := future.exception(0)) is not None:
                self._failures.append(failure)

        producer.send(self._topic, b"", partition=partition).add_done_callback(told)

"""A producer and a consumer of many partitions of a real cluster, as users have them, who note all they hear.

Each partition gets a record in turn, whatever happens to the others, so that the one which waits longest is noticed.
`chaos_clients.py` has those of one partition, who know nothing of `raylog.Producer` and `raylog.Consumer`.
"""

from __future__ import annotations

import threading
import time
from concurrent.futures import Future
from typing import Final

import raylog
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.api.producer.buffer.record_future import RecordFuture
from tests.cluster.support.chaos_clients import Tally, longest_silence
from tests.cluster.support.client_programs import on_thread
from tests.simulator.checks.history import PartitionHistory

_EACH_SECONDS: Final = 0.5  # between two records of a partition
_LOOK_SECONDS: Final = 0.02
_POLL_MS: Final = 200
_END_SECONDS: Final = 120.0
_PRODUCER: Final = b"w"


class ManyPartitionClients:
    """Clients at work from the beginning to `reckon`."""

    def __init__(self, access: ClusterAccess, topic: str, partitions: int) -> None:
        self._access = access
        self._topic = topic
        self._histories = [PartitionHistory(f"{topic}-{number}") for number in range(partitions)]
        self._acknowledged: list[list[float]] = [[] for _ in range(partitions)]  # when, by partition
        self._failures: list[Exception] = []
        self._is_over = threading.Event()
        self._writing: Future[None] = on_thread(self._write)
        self._reading: Future[None] = on_thread(self._read)

    # --- what the faults ask ---

    def until_acknowledged(self, batches: int, seconds: float = 60.0) -> None:
        """Wait for so many more in each partition."""
        wanted = [len(times) + batches for times in self._acknowledged]
        deadline = time.monotonic() + seconds
        while waiting := [number for number, times in enumerate(self._acknowledged) if len(times) < wanted[number]]:
            self._raise_failures()
            assert time.monotonic() < deadline, f"partitions {waiting[:5]} and more acknowledge nothing any more"
            time.sleep(_LOOK_SECONDS)

    def longest_silence(self, since: float, until: float) -> float:
        """Return that of the partition which waited longest."""
        return max(longest_silence(times, since, until) for times in self._acknowledged)

    def reckon(self) -> Tally:
        """Stop writing, read everything from the beginning, and check it. InvariantBroken."""
        self._is_over.set()
        self._writing.result(_END_SECONDS)
        self._reading.result(_END_SECONDS)
        self._raise_failures()
        tally = Tally()
        for history, records in zip(self._histories, self._read_all(), strict=True):
            tally.add(history, records)
        return tally

    def _raise_failures(self) -> None:
        for each in (self._writing, self._reading):
            if each.done():
                each.result()
        if self._failures:
            raise self._failures[0]

    # --- the producer ---

    def _write(self) -> None:
        numbers = [0] * len(self._histories)
        with raylog.Producer(cluster=self._access) as producer:
            due, pause = time.monotonic(), _EACH_SECONDS / len(numbers)
            while not self._is_over.wait(max(0.0, due - time.monotonic())):
                partition = sum(numbers) % len(numbers)
                self._send(producer, partition, b"%s-%d" % (_PRODUCER, numbers[partition]))
                numbers[partition] += 1
                due = max(due + pause, time.monotonic() - _EACH_SECONDS)
            producer.flush(timeout=_END_SECONDS)

    def _send(self, producer: raylog.Producer, partition: int, value: bytes) -> None:
        history = self._histories[partition]
        history.will_send(_PRODUCER, [value], ordered=True)

        def told(future: RecordFuture) -> None:
            if (failure := future.exception(0)) is not None:
                self._failures.append(failure)
                return
            self._acknowledged[partition].append(time.monotonic())
            history.was_acknowledged([value], future.result(0).offset)

        producer.send(self._topic, value, partition=partition).add_done_callback(told)

    # --- the consumers ---

    def _read(self) -> None:
        with raylog.Consumer(cluster=self._access, auto_offset_reset="earliest") as consumer:
            consumer.assign(self._partitions())
            while not self._is_over.is_set():
                for polled in consumer.poll(timeout_ms=_POLL_MS).values():
                    for each in polled:
                        self._histories[each.partition].was_read(each.offset, each.value)

    def _read_all(self) -> list[list[tuple[int, bytes]]]:
        """Return (offset, value) of all that is there now, by partition."""
        found: list[list[tuple[int, bytes]]] = [[] for _ in self._histories]
        deadline = time.monotonic() + _END_SECONDS
        with raylog.Consumer(cluster=self._access, auto_offset_reset="earliest") as consumer:
            partitions = self._partitions()
            consumer.assign(partitions)
            ends = consumer.end_offsets(partitions)
            while any(consumer.position(each) < ends[each] for each in partitions):
                assert time.monotonic() < deadline, "what was written cannot be read to its end"
                for polled in consumer.poll(timeout_ms=_POLL_MS).values():
                    for each in polled:
                        found[each.partition].append((each.offset, each.value))
        return found

    def _partitions(self) -> list[raylog.TopicPartition]:
        return [raylog.TopicPartition(self._topic, number) for number in range(len(self._histories))]

"""The demo's writers and readers: two kinds of Ray actors, and what each saw.

Every record begins with its number, so that each can be accounted for one by one.
"""

from __future__ import annotations

import queue
import threading
import time
from dataclasses import dataclass, field
from typing import Final

import raylog
from raylog.api.producer.bulk_send import BulkFuture

NUMBER_DIGITS: Final = 12
RECORD_BYTES: Final = 100
_PADDING: Final = b"." * (RECORD_BYTES - NUMBER_DIGITS - 20)
_TICK_SECONDS: Final = 0.02
_ANSWER_SECONDS: Final = 60.0


def numbered(first: int, count: int) -> list[bytes]:
    """Records: a number, when it was written in ns, and padding."""
    end = b"%020d%b" % (time.time_ns(), _PADDING)
    return [b"%012d%b" % (number, end) for number in range(first, first + count)]


@dataclass
class Written:
    acknowledged: int = 0
    seconds: float = 0.0
    waits: list[float] = field(default_factory=list)  # for an acknowledgement, of some records at a time


class Writer:
    """Writes `rate` records a second with acks=all, in turn to all partitions, until it is stopped."""

    def __init__(self, topic: str, partitions: int, rate: int) -> None:
        self._topic = topic
        self._partitions = partitions
        self._chunk = round(rate * _TICK_SECONDS)
        self._producer = raylog.Producer(acks="all")
        self._written = Written()
        self._stopped = threading.Event()
        self._sent: list[queue.SimpleQueue[tuple[float, BulkFuture] | None]] = [
            queue.SimpleQueue() for _ in range(partitions)
        ]
        self._counting = threading.Lock()
        self._threads: list[threading.Thread] = []

    def begin(self) -> None:
        works = [self._write, *(lambda sent=sent: self._await_answers(sent) for sent in self._sent)]
        self._threads = [threading.Thread(target=work, daemon=True) for work in works]
        for thread in self._threads:
            thread.start()

    def stop(self) -> Written:
        """Stop. Return what was acknowledged, once everything is."""
        self._stopped.set()
        for thread in self._threads:
            thread.join(_ANSWER_SECONDS)
        self._producer.close()
        return self._written

    def _write(self) -> None:
        began = due = time.monotonic()
        number = turn = 0
        while not self._stopped.is_set():
            future = self._producer.send_many(
                self._topic, numbered(number, self._chunk), partition=turn % self._partitions
            )
            self._sent[turn % self._partitions].put((time.monotonic(), future))
            number, turn, due = number + self._chunk, turn + 1, due + _TICK_SECONDS
            time.sleep(max(0.0, due - time.monotonic()))
        self._written.seconds = time.monotonic() - began
        for sent in self._sent:
            sent.put(None)

    def _await_answers(self, sent: queue.SimpleQueue[tuple[float, BulkFuture] | None]) -> None:
        while (each := sent.get()) is not None:
            sent_at, future = each
            count = future.result(timeout=_ANSWER_SECONDS).record_count
            with self._counting:
                self._written.acknowledged += count
                self._written.waits.append(time.monotonic() - sent_at)


@dataclass
class Seen:
    numbers: list[int] = field(default_factory=list)
    delays: list[float] = field(default_factory=list)  # from writing to reading, of the last record of each batch
    partitions: list[int] = field(default_factory=list)


class Reader:
    """A member of the group, which reads until it is stopped."""

    def __init__(self, topic: str, group: str) -> None:
        self._consumer = raylog.Consumer(topic, group_id=group, auto_offset_reset="earliest")
        self._seen = Seen()
        self._stopped = threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def partitions(self) -> list[int]:
        return self._seen.partitions

    def count(self) -> int:
        return len(self._seen.numbers)

    def stop(self) -> Seen:
        self._stopped.set()
        self._thread.join(_ANSWER_SECONDS)
        self._consumer.close()
        return self._seen

    def _read(self) -> None:
        seen = self._seen
        while not self._stopped.is_set():
            seen.partitions = sorted(each.partition for each in self._consumer.assignment())
            for batch in self._consumer.poll_batches(timeout_ms=100):
                values = [value or b"" for value in batch.values]
                seen.numbers.extend(int(value[:NUMBER_DIGITS]) for value in values)
                written_ns = int(values[-1][NUMBER_DIGITS : NUMBER_DIGITS + 20])
                seen.delays.append((time.time_ns() - written_ns) / 1e9)

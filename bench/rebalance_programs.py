"""The processes of `rebalance_bench.py`: one that sends, members of a group, and a reader without a group.

    python -m bench.rebalance_programs send|member|reader FILE ACCESS [PLAN]

The sender goes on until SIGTERM, and then writes to FILE how many records of each partition were acknowledged. Each
record holds when it was sent; whoever reads appends what it is handed to FILE, by one write a poll, so that what was
read before a SIGKILL is there. Times are of the monotonic clock, which is one for all processes of a machine.
"""

from __future__ import annotations

import base64
import json
import os
import pickle
import signal
import struct
import sys
import threading
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Final, NamedTuple

import raylog
from bench.delivery_gaps import ASSIGNED, REVOKED, Delivery
from raylog.actors.machine.cluster_access import ClusterAccess

TOPIC: Final = "moving"
GROUP: Final = "movers"
PARTITIONS: Final = 12
SESSION_MS: Final = 3_000

EVENTS: Final = ".events"
BEGUN: Final = ".begun"  # holds the time when a member subscribed
_FLUSH_SECONDS: Final = 60.0
_ENTRY: Final = struct.Struct("<iqdd")
_STAMP: Final = struct.Struct("<d")


class Plan(NamedTuple):
    """The number of partitions, which of them get records, and the seconds between two records of one."""

    partitions: int = PARTITIONS
    step: int = 1  # each partition of so many gets records: the first, and so on
    send_every: float = 0.02

    @property
    def sent_to(self) -> range:
        return range(0, self.partitions, self.step)


def deliveries(path: Path) -> Iterable[Delivery]:
    data = path.read_bytes() if path.exists() else b""
    whole = len(data) // _ENTRY.size * _ENTRY.size
    return (Delivery(*entry) for entry in _ENTRY.iter_unpack(data[:whole]))


def sent_counts(path: Path) -> list[int] | None:
    """Return how many records were sent to each partition. None: the sender has not ended."""
    return json.loads(path.read_bytes()) if path.exists() else None


def _send(access: ClusterAccess, path: str, plan: Plan) -> None:
    is_told = threading.Event()
    signal.signal(signal.SIGTERM, lambda *_: is_told.set())
    counts, last = 0, []
    with raylog.Producer(cluster=access) as producer:
        due = time.monotonic()
        while not is_told.wait(max(0.0, due - time.monotonic())):
            last = [producer.send(TOPIC, _STAMP.pack(time.monotonic()), partition=each) for each in plan.sent_to]
            counts += 1
            due = max(due + plan.send_every, time.monotonic())
        producer.flush(_FLUSH_SECONDS)
        acknowledged = [each.result(0).offset + 1 for each in last]
    assert acknowledged == [counts] * len(plan.sent_to), "an offset for each record that was sent"
    Path(f"{path}.tmp").write_text(json.dumps(acknowledged))
    os.rename(f"{path}.tmp", path)


class _Noted:
    """A listener that notes when partitions came, as entries without an offset."""

    def __init__(self, path: str) -> None:
        self._out = os.open(path + EVENTS, os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def on_partitions_assigned(self, partitions: Iterable[raylog.TopicPartition]) -> None:
        self._note(partitions, ASSIGNED)

    def on_partitions_revoked(self, partitions: Iterable[raylog.TopicPartition]) -> None:
        self._note(partitions, REVOKED)

    def _note(self, partitions: Iterable[raylog.TopicPartition], what: int) -> None:
        now = time.monotonic()
        os.write(self._out, b"".join(_ENTRY.pack(each.partition, what, now, now) for each in partitions))


def _read(consumer: raylog.Consumer, path: str) -> None:
    out = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
    while True:
        found = consumer.poll(timeout_ms=200)
        now = time.monotonic()
        if found:
            entries = [
                _ENTRY.pack(record.partition, record.offset, _STAMP.unpack(record.value)[0], now)
                for records in found.values()
                for record in records
            ]
            os.write(out, b"".join(entries))


def main() -> None:
    role, path, access = sys.argv[1], sys.argv[2], pickle.loads(base64.b64decode(sys.argv[3]))
    plan = Plan(*json.loads(sys.argv[4])) if len(sys.argv) > 4 else Plan()
    if role == "send":
        _send(access, path, plan)
    elif role == "member":
        with raylog.Consumer(
            cluster=access, group_id=GROUP, auto_offset_reset="earliest",
            session_timeout_ms=SESSION_MS, heartbeat_interval_ms=SESSION_MS // 3, auto_commit_interval_ms=500,
        ) as consumer:  # fmt: skip
            Path(path + BEGUN).write_text(str(time.monotonic()))
            consumer.subscribe([TOPIC], listener=_Noted(path))
            _read(consumer, path)
    else:
        with raylog.Consumer(cluster=access, auto_offset_reset="latest") as reader:
            reader.assign([raylog.TopicPartition(TOPIC, number) for number in range(plan.partitions)])
            _read(reader, path)


if __name__ == "__main__":
    main()

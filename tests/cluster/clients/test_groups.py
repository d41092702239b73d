"""A group of consumers in processes of their own: one more comes, one is killed, and the coordinators are killed."""

from __future__ import annotations

import base64
import json
import pickle
import subprocess
from collections.abc import Callable, Iterator
from itertools import chain
from pathlib import Path

import pytest

import raylog
from raylog.errors import GroupNotEmpty
from tests.cluster.clients.conftest import kill_coordinators
from tests.cluster.conftest import StartProgram, until

pytestmark = pytest.mark.cluster

_PARTITIONS = 6
_CONSUMER = """
import base64, json, pickle, raylog
out = open({path!r}, "a")

def say(*what):
    out.write(json.dumps(what) + "\\n")
    out.flush()

class Listener:
    def on_partitions_assigned(self, partitions):
        say("assigned", sorted(each.partition for each in partitions))
    def on_partitions_revoked(self, partitions):
        say("revoked", sorted(each.partition for each in partitions))

with raylog.Consumer(
    cluster=pickle.loads(base64.b64decode({access!r})), group_id="readers", auto_offset_reset="earliest",
    session_timeout_ms=3000, heartbeat_interval_ms=1000, auto_commit_interval_ms=200,
) as consumer:
    consumer.subscribe(["work"], listener=Listener())
    while True:
        for partition, records in consumer.poll(timeout_ms=200).items():
            for record in records:
                say("record", partition.partition, record.offset, record.value.decode())
"""


class _Consumers:
    """Consumer processes, and what they have written down."""

    def __init__(self, cluster: raylog.Cluster, folder: Path, start: StartProgram) -> None:
        self._access = base64.b64encode(pickle.dumps(cluster.access())).decode()
        self._folder = folder
        self._start = start
        self.processes: list[subprocess.Popen[str]] = []
        self.sent = 0
        self._producer = raylog.Producer(cluster=cluster)

    def add(self) -> None:
        path = self._path(len(self.processes))
        path.touch()
        self.processes.append(self._start(_CONSUMER.format(path=str(path), access=self._access)))

    def _path(self, number: int) -> Path:
        return self._folder / f"consumer-{number}"

    def said(self, number: int, what: str) -> list[list[object]]:
        lines = self._path(number).read_text().splitlines(keepends=True)
        told = [json.loads(line) for line in lines if line.endswith("\n")]
        return [each for each in told if each[0] == what]

    def send(self, count: int) -> None:
        for number in range(self.sent, self.sent + count):
            self._producer.send("work", str(number).encode(), partition=number % _PARTITIONS)
        self._producer.flush()
        self.sent += count

    def seen(self) -> set[object]:
        return {each[3] for number in range(len(self.processes)) for each in self.said(number, "record")}

    def has_all(self) -> bool:
        return len(self.seen()) == self.sent

    def close(self) -> None:
        self._producer.close()


@pytest.fixture
def consumers(cluster: raylog.Cluster, tmp_path: Path, start_program: StartProgram) -> Iterator[_Consumers]:
    cluster.create_topic("work", _PARTITIONS, 3)
    consumers = _Consumers(cluster, tmp_path, start_program)
    yield consumers
    consumers.close()


def test_every_record_is_processed_whoever_comes_and_goes(cluster: raylog.Cluster, consumers: _Consumers) -> None:
    for _ in range(3):
        consumers.add()
    consumers.send(120)
    until(consumers.has_all)
    consumers.add()
    until(lambda: bool(consumers.said(3, "assigned")))
    consumers.send(120)
    until(consumers.has_all)
    consumers.processes[0].kill()
    consumers.send(120)
    until(consumers.has_all)
    kill_coordinators()
    consumers.send(120)
    until(consumers.has_all)
    with raylog.Consumer(cluster=cluster, group_id="readers") as reader:
        partitions = [raylog.TopicPartition("work", number) for number in range(_PARTITIONS)]
        until(committed_all(reader, partitions, consumers.sent))
    told = cluster.describe_group("readers")
    assert (told.lag, len(told.partitions), len(told.members)) == (0, _PARTITIONS, 3)
    assert "readers" in [each.group_id for each in cluster.list_groups()]
    assert len(cluster.reset_group_offsets("readers", "earliest", dry_run=True)) == _PARTITIONS
    with pytest.raises(GroupNotEmpty):
        cluster.reset_group_offsets("readers", "earliest")
    assert_only_the_dead_lost_without_a_word(consumers)


def test_what_no_worker_can_handle_becomes_a_dead_letter(cluster: raylog.Cluster) -> None:
    cluster.create_topic("orders", 2, 3)
    cluster.create_topic("dead-orders", 1, 3)
    with raylog.Producer(cluster=cluster) as producer:
        for number in range(100):
            producer.send("orders", b"%d" % number, key=b"%d" % (number % 7), headers=[("source", b"test")])
    done: dict[bytes, list[int]] = {}

    def handle(record: raylog.ConsumerRecord) -> None:
        if record.value == 50:
            raise ValueError("not fifty")
        done.setdefault(record.key, []).append(record.value)

    with raylog.ParallelConsumer(
        "orders", cluster=cluster, group_id="clerks", handler=handle, value_deserializer=int, workers=4, retries=1,
        retry_pause_ms=1, dead_letter_topic="dead-orders", auto_offset_reset="earliest",
    ) as consumer:  # fmt: skip

        def all_done() -> bool:
            consumer.run(timeout_ms=100)
            return bool(consumer.metrics()["records_done"] == 100)

        until(all_done)
    assert all(values == sorted(values) for values in done.values())
    assert sorted(chain(*done.values())) == [each for each in range(100) if each != 50]
    assert cluster.describe_group("clerks").lag == 0
    with raylog.Consumer(
        "dead-orders", cluster=cluster, auto_offset_reset="earliest", consumer_timeout_ms=1000
    ) as reader:
        (letter,) = reader
    told = dict(letter.headers)
    assert (letter.key, letter.value, told["source"]) == (b"1", b"50", b"test")
    assert (told["dead-letter.topic"], told["dead-letter.attempts"]) == (b"orders", b"2")
    assert (told["dead-letter.error"], told["dead-letter.reason"]) == (b"builtins.ValueError", b"not fifty")


def committed_all(reader: raylog.Consumer, partitions: list[raylog.TopicPartition], count: int) -> Callable[[], bool]:
    def check() -> bool:
        found = reader.committed_offsets(partitions)
        return sum(0 if each is None else each.offset for each in found.values()) == count

    return check


def assert_only_the_dead_lost_without_a_word(consumers: _Consumers) -> None:
    """Check that the living kept what they did not give up: no second assignment of what they had."""
    for number in range(1, len(consumers.processes)):
        held: set[object] = set()
        for what, partitions in _moves(consumers, number):
            named = set(partitions)
            assert not (named & held if what == "assigned" else named - held)
            held = held | named if what == "assigned" else held - named


def _moves(consumers: _Consumers, number: int) -> list[tuple[str, list[object]]]:
    lines = [json.loads(line) for line in consumers._path(number).read_text().splitlines()]
    return [(each[0], each[1]) for each in lines if each[0] in ("assigned", "revoked")]

"""A type checker on a user's program: it tells each mistake, and nothing where there is none."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

_ROOT = Path(__file__).parents[2]
# Lines that end in `# wrong` are the mistakes.
_PROGRAM = '''\
import json

import raylog
from raylog import ConsumerRecord, TopicPartition


class Keep(raylog.RebalanceListener):
    def on_partitions_revoked(self, partitions: set[TopicPartition]) -> None:
        print(sorted(partitions))


def encode(row: dict[str, int]) -> bytes:
    return json.dumps(row).encode()


def handle(record: ConsumerRecord) -> int:
    return record.offset


cluster = raylog.start("data", brokers=3)
cluster.create_topic("clicks", partitions=3, config={"retention.ms": "7d"})
cluster.create_topic("views", partitions="three")  # wrong
cluster.elect_leaders("preffered")  # wrong

with raylog.Producer(cluster=cluster, acks="all", compression_type="lz4", value_serializer=encode) as producer:
    sent = producer.send("clicks", {"id": 1}, key=b"alice").result(timeout=10)
    print(sent.offset + sent.serialized_value_size)
    print(sent.ofset)  # wrong
    many = producer.send_many("clicks", [{"id": 1}, {"id": 2}], keys=[b"a", b"b"])
    print(many.result(timeout=10).record_count)

raylog.Producer(acks="al")  # wrong
raylog.Producer(value_serializer=json.dumps)  # wrong
raylog.Producer(linger="5")  # wrong
raylog.Producer({"bootstrap.servers": "localhost:9092"})  # wrong

with raylog.Consumer("clicks", group_id="billing", auto_offset_reset="earliest") as consumer:
    consumer.subscribe(["clicks"], listener=Keep())
    consumer.subscribe(["clicks"], listener=handle)  # wrong
    for partition, records in consumer.poll(timeout_ms=100).items():
        print(partition.topic, [handle(record) for record in records])
    consumer.seek(TopicPartition("clicks", 0), 42)
    consumer.commit({TopicPartition("clicks", 0): 43})

raylog.Consumer("clicks", auto_offset_reset="earlyest")  # wrong
raylog.KafkaConsumer("clicks")  # wrong

try:
    described = cluster.describe_topic("clicks")
except raylog.UnknownTopic as error:
    print(error.topic, error.retriable)
except raylog.errors.RaylogError as error:
    print(error.advice)
else:
    print(described.partitions[0].leader)
'''


@pytest.mark.timeout(600)
def test_mypy_finds_ten_deliberate_mistakes_and_nothing_else(tmp_path: Path) -> None:
    program = tmp_path / "program.py"
    program.write_text(_PROGRAM)
    lines = _PROGRAM.splitlines()
    wrong = [number for number, line in enumerate(lines, 1) if line.endswith("# wrong")]
    assert (len(wrong), len(lines) <= 60) == (10, True)
    checked = subprocess.run(
        [sys.executable, "-m", "mypy", "--strict", str(program)], cwd=_ROOT, capture_output=True, text=True, check=False
    )
    found = re.findall(r"program\.py:(\d+): error", checked.stdout)
    assert list(map(int, found)) == wrong, checked.stdout + checked.stderr

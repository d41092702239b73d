"""What one library writes all of them read, byte for byte; what one commits the next one knows."""

from __future__ import annotations

import time
from typing import Any, Final

import pytest

import raylog
from tests.kafka.libraries.records import SECONDS, Record

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

import confluent_kafka
import kafka

from tests.kafka.libraries import aio, confluent, handles, kafka_python

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

LIBRARIES: Final[dict[str, Any]] = {
    "confluent-kafka": confluent,
    "kafka-python": kafka_python,
    "aiokafka": aio,
    "raylog": handles,
}
_TIME_MS: Final = 1_700_000_000_000


def records_of(name: str) -> list[Record]:
    """Records with and without keys, values (not both: some refuse that) and headers, and with a header twice."""
    return [
        Record(
            number,
            _TIME_MS + 7 * (number // 2),
            b"key-%d" % number if number % 3 else None,
            f"{name}-{number}".encode() * (number % 5) if number % 7 or number % 3 == 0 else None,
            (("writer", name.encode()), ("writer", b"\x00\xff"), ("empty", b"")) if number % 2 else (),
        )
        for number in range(100)
    ]


@pytest.mark.parametrize("writer", LIBRARIES)
def test_what_one_library_writes_all_of_them_read(cluster: raylog.Cluster, bootstrap: str, writer: str) -> None:
    """With each compression in a partition of its own."""
    library, topic = LIBRARIES[writer], f"written-by-{writer}"
    cluster.create_topic(topic, partitions=len(library.CODECS))
    records = records_of(writer)
    for partition, codec in enumerate(library.CODECS):
        library.write(bootstrap, topic, partition, records, codec)
    for name, reader in LIBRARIES.items():
        for partition, codec in enumerate(library.CODECS):
            if codec not in reader.CODECS:
                continue
            assert reader.read(bootstrap, topic, partition, len(records)) == records, (name, codec)


def test_offsets_that_one_library_commits_the_next_one_knows(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "read-by-hand"
    cluster.create_topic(topic, partitions=1)
    handles.write(bootstrap, topic, 0, records_of("raylog"))
    found = [
        library.commit(bootstrap, "by-hand", topic, offset)
        for offset, library in ((10, handles), (20, confluent), (30, kafka_python), (40, aio), (50, handles))
    ]
    assert found == [-1, 10, 20, 30, 40]


def test_members_of_each_library_go_on_where_the_last_one_stopped(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "read-in-turn"
    cluster.create_topic(topic, partitions=1)
    handles.write(bootstrap, topic, 0, records_of("raylog"))
    found: list[Record] = []
    for library in (kafka_python, aio, handles, confluent):
        found += library.take(bootstrap, "in-turn", topic, 25)
    assert found == records_of("raylog")


def test_members_of_two_libraries_share_a_group(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "shared-by-two"
    cluster.create_topic(topic, partitions=4)
    settings = {"bootstrap.servers": bootstrap, "group.id": "shared", "partition.assignment.strategy": "range"}
    one = confluent_kafka.Consumer(settings)
    two = kafka.KafkaConsumer(
        topic,
        bootstrap_servers=bootstrap,
        group_id="shared",
        partition_assignment_strategy=[kafka.coordinator.assignors.range.RangePartitionAssignor],
    )
    one.subscribe([topic])
    deadline = time.monotonic() + SECONDS
    counts: list[int] = []
    while counts != [2, 2] and time.monotonic() < deadline:
        one.poll(0.2)
        two.poll(200)
        counts = [len(one.assignment()), len(two.assignment())]
    assert counts == [2, 2]
    with raylog.Consumer(group_id="shared") as handle:
        handle.subscribe([topic])
        with pytest.raises(raylog.errors.InconsistentGroupProtocol):
            handle.poll(timeout_ms=5_000)
    one.close()
    two.close()

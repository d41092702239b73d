"""Topics of each `batch.format`: what is stored has that form, and every client reads what every client has written."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path
from typing import Final

import pytest

import raylog

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")
pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")

import confluent_kafka
from confluent_kafka.admin import AdminClient, AlterConfigOpType, ConfigEntry, ConfigResource, ResourceType

from raylog.storage.format.record_batch import MAGIC_COLUMNS, MAGIC_KAFKA, BatchHeader, read_header, split_batches
from tests.cluster.conftest import until
from tests.kafka.libraries import confluent, handles
from tests.kafka.libraries.records import SECONDS, Record
from tests.kafka.test_libraries import LIBRARIES, records_of

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

_OTHER_FORM: Final = [("raylog", "kafka"), *((name, "columns") for name in LIBRARIES if name != "raylog")]
_MAGICS: Final = {"kafka": MAGIC_KAFKA, "columns": MAGIC_COLUMNS}


def stored(cluster: raylog.Cluster, topic: str, partition: int = 0) -> list[BatchHeader]:
    """Return the batches on a leader's disk, but for markers."""
    leader = cluster.describe_topic(topic).partitions[partition].leader
    (home,) = (each.directory for each in cluster.describe_cluster().brokers if each.broker == leader)
    files = sorted(Path(home, f"{topic}-{partition}").glob("*.log"))
    headers = [read_header(batch) for file in files for batch in split_batches(file.read_bytes())]
    return [each for each in headers if not each.is_control]


@pytest.mark.parametrize(("writer", "batch_format"), _OTHER_FORM)
def test_what_one_library_writes_in_the_others_form_all_of_them_read(
    cluster: raylog.Cluster, bootstrap: str, writer: str, batch_format: str
) -> None:
    library, topic = LIBRARIES[writer], f"{batch_format}-by-{writer}"
    cluster.create_topic(topic, partitions=len(library.CODECS), config={"batch.format": batch_format})
    records = records_of(writer)
    for partition, codec in enumerate(library.CODECS):
        library.write(bootstrap, topic, partition, records, codec)
        assert {each.magic for each in stored(cluster, topic, partition)} == {_MAGICS[batch_format]}
    for name, reader in LIBRARIES.items():
        for partition, codec in enumerate(library.CODECS):
            if codec in reader.CODECS:
                assert reader.read(bootstrap, topic, partition, len(records)) == records, (name, codec)


def test_transactions_of_handles_are_the_same_in_kafkas_form(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "transactions-in-rows"
    cluster.create_topic(topic, partitions=1, config={"batch.format": "kafka"})
    with raylog.Producer(transactional_id="rows") as producer:
        producer.init_transactions()
        for number, ends in enumerate((producer.commit_transaction, producer.abort_transaction) * 2):
            producer.begin_transaction()
            for each in range(3):
                producer.send(topic, b"%d-%d" % (number, each))
            ends()
    headers = stored(cluster, topic)
    assert {(each.magic, each.is_transactional) for each in headers} == {(MAGIC_KAFKA, True)}
    expected = [b"%d-%d" % (number, each) for number in (0, 2) for each in range(3)]
    assert [each.value for each in confluent.read(bootstrap, topic, 0, len(expected))] == expected
    with raylog.Consumer(auto_offset_reset="earliest", isolation_level="read_committed") as consumer:
        consumer.assign([raylog.TopicPartition(topic, 0)])
        assert [each.value for batch in consumer.poll(timeout_ms=5_000).values() for each in batch] == expected


def test_a_large_batch_becomes_columns_with_the_time_of_the_broker(cluster: raylog.Cluster, bootstrap: str) -> None:
    """Of more than is converted on a gateway's loop; the small ones behind it keep their places."""
    topic = "large-into-columns"
    cluster.create_topic(
        topic, partitions=1, config={"batch.format": "columns", "message.timestamp.type": "LogAppendTime"}
    )
    producer = confluent_kafka.Producer(
        {"bootstrap.servers": bootstrap, "linger.ms": 50, "batch.num.messages": 4_000, "enable.idempotence": True}
    )
    values = [b"%06d" % number * 20 for number in range(40_000)]
    for value in values:
        producer.produce(topic, value, partition=0)
    assert producer.flush(SECONDS) == 0
    headers = stored(cluster, topic)
    assert {each.magic for each in headers} == {MAGIC_COLUMNS}
    assert max(each.record_count for each in headers) > 1_100  # 128 KiB
    for read in (confluent.read, handles.read):
        found: list[Record] = read(bootstrap, topic, 0, len(values))
        assert [each.value for each in found] == values
        times = {(header.base_offset, header.max_timestamp) for header in headers}
        assert times <= {(each.offset, each.timestamp) for each in found}


def test_a_change_reaches_the_writers_of_a_topic_in_use(cluster: raylog.Cluster, bootstrap: str) -> None:
    """It is made by a client of Kafka, and each writer hears of it by itself."""
    topic = "changes-its-form"
    cluster.create_topic(topic, partitions=2)
    admin = AdminClient({"bootstrap.servers": bootstrap})
    theirs = confluent_kafka.Producer({"bootstrap.servers": bootstrap})

    def alter(batch_format: str) -> None:
        entry = ConfigEntry("batch.format", batch_format, incremental_operation=AlterConfigOpType.SET)
        resource = ConfigResource(ResourceType.TOPIC, topic, incremental_configs=[entry])
        for each in admin.incremental_alter_configs([resource]).values():
            each.result(SECONDS)

    with raylog.Producer() as ours:
        for batch_format, magics in (
            ("kafka", (MAGIC_KAFKA, MAGIC_KAFKA)),
            ("columns", (MAGIC_COLUMNS, MAGIC_COLUMNS)),
            ("as-produced", (MAGIC_COLUMNS, MAGIC_KAFKA)),
        ):
            alter(batch_format)
            assert dict(cluster.describe_topic(topic).settings).get("batch.format", "as-produced") == batch_format
            until(_has_form(cluster, topic, magics, ours, theirs))
    with pytest.raises(confluent_kafka.KafkaException, match="as-produced, kafka, columns"):
        alter("rows")
    with pytest.raises(raylog.errors.InvalidConfig):
        cluster.alter_topic_config(topic, {"batch.format": "rows"})


def _has_form(
    cluster: raylog.Cluster,
    topic: str,
    magics: tuple[int, int],
    ours: raylog.Producer,
    theirs: confluent_kafka.Producer,
) -> Callable[[], bool]:
    def has_form() -> bool:
        ours.send(topic, b"v", partition=0).result(timeout=SECONDS)
        theirs.produce(topic, b"v", partition=1)
        assert theirs.flush(SECONDS) == 0
        time.sleep(0.05)
        return tuple(stored(cluster, topic, partition)[-1].magic for partition in (0, 1)) == magics

    return has_form

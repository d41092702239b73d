"""Administrators of Kafka clients that people use, on a real cluster: topics, partitions, settings, what there is."""

from __future__ import annotations

import asyncio
from typing import Any, Final

import pytest

import raylog

kafka_admin: Any = pytest.importorskip("kafka.admin", reason="the extra `kafka` is not installed")
kafka_errors: Any = pytest.importorskip("kafka.errors", reason="the extra `kafka` is not installed")
aiokafka_admin: Any = pytest.importorskip("aiokafka.admin", reason="the extra `kafka` is not installed")
confluent: Any = pytest.importorskip("confluent_kafka", reason="the extra `bench` is not installed")
confluent_admin: Any = pytest.importorskip("confluent_kafka.admin", reason="the extra `bench` is not installed")

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(120)]

_SECONDS: Final = 30.0
_TOPIC_EXISTS: Final = 36
_UNKNOWN_TOPIC: Final = 3


@pytest.fixture(scope="module")
def bootstrap(cluster: raylog.Cluster) -> str:
    return ",".join(cluster.kafka_addresses())


def _of(futures: Any) -> list[Any]:
    return [each.result(_SECONDS) for each in futures.values()]


def test_confluents_administrator(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "made-by-confluent"
    admin: Any = confluent_admin.AdminClient({"bootstrap.servers": bootstrap})
    new = confluent_admin.NewTopic(topic, 2, 3, config={"retention.ms": "60000", "cleanup.policy": "compact"})
    assert _of(admin.create_topics([new])) == [None]
    with pytest.raises(confluent.KafkaException) as refused:
        _of(admin.create_topics([new]))
    assert refused.value.args[0].code() == _TOPIC_EXISTS
    assert cluster.describe_topic(topic).settings == (("cleanup.policy", "compact"), ("retention.ms", "60000"))
    _of(admin.create_partitions([confluent_admin.NewPartitions(topic, 4)]))
    assert len(admin.list_topics(topic, timeout=_SECONDS).topics[topic].partitions) == 4

    resource = confluent_admin.ConfigResource(confluent_admin.ConfigResource.Type.TOPIC, topic)
    (found,) = _of(admin.describe_configs([resource]))
    assert (found["retention.ms"].value, found["retention.ms"].source) == ("60000", 1)
    entry, operation = confluent_admin.ConfigEntry, confluent_admin.AlterConfigOpType
    resource.incremental_configs = [
        entry("cleanup.policy", "delete", incremental_operation=operation.APPEND),
        entry("retention.ms", None, incremental_operation=operation.DELETE),
    ]
    _of(admin.incremental_alter_configs([resource]))
    assert cluster.describe_topic(topic).settings == (("cleanup.policy", "compact,delete"),)
    broker = confluent_admin.ConfigResource(confluent_admin.ConfigResource.Type.BROKER, "1")
    (found,) = _of(admin.describe_configs([broker]))
    assert found["inter.broker.protocol.version"].value.startswith("4.")

    (described,) = _of(admin.describe_topics(confluent.TopicCollection([topic])))
    assert [len(part.replicas) for part in described.partitions] == [3] * 4
    _of(admin.delete_topics([topic]))
    with pytest.raises(confluent.KafkaException) as refused:
        _of(admin.delete_topics([topic]))
    assert refused.value.args[0].code() == _UNKNOWN_TOPIC
    assert topic not in cluster.list_topics()


def test_kafka_pythons_administrator(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "__made-by-kafka-python"
    admin: Any = kafka_admin.KafkaAdminClient(bootstrap_servers=bootstrap)
    admin.create_topics({topic: {"configs": {"segment.bytes": "1048576"}}})
    with pytest.raises(kafka_errors.TopicAlreadyExistsError):
        admin.create_topics([topic])
    admin.create_partitions({topic: 3})
    (described,) = admin.describe_topics([topic])
    assert (described["name"], len(described["partitions"])) == (topic, 3)
    assert cluster.describe_topic(topic).settings == (("segment.bytes", "1048576"),)
    resource = kafka_admin.ConfigResource(kafka_admin.ConfigResourceType.TOPIC, topic, {"retention.ms": "5000"})
    admin.alter_configs([resource])
    assert dict(cluster.describe_topic(topic).settings)["retention.ms"] == "5000"
    assert "retention.ms" in str(admin.describe_configs([resource]))
    assert topic in str(admin.describe_log_dirs())
    admin.delete_topics([topic])
    assert topic not in cluster.list_topics()
    admin.close()


def test_aiokafkas_administrator(cluster: raylog.Cluster, bootstrap: str) -> None:
    topic = "made-by-aiokafka"

    async def administer() -> None:
        admin = aiokafka_admin.AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        made = await admin.create_topics([aiokafka_admin.NewTopic(topic, 2, 3, topic_configs={"retention.ms": "5000"})])
        assert [each[1] for each in made.topic_errors] == [0]
        await admin.create_partitions({topic: aiokafka_admin.NewPartitions(3)})
        (described,) = await admin.describe_topics([topic])
        assert len(described["partitions"]) == 3
        resource = aiokafka_admin.config_resource.ConfigResource("TOPIC", topic, {"retention.ms": "6000"})
        await admin.alter_configs([resource])
        assert dict(cluster.describe_topic(topic).settings)["retention.ms"] == "6000"
        (answer,) = await admin.describe_configs([resource])
        assert ("retention.ms", "6000") in {each[:2] for each in answer.resources[0][4]}
        deleted = await admin.delete_topics([topic])
        assert [each[1] for each in deleted.topic_error_codes] == [0]
        await admin.close()

    asyncio.run(administer())
    assert topic not in cluster.list_topics()

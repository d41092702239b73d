"""Kafka's verifiable producer and consumer, in Java, over ten leaders that are killed: none lost, none repeated."""

from __future__ import annotations

import time
from typing import Final

import pytest

import raylog
from bench.kafka_peer.programs import JavaPrograms, Running
from tests.cluster.conftest import until
from tests.kafka.leader_kills import ends_of, kill_leader, until_whole

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOPIC: Final = "verifiable"
PARTITIONS: Final = 3
KILLS: Final = 10
_PER_SECOND: Final = 400
_PAUSE_SECONDS: Final = 0.7
# The producer's own default is not to try again.
_PRODUCER: Final = {"enable.idempotence": "true", "retries": "2147483647", "delivery.timeout.ms": "120000"}


def test_ten_killed_leaders_cost_no_record(cluster: raylog.Cluster, programs: JavaPrograms) -> None:
    cluster.create_topic(TOPIC, PARTITIONS, 3, {"min.insync.replicas": 2})
    producer = started_producer(programs)
    consumer = started_consumer(programs)
    until(lambda: len(producer.events("producer_send_success")) > 100)
    for number in range(KILLS):
        until_whole(cluster, [TOPIC])
        time.sleep(_PAUSE_SECONDS)
        kill_leader(cluster, TOPIC, number % PARTITIONS)
        producer.check()
        consumer.check()
    until_whole(cluster, [TOPIC])
    producer.stop()
    acknowledged = producer.events("producer_send_success")
    assert producer.events("producer_send_error") == []
    until(lambda: len(consumer.events("record_data")) >= len(acknowledged))
    consumer.stop()
    written = sorted((each["partition"], each["offset"], each["value"]) for each in acknowledged)
    read = [(each["partition"], each["offset"], each["value"]) for each in consumer.events("record_data")]
    assert sorted(read) == written
    assert sorted(int(value) for _, _, value in written) == list(range(len(written)))
    ends = ends_of(TOPIC)
    for partition in range(PARTITIONS):
        assert [offset for each, offset, _ in written if each == partition] == list(range(ends[partition]))
        assert [each for each in read if each[0] == partition] == [each for each in written if each[0] == partition]


def started_producer(programs: JavaPrograms) -> Running:
    settings = programs.properties("producer.properties", _PRODUCER)
    return programs.start(
        "org.apache.kafka.tools.VerifiableProducer", "--bootstrap-server", programs.bootstrap, "--topic", TOPIC,
        "--throughput", str(_PER_SECOND), "--acks", "-1", "--producer.config", settings,
    )  # fmt: skip


def started_consumer(programs: JavaPrograms) -> Running:
    return programs.start(
        "org.apache.kafka.tools.VerifiableConsumer", "--bootstrap-server", programs.bootstrap, "--topic", TOPIC,
        "--group-id", "verifiable", "--group-protocol", "classic", "--reset-policy", "earliest", "--verbose",
    )  # fmt: skip

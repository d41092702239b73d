"""Kafka's command-line tools, in Java, on a topic and a group: what they print is what they were asked for."""

from __future__ import annotations

import json
from typing import Final

import pytest

import raylog
from bench.kafka_peer.programs import JavaPrograms
from tests.cluster.conftest import until

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(180)]

TOPIC: Final = "tooled"
GROUP: Final = "toolers"
_RECORDS: Final = 20_000


@pytest.fixture(scope="module")
def topic(cluster: raylog.Cluster) -> str:
    """A topic of two partitions, with 100 records in the first and 50 in the second, read to the end by a group."""
    cluster.create_topic(TOPIC, 2, 3)
    with raylog.Producer() as producer:
        for number in range(150):
            producer.send(TOPIC, b"%d" % number, partition=0 if number < 100 else 1)
    cluster.alter_group_offsets(GROUP, {(TOPIC, 0): 100, (TOPIC, 1): 40})
    return TOPIC


def rows(printed: str, first: str) -> list[list[str]]:
    """The lines whose first word is this one, in words."""
    return [line.split() for line in printed.splitlines() if line.split()[:1] == [first]]


def groups(programs: JavaPrograms, *arguments: str) -> str:
    return programs.tool("consumer.group.ConsumerGroupCommand", *arguments)


def test_topics_are_listed(programs: JavaPrograms, topic: str) -> None:
    assert topic in programs.tool("TopicCommand", "--list").splitlines()


def test_topics_are_described(programs: JavaPrograms, topic: str) -> None:
    described = programs.tool("TopicCommand", "--describe", "--topic", topic)
    assert "PartitionCount: 2\tReplicationFactor: 3" in described
    assert described.count("\tIsr: ") == 2


def test_settings_are_shown_and_altered(programs: JavaPrograms, topic: str, cluster: raylog.Cluster) -> None:
    def configs(*arguments: str) -> str:
        where = ("--bootstrap-server", programs.bootstrap, "--entity-type", "topics", "--entity-name", topic)
        return programs.run("kafka.admin.ConfigCommand", *where, *arguments)

    configs("--alter", "--add-config", "retention.ms=7200000,max.message.bytes=500000")
    assert dict(cluster.describe_topic(topic).settings) == {"retention.ms": "7200000", "max.message.bytes": "500000"}
    assert "retention.ms=7200000" in configs("--describe")
    configs("--alter", "--delete-config", "retention.ms")
    assert dict(cluster.describe_topic(topic).settings) == {"max.message.bytes": "500000"}


def test_directories_are_told_with_their_sizes(programs: JavaPrograms, topic: str) -> None:
    told = programs.tool("LogDirsCommand", "--describe", "--topic-list", topic)
    (line,) = [each for each in told.splitlines() if each.startswith("{")]
    brokers = json.loads(line)["brokers"]
    held = [each["partition"] for one in brokers for folder in one["logDirs"] for each in folder["partitions"]]
    assert sorted(held) == sorted([f"{topic}-0", f"{topic}-1"] * 3)


def test_topics_are_made_altered_and_deleted(programs: JavaPrograms, cluster: raylog.Cluster) -> None:
    made = ("--topic", "made-by-tool")
    programs.tool("TopicCommand", "--create", *made, "--partitions", "2", "--replication-factor", "3",
                  "--config", "cleanup.policy=compact")  # fmt: skip
    programs.tool("TopicCommand", "--alter", *made, "--partitions", "4")
    described = cluster.describe_topic("made-by-tool")
    assert len(described.partitions) == 4
    assert dict(described.settings) == {"cleanup.policy": "compact"}
    programs.tool("TopicCommand", "--delete", *made)
    assert "made-by-tool" not in programs.tool("TopicCommand", "--list").splitlines()


def test_offsets_are_told(programs: JavaPrograms, topic: str) -> None:
    told = programs.tool("GetOffsetShell", "--topic-partitions", topic)
    assert told.splitlines() == [f"{topic}:0:100", f"{topic}:1:50"]
    told = programs.tool("GetOffsetShell", "--topic-partitions", topic, "--time", "earliest")
    assert told.splitlines() == [f"{topic}:0:0", f"{topic}:1:0"]


def test_a_group_is_listed_described_reset_and_deleted(programs: JavaPrograms, topic: str) -> None:
    assert rows(groups(programs, "--list", "--state"), GROUP) == [[GROUP, "Empty"]]
    described = rows(groups(programs, "--describe", "--group", GROUP), GROUP)
    assert sorted(each[2:6] for each in described) == [["0", "100", "100", "0"], ["1", "40", "50", "10"]]
    reset = groups(programs, "--group", GROUP, "--reset-offsets", "--to-offset", "7", "--topic", topic, "--execute")
    assert sorted(each[1:] for each in rows(reset, GROUP)) == [[topic, "0", "7"], [topic, "1", "7"]]
    gone = groups(programs, "--group", GROUP, "--delete-offsets", "--topic", f"{topic}:1")
    assert "Successful" in gone
    assert [each[2:4] for each in rows(groups(programs, "--describe", "--group", GROUP), GROUP)] == [["0", "7"]]
    assert "was successful" in groups(programs, "--group", GROUP, "--delete")
    assert rows(groups(programs, "--list", "--state"), GROUP) == []


def test_records_are_deleted(programs: JavaPrograms, topic: str, cluster: raylog.Cluster) -> None:
    asked = {"version": 1, "partitions": [{"topic": topic, "partition": 0, "offset": 60}]}
    path = programs.file("delete.json", json.dumps(asked))
    told = programs.tool("DeleteRecordsCommand", "--offset-json-file", path)
    assert f"partition: {topic}-0\tlow_watermark: 60" in told
    until(lambda: {each.log_start_offset for each in cluster.describe_replicas(topic) if each.partition == 0} == {60})


def test_the_performance_tools_get_through(cluster: raylog.Cluster, programs: JavaPrograms) -> None:
    cluster.create_topic("measured", 2, 3)
    produced = programs.run(
        "org.apache.kafka.tools.ProducerPerformance", "--topic", "measured", "--num-records", str(_RECORDS),
        "--record-size", "100", "--throughput", "-1", "--producer-props", f"bootstrap.servers={programs.bootstrap}",
    )  # fmt: skip
    assert f"{_RECORDS} records sent" in produced
    consumed = programs.tool("ConsumerPerformance", "--topic", "measured", "--messages", str(_RECORDS))
    assert int(consumed.splitlines()[-1].split(", ")[4]) >= _RECORDS


def test_latency_is_measured_from_end_to_end(cluster: raylog.Cluster, programs: JavaPrograms) -> None:
    cluster.create_topic("there-and-back", 1, 3)
    main = "org.apache.kafka.tools.EndToEndLatency"
    told = programs.run(main, programs.bootstrap, "there-and-back", "200", "all", "100")
    assert "Percentiles: 50th = " in told

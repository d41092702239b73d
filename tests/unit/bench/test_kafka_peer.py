"""Local brokers of Apache Kafka: what they are told, and where the jars come from. No JVM is started."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from bench.kafka_peer import jars
from bench.kafka_peer.brokers import Node, settings_of

_NODES = [Node(1, 9001, 9002), Node(2, 9003, 9004), Node(3, 9005, 9006)]


def test_a_node_listens_on_loopback_only_and_knows_all_voters() -> None:
    settings = settings_of(_NODES[1], _NODES, Path("/data/node-2"))
    assert settings["listeners"] == "PLAINTEXT://127.0.0.1:9003,CONTROLLER://127.0.0.1:9004"
    assert settings["controller.quorum.voters"] == "1@127.0.0.1:9002,2@127.0.0.1:9004,3@127.0.0.1:9006"
    assert settings["node.id"] == "2"
    assert settings["log.dirs"] == "/data/node-2/data"


@pytest.mark.parametrize(("brokers", "copies"), [(1, "1"), (2, "2"), (3, "3")])
def test_internal_topics_have_no_more_copies_than_there_are_brokers(brokers: int, copies: str) -> None:
    settings = settings_of(_NODES[0], _NODES[:brokers], Path("/data"))
    assert settings["offsets.topic.replication.factor"] == copies
    assert settings["transaction.state.log.replication.factor"] == copies


def test_maven_is_asked_for_one_version_of_kafka() -> None:
    names = {"": "http://maven.apache.org/POM/4.0.0"}
    wanted = ElementTree.fromstring(jars.pom_of(jars.KAFKA)).findall("./dependencies/dependency", names)
    found = [tuple(each.text for each in one) for one in wanted]
    assert found[:2] == [
        ("org.apache.kafka", "kafka_2.13", jars.VERSION),
        ("org.apache.kafka", "kafka-tools", jars.VERSION),
    ]
    assert {version for group, _, version in found if group == "org.apache.kafka"} == {jars.VERSION}


def test_jars_are_fetched_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[tuple[str, ...]] = []

    def maven(*arguments: str) -> None:
        calls.append(arguments)
        Path(arguments[-1].removeprefix("-DoutputDirectory=")).mkdir()

    monkeypatch.setattr(jars, "_maven", maven)
    first = jars.fetched_jars(tmp_path / "peer")
    assert first.is_dir()
    assert jars.fetched_jars(tmp_path / "peer") == first
    assert len(calls) == 1
    assert [each.name for each in (tmp_path / "peer").iterdir()] == [first.name]


def test_without_maven_it_is_said_and_nothing_is_left(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(jars.MavenFailed, match="no mvn"):
        jars.fetched_jars(tmp_path)
    assert list(tmp_path.iterdir()) == []

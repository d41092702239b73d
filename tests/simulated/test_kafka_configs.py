"""Settings through the gateway: every version of describing and changing them."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.cluster.setting_edits import APPEND, DELETE, SET, SUBTRACT
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.config import TOPIC_SETTINGS
from tests.simulator.clients.kafka_administrators import AdministeredCluster, topic
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

_TOPIC: Final = 2
_BROKER: Final = 4
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
_OWN, _CLUSTERS, _BROKERS, _DEFAULT = 1, 3, 4, 5


@pytest.fixture
def stage() -> Iterator[AdministeredCluster]:
    with World(5, settings=CALM) as world:
        stage = AdministeredCluster(world)
        stage.create(topic("clicks", settings={"retention.ms": "1000"}))
        yield stage
        stage.cluster.is_over = True


def describe(
    stage: AdministeredCluster, kind: int, name: str, keys: list[str] | None = None, *, version: int = 4, **more: bool
) -> Any:
    resource = message_type("DescribeConfigsRequest", "DescribeConfigsResource")(kind, name, keys)
    (found,) = stage.ask("DescribeConfigs", version, resources=[resource], **more).results
    assert (found.resource_type, found.resource_name) == (kind, name)
    return found


def entries(stage: AdministeredCluster, kind: int, name: str, keys: list[str] | None = None, **more: Any) -> Any:
    found = describe(stage, kind, name, keys, **more)
    assert found.error_code == 0
    return {each.name: each for each in found.configs}


def edit(
    stage: AdministeredCluster,
    kind: int,
    name: str,
    *edits: tuple[str, int, str | None],
    version: int = 1,
    check: bool = False,
) -> int:
    of_resource, of_config = (message_type("IncrementalAlterConfigsRequest", each) for each in _CHANGED)
    resources = [of_resource(kind, name, [of_config(*each) for each in edits])]
    (told,) = stage.ask("IncrementalAlterConfigs", version, resources=resources, validate_only=check).responses
    assert (told.resource_type, told.resource_name) == (kind, name)
    assert bool(told.error_message) == bool(told.error_code)
    return int(told.error_code)


def replace(stage: AdministeredCluster, kind: int, name: str, version: int, **settings: str) -> int:
    of_resource, of_config = (message_type("AlterConfigsRequest", each) for each in _CHANGED)
    configs = [of_config(each.replace("_", "."), value) for each, value in settings.items()]
    (told,) = stage.ask("AlterConfigs", version, resources=[of_resource(kind, name, configs)]).responses
    return int(told.error_code)


_CHANGED: Final = ("AlterConfigsResource", "AlterableConfig")


@pytest.mark.parametrize("version", range(1, 5))
def test_each_version_shows_the_settings_of_a_topic(stage: AdministeredCluster, version: int) -> None:
    found = entries(stage, _TOPIC, "clicks", version=version, include_synonyms=True, include_documentation=True)
    assert found.keys() == {each.name for each in TOPIC_SETTINGS}
    retention, minimum, policy = (found[each] for each in ("retention.ms", "min.insync.replicas", "cleanup.policy"))
    assert (retention.value, retention.config_source, retention.read_only) == ("1000", _OWN, False)
    assert [tuple(each) for each in retention.synonyms] == [
        ("retention.ms", "1000", _OWN), ("log.retention.ms", "604800000", _DEFAULT)
    ]  # fmt: skip
    assert (minimum.value, minimum.config_source) == ("2", _DEFAULT)  # that of three replicas
    assert policy.value == "delete"
    if version >= 3:
        assert [each.config_type for each in (retention, minimum, policy)] == [5, 3, 7]
        assert found["preallocate"].config_type == found["remote.storage.enable"].config_type == 1
        assert found["min.cleanable.dirty.ratio"].config_type == 6
        assert "older than" in retention.documentation
    some = entries(stage, _TOPIC, "clicks", ["retention.ms", "no.such"], version=version)
    assert list(some) == ["retention.ms"]
    assert some["retention.ms"].synonyms == []
    assert not some["retention.ms"].documentation


def test_settings_of_what_is_not_there_are_an_error_of_their_own(
    stage: AdministeredCluster, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "raylog.api.kafka.refusals"):
        assert describe(stage, _TOPIC, "gone").error_code == _UNKNOWN
    assert "DescribeConfigs of Kafka client 'model' is refused for topic 'gone'" in caplog.text
    for kind, name in ((_BROKER, "9"), (_BROKER, "x"), (8, "1"), (32, "group")):
        assert describe(stage, kind, name).error_code == ErrorCode.INVALID_REQUEST
    assert edit(stage, _TOPIC, "gone", ("retention.ms", SET, "1")) == _UNKNOWN
    assert edit(stage, _BROKER, "1", ("num.partitions", SET, "1")) == ErrorCode.INVALID_REQUEST
    assert edit(stage, 32, "group", ("x", SET, "1")) == ErrorCode.INVALID_REQUEST


def test_a_broker_shows_what_tools_look_for(stage: AdministeredCluster) -> None:
    found = entries(stage, _BROKER, "2", include_synonyms=True)
    assert (found["broker.id"].value, found["delete.topic.enable"].value) == ("2", "true")
    assert float(found["inter.broker.protocol.version"].value.partition("-")[0]) >= 2.6
    assert found["advertised.listeners"].value == "PLAINTEXT://10.0.0.2:9092"
    assert (found["log.retention.ms"].value, found["log.retention.ms"].config_source) == ("604800000", _DEFAULT)
    assert found["min.insync.replicas"].value == "2"
    assert {each.read_only for each in found.values() if each.config_source == _BROKERS} == {True}
    assert found.keys() > entries(stage, _BROKER, "").keys()


def test_settings_of_the_cluster_are_changed_for_all_brokers(stage: AdministeredCluster) -> None:
    def shown(name: str) -> tuple[str, int]:
        assert entries(stage, _BROKER, "1")[name].value == entries(stage, _BROKER, "")[name].value
        entry = entries(stage, _BROKER, "")[name]
        return entry.value, entry.config_source

    assert shown("num.partitions") == ("1", _DEFAULT)
    assert edit(stage, _BROKER, "", ("num.partitions", SET, "4")) == 0
    assert shown("num.partitions") == ("4", _CLUSTERS)
    assert stage.create(topic("wide"))[0].num_partitions == 4
    assert edit(stage, _BROKER, "", ("num.partitions", DELETE, None)) == 0
    assert shown("num.partitions") == ("1", _DEFAULT)
    for setting, value in (("num.partitions", "0"), ("auto.create.topics.enable", "maybe"), ("log.retention.ms", "1")):
        assert edit(stage, _BROKER, "", (setting, SET, value)) == ErrorCode.INVALID_CONFIG
    assert edit(stage, _BROKER, "", ("num.partitions", SET, "4")) == 0
    assert replace(stage, _BROKER, "", 2, auto_create_topics_enable="true") == 0
    assert (shown("num.partitions"), shown("auto.create.topics.enable")) == (("1", _DEFAULT), ("true", _CLUSTERS))


def test_what_people_of_the_cluster_decide_no_client_changes(stage: AdministeredCluster) -> None:
    """Clients decide neither which code runs nor how many processes there are (rule 36)."""
    stage.alter_cluster({"group.assignors": "a.b", "shared.hosts": "2"})
    for setting, operation, value in (
        ("group.assignors", APPEND, "unittest.main"),
        ("group.assignors", DELETE, None),
        ("shared.hosts", SET, "256"),
        ("own.replicas.max", SET, "1000"),
    ):
        assert edit(stage, _BROKER, "", (setting, operation, value)) == ErrorCode.INVALID_REQUEST
    assert replace(stage, _BROKER, "", 2, num_partitions="2") == 0
    found = entries(stage, _BROKER, "")
    assert (found["group.assignors"].value, found["shared.hosts"].value) == ("a.b", "2")
    assert {name for name, each in found.items() if not each.read_only} == {
        "auto.create.topics.enable", "num.partitions"
    }  # fmt: skip


@pytest.mark.parametrize("version", range(2))
def test_each_version_changes_some_settings(stage: AdministeredCluster, version: int) -> None:
    def change(*edits: tuple[str, int, str | None], check: bool = False) -> int:
        return edit(stage, _TOPIC, "clicks", *edits, version=version, check=check)

    assert (
        change(("retention.ms", DELETE, None), ("segment.bytes", SET, "5000"), ("cleanup.policy", APPEND, "compact"))
        == 0
    )
    for _ in range(2):  # the same twice is the same as once
        assert change(("cleanup.policy", APPEND, "compact"), ("compression.type", SET, "lz4")) == 0
    assert stage.described("clicks").settings == (
        ("cleanup.policy", "compact,delete"), ("compression.type", "lz4"), ("segment.bytes", "5000")
    )  # fmt: skip
    assert change(("cleanup.policy", SUBTRACT, "delete")) == 0
    assert entries(stage, _TOPIC, "clicks")["cleanup.policy"].value == "compact"
    assert change(("segment.bytes", SET, "6000"), check=True) == 0
    for wrong in (
        ("no.such", SET, "1"),
        ("retention.ms", SET, "soon"),
        ("retention.ms", SET, None),
        ("retention.ms", APPEND, "1"),
        ("cleanup.policy", APPEND, "shred"),
        ("remote.storage.enable", SET, "true"),
        ("min.insync.replicas", SET, "4"),
    ):
        assert change(("segment.bytes", SET, "7000"), wrong) == ErrorCode.INVALID_CONFIG, wrong
        assert change(wrong, check=True) == ErrorCode.INVALID_CONFIG, wrong
    assert change(("retention.ms", 9, "1")) == ErrorCode.INVALID_REQUEST
    assert change(("retention.ms", SET, "1"), ("retention.ms", SET, "2")) == ErrorCode.INVALID_REQUEST
    assert entries(stage, _TOPIC, "clicks")["segment.bytes"].value == "5000"
    assert change(("cleanup.policy", SUBTRACT, "compact")) == 0
    assert entries(stage, _TOPIC, "clicks")["cleanup.policy"].value == ""
    assert change(("cleanup.policy", APPEND, "delete")) == 0


@pytest.mark.parametrize("version", range(3))
def test_each_version_replaces_all_settings(stage: AdministeredCluster, version: int) -> None:
    assert replace(stage, _TOPIC, "clicks", version, segment_bytes="5000") == 0
    assert stage.described("clicks").settings == (("segment.bytes", "5000"),)
    assert replace(stage, _TOPIC, "clicks", version, segment_bytes="x") == ErrorCode.INVALID_CONFIG
    assert replace(stage, _TOPIC, "clicks", version) == 0
    assert stage.described("clicks").settings == ()


def test_the_settings_of_a_new_topic_are_in_the_answer(stage: AdministeredCluster) -> None:
    (made,) = stage.create(topic("orders", settings={"cleanup.policy": "compact"}), validate_only=True)
    found = {each.name: (each.value, each.config_source) for each in made.configs}
    assert found["cleanup.policy"] == ("compact", _OWN)
    assert found["retention.ms"] == ("604800000", _DEFAULT)


@pytest.mark.parametrize("after_ms", [0, 1, 3, 10, 50])
def test_settings_are_changed_once_over_a_lost_controller(stage: AdministeredCluster, after_ms: int) -> None:
    stage.lose_controller(after_ms / 1000)
    assert edit(stage, _TOPIC, "clicks", ("cleanup.policy", APPEND, "compact"), ("retention.ms", DELETE, None)) == 0
    assert stage.described("clicks").settings == (("cleanup.policy", "compact,delete"),)
    stage.lose_controller(after_ms / 1000)
    assert entries(stage, _TOPIC, "clicks")["cleanup.policy"].value == "compact,delete"

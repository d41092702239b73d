"""Scripts for kafka-python's admin client run on the handle: its names, its arguments, and its objects."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from raylog.actors.cluster.descriptions import PartitionDescription, TopicDescription
from raylog.api.admin.kafka_admin_names import KafkaAdminNames
from raylog.api.admin.rules.group_descriptions import GroupDescription, GroupListing
from raylog.api.admin.rules.kafka_admin_arguments import ConfigResource, MemberToRemove, NewPartitions, NewTopic
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.config import TOPIC_SETTINGS, TopicConfig
from raylog.errors import InvalidConfig, RaylogError, TopicExists, UnknownGroup, UnknownTopic

# Of KafkaAdminClient in kafka-python 2.2 and 3.0, without what is about ACLs, users and Kafka's own upkeep.
KAFKA_PYTHON = {
    "alter_configs": ("config_resources", "validate_only"),
    "alter_partition_reassignments": ("reassignments", "timeout_ms"),
    "close": (),
    "create_partitions": ("topic_partitions", "timeout_ms", "validate_only", "raise_errors"),
    "create_topics": ("new_topics", "timeout_ms", "validate_only", "raise_errors", "wait_for_metadata"),
    "delete_consumer_groups": ("group_ids", "group_coordinator_id"),
    "delete_groups": ("group_ids", "group_coordinator_id"),
    "delete_records": ("records_to_delete", "timeout_ms", "partition_leader_id"),
    "delete_topics": ("topics", "timeout_ms", "raise_errors"),
    "describe_configs": ("config_resources", "include_synonyms", "config_filter"),
    "describe_consumer_groups": ("group_ids", "group_coordinator_id", "include_authorized_operations"),
    "describe_groups": ("group_ids", "group_coordinator_id", "include_authorized_operations"),
    "describe_topics": ("topics",),
    "describe_transactions": ("transactional_ids",),
    "elect_leaders": ("election_type", "topic_partitions", "timeout_ms"),
    "list_consumer_group_offsets": ("group_id", "group_coordinator_id", "partitions"),
    "list_consumer_groups": ("broker_ids",),
    "list_partition_reassignments": ("topic_partitions", "timeout_ms"),
    "perform_leader_election": ("election_type", "topic_partitions", "timeout_ms"),
    "remove_group_members": ("group_id", "members", "group_coordinator_id"),
    "reset_configs": ("config_resources", "validate_only"),
}


class Handle(KafkaAdminNames):
    """What `Cluster` has besides, in memory."""

    def __init__(self) -> None:
        self.topics: dict[str, dict[str, Any]] = {}
        self.config: dict[str, dict[str, Any]] = {}
        self.of_cluster = {"group.assignors": ""}
        self.groups = {"billing": {TopicPartition("clicks", 0): OffsetAndMetadata(4)}}
        self.calls: list[Any] = []

    def create_topic(self, name: str, *, timeout: float, **arguments: Any) -> TopicDescription:
        if name in self.topics:
            raise TopicExists(name)
        self.topics[name] = arguments
        self.config[name] = TopicConfig.parse(arguments["config"]).overrides()
        self.calls.append(("create", name, round(timeout)))
        return self.describe_topic(name)

    def delete_topic(self, name: str, *, timeout: float) -> None:
        self.describe_topic(name)
        del self.topics[name]

    def list_topics(self) -> tuple[str, ...]:
        return tuple(sorted(self.topics))

    def describe_topic(self, name: str) -> TopicDescription:
        if name not in self.topics:
            raise UnknownTopic(name)
        count = self.topics[name].get("partitions", 1)
        return TopicDescription(name, b"", False, 1, (), tuple(partition(name, each) for each in range(count)))

    def describe_topic_config(self, name: str) -> dict[str, Any]:
        config = TopicConfig.parse(self.config[name])
        return {setting.name: getattr(config, setting.name.replace(".", "_")) for setting in TOPIC_SETTINGS}

    def alter_topic_config(self, name: str, changes: Mapping[str, Any]) -> None:
        self.config[name] = TopicConfig.parse(self.config[name]).with_changes(changes).overrides()

    def describe_cluster_config(self) -> dict[str, Any]:
        return self.of_cluster

    def alter_cluster_config(self, changes: Mapping[str, Any]) -> None:
        self.of_cluster.update({name: value or "" for name, value in changes.items()})

    def list_groups(self) -> tuple[GroupListing, ...]:
        return tuple(GroupListing(name, "Empty", 0) for name in self.groups)

    def describe_group(self, group_id: str) -> GroupDescription:
        return GroupDescription(group_id, "Empty", 1, "range", "", "", (), ())

    def list_group_offsets(self, group_id: str) -> dict[TopicPartition, OffsetAndMetadata]:
        return self.groups[group_id]

    def delete_group(self, group_id: str, *, timeout: float) -> None:
        if group_id not in self.groups:
            raise UnknownGroup(group_id)
        del self.groups[group_id]

    def remove_members(self, group_id: str, members: Sequence[str], **more: Any) -> None:
        self.calls.append((group_id, members, more))

    def reassign_partitions(self, targets: Any, *, timeout: float) -> None:
        self.calls.append(("move", targets, timeout))

    def cancel_reassignment(self, partitions: Any, *, timeout: float) -> None:
        self.calls.append(("cancel", partitions, timeout))

    def list_reassignments(self, *, timeout: float) -> tuple[PartitionDescription, ...]:
        return (partition("clicks", 0, adding=(2,)), partition("views", 0, adding=(1,)))

    def _add_partitions(self, name: str, total: int, **more: Any) -> TopicDescription:
        self.calls.append(("partitions", name, total, more.get("assignment")))
        self.topics[name]["partitions"] = total
        return self.describe_topic(name)

    def _begin_logs_at(self, starts: Mapping[tuple[str, int], int], timeout: float) -> dict[tuple[str, int], int]:
        self.calls.append(("delete", timeout))
        return dict(starts)

    def _elect_leaders(self, kind: str, partitions: Any, timeout: float) -> dict[tuple[str, int], RaylogError]:
        self.calls.append((kind, partitions, timeout))
        return {}


def partition(topic: str, number: int, adding: tuple[int, ...] = ()) -> PartitionDescription:
    return PartitionDescription(topic, number, 0, 1, 1, (0, *adding), (0,), (), adding, (), 1, "", 0, 0, 0)


@pytest.fixture
def admin() -> Handle:
    made = Handle()
    made.create_topics([NewTopic("clicks", 2, 3, topic_configs={"retention.ms": "7d"}), NewTopic("views")])
    made.calls.clear()
    return made


@pytest.mark.parametrize(("name", "arguments"), KAFKA_PYTHON.items())
def test_each_call_takes_the_arguments_of_kafka_python(name: str, arguments: tuple[str, ...]) -> None:
    call = getattr(KafkaAdminNames, "_create_partitions_of" if name == "create_partitions" else name)
    given = [each.name for each in inspect.signature(call).parameters.values() if each.kind is not each.KEYWORD_ONLY]
    assert tuple(given[1:]) == arguments


def test_topics_are_made_of_new_topics_of_names_and_of_options() -> None:
    admin = Handle()
    theirs = SimpleNamespace(
        name="theirs", num_partitions=-1, replication_factor=-1, replica_assignments={1: [1], 0: [0]}, topic_configs={}
    )
    admin.create_topics([NewTopic(name="ours", num_partitions=6, replication_factor=3), theirs], timeout_ms=5000)
    admin.create_topics(["plain"])
    admin.create_topics({"optioned": {"num_partitions": 2, "configs": {"cleanup.policy": "compact"}}})
    assert admin.topics == {
        "ours": {"config": {}, "partitions": 6, "replication_factor": 3},
        "theirs": {"config": {}, "assignment": [[0], [1]]},
        "plain": {"config": {}},
        "optioned": {"config": {"cleanup.policy": "compact"}, "partitions": 2},
    }
    assert admin.calls[0] == ("create", "ours", 5)
    with pytest.raises(TypeError, match=r"create_topics\(\[NewTopic\('plain'\)\]\)"):
        admin.create_topics("plain")
    with pytest.raises(TypeError, match="no 'num_partition'"):
        admin.create_topics({"wrong": {"num_partition": 2}})
    with pytest.raises(InvalidConfig, match="validate_only"):
        admin.create_topics(["checked"], validate_only=True)
    assert "checked" not in admin.topics


def test_what_can_be_done_is_done_before_the_first_error_is_raised(admin: Handle) -> None:
    with pytest.raises(TopicExists):
        admin.create_topics(["clicks", "new"])
    assert "new" in admin.topics
    answer = admin.create_topics(["clicks", "newer"], raise_errors=False)
    assert [type(each).__name__ for each in answer.values()] == ["TopicExists", "TopicDescription"]
    with pytest.raises(UnknownTopic):
        admin.delete_topics(["nowhere", "newer"])
    assert admin.delete_topics(["new"]) == {"new": None}
    assert admin.list_topics() == ("clicks", "views")
    with pytest.raises(TypeError, match="A list of names"):
        admin.delete_topics("clicks")


def test_topics_are_described_all_or_some(admin: Handle) -> None:
    assert [each.name for each in admin.describe_topics()] == ["clicks", "views"]
    assert [each.name for each in admin.describe_topics(["views"])] == ["views"]


def test_partitions_are_added_in_both_ways(admin: Handle) -> None:
    assert len(admin.create_partitions("clicks", 3).partitions) == 3
    admin.create_partitions(name="clicks", total=4)
    admin.create_partitions({"clicks": 5, "views": NewPartitions(2, [[1]])}, timeout_ms=1000)
    admin.create_partitions(topic_partitions={"views": {"count": 3, "assignments": [[2]]}})
    assert [each[1:] for each in admin.calls] == [
        ("clicks", 3, None), ("clicks", 4, None), ("clicks", 5, None), ("views", 2, [[1]]), ("views", 3, [[2]]),
    ]  # fmt: skip


def test_records_are_deleted_and_leaders_elected(admin: Handle) -> None:
    assert admin.delete_records({TopicPartition("clicks", 0): 4}, timeout_ms=5000) == {("clicks", 0): 4}
    admin.delete_records({("clicks", 0): 4}, timeout=7)
    admin.elect_leaders(0, {"clicks": [1]}, 2000)
    admin.elect_leaders("unclean", ["clicks"])
    admin.perform_leader_election(1, [("views", 0)])
    clicks = [TopicPartition("clicks", 0), TopicPartition("clicks", 1)]
    assert admin.calls == [
        ("delete", 5.0), ("delete", 7), ("preferred", clicks[1:], 2.0), ("unclean", clicks, 30.0),
        ("unclean", [TopicPartition("views", 0)], 30.0),
    ]  # fmt: skip
    with pytest.raises(InvalidConfig, match="election_type"):
        admin.elect_leaders(2)


def test_settings_are_described_changed_and_put_back(admin: Handle) -> None:
    clicks = ConfigResource("topic", "clicks")
    assert admin.describe_configs([clicks]) == {"topic": {"clicks": {}}}, "7d is the default"
    changed = {"retention.ms": "1h", "segment.bytes": (0, 4096), "cleanup.policy": ("SET", "compact")}
    assert admin.alter_configs([ConfigResource("TOPIC", "clicks", changed)]) == {"topic": {"clicks": "OK"}}
    found = admin.describe_configs([clicks])["topic"]["clicks"]
    assert {name: each["value"] for name, each in found.items()} == {
        "retention.ms": "3600000", "segment.bytes": "4096", "cleanup.policy": "compact"
    }  # fmt: skip
    assert found["retention.ms"]["config_source"] == "DYNAMIC_TOPIC_CONFIG"
    admin.alter_configs([ConfigResource("topic", "clicks", {"segment.bytes": ("DELETE", None)})])
    admin.reset_configs([ConfigResource("topic", "clicks", ["retention.ms"])])
    assert admin.config["clicks"] == {"cleanup.policy": "compact"}
    admin.reset_configs([clicks])
    assert admin.config["clicks"] == {}
    every = admin.describe_configs([clicks], config_filter="all")["topic"]["clicks"]
    assert len(every) == len(TOPIC_SETTINGS)
    assert every["unclean.leader.election.enable"]["value"] == "false"
    only = admin.describe_configs([ConfigResource("topic", "clicks", ["retention.ms"])], config_filter="all")
    assert list(only["topic"]["clicks"]) == ["retention.ms"]


def test_settings_of_the_cluster_are_those_of_all_brokers(admin: Handle) -> None:
    admin.alter_configs([ConfigResource("broker", "", {"group.assignors": "ours.by_region"})])
    found = admin.describe_configs([ConfigResource("broker", "")])
    assert found["broker"][""]["group.assignors"]["value"] == "ours.by_region"
    with pytest.raises(InvalidConfig, match="BROKER with the name ''"):
        admin.describe_configs([ConfigResource("broker", "0")])
    with pytest.raises(InvalidConfig, match="DELETE"):
        admin.alter_configs([ConfigResource("topic", "clicks", {"retention.ms": ("APPEND", 1)})])


def test_groups_are_listed_described_and_deleted(admin: Handle) -> None:
    assert admin.list_consumer_groups() == [("billing", "consumer")]
    assert [each.group_id for each in admin.describe_consumer_groups(["billing"])] == ["billing"]
    assert list(admin.describe_groups(["billing"])) == ["billing"]
    assert admin.list_consumer_group_offsets("billing") == {TopicPartition("clicks", 0): OffsetAndMetadata(4)}
    assert admin.list_consumer_group_offsets("billing", partitions=[TopicPartition("clicks", 1)]) == {}
    admin.remove_group_members("billing", [MemberToRemove("m1"), MemberToRemove(group_instance_id="i1", reason="old")])
    assert admin.calls == [("billing", ["m1"], {"instances": ["i1"], "reason": "old"})]
    ((group_id, error),) = admin.delete_consumer_groups(["nobody"])
    assert (group_id, type(error)) == ("nobody", UnknownGroup)
    assert admin.delete_groups(["billing"]) == {"billing": None}
    with pytest.raises(InvalidConfig, match="broker_ids"):
        admin.list_consumer_groups(broker_ids=[1])


def test_replicas_are_moved_and_moves_cancelled(admin: Handle) -> None:
    one, two = TopicPartition("clicks", 0), TopicPartition("clicks", 1)
    assert admin.alter_partition_reassignments({one: [1, 2], two: None}, 3000) == {one: None, two: None}
    assert admin.calls == [("move", {one: [1, 2]}, 3.0), ("cancel", [two], 3.0)]
    moving = {"replicas": [0, 2], "adding_replicas": [2], "removing_replicas": []}
    assert admin.list_partition_reassignments(["clicks"]) == {one: moving}
    assert len(admin.list_partition_reassignments()) == 2

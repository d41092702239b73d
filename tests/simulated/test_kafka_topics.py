"""Administration of topics through the gateway: every version, and a controller that is lost while it is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.cluster.admin_requests import Reassign
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import MalformedRequest
from tests.simulator.clients.kafka_administrators import AdministeredCluster, topic
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

_NO_ID: Final = bytes(16)
_EXISTS: Final = ErrorCode.TOPIC_ALREADY_EXISTS
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


@pytest.fixture
def stage() -> Iterator[AdministeredCluster]:
    with World(5, settings=CALM) as world:
        stage = AdministeredCluster(world)
        yield stage
        stage.cluster.is_over = True


# --- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_each_version_makes_topics(stage: AdministeredCluster, version: int) -> None:
    one, two, again = stage.create(
        topic("clicks", 2, 3, settings={"retention.ms": "1000"}), topic("__debezium.shop"), topic("clicks.x"),
        version=version,
    )  # fmt: skip
    assert [each.error_code for each in (one, two, again)] == [0, 0, 0]
    made = stage.described("clicks")
    assert (len(made.partitions), made.replication_factor, made.settings) == (2, 3, (("retention.ms", "1000"),))
    if version >= 5:
        assert [(each.num_partitions, each.replication_factor) for each in (one, two)] == [(2, 3), (1, 3)]
    if version >= 7:
        assert one.topic_id == made.topic_id
    (exists,) = stage.create(topic("clicks"), version=version)
    assert (exists.error_code, "clicks" in exists.error_message) == (_EXISTS, True)
    told = stage.ask("Metadata", 12, topics=None)
    assert {each.name: each.is_internal for each in told.topics} == dict.fromkeys(
        ("clicks", "__debezium.shop", "clicks.x"), False
    )


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        (topic("a b"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("__consumer_offsets"), ErrorCode.INVALID_TOPIC_EXCEPTION),
        (topic("t", 0), ErrorCode.INVALID_PARTITIONS),
        (topic("t", 1, 4), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", 1, 0), ErrorCode.INVALID_REPLICATION_FACTOR),
        (topic("t", settings={"no.such": "1"}), ErrorCode.INVALID_CONFIG),
        (topic("t", settings={"retention.ms": "never"}), ErrorCode.INVALID_CONFIG),
        (topic("t", settings={"retention.ms": None}), ErrorCode.INVALID_CONFIG),
        (topic("t", 1, assigned={0: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", assigned={1: [1]}), ErrorCode.INVALID_REQUEST),
        (topic("t", assigned={0: [1, 1]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assigned={0: [1], 1: [2, 3]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", assigned={0: [9]}), ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        (topic("t", 10_001), ErrorCode.POLICY_VIOLATION),
    ],
    ids=str,
)
def test_what_cannot_be_is_refused_by_itself(
    stage: AdministeredCluster, asked: Any, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [asked] if code == ErrorCode.POLICY_VIOLATION else [asked, topic("other")]
    with caplog.at_level(logging.WARNING, "raylog.api.kafka.refusals"):
        refused, *others = stage.create(*topics)
    assert (refused.error_code, bool(refused.error_message)) == (code, True)
    assert [each.error_code for each in others] == [0] * (len(topics) - 1)
    (line,) = [each.message for each in caplog.records if "is refused" in each.message]
    assert line.startswith(f"CreateTopics of Kafka client 'model' is refused for topic {asked.name!r}: ")


def test_a_name_that_comes_twice_is_refused(stage: AdministeredCluster) -> None:
    codes = [each.error_code for each in stage.create(topic("a"), topic("b"), topic("a"))]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert stage.delete("a", "b", "b") == [_UNKNOWN, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def test_replicas_are_where_the_client_wants_them(stage: AdministeredCluster) -> None:
    (made,) = stage.create(topic("clicks", assigned={1: [3, 1], 0: [2, 3]}))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 2)
    assert [each.replicas for each in stage.described("clicks").partitions] == [(2, 3), (3, 1)]
    assert stage.grow("clicks", 3, [[1, 2]]).error_code == 0
    assert [each.replicas for each in stage.described("clicks").partitions][2] == (1, 2)


def test_a_question_whether_it_can_be_changes_nothing(stage: AdministeredCluster) -> None:
    fine, wrong = stage.create(topic("clicks", 3), topic("x", settings={"no.such": "1"}), validate_only=True)
    assert (fine.error_code, fine.num_partitions, fine.replication_factor) == (0, 3, 3)
    assert (fine.topic_id, wrong.error_code) == (_NO_ID, ErrorCode.INVALID_CONFIG)
    assert stage.create(topic("clicks", 1))[0].error_code == 0
    assert stage.grow("clicks", 3, check=True).error_code == 0
    assert stage.grow("clicks", 1, check=True).error_code == ErrorCode.INVALID_PARTITIONS
    assert len(stage.described("clicks").partitions) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_each_version_deletes_topics(stage: AdministeredCluster, version: int) -> None:
    stage.create(topic("clicks"), topic("other"))
    assert stage.delete("clicks", "gone", version=version) == [0, _UNKNOWN]
    assert [each.name for each in stage.ask("Metadata", 12, topics=None).topics] == ["other"]


def test_a_topic_is_deleted_by_its_id_and_no_other_of_its_name(stage: AdministeredCluster) -> None:
    of_topic = message_type("DeleteTopicsRequest", "DeleteTopicState")
    (made,) = stage.create(topic("clicks"))

    def delete(*topics: Any) -> Any:
        return stage.ask("DeleteTopics", 6, topics=list(topics), timeout_ms=60_000).responses

    (deleted,) = delete(of_topic(None, made.topic_id))
    assert (deleted.name, deleted.topic_id, deleted.error_code) == ("clicks", made.topic_id, 0)
    stage.create(topic("clicks"))
    (unknown,) = delete(of_topic(None, made.topic_id))
    assert (unknown.name, unknown.topic_id, unknown.error_code) == (None, made.topic_id, ErrorCode.UNKNOWN_TOPIC_ID)
    for both in (of_topic("clicks", made.topic_id), of_topic(None, _NO_ID)):
        assert [each.error_code for each in delete(both)] == [ErrorCode.INVALID_REQUEST]
    assert stage.described("clicks").topic_id != made.topic_id


@pytest.mark.parametrize("version", range(4))
def test_each_version_adds_partitions(stage: AdministeredCluster, version: int) -> None:
    stage.create(topic("clicks", 1))
    assert stage.grow("clicks", 3, version=version).error_code == 0
    assert len(stage.ask("Metadata", 12, topics=None).topics[0].partitions) == 3
    for count, code in ((3, 37), (2, 37), (10_001, ErrorCode.POLICY_VIOLATION)):
        assert stage.grow("clicks", count, version=version).error_code == code
    assert stage.grow("gone", 3, version=version).error_code == _UNKNOWN
    assert stage.grow("clicks", 4, [[9]], version=version).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# --- where things are ---------------------------------------------------------------------------------------------


def test_partitions_are_told_in_pages(stage: AdministeredCluster) -> None:
    of_topic, of_cursor = (message_type("DescribeTopicPartitionsRequest", each) for each in ("TopicRequest", "Cursor"))
    stage.create(topic("a", 3, 1), topic("b", 2, 1), topic("c", 1, 1))

    def pages(limit: int, *names: str) -> list[list[tuple[str, int, list[int]]]]:
        found: list[list[tuple[str, int, list[int]]]] = []
        cursor = None
        while not found or cursor is not None:
            answer = stage.ask(
                "DescribeTopicPartitions", 0, topics=list(map(of_topic, names)), response_partition_limit=limit,
                cursor=cursor,
            )  # fmt: skip
            numbers = [[part.partition_index for part in each.partitions] for each in answer.topics]
            told = zip(answer.topics, numbers, strict=True)
            found.append([(each.name, each.error_code, parts) for each, parts in told])
            cursor = None if answer.next_cursor is None else of_cursor(*answer.next_cursor)
        return found

    assert pages(2000) == [[("a", 0, [0, 1, 2]), ("b", 0, [0, 1]), ("c", 0, [0])]]
    assert pages(2) == [[("a", 0, [0, 1])], [("a", 0, [2]), ("b", 0, [0])], [("b", 0, [1]), ("c", 0, [0])]]
    assert pages(3, "c", "gone", "a") == [[("a", 0, [0, 1, 2])], [("c", 0, [0]), ("gone", _UNKNOWN, [])]]
    answer = stage.ask("DescribeTopicPartitions", 0, topics=[of_topic("a")])
    (part, *_), *_ = (each.partitions for each in answer.topics)
    told = stage.described("a").partitions[0]
    assert (part.leader_id, tuple(part.replica_nodes), tuple(part.isr_nodes)) == (told.leader, told.replicas, told.isr)
    assert (part.eligible_leader_replicas, part.last_known_elr) == ([], [])  # Java's client cannot bear a null
    with pytest.raises(MalformedRequest):
        stage.ask("DescribeTopicPartitions", 0, topics=[], cursor=of_cursor("a", -1))


def test_replicas_outside_of_the_isr_that_may_lead_are_told_while_the_controller_answers(
    stage: AdministeredCluster,
) -> None:
    of_topic = message_type("DescribeTopicPartitionsRequest", "TopicRequest")
    settings: dict[str, str | None] = {"min.insync.replicas": "2"}
    stage.create(topic("clicks", assigned={0: [1, 2], 1: [1, 3]}, settings=settings))
    stage.create(topic("whole", assigned={0: [1, 2, 3]}))

    def eligible() -> dict[str, list[tuple[list[int], list[int]]]]:
        answer = stage.ask("DescribeTopicPartitions", 0, topics=[of_topic("clicks"), of_topic("whole")])
        return {
            each.name: [(list(part.isr_nodes), list(part.eligible_leader_replicas)) for part in each.partitions]
            for each in answer.topics
        }

    assert eligible() == {"clicks": [([1, 2], []), ([1, 3], [])], "whole": [([1, 2, 3], [])]}
    stage.cluster.crash_machine(stage.cluster.homes[2], boot_after=(1e5, 1e5))
    state = stage.controller.admin
    assert stage.world.run_until_idle_or(lambda: state.describe_topic("clicks").partitions[0].isr == (1,), 60.0)
    assert stage.world.run_until_idle_or(lambda: len(state.describe_topic("whole").partitions[0].isr) == 2, 60.0)
    stage.world.run_for(1.0)
    assert eligible() == {"clicks": [([1], [2]), ([1, 3], [])], "whole": [([1, 3], [])]}
    stage.lose_controller(0.0, is_stopped=True)
    stage.world.run_for(0.1)
    assert eligible() == {"clicks": [([1], []), ([1, 3], [])], "whole": [([1, 3], [])]}


def test_moves_that_are_under_way_are_told(stage: AdministeredCluster) -> None:
    of_topic = message_type("ListPartitionReassignmentsRequest", "ListPartitionReassignmentsTopics")
    stage.create(topic("clicks", assigned={0: [1, 2], 1: [1, 2]}))

    administration = stage.gateway.administration

    async def moves(**asked: Any) -> list[tuple[Any, ...]]:
        answer = await stage.client.ask("ListPartitionReassignments", 0, **asked)
        return [
            (each.name, part.partition_index, set(part.replicas), part.adding_replicas, part.removing_replicas)
            for each in answer.topics
            for part in each.partitions
        ]

    async def move_and_look() -> None:
        assert await moves() == []
        await administration.ask(Reassign({("clicks", 1): (1, 3)}, None), 30.0)
        expected = [("clicks", 1, {1, 2, 3}, [3], [2])]
        assert await moves() == await moves(topics=[of_topic("clicks", [0, 1])]) == expected
        assert await moves(topics=[of_topic("clicks", [0])]) == await moves(topics=[of_topic("gone", [1])]) == []

    stage.gateway.run(move_and_look())


@pytest.mark.parametrize("version", range(1, 5))
def test_each_version_tells_the_sizes_of_logs(stage: AdministeredCluster, version: int) -> None:
    of_topic = message_type("DescribeLogDirsRequest", "DescribableLogDirTopic")
    stage.create(topic("clicks", assigned={0: [1], 1: [2]}))
    stage.world.run_for(1.0)  # in which brokers report
    (found,) = stage.ask("DescribeLogDirs", version, topics=None).results
    assert found.error_code == 0
    assert [(each.name, [part.partition_index for part in each.partitions]) for each in found.topics] == [
        ("clicks", [0])
    ]
    assert found.log_dir.startswith("/")
    if version >= 4:
        assert 0 < found.usable_bytes <= found.total_bytes
    (none,) = stage.ask("DescribeLogDirs", version, topics=[of_topic("clicks", [1])]).results
    assert none.topics == []


@pytest.mark.parametrize("version", range(1, 4))
def test_tools_hear_that_there_are_no_access_rules(stage: AdministeredCluster, version: int) -> None:
    answer = stage.ask("DescribeAcls", version, resource_type_filter=1, operation=1, permission_type=1)
    assert answer.error_code == ErrorCode.SECURITY_DISABLED


# --- topics that are made when they are asked for -----------------------------------------------------------------


@pytest.mark.parametrize("version", [3, 4, 13])
def test_a_topic_is_made_when_it_is_asked_for_if_the_cluster_says_so(stage: AdministeredCluster, version: int) -> None:
    of_topic = message_type("MetadataRequest", "MetadataRequestTopic")

    def codes(*names: str, may_create: bool = True) -> list[int]:
        asked = list(map(of_topic, [_NO_ID] * len(names), names))
        fields = {"allow_auto_topic_creation": may_create} if version >= 4 else {}
        return [each.error_code for each in stage.ask("Metadata", version, topics=asked, **fields).topics]

    assert codes("clicks") == [_UNKNOWN]
    stage.alter_cluster({"auto.create.topics.enable": "true", "num.partitions": 2})
    stage.world.run_for(4.0)
    if version >= 4:
        assert codes("clicks", may_create=False) == [_UNKNOWN]
    wrong = ErrorCode.INVALID_TOPIC_EXCEPTION
    assert codes("clicks", "a b", "clicks") == [ErrorCode.LEADER_NOT_AVAILABLE, wrong, ErrorCode.LEADER_NOT_AVAILABLE]
    stage.world.run_for(2.0)
    assert codes("clicks") == [0]
    assert len(stage.described("clicks").partitions) == 2
    assert stage.controller.admin.list_topics() == ("clicks",)


# --- a controller that is lost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_ms", [0, 1, 2, 5, 10, 20, 40, 80, 160])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_what_a_lost_controller_has_done_is_no_error(
    stage: AdministeredCluster, after_ms: int, is_stopped: bool
) -> None:
    """However far it got, the client hears that its topic is there, has grown, is gone."""
    stage.create(topic("there", 1))

    stage.lose_controller(after_ms / 1000, is_stopped=is_stopped)
    made, exists = stage.create(topic("clicks", 2), topic("there"))
    assert (made.error_code, exists.error_code) == (0, _EXISTS)
    assert (stage.described("clicks").topic_id, made.num_partitions) == (made.topic_id, 2)

    stage.lose_controller(after_ms / 1000, is_stopped=is_stopped)
    assert stage.grow("clicks", 4).error_code == 0
    assert len(stage.described("clicks").partitions) == 4

    stage.lose_controller(after_ms / 1000, is_stopped=is_stopped)
    assert stage.delete("clicks", "gone") == [0, _UNKNOWN]
    assert stage.controller.admin.list_topics() == ("there",)


def test_nobody_waits_for_ever_for_a_controller(stage: AdministeredCluster) -> None:
    stage.cluster.lose_head()
    began = stage.world.now
    (made,) = stage.create(topic("clicks"), timeout_ms=10_000)
    assert made.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert stage.world.now - began < 11.0
    stage.cluster.bring_head_back()
    (made,) = stage.create(topic("clicks"))
    assert made.error_code == 0


def test_a_broker_that_is_stopped_is_not_waited_for(stage: AdministeredCluster) -> None:
    async def create(number: int) -> Any:
        asked = stage.client.ask("CreateTopics", 7, topics=[topic(f"t{number}", 1, 1)], timeout_ms=60_000)
        return (await asyncio.wait_for(asked, 40.0)).topics[0].error_code

    home = stage.cluster.homes[2]
    assert home.process is not None
    home.process.pause()
    assert [stage.gateway.run(create(number)) for number in range(4)] == [0] * 4

"""Administration of topics through the gateway: every version, and a controller that is lost while it is asked."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.cluster.descriptions import TopicDescription
from raylog.actors.controller.controller import Controller
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from tests.simulator.clients.kafka_clients import GatewayProcess
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

_NO_ID: Final = bytes(16)
_EXISTS: Final = ErrorCode.TOPIC_ALREADY_EXISTS
_UNKNOWN: Final = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


class Stage:
    """A cluster of three brokers, and a gateway."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimulatedCluster(world)
        self.cluster.form(3)
        self.gateway = GatewayProcess(world, self.cluster)
        self.client = self.gateway.client()

    def ask(self, name: str, version: int, **fields: Any) -> Any:
        return self.gateway.run(self.client.ask(name, version, **fields))

    def create(self, *topics: Any, version: int = 7, validate_only: bool = False, timeout_ms: int = 60_000) -> Any:
        answer = self.ask(
            "CreateTopics", version, topics=list(topics), timeout_ms=timeout_ms, validate_only=validate_only
        )
        return answer.topics

    def delete(self, *names: str, version: int = 5) -> list[int]:
        of_topic = message_type("DeleteTopicsRequest", "DeleteTopicState")
        answer = self.ask(
            "DeleteTopics", version, topics=[of_topic(each) for each in names], topic_names=names, timeout_ms=60_000
        )
        return [each.error_code for each in answer.responses]

    def grow(self, topic: str, count: int, assignments: Any = None, *, version: int = 3, check: bool = False) -> Any:
        of_topic, of_part = (message_type("CreatePartitionsRequest", f"CreatePartitions{each}") for each in _GROWTH)
        parts = None if assignments is None else [of_part(each) for each in assignments]
        (result,) = self.ask(
            "CreatePartitions", version, topics=[of_topic(topic, count, parts)], timeout_ms=60_000, validate_only=check
        ).results
        return result

    def lose_controller(self, after: float, *, is_stopped: bool = False) -> None:
        def lose() -> None:
            for running in self.cluster.controllers:
                if is_stopped:
                    running.process.pause()
                    self.world.after(8.0, running.process.kill)
                else:
                    running.process.kill()

        self.world.after(after, lose)

    @property
    def controller(self) -> Controller:
        """The controller, once there is one."""
        assert self.world.run_until_idle_or(lambda: self.cluster.serving() is not None, 60.0)
        serving = self.cluster.serving()
        assert serving is not None
        return serving

    def described(self, topic: str) -> TopicDescription:
        return self.controller.admin.describe_topic(topic)


_MAKING: Final = ("Topic", "ReplicaAssignment", "TopicConfig")
_GROWTH: Final = ("Topic", "Assignment")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        yield stage
        stage.cluster.is_over = True


def topic(
    name: str,
    partitions: int = -1,
    replicas: int = -1,
    *,
    assigned: dict[int, list[int]] | None = None,
    settings: dict[str, str | None] | None = None,
) -> Any:
    of_topic, of_part, of_setting = (message_type("CreateTopicsRequest", f"Creatable{each}") for each in _MAKING)
    parts = [of_part(number, brokers) for number, brokers in (assigned or {}).items()]
    return of_topic(name, partitions, replicas, parts, [of_setting(*each) for each in (settings or {}).items()])


# --- what is asked ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("version", range(2, 8))
def test_each_version_makes_topics(stage: Stage, version: int) -> None:
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
    stage: Stage, asked: Any, code: ErrorCode, caplog: pytest.LogCaptureFixture
) -> None:
    topics = [asked] if code == ErrorCode.POLICY_VIOLATION else [asked, topic("other")]
    with caplog.at_level(logging.WARNING, "raylog.api.kafka.refusals"):
        refused, *others = stage.create(*topics)
    assert (refused.error_code, bool(refused.error_message)) == (code, True)
    assert [each.error_code for each in others] == [0] * (len(topics) - 1)
    (line,) = [each.message for each in caplog.records if "is refused" in each.message]
    assert line.startswith(f"CreateTopics of Kafka client 'model' is refused for topic {asked.name!r}: ")


def test_a_name_that_comes_twice_is_refused(stage: Stage) -> None:
    codes = [each.error_code for each in stage.create(topic("a"), topic("b"), topic("a"))]
    assert codes == [ErrorCode.INVALID_REQUEST, 0, ErrorCode.INVALID_REQUEST]
    assert stage.delete("a", "b", "b") == [_UNKNOWN, ErrorCode.INVALID_REQUEST, ErrorCode.INVALID_REQUEST]


def test_replicas_are_where_the_client_wants_them(stage: Stage) -> None:
    (made,) = stage.create(topic("clicks", assigned={1: [3, 1], 0: [2, 3]}))
    assert (made.error_code, made.num_partitions, made.replication_factor) == (0, 2, 2)
    assert [each.replicas for each in stage.described("clicks").partitions] == [(2, 3), (3, 1)]
    assert stage.grow("clicks", 3, [[1, 2]]).error_code == 0
    assert [each.replicas for each in stage.described("clicks").partitions][2] == (1, 2)


def test_a_question_whether_it_can_be_changes_nothing(stage: Stage) -> None:
    fine, wrong = stage.create(topic("clicks", 3), topic("x", settings={"no.such": "1"}), validate_only=True)
    assert (fine.error_code, fine.num_partitions, fine.replication_factor) == (0, 3, 3)
    assert (fine.topic_id, wrong.error_code) == (_NO_ID, ErrorCode.INVALID_CONFIG)
    assert stage.create(topic("clicks", 1))[0].error_code == 0
    assert stage.grow("clicks", 3, check=True).error_code == 0
    assert stage.grow("clicks", 1, check=True).error_code == ErrorCode.INVALID_PARTITIONS
    assert len(stage.described("clicks").partitions) == 1


@pytest.mark.parametrize("version", range(1, 7))
def test_each_version_deletes_topics(stage: Stage, version: int) -> None:
    stage.create(topic("clicks"), topic("other"))
    assert stage.delete("clicks", "gone", version=version) == [0, _UNKNOWN]
    assert [each.name for each in stage.ask("Metadata", 12, topics=None).topics] == ["other"]


def test_a_topic_is_deleted_by_its_id_and_no_other_of_its_name(stage: Stage) -> None:
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
def test_each_version_adds_partitions(stage: Stage, version: int) -> None:
    stage.create(topic("clicks", 1))
    assert stage.grow("clicks", 3, version=version).error_code == 0
    assert len(stage.ask("Metadata", 12, topics=None).topics[0].partitions) == 3
    for count, code in ((3, 37), (2, 37), (10_001, ErrorCode.POLICY_VIOLATION)):
        assert stage.grow("clicks", count, version=version).error_code == code
    assert stage.grow("gone", 3, version=version).error_code == _UNKNOWN
    assert stage.grow("clicks", 4, [[9]], version=version).error_code == ErrorCode.INVALID_REPLICA_ASSIGNMENT


# --- a controller that is lost --------------------------------------------------------------------------------------


@pytest.mark.parametrize("after_ms", [0, 1, 2, 5, 10, 20, 40, 80, 160])
@pytest.mark.parametrize("is_stopped", [False, True], ids=["killed", "stopped"])
def test_what_a_lost_controller_has_done_is_no_error(stage: Stage, after_ms: int, is_stopped: bool) -> None:
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


def test_nobody_waits_for_ever_for_a_controller(stage: Stage) -> None:
    stage.cluster.lose_head()
    began = stage.world.now
    (made,) = stage.create(topic("clicks"), timeout_ms=10_000)
    assert made.error_code == ErrorCode.REQUEST_TIMED_OUT
    assert stage.world.now - began < 11.0
    stage.cluster.bring_head_back()
    (made,) = stage.create(topic("clicks"))
    assert made.error_code == 0


def test_a_broker_that_is_stopped_is_not_waited_for(stage: Stage) -> None:
    async def create(number: int) -> Any:
        asked = stage.client.ask("CreateTopics", 7, topics=[topic(f"t{number}", 1, 1)], timeout_ms=60_000)
        return (await asyncio.wait_for(asked, 40.0)).topics[0].error_code

    home = stage.cluster.homes[2]
    assert home.process is not None
    home.process.pause()
    assert [stage.gateway.run(create(number)) for number in range(4)] == [0] * 4

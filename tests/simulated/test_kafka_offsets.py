"""Committed offsets of groups through the gateway: every version, against real coordinators."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.groups.coordinator.process import make
from raylog.groups.records.messages import NO_EPOCH, OffsetsCommitted, StageOffsets
from tests.simulator.clients.kafka_clients import gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

TOPIC: Final = "clicks"
GROUP: Final = "billing"
_NO_TOPIC: Final = bytes(16)
_TO_BE_REPEATED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


class Stage:
    """A cluster of three brokers with coordinators of groups, a topic of three partitions, and a gateway."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: make})
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, 3, 3, {})
        (self.gateway,) = gateways_beside(self.cluster, 1)
        self.client = self.gateway.client()

    @property
    def topic_id(self) -> bytes:
        view = self.gateway.link.topic(TOPIC)
        assert view is not None
        return view.topic_id

    def commit(self, offsets: dict[int, int], version: int = 9, topic: str = TOPIC, **more: Any) -> list[int]:
        """Return the codes, by partition."""
        return self.gateway.run(self._commit(offsets, version, topic, more))

    def commit_at_last(self, offsets: dict[int, int]) -> None:
        async def repeat() -> None:
            while any(codes := await self._commit(offsets, 9, TOPIC, {})):
                assert set(codes) <= {*_TO_BE_REPEATED, 0}
                await asyncio.sleep(0.1)

        self.gateway.run(repeat())

    async def _commit(self, offsets: dict[int, int], version: int, topic: str, more: dict[str, Any]) -> list[int]:
        part, of_topic = (message_type("OffsetCommitRequest", f"OffsetCommitRequest{each}") for each in _PARTS)
        parts = [
            part(number, offset, 3 if version >= 6 else -1, committed_metadata=f"at {offset}" if offset else None)
            for number, offset in offsets.items()
        ]
        topic_id = self.topic_id if version >= 10 else _NO_TOPIC
        name = "" if version >= 10 else topic
        topics = [of_topic(name=name, topic_id=topic_id, partitions=parts)]
        answer = await self.client.ask("OffsetCommit", version, group_id=GROUP, topics=topics, **more)
        (told,) = answer.topics
        assert (told.name, told.topic_id) == (name, topic_id)
        return [each.error_code for each in told.partitions]

    def fetch(self, partitions: list[int] | None, version: int = 9, topic: str = TOPIC) -> tuple[Any, int]:
        """Return (partition, offset, leader epoch, metadata, code) of each, and the code of the group."""
        return self.gateway.run(self._fetch(partitions, version, topic))

    async def _fetch(self, partitions: list[int] | None, version: int, topic: str) -> tuple[Any, int]:
        if version < 8:
            of_topic = message_type("OffsetFetchRequest", "OffsetFetchRequestTopic")
            topics = None if partitions is None else [of_topic(topic, partitions)]
            answer = await self.client.ask("OffsetFetch", version, group_id=GROUP, topics=topics)
        else:
            of_topic = message_type("OffsetFetchRequest", "OffsetFetchRequestTopics")
            topic_id, name = (self.topic_id, "") if version >= 10 else (_NO_TOPIC, topic)
            topics = None if partitions is None else [of_topic(name, topic_id, partitions)]
            of_group = message_type("OffsetFetchRequest", "OffsetFetchRequestGroup")
            wanted = [of_group(GROUP, topics=topics), of_group("another", topics=topics)]
            told = await self.client.ask("OffsetFetch", version, groups=wanted)
            assert [each.group_id for each in told.groups] == [GROUP, "another"]
            assert {part.committed_offset for one in told.groups[1].topics for part in one.partitions} <= {-1}
            answer = told.groups[0]
        parts = [part for one in answer.topics for part in one.partitions]
        found = [
            (each.partition_index, each.committed_offset, each.committed_leader_epoch, each.metadata, each.error_code)
            for each in parts
        ]
        return found, answer.error_code

    def stage_offset(self, partition: int) -> None:
        """Stage an offset, as a transaction does that does not end."""
        link = self.gateway.link
        offsets = ((self.topic_id, partition, 70, -1, ""),)

        async def ask() -> None:
            place = await link.find_coordinator(OFFSETS_TOPIC, group_hash(GROUP), 30.0)
            request = StageOffsets(GROUP, "", NO_EPOCH, 9_000, 0, 1, offsets)
            assert (await link.ask(place, request, expect=OffsetsCommitted, timeout=10.0)).message.refused == ()

        self.gateway.run(ask())


_PARTS: Final = ("Partition", "Topic")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        stage.commit_at_last({2: 0})  # the coordinators are there
        yield stage
        stage.cluster.is_over = True


@pytest.mark.parametrize("version", range(2, 11))
def test_each_version_commits_for_a_group_without_members(stage: Stage, version: int) -> None:
    assert stage.commit({0: 40, 1: 50}, version) == [0, 0]
    epoch = 3 if version >= 6 else -1
    assert stage.fetch([1, 0]) == ([(1, 50, epoch, "at 50", 0), (0, 40, epoch, "at 40", 0)], 0)


@pytest.mark.parametrize("version", range(1, 11))
def test_each_version_reads_what_is_committed(stage: Stage, version: int) -> None:
    stage.commit_at_last({0: 40})
    epoch = 3 if version >= 5 else -1
    assert stage.fetch([0, 1, 2], version) == (
        [(0, 40, epoch, "at 40", 0), (1, -1, -1, "", 0), (2, 0, epoch, "", 0)], 0
    )  # fmt: skip
    if version >= 2:
        assert stage.fetch(None, version) == ([(0, 40, epoch, "at 40", 0), (2, 0, epoch, "", 0)], 0)


def test_what_does_not_exist_is_refused_by_itself(stage: Stage) -> None:
    assert stage.commit({0: 40, 9: 1}) == [0, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    assert stage.commit({0: 40}, topic="no-such-topic") == [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION]
    found, _ = stage.fetch([0, 9])
    missing = (9, -1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    assert [(each[0], each[1], each[4]) for each in found] == [(0, 40, 0), missing]


def test_nobody_commits_as_a_member_that_has_not_joined(stage: Stage) -> None:
    unknown = [ErrorCode.UNKNOWN_MEMBER_ID]
    assert stage.commit({0: 40}, member_id="consumer-1", generation_id_or_member_epoch=1) == unknown
    assert stage.commit({0: 40}, generation_id_or_member_epoch=1) == unknown
    assert stage.commit({0: -5}) == [ErrorCode.INVALID_REQUEST]
    assert stage.fetch([0])[0] == [(0, -1, -1, "", 0)]


def test_a_partition_that_is_named_twice_is_refused_twice(stage: Stage) -> None:
    part, of_topic = (message_type("OffsetCommitRequest", f"OffsetCommitRequest{each}") for each in _PARTS)
    topics = [of_topic(name=TOPIC, partitions=[part(0, 5), part(0, 6)])]
    member: dict[str, Any] = {"member_id": "consumer-1", "generation_id_or_member_epoch": 1}
    asked = stage.client.ask("OffsetCommit", 9, group_id=GROUP, topics=topics, **member)
    (told,) = stage.gateway.run(asked).topics
    assert [each.error_code for each in told.partitions] == [ErrorCode.UNKNOWN_MEMBER_ID] * 2


@pytest.mark.parametrize(
    ("version", "code"), [(6, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS), (7, ErrorCode.UNSTABLE_OFFSET_COMMIT)]
)
def test_what_a_transaction_has_staged_is_not_known_yet(stage: Stage, version: int, code: ErrorCode) -> None:
    stage.commit_at_last({0: 40, 1: 50})
    stage.stage_offset(1)
    found, _ = stage.fetch([0, 1], version)
    assert [(each[0], each[1], each[4]) for each in found] == [(0, 40, 0), (1, -1, code)]


def test_another_coordinator_goes_on_with_what_was_committed(stage: Stage) -> None:
    stage.commit_at_last({0: 40})
    for process in stage.cluster.coordinator_processes():
        process.kill()
    stage.commit_at_last({1: 50})

    async def read() -> Any:
        while (await stage._fetch([0], 9, TOPIC))[1]:
            await asyncio.sleep(0.1)
        return await stage._fetch([0, 1], 9, TOPIC)

    found, _ = stage.gateway.run(read())
    assert [(each[0], each[1], each[4]) for each in found] == [(0, 40, 0), (1, 50, 0)]

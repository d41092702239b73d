"""Deletions by Kafka's tools beside topics, in every version: records, groups, committed offsets."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import as_kafka
from raylog.groups.coordinator.process import make
from raylog.storage.format.batch_codec import encode_batch
from tests.simulator.clients.kafka_clients import gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

TOPIC: Final = "clicks"
COMPACTED: Final = "accounts"
GROUP: Final = "billing"
_TIME_MS: Final = 1_800_000_000_000
_LATE: Final = {"message.timestamp.after.max.ms": str(10**15)}
_PASSING: Final = (
    ErrorCode.NOT_COORDINATOR,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.REQUEST_TIMED_OUT,
    ErrorCode.NOT_LEADER_OR_FOLLOWER,
    ErrorCode.NOT_ENOUGH_REPLICAS,
)


class Stage:
    """Three brokers with coordinators of groups, and a gateway that is of the cluster, as real ones are."""

    def __init__(self, world: World) -> None:
        self.cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: make})
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, 2, 3, _LATE)
        self.cluster.create_topic(COMPACTED, 1, 3, {**_LATE, "cleanup.policy": "compact"})
        (self.gateway,) = gateways_beside(self.cluster, 1)
        self.client = self.gateway.client()

    def produce(self, partition: int, count: int) -> None:
        part, of_topic = (message_type("ProduceRequest", name) for name in ("PartitionProduceData", "TopicProduceData"))
        batch = bytes(as_kafka(encode_batch([b"%d" % number for number in range(count)], timestamps=_TIME_MS)))
        topics = [of_topic(name=TOPIC, partition_data=[part(partition, batch)])]

        async def repeat() -> None:
            while True:
                told = await self.client.ask("Produce", 9, acks=-1, timeout_ms=5_000, topic_data=topics)
                code = told.responses[0].partition_responses[0].error_code
                if code == 0:
                    return
                assert code in _PASSING
                await asyncio.sleep(0.1)

        self.gateway.run(repeat())

    def delete_records(self, version: int, topic: str, before: dict[int, int]) -> list[tuple[int, int]]:
        """Return (where the log begins, code) of each partition."""
        of_topic, part = (message_type("DeleteRecordsRequest", f"DeleteRecords{each}") for each in _PARTS)
        topics = [of_topic(topic, [part(*each) for each in before.items()])]
        told = self.gateway.run(self.client.ask("DeleteRecords", version, topics=topics, timeout_ms=5_000))
        return [(each.low_watermark, each.error_code) for each in told.topics[0].partitions]

    def earliest(self, partition: int) -> int:
        of_topic, part = (message_type("ListOffsetsRequest", f"ListOffsets{each}") for each in _PARTS)
        topics = [of_topic(TOPIC, [part(partition_index=partition, timestamp=-2)])]
        told = self.gateway.run(self.client.ask("ListOffsets", 7, replica_id=-1, topics=topics))
        return int(told.topics[0].partitions[0].offset)

    def commit(self, offsets: dict[int, int]) -> None:
        part, of_topic = (message_type("OffsetCommitRequest", f"OffsetCommitRequest{each}") for each in _REVERSED)
        topics = [of_topic(name=TOPIC, partitions=[part(*each) for each in offsets.items()])]

        async def repeat() -> None:
            while True:
                told = await self.client.ask("OffsetCommit", 8, group_id=GROUP, topics=topics)
                codes = {each.error_code for each in told.topics[0].partitions}
                if codes == {0}:
                    return
                assert codes <= {0, *_PASSING}
                await asyncio.sleep(0.1)

        self.gateway.run(repeat())

    def committed(self) -> dict[int, int]:
        told = self.gateway.run(self.client.ask("OffsetFetch", 7, group_id=GROUP, topics=None))
        assert told.error_code == 0
        return {part.partition_index: part.committed_offset for each in told.topics for part in each.partitions}

    def delete_groups(self, version: int, *groups: str) -> list[int]:
        told = self.gateway.run(self.client.ask("DeleteGroups", version, groups_names=list(groups)))
        assert [each.group_id for each in told.results] == list(groups)
        return [each.error_code for each in told.results]

    def delete_offsets(self, group: str, partitions: list[int], topic: str = TOPIC) -> Any:
        """Return the codes of the partitions, and of the whole."""
        of_topic, part = (message_type("OffsetDeleteRequest", f"OffsetDeleteRequest{each}") for each in _PARTS)
        topics = [of_topic(topic, [part(each) for each in partitions])]
        told = self.gateway.run(self.client.ask("OffsetDelete", 0, group_id=group, topics=topics))
        return [part.error_code for each in told.topics for part in each.partitions], told.error_code

    def join(self) -> None:
        """Have a member in the group, for as long as its session lasts."""
        of_protocol = message_type("JoinGroupRequest", "JoinGroupRequestProtocol")
        told = self.gateway.run(
            self.client.ask(
                "JoinGroup", 3, group_id=GROUP, session_timeout_ms=30_000, rebalance_timeout_ms=30_000, member_id="",
                protocol_type="consumer", protocols=[of_protocol("range", b"likes clicks")],
            )
        )  # fmt: skip
        assert told.error_code == 0


_PARTS: Final = ("Topic", "Partition")
_REVERSED: Final = ("Partition", "Topic")


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        yield stage
        stage.cluster.is_over = True


@pytest.mark.parametrize("version", range(3))
def test_a_partition_begins_where_it_was_told_to(stage: Stage, version: int) -> None:
    stage.produce(0, 10)
    stage.produce(1, 10)
    assert stage.delete_records(version, TOPIC, {0: 4, 1: -1}) == [(4, 0), (10, 0)]
    assert (stage.earliest(0), stage.earliest(1)) == (4, 10)
    assert stage.delete_records(version, TOPIC, {0: 4}) == [(4, 0)]


def test_records_that_must_not_be_deleted_stay(stage: Stage) -> None:
    stage.produce(0, 10)
    refused = (-1, ErrorCode.OFFSET_OUT_OF_RANGE)
    assert stage.delete_records(2, TOPIC, {0: 11, 1: -2}) == [refused, refused]
    assert stage.delete_records(2, TOPIC, {7: 1}) == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert stage.delete_records(2, "none", {0: 1}) == [(-1, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)]
    assert stage.delete_records(2, COMPACTED, {0: 0}) == [(-1, ErrorCode.POLICY_VIOLATION)]
    stage.commit({0: 1})  # the topic of offsets is there
    assert stage.delete_records(2, OFFSETS_TOPIC, {0: 0}) == [(-1, ErrorCode.INVALID_TOPIC_EXCEPTION)]
    assert stage.earliest(0) == 0


@pytest.mark.parametrize("version", range(3))
def test_a_group_without_members_is_deleted_with_its_offsets(stage: Stage, version: int) -> None:
    stage.commit({0: 4, 1: 5})
    missing = ErrorCode.GROUP_ID_NOT_FOUND
    assert stage.delete_groups(version, "none", GROUP) == [missing, 0]
    assert stage.committed() == {}
    assert stage.delete_groups(version, GROUP) == [missing]


def test_offsets_are_deleted_by_partition(stage: Stage) -> None:
    stage.commit({0: 4, 1: 5})
    assert stage.delete_offsets(GROUP, [1, 0], "none") == ([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2, 0)
    assert stage.delete_offsets(GROUP, [1]) == ([0], 0)
    assert stage.committed() == {0: 4}
    assert stage.delete_offsets("none", [1]) == ([], ErrorCode.GROUP_ID_NOT_FOUND)


def test_what_a_group_with_members_has_stays(stage: Stage) -> None:
    stage.commit({0: 4})
    stage.join()
    assert stage.delete_groups(2, GROUP) == [ErrorCode.NON_EMPTY_GROUP]
    assert stage.delete_offsets(GROUP, [0]) == ([ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC], 0)
    assert stage.committed() == {0: 4}

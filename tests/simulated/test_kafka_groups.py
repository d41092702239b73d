"""Members of classic groups through the gateway: every version, against real coordinators that may die."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from typing import Any, Final

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.protocol.endpoint import StreamLimits
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.groups.coordinator.process import make
from tests.simulator.clients.kafka_clients import KafkaClient, gateways_beside
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.world.world import World
from tests.unit.actors.link_world import CALM

TOPIC: Final = "clicks"
GROUP: Final = "billing"
_TO_BE_REPEATED: Final = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.REQUEST_TIMED_OUT)


class Member:
    """A Kafka client in the group, over a connection of its own."""

    def __init__(self, client: KafkaClient, version: int = 9, instance: str | None = None) -> None:
        self.client = client
        self.version = version
        self.instance = instance if version >= 5 else None
        self.id = ""
        self.generation = -1
        self.leader = ""
        self.members: list[str] = []
        self.assignment = b""
        self.said = b"likes clicks"
        self.padding = b""  # of what it gives each member, if it leads

    async def ask(self, name: str, most: int, **fields: Any) -> Any:
        """Ask until a coordinator answers."""
        version = min(self.version, most)
        if version < (3 if name != "JoinGroup" else 5):
            fields.pop("group_instance_id", None)
        while True:
            answer = await self.client.ask(name, version, group_id=GROUP, **fields)
            if answer.error_code not in _TO_BE_REPEATED:
                return answer
            await asyncio.sleep(0.1)

    async def join(self) -> int:
        of_protocol = message_type("JoinGroupRequest", "JoinGroupRequestProtocol")
        answer = await self.ask(
            "JoinGroup", 9, session_timeout_ms=10_000, rebalance_timeout_ms=20_000 if self.version else -1,
            member_id=self.id, group_instance_id=self.instance, protocol_type="consumer",
            protocols=[of_protocol(each, self.said) for each in ("range", "sticky")],
        )  # fmt: skip
        self.id = answer.member_id
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            return await self.join()
        self.generation, self.leader = answer.generation_id, answer.leader
        self.members = [each.member_id for each in answer.members]
        return int(answer.error_code)

    async def sync(self) -> int:
        of_member = message_type("SyncGroupRequest", "SyncGroupRequestAssignment")
        given = [of_member(each, b"for " + each.encode() + self.padding) for each in self.members]
        answer = await self.ask(
            "SyncGroup", 5, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance,
            protocol_type="consumer" if self.version >= 5 else None,
            protocol_name="range" if self.version >= 5 else None, assignments=given,
        )  # fmt: skip
        self.assignment = answer.assignment
        return int(answer.error_code)

    async def beat(self) -> int:
        answer = await self.ask(
            "Heartbeat", 4, generation_id=self.generation, member_id=self.id, group_instance_id=self.instance
        )
        return int(answer.error_code)

    async def leave(self) -> int:
        version = min(self.version, 5)
        if version < 3:
            return int((await self.ask("LeaveGroup", 5, member_id=self.id)).error_code)
        of_member = message_type("LeaveGroupRequest", "MemberIdentity")
        answer = await self.ask("LeaveGroup", 5, members=[of_member(self.id, self.instance)])
        return int(answer.members[0].error_code)

    async def commit(self, offset: int) -> int:
        part, of_topic = (message_type("OffsetCommitRequest", f"OffsetCommitRequest{each}") for each in _PARTS)
        topics = [of_topic(name=TOPIC, partitions=[part(0, offset)])]
        while True:
            answer = await self.client.ask(
                "OffsetCommit", 7, group_id=GROUP, member_id=self.id, generation_id_or_member_epoch=self.generation,
                topics=topics,
            )  # fmt: skip
            code = int(answer.topics[0].partitions[0].error_code)
            if code not in _TO_BE_REPEATED:
                return code
            await asyncio.sleep(0.1)

    async def settle(self) -> None:
        assert await self.join() == 0
        assert await self.sync() == 0
        assert self.assignment == b"for " + self.id.encode() + self.padding


_PARTS: Final = ("Partition", "Topic")


class Stage:
    """A cluster of three brokers with coordinators of groups, and a gateway."""

    def __init__(self, world: World) -> None:
        self.cluster = SimulatedCluster(world, coordinator_makers={OFFSETS_TOPIC: make})
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, 3, 3, {})
        (self.gateway,) = gateways_beside(self.cluster, 1)

    def member(self, version: int = 9, instance: str | None = None) -> Member:
        return Member(self.gateway.client(), version, instance)


@pytest.fixture
def stage() -> Iterator[Stage]:
    with World(5, settings=CALM) as world:
        stage = Stage(world)
        yield stage
        stage.cluster.is_over = True


@pytest.mark.parametrize("version", range(10))
def test_each_version_shares_a_group(stage: Stage, version: int) -> None:
    one, two = stage.member(version, "i1"), stage.member(version)

    async def live() -> None:
        await asyncio.gather(one.settle(), two.settle())
        assert [each.generation for each in (one, two)] == [1, 1]
        assert await one.beat() == await two.beat() == await one.commit(5) == 0
        one.generation = 7
        assert await one.beat() == await one.commit(6) == await one.sync() == ErrorCode.ILLEGAL_GENERATION
        assert await two.leave() == 0
        assert await two.beat() == await two.leave() == ErrorCode.UNKNOWN_MEMBER_ID
        one.generation = 1
        assert await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS
        await one.settle()
        assert (one.generation, one.leader) == (2, one.id)

    stage.gateway.run(live())


def test_members_outlive_their_coordinator(stage: Stage) -> None:
    one, two = stage.member(), stage.member(4)

    async def settle() -> None:
        await asyncio.gather(one.settle(), two.settle())
        assert await one.commit(5) == 0

    async def go_on() -> None:
        assert await one.beat() == await two.beat() == 0
        assert await two.sync() == 0
        assert two.assignment == b"for " + two.id.encode()
        assert await one.commit(6) == 0
        one.generation = 0
        assert await one.commit(7) == ErrorCode.ILLEGAL_GENERATION

    stage.gateway.run(settle())
    for process in stage.cluster.coordinator_processes():
        process.kill()
    stage.gateway.run(go_on())


def test_a_silent_member_costs_its_group_one_session(stage: Stage) -> None:
    one, two = stage.member(), stage.member()

    async def live() -> None:
        await asyncio.gather(one.settle(), two.settle())
        for _ in range(8):
            await asyncio.sleep(2.0)
            if await one.beat() == ErrorCode.REBALANCE_IN_PROGRESS:
                break
        await one.settle()
        assert one.members == [one.id]
        assert await two.commit(1) == ErrorCode.UNKNOWN_MEMBER_ID

    stage.gateway.run(live())


def test_a_static_member_takes_its_place_again(stage: Stage) -> None:
    one, again, two = stage.member(instance="i1"), stage.member(instance="i1"), stage.member()

    async def live() -> None:
        await asyncio.gather(one.settle(), two.settle())
        assert await again.join() == 0
        assert again.generation == 1
        assert await again.beat() == 0
        again.members = []
        assert await again.sync() == 0
        assert again.assignment == b"for " + one.id.encode()
        assert await one.beat() == await one.commit(1) == ErrorCode.FENCED_INSTANCE_ID

    stage.gateway.run(live())


def test_tools_see_the_group(stage: Stage) -> None:
    one = stage.member(instance="i1")

    async def look() -> None:
        await one.settle()
        for version in range(7):
            told = await one.client.ask("DescribeGroups", version, groups=[GROUP, "none"])
            group, missing = told.groups
            assert (group.error_code, group.group_state, group.protocol_data) == (0, "Stable", "range")
            (member,) = group.members
            assert (member.member_id, member.client_id) == (one.id, "model")
            assert (member.member_metadata, member.member_assignment) == (b"likes clicks", one.assignment)
            assert missing.group_state == "Dead"
        for version in range(6):
            (listed,) = (await one.client.ask("ListGroups", version)).groups
            assert (listed.group_id, listed.protocol_type) == (GROUP, "consumer")
        assert (listed.group_state, listed.group_type) == ("Stable", "classic")
        assert (await one.client.ask("ListGroups", 5, types_filter=["consumer"])).groups == []
        assert await one.leave() == 0
        assert (await one.client.ask("ListGroups", 4, states_filter=["empty"])).groups[0].group_id == GROUP

    stage.gateway.run(look())


def test_more_members_than_a_stream_has_handlers_form_a_group_behind_one_gateway(stage: Stage) -> None:
    members = [stage.member(4) for _ in range(StreamLimits().max_handlers + 100)]
    alone = stage.member()

    async def live() -> None:
        await asyncio.gather(*(each.settle() for each in members))
        assert {each.generation for each in members} == {1}
        assert await asyncio.wait_for(alone.client.ask("ListGroups", 5), 5.0)  # others are heard
        assert {await each.beat() for each in members[::100]} == {0}

    stage.gateway.run(live())


def test_a_thousand_members_with_fifty_topics_each_form_a_group_that_outlives_its_coordinator(stage: Stage) -> None:
    members = [stage.member(5) for _ in range(1_000)]
    for each in members:
        each.said = b"".join(b"\0\x14topic-%014d" % topic for topic in range(50))
        each.padding = bytes(50 * (22 + 8))

    async def live() -> None:
        await asyncio.gather(*(each.settle() for each in members))
        (leader,) = (each for each in members if each.members)
        assert len(leader.members) == 1_000
        (group,) = (await leader.client.ask("DescribeGroups", 5, groups=[GROUP])).groups
        assert {each.member_metadata for each in group.members} == {leader.said}

    async def go_on() -> None:
        assert {await each.beat() for each in members[::50]} == {0}
        assert await members[7].sync() == 0
        assert members[7].assignment == b"for " + members[7].id.encode() + members[7].padding

    stage.gateway.run(live())
    for process in stage.cluster.coordinator_processes():
        process.kill()
    stage.gateway.run(go_on())

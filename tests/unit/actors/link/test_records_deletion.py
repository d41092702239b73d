"""Delete-records for whoever administers a cluster: which broker is believed in who leads."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.delete_records import delete_records
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replication_messages import Append, Appended
from raylog.errors import UnknownPartition, UnknownTopic
from raylog.storage.format.batch_codec import encode_batch
from tests.unit.actors.link_world import TOPIC, LinkWorld, link_world


@pytest.fixture
def world() -> Iterator[LinkWorld]:
    with link_world(brokers=4, machine="admin") as world:
        yield world


def delete(world: LinkWorld, brokers: list[Endpoint], partition: tuple[str, int]) -> int:
    begins = world.do(delete_records(world.link.env, brokers, {partition: 2}, "", 5.0))
    return begins[partition]


async def append(link: ClusterLink) -> None:
    leader = (await link.find_topic(TOPIC, 10.0)).partitions[0]
    batch = encode_batch([b"a", b"b", b"c"], timestamps=1_000)
    await link.ask(leader, Append(leader.epoch, -1, 5_000), batch, expect=Appended, timeout=10.0)


def test_the_broker_that_knows_most_is_believed(world: LinkWorld) -> None:
    behind = next(each for each in world.cluster.homes.values() if each.machine is not world.controllers_machine)
    world.until(lambda: behind.broker is not None and behind.broker.is_caught_up)
    world.world.network.partition([world.controllers_machine], [behind.machine])
    world.world.run_for(5.0)
    world.create_topic(replication=2)
    world.do(append(world.link))
    brokers = sorted(world.cluster.broker_endpoints(), key=lambda each: each != behind.endpoint)
    assert delete(world, brokers, (TOPIC, 0)) == 2


def test_a_broker_that_is_stopped_or_new_is_passed_over(world: LinkWorld) -> None:
    world.create_topic()
    world.do(append(world.link))
    leader = world.replica_that_leads().process.machine
    homes = sorted(world.cluster.homes.values(), key=lambda each: each.machine is leader)
    brokers = [each.endpoint for each in homes if each.endpoint is not None]
    killed, paused = (each.process for each in homes[:2])
    assert killed is not None
    assert paused is not None
    paused.pause()
    killed.kill()
    assert delete(world, brokers, (TOPIC, 0)) == 2


def test_what_no_broker_knows_is_refused(world: LinkWorld) -> None:
    world.create_topic()
    brokers = world.cluster.broker_endpoints()
    with pytest.raises(UnknownTopic):
        delete(world, brokers, ("no-such-topic", 0))
    with pytest.raises(UnknownPartition):
        delete(world, brokers, (TOPIC, 7))

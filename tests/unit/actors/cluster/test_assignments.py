"""What replicas and clients are told."""

from __future__ import annotations

from raylog.actors.cluster.assignments import (
    assignment_of,
    broker_metadata_of,
    changed_partitions,
    metadata_of,
    move_shares,
)
from raylog.actors.cluster.placement.reassignment import reassign_partitions
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_admin import delete_topic
from raylog.actors.cluster.topic_settings import alter_topic_settings
from raylog.actors.protocol.control_messages import Assign, ReplicaAddress
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import BrokerFenced
from raylog.storage.directory.doubts import BLANK
from tests.unit.actors.small_cluster import SmallCluster, topic_id_of


def assign(cluster: SmallCluster, name: str = "t", number: int = 0) -> Assign:
    shares = move_shares(cluster.state)
    return assignment_of(cluster.state, topic_id_of(name), number, 2, version=9, controller_epoch=2, shares=shares)


def changed(cluster: SmallCluster, records: list[Message]) -> set[tuple[bytes, int]]:
    cluster.apply(records)
    return {each for record in records for each in changed_partitions(cluster.state, record)}


def test_an_assignment_names_processes() -> None:
    cluster = SmallCluster()
    cluster.create("t", [2, 1], start=False, settings={"retention.ms": 5})
    assert assign(cluster).replicas == ((2, -1, ()), (1, -1, ()))
    cluster.start_replica("t", 2, unproven=BLANK)
    cluster.start_replica("t", 1, unproven=BLANK)
    told = assign(cluster)
    assert told == Assign(
        topic="t",
        topic_id=topic_id_of("t"),
        partition=0,
        metadata_version=9,
        leader=2,
        leader_epoch=0,
        partition_epoch=1,
        isr=((2, 1), (1, 2)),
        replicas=(ReplicaAddress(2, 1, ("unix:/r/2-1",)), ReplicaAddress(1, 2, ("unix:/r/1-2",))),
        min_insync=1,
        settings=(("retention.ms", "5"),),
        controller_epoch=2,
        catch_up_rate=-1,
    )


def test_metadata_of_topics() -> None:
    cluster = SmallCluster()
    cluster.create("u", [1, 2])
    cluster.create("t", [2, 1], [3, 2])
    cluster.lose_broker(3)
    everything = metadata_of(cluster.state)
    assert [topic.name for topic in everything] == ["t", "u"]
    assert metadata_of(cluster.state, ["u", "nowhere", "u"]) == (everything[1],)
    name, topic_id, partitions, _, _ = everything[0]
    assert (name, topic_id) == ("t", topic_id_of("t"))
    first = cluster.state.replicas[ReplicaKey(topic_id, 0, 2)].endpoints
    assert partitions[0] == (0, 2, 0, (2, 1), (2, 1), first, "node-2")
    cluster.lose_broker(2)
    assert metadata_of(cluster.state, ["t"])[0][2][1] == (1, -1, 2, (3, 2), (2,), (), "")


def test_metadata_of_brokers() -> None:
    cluster = SmallCluster(2, racks=["a", "b"])
    cluster.lose_broker(1)
    assert broker_metadata_of(cluster.state) == ((2, "node-2", "b", ("unix:/b/2",)),)


def test_which_partitions_a_record_concerns() -> None:
    cluster = SmallCluster()
    cluster.create("t", [1, 2], [2, 3])
    cluster.create("u", [1, 2])
    state, live = cluster.state, cluster.live
    t, u = topic_id_of("t"), topic_id_of("u")
    assert changed(cluster, alter_topic_settings(state, live, "t", {"retention.ms": 5})) == {(t, 0), (t, 1)}
    assert changed(cluster, reassign_partitions(state, live, {("u", 0): [1, 3]})) == {(u, 0)}
    assert changed(cluster, cluster.start_replica("t", 2)) == {(t, 0)}
    assert changed(cluster, delete_topic(state, "t")) == {(t, 0), (t, 1)}
    assert changed_partitions(state, BrokerFenced(1, "")) == []

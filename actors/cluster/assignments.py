"""The parts of the cluster's state that replicas, brokers and clients learn, and how fast replicas may catch up.

Everything that a replica acts on comes out of `assignment_of`. So brokers at the same metadata version say the same.

A replica that is not in sync catches up at a limited rate, so that those in sync can work:

    throttle of moves    bytes a second for each broker: no broker receives more for replicas that catch up for a move,
                         and none sends more for those. Each replica has its share of both, and the smaller one counts
    throttle of a topic  bytes a second for each partition: all of its replicas that are not in sync have equal shares

What must stay true: shares are whole bytes and at least one, and what all of them make together is no more than the
throttle, beyond that one byte each. They follow from the state alone, so every broker at one metadata version tells its
replicas shares that fit each other. A replica that is in sync has no share, and gives its own to the rest.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping

from raylog.actors.cluster.coordinator_state import CoordinatorState
from raylog.actors.cluster.partition import PartitionId, PartitionState
from raylog.actors.cluster.state import NOT_REGISTERED, ClusterState, ReplicaKey, TopicState
from raylog.actors.protocol.control_messages import (
    Assign,
    BrokerMetadata,
    CoordinatorMetadata,
    PartitionMetadata,
    ReplicaAddress,
    TopicMetadata,
)
from raylog.actors.protocol.gateway_messages import NamedGateway
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import (
    PartitionChanged,
    ReplicaRegistered,
    TopicCreated,
    TopicDeleted,
    TopicSettings,
)
from raylog.config import NO_LIMIT


def assignment_of(
    state: ClusterState,
    topic_id: bytes,
    partition: int,
    broker_id: int,
    version: int,
    controller_epoch: int,
    shares: Mapping[ReplicaKey, int],
) -> Assign:
    """The assignment of the replica on this broker, as of this metadata version. UnknownTopic, UnknownPartition.

    `shares` of the throttle of moves are those of this state; the rest is the same for all replicas of the partition.
    """
    known = state.partition(topic_id, partition)
    topic = state.topics[topic_id]
    return Assign(
        topic=topic.name,
        topic_id=topic_id,
        partition=partition,
        metadata_version=version,
        leader=known.leader,
        leader_epoch=known.leader_epoch,
        partition_epoch=known.partition_epoch,
        isr=tuple((broker, state.incarnation(topic_id, partition, broker)) for broker in known.isr),
        replicas=tuple(_address(state, known, broker) for broker in known.replicas),
        min_insync=state.min_insync(known),
        settings=topic.settings,
        controller_epoch=controller_epoch,
        catch_up_rate=catch_up_rate(state, known, broker_id, shares),
        unclean_epoch=known.unclean_epoch,
    )


def metadata_of(state: ClusterState, names: Iterable[str] = ()) -> tuple[TopicMetadata, ...]:
    """Topics by name, those that do not exist left out; no names: all."""
    wanted = tuple(names)
    if wanted:
        topics = [state.topic(name) for name in dict.fromkeys(wanted) if state.has_topic(name)]
    else:
        topics = sorted(state.topics.values(), key=lambda topic: topic.name)
    return tuple(_topic_metadata(state, topic, state.partitions_of(topic.id)) for topic in topics)


def changed_metadata_of(
    state: ClusterState, names: Collection[str], changed: Iterable[PartitionId]
) -> tuple[TopicMetadata, ...]:
    """Return only these partitions, of these topics. No names: of all."""
    wanted = frozenset(names)
    found: dict[bytes, list[PartitionState]] = {}
    for each in sorted(changed):
        partition = state.partitions.get(each)  # none: it is gone by now
        if partition is not None and (not wanted or state.name_of(partition) in wanted):
            found.setdefault(partition.topic_id, []).append(partition)
    return tuple(_topic_metadata(state, state.topics[topic_id], partitions) for topic_id, partitions in found.items())


def broker_metadata_of(state: ClusterState) -> tuple[BrokerMetadata, ...]:
    """The brokers that are not fenced."""
    brokers = sorted(state.brokers.values(), key=lambda broker: broker.id)
    return tuple(
        BrokerMetadata(each.id, each.node_id, each.rack, each.endpoints) for each in brokers if not each.fenced
    )


def gateways_of(state: ClusterState) -> tuple[NamedGateway, ...]:
    """The gateways of brokers that are not fenced."""
    brokers = sorted(state.brokers.values(), key=lambda broker: broker.id)
    return tuple(
        NamedGateway(each.id, each.gateway, each.rack) for each in brokers if each.gateway and not each.fenced
    )


def coordinator_metadata_of(state: ClusterState) -> tuple[CoordinatorMetadata, ...]:
    """All, also those that do not serve just now."""
    return tuple(_coordinator_metadata(state, state.coordinators[key]) for key in sorted(state.coordinators))


def _coordinator_metadata(state: ClusterState, coordinator: CoordinatorState) -> CoordinatorMetadata:
    name = state.topics[coordinator.topic_id].name
    broker = state.brokers.get(coordinator.broker_id)
    node_id = "" if broker is None else broker.node_id
    return CoordinatorMetadata(name, coordinator.partition, coordinator.epoch, coordinator.endpoints, node_id)


def changed_partitions(state: ClusterState, record: Message) -> list[PartitionId]:
    """The partitions whose assignments this record may have changed or ended. `state` holds the record already.

    Shares of a throttle change with other partitions' records; `MetadataFold` looks after those.
    """
    if isinstance(record, (PartitionChanged, ReplicaRegistered)):
        return [(record.topic_id, record.partition)]
    if isinstance(record, (TopicCreated, TopicSettings)):
        topic = state.topics.get(record.topic_id)
        return [] if topic is None else [(topic.id, number) for number in range(topic.partitions)]
    if isinstance(record, TopicDeleted):
        return [(record.topic_id, number) for number in sorted({partition for partition, _ in record.holders})]
    return []


def _address(state: ClusterState, partition: PartitionState, broker_id: int) -> ReplicaAddress:
    registered = state.replicas.get(ReplicaKey(*partition.id, broker_id))
    if registered is None:
        return ReplicaAddress(broker_id, NOT_REGISTERED, ())
    return ReplicaAddress(broker_id, registered.incarnation, registered.endpoints)


def _topic_metadata(state: ClusterState, topic: TopicState, partitions: Iterable[PartitionState]) -> TopicMetadata:
    found = tuple(_partition_metadata(state, each) for each in partitions)
    config = topic.config
    return TopicMetadata(topic.name, topic.id, found, config.batch_format, config.max_batch_bytes)


def _partition_metadata(state: ClusterState, partition: PartitionState) -> PartitionMetadata:
    leader = state.replicas.get(ReplicaKey(*partition.id, partition.leader))
    broker = state.brokers.get(partition.leader)
    return PartitionMetadata(
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        endpoints=() if leader is None else leader.endpoints,
        node_id="" if broker is None else broker.node_id,
    )


def move_shares(state: ClusterState) -> dict[ReplicaKey, int]:
    """Bytes a second for each replica that catches up for a move; none where moves are not throttled."""
    if state.reassignment_throttle == NO_LIMIT:
        return {}
    catching_up = [(partition, broker) for partition in state.reassigning() for broker in _added(state, partition)]
    received = Counter(broker for _, broker in catching_up)
    sent = Counter(partition.leader for partition, _ in catching_up)
    return {
        ReplicaKey(*partition.id, broker): _share(
            state.reassignment_throttle, max(received[broker], sent[partition.leader])
        )
        for partition, broker in catching_up
    }


def changed_shares(before: Mapping[ReplicaKey, int], after: Mapping[ReplicaKey, int]) -> Iterable[PartitionId]:
    """The partitions of which a replica has another share than before."""
    differing = {key for key in before.keys() | after.keys() if before.get(key) != after.get(key)}
    return dict.fromkeys((topic_id, partition) for topic_id, partition, _ in sorted(differing))


def catch_up_rate(
    state: ClusterState, partition: PartitionState, broker_id: int, shares: Mapping[ReplicaKey, int]
) -> int:
    """Bytes a second for this replica while it is not in sync, by both throttles; NO_LIMIT: as fast as it goes."""
    rates = []
    of_topic = state.config_of(partition).leader_replication_throttled_rate
    if of_topic != NO_LIMIT:
        rates.append(_share(of_topic, len(set(partition.replicas).difference(partition.isr))))
    of_moves = shares.get(ReplicaKey(*partition.id, broker_id))
    if of_moves is not None:
        rates.append(of_moves)
    return min(rates, default=NO_LIMIT)


def _added(state: ClusterState, partition: PartitionState) -> list[int]:
    """The replicas that the move has added and that are not in sync yet, without those on fenced brokers."""
    return [
        broker
        for broker in partition.adding
        if broker not in partition.isr and broker in state.brokers and not state.brokers[broker].fenced
    ]


def _share(rate: int, among: int) -> int:
    return max(1, rate // max(1, among))

"""The records by which topics are created, grow, and are deleted.

A topic's name is free as soon as it is deleted; its id is never used again, which is how the data of the two is told
apart. A deleted topic stays in `ClusterState.deleted` until no broker holds its data any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field
from typing import Final

from raylog.actors.cluster.cluster_settings import MAX_PARTITIONS, NUM_PARTITIONS, number_of
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.placement.placement import Load, place_partitions
from raylog.actors.cluster.placement.placement_inputs import load_of, usable_sites
from raylog.actors.cluster.placement.reassignment import check_replicas
from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.cluster.topic_settings import check_min_insync, settings_of
from raylog.actors.protocol.messages import NO_TOPIC, Message
from raylog.actors.protocol.metadata_records import TopicCreated, TopicDeleted, TopicRemoved
from raylog.actors.protocol.names import COORDINATED_TOPICS, check_topic_name, is_internal
from raylog.config import ConfigValue, TopicConfig
from raylog.errors import (
    InvalidPartitions,
    InvalidReplicaAssignment,
    InvalidReplicationFactor,
    InvalidRequest,
    InvalidTopicName,
    TopicExists,
    UnknownTopic,
)

DEFAULT_REPLICATION_FACTOR: Final = 3

Assignment = Sequence[Sequence[int]]


@dataclass(frozen=True)
class NewTopic:
    """`assignment`: brokers by partition, the preferred leader first; stands for partitions and replication factor."""

    name: str
    partitions: int | None = None  # `num.partitions` of the cluster
    replication_factor: int | None = None  # 3, or the number of usable brokers where that is less
    assignment: Assignment | None = None
    settings: Mapping[str, ConfigValue] = field(default_factory=dict)


def create_topic(
    state: ClusterState, live: Liveness, topic: NewTopic, topic_id: bytes, *, internal: bool = False
) -> list[Message]:
    """`topic_id`: 16 bytes, freshly drawn. `internal`: raylog itself asks, so the name may be one of its own.

    InvalidTopicName, TopicExists, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, UnknownBroker,
    BrokerNotAvailable, UnknownConfig, InvalidConfig.
    """
    _check_new_name(state, topic.name, internal)
    config = TopicConfig.parse(topic.settings)
    if topic.assignment is None:
        partitions = number_of(state, NUM_PARTITIONS) if topic.partitions is None else topic.partitions
        _check_count(topic.name, partitions)
        replicas = _place(state, live, partitions, topic.replication_factor)
    else:
        replicas = _as_assigned(state, live, topic, topic.assignment)
    check_min_insync(config, min(map(len, replicas)))
    _check_id(state, topic_id)
    return [TopicCreated(topic_id, topic.name, settings_of(config)), *_new_partitions(topic_id, 0, replicas)]


def create_partitions(
    state: ClusterState, live: Liveness, topic: str, total: int, assignment: Assignment | None = None
) -> list[Message]:
    """Let the topic have `total` partitions; `assignment` is for the new ones.

    UnknownTopic, InvalidPartitions, InvalidReplicationFactor, InvalidReplicaAssignment, UnknownBroker,
    BrokerNotAvailable.
    """
    known = state.topic(topic)
    if topic in COORDINATED_TOPICS:
        raise InvalidPartitions(topic, total, "what its coordinators keep is spread by the number it has now")
    if total <= known.partitions:
        raise InvalidPartitions(topic, total, f"it has {known.partitions} already")
    _check_count(topic, total)
    factor = len(state.partition(known.id, 0).intended)
    new = total - known.partitions
    if assignment is None:
        replicas = _place(state, live, new, factor)
    else:
        if len(assignment) != new:
            raise InvalidPartitions(topic, total, f"{new} are new, but replicas are named for {len(assignment)}")
        replicas = _checked(state, live, topic, known.partitions, assignment, factor)
    return [*_new_partitions(known.id, known.partitions, replicas)]


def delete_topic(
    state: ClusterState, topic: str, topic_id: bytes = b"", *, internal: bool = False
) -> list[Message]:
    """Delete a topic. It is gone with this record; its data is removed afterwards. `topic_id`: if it has this id.

    UnknownTopic, InvalidTopicName (raylog's own)."""
    known = state.topic(topic)
    if topic_id not in (b"", known.id):
        raise UnknownTopic(topic)
    if is_internal(topic) and not internal:
        raise InvalidTopicName(topic, "it is raylog's own, and is not deleted")
    holders = tuple(
        (partition.partition, broker) for partition in state.partitions_of(known.id) for broker in partition.replicas
    )
    return [TopicDeleted(known.id, topic, holders)]


def topic_data_removed(state: ClusterState, topic_id: bytes, removed: AbstractSet[tuple[int, int]]) -> list[Message]:
    """The end of a deleted topic, once each holder, (partition, broker), has removed its data or is no broker any more.

    None as long as that is not so. UnknownTopic where no such topic is being deleted.
    """
    gone = state.deleted.get(topic_id)
    if gone is None:
        raise UnknownTopic(topic_id.hex())
    if any(holder not in removed and holder[1] in state.brokers for holder in gone.holders):
        return []
    return [TopicRemoved(topic_id)]


def _check_new_name(state: ClusterState, name: str, internal: bool) -> None:
    check_topic_name(name, internal=internal)
    other = state.topic_that_collides(name)
    if other == name:
        raise TopicExists(name)
    if other is not None:
        raise InvalidTopicName(name, f"there is a topic {other!r}, and '.' and '_' count as the same")


def _check_id(state: ClusterState, topic_id: bytes) -> None:
    """Raise InvalidRequest unless no topic has it, nor one that is being deleted."""
    if len(topic_id) != len(NO_TOPIC) or topic_id in state.topics or topic_id in state.deleted:
        raise InvalidRequest(f"{topic_id.hex()!r} cannot be the id of a new topic.")


def _check_count(topic: str, partitions: int) -> None:
    if not 1 <= partitions <= MAX_PARTITIONS:
        raise InvalidPartitions(topic, partitions, f"a topic has 1 to {MAX_PARTITIONS}")


def _place(state: ClusterState, live: Liveness, partitions: int, factor: int | None) -> list[tuple[int, ...]]:
    sites = usable_sites(state, live)
    if factor is None:
        factor = max(1, min(DEFAULT_REPLICATION_FACTOR, len(sites)))
    if not 1 <= factor <= len(sites):
        raise InvalidReplicationFactor(factor, len(sites))
    load: Load = load_of(state)
    return place_partitions(sites, partitions, factor, load)


def _as_assigned(state: ClusterState, live: Liveness, topic: NewTopic, assignment: Assignment) -> list[tuple[int, ...]]:
    _check_count(topic.name, len(assignment))
    if topic.partitions not in (None, len(assignment)):
        reason = f"replicas are named for {len(assignment)}"
        raise InvalidPartitions(topic.name, topic.partitions or 0, reason)
    factor = len(assignment[0]) if topic.replication_factor is None else topic.replication_factor
    return _checked(state, live, topic.name, 0, assignment, factor)


def _checked(
    state: ClusterState, live: Liveness, topic: str, first: int, assignment: Assignment, factor: int
) -> list[tuple[int, ...]]:
    for number, brokers in enumerate(assignment, first):
        check_replicas(state, live, topic, number, brokers)
        if len(brokers) != factor:
            raise InvalidReplicaAssignment(topic, number, f"{len(brokers)} replicas are named where {factor} are due")
    return [tuple(brokers) for brokers in assignment]


def _new_partitions(topic_id: bytes, first: int, replicas: list[tuple[int, ...]]) -> list[Message]:
    return [
        PartitionState(topic_id, number, brokers, isr=brokers).to_record("created")
        for number, brokers in enumerate(replicas, first)
    ]

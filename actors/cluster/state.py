"""The state of the cluster: the fold of the metadata log. The controller decides on it, every broker reads in it.

Nothing here decides anything, and nothing but `apply` changes anything. The same records in the same order make equal
states everywhere; `to_records` writes one down as records that make an equal state again, for snapshots.

The by-broker index is what keeps the loss of a broker from being a walk over every partition of the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Any, Final, NamedTuple

from raylog.actors.cluster.coordinator_state import CoordinatorState
from raylog.actors.cluster.partition import PartitionId, PartitionState
from raylog.actors.protocol.control_messages import ReplicaMarks, Setting
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voters
from raylog.actors.protocol.metadata_records import (
    OWN_OFFSET,
    BrokerDraining,
    BrokerFenced,
    BrokerIdsUsed,
    BrokerRegistration,
    BrokerRemoved,
    ClusterFormed,
    ClusterSettings,
    CoordinatorPlaced,
    CoordinatorServing,
    DirectoryMarked,
    GatewayServes,
    PartitionChanged,
    ProducerIdBlock,
    ReassignmentThrottle,
    ReplicaRegistered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
    TopicSettings,
)
from raylog.actors.protocol.names import collision_key, is_internal
from raylog.actors.security.security_state import SECURITY_RECORDS, SecurityState
from raylog.config import NO_LIMIT, TopicConfig
from raylog.errors import UnknownBroker, UnknownPartition, UnknownTopic


class ReplicaKey(NamedTuple):
    """Names a replica: the partition, and the broker that holds it."""

    topic_id: bytes
    partition: int
    broker_id: int

    @property
    def partition_id(self) -> PartitionId:
        return self.topic_id, self.partition


NOT_REGISTERED: Final = -1


@dataclass(frozen=True, slots=True)
class Liveness:
    """The brokers and replicas that are alive, as far as the controller can tell. This knowledge is in no record.

    `brokers` have a lease. `replicas` are the processes that are registered and run, with their incarnations. `full`
    are brokers whose disks take nothing more. `sound` are replicas whose logs were read whole since they were chosen to
    be the only ones, with their incarnations. `marks` are those that brokers have told since this controller began. All
    are read, never changed, so the caller may pass what it keeps up to date.
    """

    brokers: AbstractSet[int]
    replicas: Mapping[ReplicaKey, int]
    full: AbstractSet[int] = frozenset()
    sound: Mapping[ReplicaKey, int] = field(default_factory=dict)
    marks: Mapping[ReplicaKey, ReplicaMarks] = field(default_factory=dict)

    def marks_of(self, key: ReplicaKey, incarnation: int) -> ReplicaMarks | None:
        """Return the marks of this process; None as long as it has told none."""
        told = self.marks.get(key)
        return told if told is not None and told.incarnation == incarnation else None


@dataclass(frozen=True, slots=True)
class BrokerState:
    id: int
    epoch: int
    run: str
    node_id: str
    host: str
    rack: str
    endpoints: tuple[str, ...]
    directory: str
    directory_id: str
    boot_id: str
    fenced: bool = False
    draining: bool = False
    mark: int = 0  # that its directory has had
    gateway: str = ""  # where Kafka clients are served beside it


@dataclass(frozen=True, slots=True)
class TopicState:
    id: bytes
    name: str
    settings: tuple[Setting, ...]
    partitions: int = 0

    @property
    def config(self) -> TopicConfig:
        return _config_of(self.settings)

    @property
    def is_internal(self) -> bool:
        return is_internal(self.name)


@dataclass(frozen=True, slots=True)
class DeletedTopic:
    """A topic whose data is still on `holders`: (partition, broker)."""

    id: bytes
    name: str
    holders: tuple[tuple[int, int], ...]


@lru_cache(maxsize=1024)
def _config_of(settings: tuple[Setting, ...]) -> TopicConfig:
    return TopicConfig.parse(dict(settings))


@dataclass(slots=True)
class ClusterState:
    cluster_id: str = ""
    formed_at_ms: int = 0
    format_version: int = 0
    brokers: dict[int, BrokerState] = field(default_factory=dict)
    topics: dict[bytes, TopicState] = field(default_factory=dict)
    deleted: dict[bytes, DeletedTopic] = field(default_factory=dict)
    partitions: dict[PartitionId, PartitionState] = field(default_factory=dict)
    replicas: dict[ReplicaKey, ReplicaRegistered] = field(default_factory=dict)
    coordinators: dict[PartitionId, CoordinatorState] = field(default_factory=dict)
    next_producer_id: int = 0
    next_broker_id: int = 0  # above all that ever were, removed ones too
    removed_brokers: set[int] = field(default_factory=set)
    reassignment_throttle: int = NO_LIMIT
    settings: tuple[Setting, ...] = ()  # of the cluster
    security: SecurityState = field(default_factory=SecurityState)
    # What follows from the above.
    _ids: dict[str, bytes] = field(default_factory=dict)
    _collisions: dict[str, str] = field(default_factory=dict)
    _by_broker: dict[int, set[PartitionId]] = field(default_factory=dict)
    _reassigning: set[PartitionId] = field(default_factory=set)

    # --- reading --------------------------------------------------------------------------------------------------

    def broker(self, broker_id: int) -> BrokerState:
        """UnknownBroker where none of this number has registered."""
        broker = self.brokers.get(broker_id)
        if broker is None:
            raise UnknownBroker(broker_id)
        return broker

    def topic(self, name: str) -> TopicState:
        """UnknownTopic where there is none of this name."""
        topic_id = self._ids.get(name)
        if topic_id is None:
            raise UnknownTopic(name)
        return self.topics[topic_id]

    def has_topic(self, name: str) -> bool:
        return name in self._ids

    def topic_that_collides(self, name: str) -> str | None:
        """The topic whose name differs from `name` in nothing but dots and underscores, or is the same."""
        return self._collisions.get(collision_key(name))

    def partition(self, topic_id: bytes, partition: int) -> PartitionState:
        """UnknownTopic, or UnknownPartition."""
        state = self.partitions.get((topic_id, partition))
        if state is not None:
            return state
        if topic_id in self.topics:
            raise UnknownPartition(self.topics[topic_id].name, partition)
        raise UnknownTopic(topic_id.hex())

    def partition_named(self, name: str, partition: int) -> PartitionState:
        return self.partition(self.topic(name).id, partition)

    def name_of(self, state: PartitionState) -> str:
        return self.topics[state.topic_id].name

    def partitions_of(self, topic_id: bytes) -> Iterator[PartitionState]:
        """The partitions of a topic, in their order."""
        for number in range(self.topics[topic_id].partitions):
            yield self.partitions[topic_id, number]

    def partitions_on(self, broker_id: int) -> list[PartitionState]:
        """The partitions that have a replica on this broker, by topic id and number."""
        return [self.partitions[each] for each in sorted(self._by_broker.get(broker_id, ()))]

    def replica_count(self, broker_id: int) -> int:
        return len(self._by_broker.get(broker_id, ()))

    def reassigning(self) -> list[PartitionState]:
        return [self.partitions[each] for each in sorted(self._reassigning)]

    def config_of(self, state: PartitionState) -> TopicConfig:
        return self.topics[state.topic_id].config

    def min_insync(self, state: PartitionState) -> int:
        """The `min.insync.replicas` of this partition. Replicas being added do not raise it yet."""
        return self.config_of(state).min_insync(len(state.original))

    def incarnation(self, topic_id: bytes, partition: int, broker_id: int) -> int:
        """The incarnation of the process that registered last; NOT_REGISTERED: none ever did."""
        registered = self.replicas.get(ReplicaKey(topic_id, partition, broker_id))
        return NOT_REGISTERED if registered is None else registered.incarnation

    def is_usable(self, broker_id: int, live: Liveness) -> bool:
        """Whether replicas may be put there."""
        broker = self.brokers.get(broker_id)
        return broker is not None and not broker.fenced and not broker.draining and broker_id in live.brokers

    def believed_live(self) -> Liveness:
        """The liveness that a new controller starts from, so that it elects no leader before brokers have registered.
        All that was not fenced has a lease, and what registered last runs, until the contrary is known.
        """
        brokers = {broker.id for broker in self.brokers.values() if not broker.fenced}
        return Liveness(
            brokers, {key: each.incarnation for key, each in self.replicas.items() if each.broker_id in brokers}
        )

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file, and each partition's."""
        by_broker: dict[int, set[PartitionId]] = {}
        for key, partition in self.partitions.items():
            for broken in (*partition.broken_invariants(), *self._unnoted(partition)):
                yield f"{self.topics[key[0]].name}-{key[1]}: {broken}"
            for broker in partition.replicas:
                by_broker.setdefault(broker, set()).add(key)
        if self._by_broker != by_broker:
            yield f"the index by broker is {self._by_broker}, and should be {by_broker}"
        if self._reassigning != {key for key, each in self.partitions.items() if each.is_reassigning}:
            yield f"{self._reassigning} are listed as being reassigned"
        if self._ids != {topic.name: topic.id for topic in self.topics.values()}:
            yield f"the index by name is {self._ids}"
        if sum(topic.partitions for topic in self.topics.values()) != len(self.partitions):
            yield f"there are {len(self.partitions)} partitions, and the topics count others"
        for replica in self.replicas:
            if replica.partition_id not in by_broker.get(replica.broker_id, ()):
                yield f"{replica} is registered, and the partition has no replica there"
        if self.brokers and max(self.brokers) >= self.next_broker_id:
            yield f"the next broker is to be {self.next_broker_id}, and {max(self.brokers)} is there"

    def _unnoted(self, partition: PartitionState) -> Iterator[str]:
        is_enough = not partition.never_led and len(partition.isr) >= self.min_insync(partition)
        if is_enough and not partition.may_have_acknowledged:
            yield f"its ISR {partition.isr} is large enough for acks=all, and no record has noted that"

    # --- folding --------------------------------------------------------------------------------------------------

    def apply(self, record: Message, offset: int) -> None:
        """Fold one record in. `offset` is its place in the metadata log; what stands for a snapshot needs none."""
        _APPLY[type(record)](self, record, offset)

    def to_records(self) -> list[Message]:
        """A snapshot: records that make an equal state of an empty one."""
        records: list[Message] = []
        if self.cluster_id:
            records.append(ClusterFormed(self.cluster_id, self.formed_at_ms, self.format_version))
        for broker in sorted(self.brokers.values(), key=lambda each: each.id):
            records += _broker_records(broker)
        for topic in sorted(self.topics.values(), key=lambda each: each.id):
            records.append(TopicCreated(topic.id, topic.name, topic.settings))
            for partition in self.partitions_of(topic.id):
                records.append(partition.to_record("snapshot"))
        for gone in sorted(self.deleted.values(), key=lambda each: each.id):
            records.append(TopicDeleted(gone.id, gone.name, gone.holders))
        # Behind the partitions: a partition's record is what tells whose unproven log has proved itself.
        records += [self.replicas[key] for key in sorted(self.replicas)]
        for key in sorted(self.coordinators):
            records += self.coordinators[key].to_records()
        records += [BrokerRemoved(each) for each in sorted(self.removed_brokers)]
        records.append(BrokerIdsUsed(self.next_broker_id))
        records.append(ProducerIdBlock(self.next_producer_id))
        records.append(ReassignmentThrottle(self.reassignment_throttle))
        if self.settings:
            records.append(ClusterSettings(self.settings))
        return records + self.security.to_records()

    def _apply_formed(self, record: ClusterFormed, _offset: int) -> None:
        self.cluster_id = record.cluster_id
        self.formed_at_ms = record.formed_at_ms
        self.format_version = record.format_version

    def _apply_registration(self, record: BrokerRegistration, offset: int) -> None:
        before = self.brokers.get(record.broker_id)
        self.brokers[record.broker_id] = BrokerState(
            id=record.broker_id,
            epoch=offset if record.broker_epoch == OWN_OFFSET else record.broker_epoch,
            run=record.run,
            node_id=record.node_id,
            host=record.host,
            rack=record.rack,
            endpoints=record.endpoints,
            directory=record.directory,
            directory_id=record.directory_id,
            boot_id=record.boot_id,
            draining=before is not None and before.draining,
            mark=before.mark if before is not None and before.directory_id == record.directory_id else 0,
            gateway="" if before is None else before.gateway,  # a process of its own, which may have gone on
        )
        self.next_broker_id = max(self.next_broker_id, record.broker_id + 1)
        self.removed_brokers.discard(record.broker_id)  # in logs from before removed ones were refused

    def _apply_fenced(self, record: BrokerFenced, _offset: int) -> None:
        self.brokers[record.broker_id] = replace(self.brokers[record.broker_id], fenced=True)

    def _apply_draining(self, record: BrokerDraining, _offset: int) -> None:
        self.brokers[record.broker_id] = replace(self.brokers[record.broker_id], draining=record.draining)

    def _apply_gateway(self, record: GatewayServes, _offset: int) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is not None:
            self.brokers[record.broker_id] = replace(broker, gateway=record.address)

    def _apply_marked(self, record: DirectoryMarked, _offset: int) -> None:
        broker = self.brokers.get(record.broker_id)
        if broker is not None and broker.directory_id == record.directory_id:
            self.brokers[record.broker_id] = replace(broker, mark=record.mark)

    def _apply_broker_removed(self, record: BrokerRemoved, _offset: int) -> None:
        self.brokers.pop(record.broker_id, None)
        self.removed_brokers.add(record.broker_id)

    def _apply_created(self, record: TopicCreated, _offset: int) -> None:
        known = self.topics.get(record.topic_id)
        partitions = 0 if known is None else known.partitions
        self.topics[record.topic_id] = TopicState(record.topic_id, record.name, record.settings, partitions)
        self._ids[record.name] = record.topic_id
        self._collisions[collision_key(record.name)] = record.name

    def _apply_settings(self, record: TopicSettings, _offset: int) -> None:
        self.topics[record.topic_id] = replace(self.topics[record.topic_id], settings=record.settings)

    def _apply_deleted(self, record: TopicDeleted, _offset: int) -> None:
        self.deleted[record.topic_id] = DeletedTopic(record.topic_id, record.name, record.holders)
        topic = self.topics.pop(record.topic_id, None)
        if topic is None:
            return
        del self._ids[topic.name]
        del self._collisions[collision_key(topic.name)]
        for number in range(topic.partitions):
            self._forget_partition(self.partitions.pop((topic.id, number)))
            self.coordinators.pop((topic.id, number), None)

    def _apply_topic_removed(self, record: TopicRemoved, _offset: int) -> None:
        self.deleted.pop(record.topic_id, None)

    def _apply_partition(self, record: PartitionChanged, _offset: int) -> None:
        after = PartitionState.of_record(record)
        before = self.partitions.get(after.id)
        if before is None:
            topic = self.topics[after.topic_id]
            self.topics[after.topic_id] = replace(topic, partitions=max(topic.partitions, after.partition + 1))
        else:
            self._forget_replicas(after.id, set(before.replicas).difference(after.replicas))
        self.partitions[after.id] = after
        for broker in after.replicas:
            self._by_broker.setdefault(broker, set()).add(after.id)
        if after.is_reassigning:
            self._reassigning.add(after.id)
        else:
            self._reassigning.discard(after.id)
        if not after.never_led:
            self._note_proven(after)

    def _note_proven(self, after: PartitionState) -> None:
        """Note that a replica in sync holds all that was acknowledged, whatever it came back with."""
        for broker in after.isr:
            key = ReplicaKey(*after.id, broker)
            registered = self.replicas.get(key)
            if registered is not None and registered.unproven:
                self.replicas[key] = replace(registered, unproven="")

    def _apply_replica(self, record: ReplicaRegistered, _offset: int) -> None:
        self.replicas[ReplicaKey(record.topic_id, record.partition, record.broker_id)] = record

    def _apply_coordinator(self, record: CoordinatorPlaced, _offset: int) -> None:
        placed = CoordinatorState.of_record(record)
        self.coordinators[placed.id] = placed

    def _apply_serving(self, record: CoordinatorServing, _offset: int) -> None:
        key = record.topic_id, record.partition
        self.coordinators[key] = replace(self.coordinators[key], endpoints=record.endpoints, pid=record.pid)

    def _apply_producer_ids(self, record: ProducerIdBlock, _offset: int) -> None:
        self.next_producer_id = record.next_id

    def _apply_broker_ids(self, record: BrokerIdsUsed, _offset: int) -> None:
        self.next_broker_id = record.next_id

    def _apply_throttle(self, record: ReassignmentThrottle, _offset: int) -> None:
        self.reassignment_throttle = record.bytes_per_second

    def _apply_cluster_settings(self, record: ClusterSettings, _offset: int) -> None:
        self.settings = record.settings

    def _apply_security(self, record: Message, _offset: int) -> None:
        self.security.apply(record)

    def _apply_nothing(self, _record: Message, _offset: int) -> None:
        """Do nothing: the record is of use to the log itself only."""

    def _forget_partition(self, partition: PartitionState) -> None:
        self._forget_replicas(partition.id, set(partition.replicas))
        self._reassigning.discard(partition.id)

    def _forget_replicas(self, partition: PartitionId, brokers: set[int]) -> None:
        for broker in brokers:
            self.replicas.pop(ReplicaKey(*partition, broker), None)
            on_broker = self._by_broker[broker]
            on_broker.discard(partition)
            if not on_broker:
                del self._by_broker[broker]


def _broker_records(broker: BrokerState) -> list[Message]:
    records: list[Message] = [
        BrokerRegistration(
            broker_id=broker.id,
            broker_epoch=broker.epoch,
            run=broker.run,
            node_id=broker.node_id,
            host=broker.host,
            rack=broker.rack,
            endpoints=broker.endpoints,
            directory=broker.directory,
            directory_id=broker.directory_id,
            boot_id=broker.boot_id,
        )
    ]
    if broker.mark:
        records.append(DirectoryMarked(broker.id, broker.directory_id, broker.mark))
    if broker.gateway:
        records.append(GatewayServes(broker.id, broker.gateway))
    if broker.draining:
        records.append(BrokerDraining(broker.id, True))
    if broker.fenced:
        records.append(BrokerFenced(broker.id, "snapshot"))
    return records


_APPLY: Final[dict[type[Message], Callable[[ClusterState, Any, int], None]]] = {
    ClusterFormed: ClusterState._apply_formed,
    BrokerRegistration: ClusterState._apply_registration,
    BrokerFenced: ClusterState._apply_fenced,
    BrokerDraining: ClusterState._apply_draining,
    BrokerRemoved: ClusterState._apply_broker_removed,
    DirectoryMarked: ClusterState._apply_marked,
    GatewayServes: ClusterState._apply_gateway,
    TopicCreated: ClusterState._apply_created,
    TopicSettings: ClusterState._apply_settings,
    TopicDeleted: ClusterState._apply_deleted,
    TopicRemoved: ClusterState._apply_topic_removed,
    PartitionChanged: ClusterState._apply_partition,
    ReplicaRegistered: ClusterState._apply_replica,
    CoordinatorPlaced: ClusterState._apply_coordinator,
    CoordinatorServing: ClusterState._apply_serving,
    BrokerIdsUsed: ClusterState._apply_broker_ids,
    ProducerIdBlock: ClusterState._apply_producer_ids,
    ReassignmentThrottle: ClusterState._apply_throttle,
    ClusterSettings: ClusterState._apply_cluster_settings,
    Voters: ClusterState._apply_nothing,
    ControllerStarted: ClusterState._apply_nothing,
    **dict.fromkeys(SECURITY_RECORDS, ClusterState._apply_security),
}

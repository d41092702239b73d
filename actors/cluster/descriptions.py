"""The cluster as people and programs are shown it (`describe_topic`, `describe_replicas`, `describe_cluster`, ...).

Made of the state, and of what is in no record: the marks that replicas send with their heartbeats, and the space on
disks. What is not known is −1, or empty.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, TypeAlias

from raylog.actors.cluster.election.leaderless import is_offline, why_nobody_leads
from raylog.actors.cluster.html_tables import html_table
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.state import BrokerState, ClusterState, Liveness, ReplicaKey
from raylog.actors.protocol.control_messages import NO_LEADER, ReplicaMarks, Setting
from raylog.actors.protocol.messages import Message
from raylog.config import readable

UNKNOWN: Final = -1
LEADER: Final = "leader"
FOLLOWER: Final = "follower"
OFFLINE: Final = "offline"
_SHOWN_PARTITIONS: Final = 16

Marks: TypeAlias = Mapping[ReplicaKey, ReplicaMarks]


@dataclass(frozen=True, slots=True)
class Reports:
    """The last reports of the brokers; entries may be missing."""

    marks: Marks = field(default_factory=dict)
    disks: Mapping[int, tuple[int, int]] = field(default_factory=dict)  # by broker: free and total bytes
    registered: frozenset[int] | None = None  # with this controller; None: all that are believed alive


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    topic: str
    partition: int
    leader: int  # broker id; −1: none
    leader_epoch: int
    partition_epoch: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    eligible: tuple[int, ...]  # leavers of the ISR that may lead too (rule 7)
    adding: tuple[int, ...]
    removing: tuple[int, ...]
    min_insync: int
    waits: str  # why there is no leader; empty: there is one
    log_start_offset: int  # this and the next two: by the leader's word
    high_watermark: int
    log_end_offset: int

    @property
    def is_under_replicated(self) -> bool:
        return len(self.isr) < len(self.replicas) - len(self.adding)

    @property
    def is_under_min_isr(self) -> bool:
        return len(self.isr) < self.min_insync

    @property
    def is_offline(self) -> bool:
        return self.leader == NO_LEADER

    @property
    def is_reassigning(self) -> bool:
        return bool(self.adding or self.removing)


@dataclass(frozen=True, slots=True, repr=False)
class TopicDescription:
    """A topic as administrators see it: its partitions, and the settings that are not the default."""
    name: str
    topic_id: bytes
    internal: bool
    replication_factor: int
    settings: tuple[Setting, ...]  # that are not the defaults
    partitions: tuple[PartitionDescription, ...]

    def __repr__(self) -> str:
        """A few lines, however many partitions there are."""
        lines = [f"<{self._heading}", *map(_shown, self.partitions[:_SHOWN_PARTITIONS])]
        left = len(self.partitions) - _SHOWN_PARTITIONS
        return "\n  ".join([*lines, f"and {left} more"] if left > 0 else lines) + ">"

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with a row for each partition."""
        columns = ("partition", "leader", "replicas", "in sync", "first offset", "end offset")
        rows = [
            (each.partition, _leader(each), each.replicas, each.isr, each.log_start_offset, each.high_watermark)
            for each in self.partitions
        ]
        return html_table(self._heading, columns, rows)

    @property
    def _heading(self) -> str:
        settings = "".join(f", {name}={readable(name, value)}" for name, value in self.settings)
        return f"Topic {self.name!r}: {len(self.partitions)} partitions, {self.replication_factor} replicas{settings}"


def _leader(partition: PartitionDescription) -> str:
    return "none" if partition.is_offline else str(partition.leader)


def _shown(partition: PartitionDescription) -> str:
    offsets = f"{partition.log_start_offset} to {partition.high_watermark}"
    return (
        f"{partition.partition}: leader {_leader(partition)}, replicas {list(partition.replicas)}, "
        f"in sync {list(partition.isr)}, offsets {offsets}"
    )


@dataclass(frozen=True, slots=True)
class TopicSettingsDescription:
    """The settings of a topic that are not the defaults."""

    topic_id: bytes
    replication_factor: int
    settings: tuple[Setting, ...]


@dataclass(frozen=True, slots=True)
class ReplicaDescription:
    topic: str
    partition: int
    broker: int
    node_id: str
    pid: int
    incarnation: int
    role: str  # leader, follower, offline
    in_sync: bool
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    lag: int  # records behind the leader, of those it had reported last
    host: str  # own: its process has this replica only; shared; empty: not known


@dataclass(frozen=True, slots=True)
class BrokerDescription:
    broker: int
    node_id: str
    host: str
    rack: str
    endpoints: tuple[str, ...]
    directory: str
    epoch: int
    alive: bool
    draining: bool
    replicas: int
    leaders: int
    free_bytes: int
    total_bytes: int
    kafka: str = ""  # HOST:PORT, where Kafka clients are served beside it; empty: they are not


@dataclass(frozen=True, slots=True)
class LogDescription:
    """A replica's log on its broker's disk. `lag` is counted in records, behind the leader's last report."""

    topic: str
    partition: int
    size_bytes: int
    lag: int


@dataclass(frozen=True, slots=True)
class BrokerLogs:
    """The disk of a broker, and the logs on it, by its last reports."""

    directory: str
    free_bytes: int
    total_bytes: int
    logs: tuple[LogDescription, ...]


@dataclass(frozen=True, slots=True)
class CoordinatorDescription:
    topic: str
    partition: int
    broker: int  # beside which it was placed last
    epoch: int
    serving: bool
    attempts: int  # that have failed in a row
    reason: str  # why it does not serve, as far as is known


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """A cluster as administrators see it."""
    cluster_id: str
    formed_at_ms: int
    metadata_version: int
    controller_epoch: int
    voters: tuple[int, ...]
    brokers: tuple[BrokerDescription, ...]
    topics: int
    partitions: int
    offline: int  # partitions without a leader, but for raylog's own before their first: `coordinators` tells of those
    waiting: tuple[PartitionDescription, ...]  # those of them that only a person can give one
    under_replicated: int
    under_min_isr: int
    reassigning: int
    coordinators: tuple[CoordinatorDescription, ...] = ()
    control_store: str = ""  # where Ray keeps its own (`control_store.py`)

    @property
    def kafka(self) -> list[str]:
        """The HOST:PORT at which Kafka clients are served now, each once."""
        return list(dict.fromkeys(each.kafka for each in self.brokers if each.alive and each.kafka))

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with a row for each broker."""
        counts = f"{self.topics} topics, {self.partitions} partitions"
        counts += "".join(
            f", {count} {what}"
            for count, what in (
                (self.offline, "without a leader"),
                (self.under_replicated, "under-replicated"),
                (self.reassigning, "reassigning"),
            )
            if count
        )
        columns = ("broker", "host", "alive", "replicas", "leaders", "free", "directory")
        rows = [
            (each.broker, each.host, _yes_or_no(each.alive), each.replicas, each.leaders, _share(each), each.directory)
            for each in self.brokers
        ]
        return html_table(f"Cluster {self.cluster_id}: {counts}", columns, rows)


def _yes_or_no(value: bool) -> str:
    return "yes" if value else "no"


def _share(broker: BrokerDescription) -> str:
    return "" if broker.total_bytes <= 0 else f"{100 * broker.free_bytes / broker.total_bytes:.0f} %"


def describe_topic(state: ClusterState, reports: Reports, name: str) -> TopicDescription:
    """UnknownTopic."""
    topic = state.topic(name)
    states = tuple(state.partitions_of(topic.id))
    return TopicDescription(
        name=name,
        topic_id=topic.id,
        internal=topic.is_internal,
        replication_factor=len(states[0].intended),
        settings=topic.settings,
        partitions=tuple(_describe_partition(state, reports, each) for each in states),
    )


def describe_topic_settings(state: ClusterState, names: Iterable[str]) -> dict[str, TopicSettingsDescription]:
    """Return the settings of these topics, without those that do not exist."""
    found = (state.topic(name) for name in names if state.has_topic(name))
    return {
        each.name: TopicSettingsDescription(each.id, len(state.partition(each.id, 0).intended), each.settings)
        for each in found
    }


def planned_topic(records: Sequence[Message], name: str) -> TopicDescription:
    """Return the topic that these records would create, which are decided but not to be written."""
    state = ClusterState()
    for place, record in enumerate(records):
        state.apply(record, place)
    return describe_topic(state, Reports(), name)


def describe_replicas(
    state: ClusterState, live: Liveness, reports: Reports, name: str
) -> tuple[ReplicaDescription, ...]:
    """The replicas of a topic by partition, in the order that the partition names them. UnknownTopic."""
    topic = state.topic(name)
    return tuple(
        _describe_replica(state, live, reports, partition, broker)
        for partition in state.partitions_of(topic.id)
        for broker in partition.replicas
    )


def describe_brokers(state: ClusterState, live: Liveness, reports: Reports) -> tuple[BrokerDescription, ...]:
    leaders = Counter(partition.leader for partition in state.partitions.values())
    brokers = sorted(state.brokers.values(), key=lambda broker: broker.id)
    return tuple(_describe_broker(state, live, reports, each, leaders[each.id]) for each in brokers)


def describe_broker_logs(state: ClusterState, live: Liveness, reports: Reports, broker_id: int) -> BrokerLogs:
    """UnknownBroker. A log that was made just now, of which no heartbeat has told yet, is there, and empty."""
    broker = state.broker(broker_id)
    found = []
    for key in {*live.replicas, *reports.marks}:
        if key.broker_id == broker_id and (topic := state.topics.get(key.topic_id)) is not None:
            marks = reports.marks.get(key)
            size, lag = (0, 0) if marks is None else (marks.size_bytes, _lag(state, reports, key, marks))
            found.append(LogDescription(topic.name, key.partition, size, lag))
    logs = sorted(found, key=lambda each: (each.topic, each.partition))
    return BrokerLogs(broker.directory, *reports.disks.get(broker_id, (UNKNOWN, UNKNOWN)), tuple(logs))


def _lag(state: ClusterState, reports: Reports, key: ReplicaKey, marks: ReplicaMarks) -> int:
    partition = state.partitions.get((key.topic_id, key.partition))
    leader = None if partition is None else _marks(state, reports, partition, partition.leader)
    return 0 if leader is None else max(0, leader.log_end_offset - marks.log_end_offset)


def describe_cluster(
    state: ClusterState,
    live: Liveness,
    reports: Reports,
    *,
    metadata_version: int,
    controller_epoch: int,
    voters: tuple[int, ...],
    coordinators: tuple[CoordinatorDescription, ...] = (),
) -> ClusterDescription:
    partitions = [_describe_partition(state, reports, each) for each in state.partitions.values()]
    return ClusterDescription(
        cluster_id=state.cluster_id,
        formed_at_ms=state.formed_at_ms,
        metadata_version=metadata_version,
        controller_epoch=controller_epoch,
        voters=voters,
        brokers=describe_brokers(state, live, reports),
        topics=len(state.topics),
        partitions=len(partitions),
        offline=sum(is_offline(state, each) for each in state.partitions.values()),
        waiting=tuple(
            _describe_partition(state, reports, each)
            for each in state.partitions.values()
            if each.waits_for_a_person
        ),
        under_replicated=sum(each.is_under_replicated for each in partitions),
        under_min_isr=sum(each.is_under_min_isr for each in partitions),
        reassigning=len(state.reassigning()),
        coordinators=coordinators,
    )


def _is_registered(reports: Reports, broker_id: int) -> bool:
    return reports.registered is None or broker_id in reports.registered


def _marks(state: ClusterState, reports: Reports, partition: PartitionState, broker: int) -> ReplicaMarks | None:
    """The last report of the present process of this replica."""
    marks = reports.marks.get(ReplicaKey(*partition.id, broker))
    if marks is None or marks.incarnation != state.incarnation(*partition.id, broker):
        return None
    return marks


def _describe_partition(state: ClusterState, reports: Reports, partition: PartitionState) -> PartitionDescription:
    marks = _marks(state, reports, partition, partition.leader)
    return PartitionDescription(
        topic=state.name_of(partition),
        partition=partition.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        replicas=partition.replicas,
        isr=partition.isr,
        eligible=partition.elr,
        adding=partition.adding,
        removing=partition.removing,
        min_insync=state.min_insync(partition),
        waits=why_nobody_leads(partition, state.name_of(partition)),
        log_start_offset=UNKNOWN if marks is None else marks.log_start_offset,
        high_watermark=UNKNOWN if marks is None else marks.high_watermark,
        log_end_offset=UNKNOWN if marks is None else marks.log_end_offset,
    )


def _describe_replica(
    state: ClusterState, live: Liveness, reports: Reports, partition: PartitionState, broker_id: int
) -> ReplicaDescription:
    registered = state.replicas.get(ReplicaKey(*partition.id, broker_id))
    broker = state.brokers.get(broker_id)
    marks = _marks(state, reports, partition, broker_id)
    of_leader = _marks(state, reports, partition, partition.leader)
    runs = registered is not None and live.replicas.get(ReplicaKey(*partition.id, broker_id)) == registered.incarnation
    role = LEADER if broker_id == partition.leader else FOLLOWER
    return ReplicaDescription(
        topic=state.name_of(partition),
        partition=partition.partition,
        broker=broker_id,
        node_id="" if broker is None else broker.node_id,
        pid=UNKNOWN if registered is None else registered.pid,
        incarnation=UNKNOWN if registered is None else registered.incarnation,
        role=role if runs and broker_id in live.brokers else OFFLINE,
        in_sync=broker_id in partition.isr,
        log_start_offset=UNKNOWN if marks is None else marks.log_start_offset,
        high_watermark=UNKNOWN if marks is None else marks.high_watermark,
        log_end_offset=UNKNOWN if marks is None else marks.log_end_offset,
        size_bytes=UNKNOWN if marks is None else marks.size_bytes,
        lag=UNKNOWN
        if marks is None or of_leader is None
        else max(0, of_leader.log_end_offset - marks.log_end_offset),
        host="" if marks is None else marks.room,
    )


def _describe_broker(
    state: ClusterState, live: Liveness, reports: Reports, broker: BrokerState, leaders: int
) -> BrokerDescription:
    free, total = reports.disks.get(broker.id, (UNKNOWN, UNKNOWN))
    return BrokerDescription(
        broker=broker.id,
        node_id=broker.node_id,
        host=broker.host,
        rack=broker.rack,
        endpoints=broker.endpoints,
        directory=broker.directory,
        epoch=broker.epoch,
        alive=broker.id in live.brokers and not broker.fenced and _is_registered(reports, broker.id),
        draining=broker.draining,
        replicas=state.replica_count(broker.id),
        leaders=leaders,
        free_bytes=free,
        total_bytes=total,
        kafka=broker.gateway,
    )

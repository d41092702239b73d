"""Messages between replicas, brokers and the controller. Kinds 39 to 69, less those of `host_messages.py`.

A host of replicas dials its broker, a broker the controller; both sides ask over the same stream.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.protocol.messages import Message, message
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.config import MIB, NO_LIMIT

NO_LEADER: Final = -1
FULL_BELOW_BYTES: Final = 16 * MIB  # free: a disk with less is as good as full, though nothing was refused yet
NO_UNCLEAN_EPOCH: Final = -1  # of a partition all of whose leaders surely held what was acknowledged

ReplicaId: TypeAlias = tuple[int, int]  # broker id, incarnation
Setting: TypeAlias = tuple[str, str]  # name, value


class ReplicaAddress(NamedTuple):
    """The process of one replica of a partition."""

    broker_id: int
    incarnation: int  # −1: it never ran
    endpoints: tuple[str, ...]


# --- replica and broker -------------------------------------------------------------------------------------------


@message(kind=43, version=3)
@dataclass(frozen=True, slots=True)
class Assign(Message):
    """Sent by the broker: what the controller has decided for this partition, as of a metadata version.

    A replica obeys the highest (leader epoch, partition epoch, metadata version) it has heard of. `replicas` are all
    that the partition has, with their present incarnations and endpoints; −1 is the incarnation of one that never ran.
    What was written before `unclean_epoch` may hold what its leader lacked: it is set aside before it is cut (rule 7).
    `catch_up_rate` is for the replica that is told, while it is not in sync: bytes a second, −1 for no limit.
    """

    topic: str
    topic_id: bytes
    partition: int
    metadata_version: int
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[ReplicaId, ...]
    replicas: tuple[ReplicaAddress, ...]
    min_insync: int
    settings: tuple[Setting, ...]
    controller_epoch: int
    catch_up_rate: int = NO_LIMIT
    unclean_epoch: int = NO_UNCLEAN_EPOCH


@message(kind=44)
@dataclass(frozen=True, slots=True)
class ProposeIsr(Message):
    """Sent by a leader, passed on by its broker (rule 4). Answered with Done once it is durable."""

    topic_id: bytes
    partition: int
    leader: int  # broker id
    leader_epoch: int
    partition_epoch: int
    isr: tuple[ReplicaId, ...]


class SetAside(NamedTuple):
    """A log that is set aside. Unknown fields are −1, or empty."""

    name: str
    topic: str
    partition: int
    topic_id: bytes
    when_ms: int
    why: str
    last_epoch: int
    log_start_offset: int
    log_end_offset: int
    size_bytes: int
    unusable: str  # why; empty: it can be restored


@message(kind=46)
@dataclass(frozen=True, slots=True)
class ListSetAside(Message):
    """Sent by the controller: which logs are set aside here, of one partition or of all ("", −1)?"""

    topic: str
    partition: int


@message(kind=47)
@dataclass(frozen=True, slots=True)
class SetAsideListed(Message):
    """The answer to ListSetAside."""

    found: tuple[SetAside, ...]


@message(kind=48)
@dataclass(frozen=True, slots=True)
class DropSetAside(Message):
    """Sent by the controller, for a person: this log is not needed any more. Answered with Done."""

    name: str


@message(kind=49)
@dataclass(frozen=True, slots=True)
class RestoreSetAside(Message):
    """Sent by the controller, for a person: put this log in the replica's place. Answered with Done."""

    topic: str
    topic_id: bytes
    partition: int
    name: str


@message(kind=58)
@dataclass(frozen=True, slots=True)
class StandDown(Message):
    """Sent by a replica, passed on by its broker: I should not lead. Answered with Done once that is durable.

    Damaged: its copy is, and it leaves the ISR too (rule 14). Else its disk stays full: another one is to lead.
    EligibleLeadersNotAvailable: no other replica could lead; nothing has changed.
    """

    topic_id: bytes
    partition: int
    broker: int
    incarnation: int
    is_damaged: bool
    reason: str


# --- broker and controller ----------------------------------------------------------------------------------------


class ReplicaReport(NamedTuple):
    """A replica that runs, and the log that it has opened."""

    topic_id: bytes
    partition: int
    incarnation: int
    last_epoch: int
    log_end_offset: int
    unproven: str  # why its log is not relied upon; empty: it is
    endpoints: tuple[str, ...]
    pid: int
    created_as: int  # the incarnation that created its directory; 0: not known


class ReplicaMarks(NamedTuple):
    """The reach of a replica's log at its last heartbeat."""

    topic_id: bytes
    partition: int
    incarnation: int
    role: str
    log_start_offset: int
    high_watermark: int
    log_end_offset: int
    size_bytes: int
    has_full_disk: bool  # it has just been refused room for an append
    room: str  # of its host: own or shared
    last_epoch: int  # of the last record, also of one that has been deleted since


class ReplicaLoss(NamedTuple):
    """A replica that ended, or that its broker has given up."""

    topic_id: bytes
    partition: int
    incarnation: int
    why: str
    is_damaged: bool


@message(kind=50, version=3)
@dataclass(frozen=True, slots=True)
class RegisterBroker(Message):
    """The first request on a stream to the controller. `replicas` are the processes that run on it already."""

    cluster_id: str
    broker_id: int
    broker_run: str  # drawn by the broker actor at its start: a second registration of the same run is the same broker
    node_id: str
    host: str
    rack: str
    endpoints: tuple[str, ...]
    directory: str
    directory_id: str
    boot_id: str
    replicas: tuple[ReplicaReport, ...]
    mark: int = 0  # of its directory


@message(kind=51)
@dataclass(frozen=True, slots=True)
class BrokerRegistered(Message):
    """The answer to RegisterBroker. `broker_epoch` goes with every later message of this broker."""

    controller_epoch: int
    broker_epoch: int


@message(kind=52, version=6)
@dataclass(frozen=True, slots=True)
class BrokerHeartbeat(Message):
    """Sent by a broker to the controller, every 0.3 s, and at once when a replica or a host has come or gone.

    Answered with Done.

    `started` and `lost` are repeated until a heartbeat that named them has been answered. `hosts` are the incarnations
    of those that run; `hosts_wanted` says how many more there should be. `marks` are those that have changed since a
    heartbeat was answered; where `marks_are_all`, there are no others (`mark_changes.py`).
    """

    broker_epoch: int
    metadata_version: int
    free_bytes: int
    total_bytes: int
    started: tuple[ReplicaReport, ...]
    lost: tuple[ReplicaLoss, ...]
    marks: tuple[ReplicaMarks, ...]
    has_full_disk: bool = False
    hosts: tuple[int, ...] = ()
    hosts_wanted: int = 0
    marks_are_all: bool = False


@message(kind=39)
@dataclass(frozen=True, slots=True)
class EndReplica(Message):
    """Sent by the controller: let no incarnation of the replica below this one run. Its data stays.

    Answered with Done.
    """

    topic_id: bytes
    partition: int
    incarnation: int


@message(kind=54)
@dataclass(frozen=True, slots=True)
class RemoveReplica(Message):
    """Sent by the controller: stop this replica, if it runs, and delete its directory. Answered with Done."""

    topic: str
    topic_id: bytes
    partition: int


@message(kind=55)
@dataclass(frozen=True, slots=True)
class StopBroker(Message):
    """Sent by the controller: the whole cluster stops. Answered with Done once all replicas have closed their logs."""


@message(kind=56, for_clients=True)
@dataclass(frozen=True, slots=True)
class AllocateProducerIds(Message):
    """Sent by a client to any broker, which has a block of ids; from a broker to the controller for the next block."""

    count: int


@message(kind=57)
@dataclass(frozen=True, slots=True)
class ProducerIdsAllocated(Message):
    """The answer to AllocateProducerIds: ids from `first` to before `end`. None is given out twice (rule 18)."""

    first: int
    end: int


# --- the metadata log ---------------------------------------------------------------------------------------------


@message(kind=69)
@dataclass(frozen=True, slots=True)
class MarkDirectory(Message):
    """Sent by a broker to the controller: this mark is on its disk. Done once that is in the metadata log."""

    broker_id: int
    directory_id: str
    mark: int


@message(kind=60)
@dataclass(frozen=True, slots=True)
class Promise(Message):
    """Sent by a controller that begins: obey no controller with a lower epoch from now on (rule 17)."""

    controller_epoch: int
    controller: str  # its name, for people


@message(kind=61, version=2)
@dataclass(frozen=True, slots=True)
class Promised(Message):
    """The answer to Promise: durably granted, or refused since `promised_epoch` is higher than what was asked.

    Its log holds [start, end), the last record from `last_epoch`; before `start` a snapshot stands in. `voters` are
    those its log names at its end; empty: it has never heard of any. `directory_id`: which of them it is, if any.
    `is_unproven`: it may have forgotten the end of what it had synced.
    """

    directory_id: str
    granted: bool
    promised_epoch: int
    last_epoch: int
    start_offset: int
    end_offset: int
    voters: tuple[Voter, ...]
    mark: int = 0  # of its directory
    is_unproven: bool = False


@message(kind=62)
@dataclass(frozen=True, slots=True)
class ReadMetadata(Message):
    """Sent by a controller with a promise: your log from `offset` on, or your snapshot (`offset` −1)."""

    controller_epoch: int
    offset: int
    max_bytes: int


@message(kind=63)
@dataclass(frozen=True, slots=True)
class MetadataRead(Message):
    """The answer to ReadMetadata: batches, or a snapshot with its offset and the epoch of its last record."""

    offset: int
    epoch: int


@message(kind=64)
@dataclass(frozen=True, slots=True)
class AppendMetadata(Message):
    """Sent by the controller to every broker: batches that join on to `base_offset`, behind one of `previous_epoch`.

    Everything below `commit_offset` is committed. Without a payload: only that.
    """

    controller_epoch: int
    base_offset: int
    previous_epoch: int
    commit_offset: int


@message(kind=65, version=2)
@dataclass(frozen=True, slots=True)
class MetadataAppended(Message):
    """The answer: synced up to `end_offset`. Not accepted: try again from (`last_epoch`, `end_offset`) on.

    `last_epoch` is the largest epoch of its log that is not above the one asked for, `end_offset` where that ends.
    """

    directory_id: str
    accepted: bool
    last_epoch: int
    end_offset: int
    mark: int = 0  # of its directory


@message(kind=66)
@dataclass(frozen=True, slots=True)
class InstallSnapshot(Message):
    """Sent by the controller: the state at `offset`, as payload; forget the log before it, and one that disagrees."""

    controller_epoch: int
    offset: int
    epoch: int


# --- clients and brokers ------------------------------------------------------------------------------------------


NOTHING_KNOWN: Final = -1


@message(kind=67, version=2, for_clients=True)
@dataclass(frozen=True, slots=True)
class GetMetadata(Message):
    """Sent by a client: these topics; empty: all. `newer_than`: wait up to `max_wait_ms` for newer metadata.

    `known`: the client knows just these topics as of that version, so what has not changed since may be left out.
    """

    topics: tuple[str, ...]
    newer_than: int
    max_wait_ms: int
    known: int = NOTHING_KNOWN


class PartitionMetadata(NamedTuple):
    """The leader of a partition, and where it serves."""

    partition: int
    leader: int  # broker id; NO_LEADER
    leader_epoch: int
    replicas: tuple[int, ...]  # broker ids
    isr: tuple[int, ...]  # broker ids
    endpoints: tuple[str, ...]  # the leader's
    node_id: str  # the leader's Ray node


class TopicMetadata(NamedTuple):
    """A topic with all its partitions, and the settings that its writers obey."""

    name: str
    topic_id: bytes
    partitions: tuple[PartitionMetadata, ...]
    batch_format: str
    max_batch_bytes: int


class BrokerMetadata(NamedTuple):
    """A broker that is not fenced."""

    broker_id: int
    node_id: str
    rack: str
    endpoints: tuple[str, ...]


class CoordinatorMetadata(NamedTuple):
    """The coordinator of a partition of an internal topic."""

    topic: str
    partition: int
    epoch: int
    endpoints: tuple[str, ...]  # empty: it does not serve now
    node_id: str


@message(kind=68, version=3)
@dataclass(frozen=True, slots=True)
class Metadata(Message):
    """The answer to GetMetadata, without topics that do not exist. It has the coordinators of all topics.

    `since` a version: partitions that have not changed after it are left out, and `gone` names the topics that do not
    exist any more.
    """

    version: int
    cluster_id: str
    topics: tuple[TopicMetadata, ...]
    brokers: tuple[BrokerMetadata, ...]
    coordinators: tuple[CoordinatorMetadata, ...]
    since: int = NOTHING_KNOWN
    gone: tuple[str, ...] = ()

"""The records that the state of the cluster is folded from (`cluster/state.py`). Kinds 102 to 119, and 184.

The metadata log and its snapshots consist of them. So kinds and versions, as `messages.py` explains them, are bytes on
disks here. What must stay true:

- A record says how something *is* from now on, not what to add to it: applied a second time it changes nothing.
- A record holds all that follows from it. Applying one decides nothing, so every version of raylog that knows the
  record folds it into the same state.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import Any, Final

from raylog.actors.protocol.control_messages import NO_UNCLEAN_EPOCH, Setting
from raylog.actors.protocol.messages import Message, message

OWN_OFFSET: Final = -1  # as a broker epoch: the offset of this very record
NEVER_LED: Final = -1  # as a leader epoch

# --- cluster and brokers ------------------------------------------------------------------------------------------


@message(kind=102)
@dataclass(frozen=True, slots=True)
class ClusterFormed(Message):
    """The first record of a cluster."""

    cluster_id: str
    formed_at_ms: int
    format_version: int


@message(kind=103)
@dataclass(frozen=True, slots=True)
class BrokerRegistration(Message):
    """A broker runs, under a new epoch: the offset of this record (in a snapshot, the epoch it had)."""

    broker_id: int
    broker_epoch: int
    run: str  # drawn by the broker at its start
    node_id: str
    host: str
    rack: str
    endpoints: tuple[str, ...]
    directory: str
    directory_id: str
    boot_id: str


@message(kind=104)
@dataclass(frozen=True, slots=True)
class BrokerFenced(Message):
    """A broker is gone, or was silent for a whole lease. It does not count until it registers again."""

    broker_id: int
    reason: str


@message(kind=105)
@dataclass(frozen=True, slots=True)
class BrokerDraining(Message):
    """Whether this broker is drained: it gets no new replicas, and leads only where no other replica can."""

    broker_id: int
    draining: bool


@message(kind=106)
@dataclass(frozen=True, slots=True)
class BrokerRemoved(Message):
    """A broker is removed, and will not come back."""

    broker_id: int


@message(kind=119)
@dataclass(frozen=True, slots=True)
class DirectoryMarked(Message):
    """The highest mark of a broker's directory. One with a lower mark is an older copy (`directory_marks.py`)."""

    broker_id: int
    directory_id: str
    mark: int


@message(kind=184)
@dataclass(frozen=True, slots=True)
class GatewayServes(Message):
    """The address at which a broker's gateway serves Kafka clients, HOST:PORT. Empty: it has none."""

    broker_id: int
    address: str


# --- topics -------------------------------------------------------------------------------------------------------


@message(kind=107)
@dataclass(frozen=True, slots=True)
class TopicCreated(Message):
    """A topic; its partitions follow in the same batch. `topic_id`: 16 bytes that no other topic ever has."""

    topic_id: bytes
    name: str
    settings: tuple[Setting, ...]


@message(kind=108)
@dataclass(frozen=True, slots=True)
class TopicSettings(Message):
    """All settings of a topic that are not the defaults."""

    topic_id: bytes
    settings: tuple[Setting, ...]


@message(kind=109)
@dataclass(frozen=True, slots=True)
class TopicDeleted(Message):
    """A topic is deleted and its name is free, but its data are still on `holders`: (partition, broker)."""

    topic_id: bytes
    name: str
    holders: tuple[tuple[int, int], ...]


@message(kind=110)
@dataclass(frozen=True, slots=True)
class TopicRemoved(Message):
    """The data of a deleted topic are removed too."""

    topic_id: bytes


# --- partitions and replicas --------------------------------------------------------------------------------------


@message(kind=111, version=1)
@dataclass(frozen=True, slots=True)
class PartitionChangedV1(Message):
    """A partition of an earlier version, without lost members and unclean epochs. Only read, see `as_of_today`."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    target: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    doubtful: tuple[tuple[int, int, int, int], ...]
    reason: str


@message(kind=111, version=2)
@dataclass(frozen=True, slots=True)
class PartitionChangedV2(Message):
    """A partition of an earlier version, that does not tell whether it was used. Only read, see `as_of_today`."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    target: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    doubtful: tuple[tuple[int, int, int, int], ...]
    lost: tuple[tuple[int, str], ...]
    unclean_epoch: int
    reason: str


@message(kind=111, version=3)
@dataclass(frozen=True, slots=True)
class PartitionChanged(Message):
    """A whole `PartitionState`, field by field, and for people the reason of the change."""

    topic_id: bytes
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    target: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    isr: tuple[int, ...]
    elr: tuple[int, ...]
    doubtful: tuple[tuple[int, int, int, int], ...]
    lost: tuple[tuple[int, str], ...]
    unclean_epoch: int
    may_have_acknowledged: bool
    reason: str


@message(kind=112, version=1)
@dataclass(frozen=True, slots=True)
class ReplicaRegisteredV1(Message):
    """A replica of an earlier version, whose directory cannot be told from another. Only read, see `as_of_today`."""

    topic_id: bytes
    partition: int
    broker_id: int
    incarnation: int
    endpoints: tuple[str, ...]
    pid: int
    last_epoch: int
    log_end_offset: int
    unproven: str


@message(kind=112, version=2)
@dataclass(frozen=True, slots=True)
class ReplicaRegistered(Message):
    """A replica that runs, or ran last. `unproven`: why its log is doubted (`doubts.py`); or empty.

    `created_as`: the incarnation that created its directory, by which that is known again; 0: not known.
    """

    topic_id: bytes
    partition: int
    broker_id: int
    incarnation: int
    endpoints: tuple[str, ...]
    pid: int
    last_epoch: int
    log_end_offset: int
    unproven: str
    created_as: int


# --- the rest -----------------------------------------------------------------------------------------------------


@message(kind=113)
@dataclass(frozen=True, slots=True)
class ProducerIdBlock(Message):
    """All producer ids below `next_id` are given out (rule 18)."""

    next_id: int


@message(kind=115)
@dataclass(frozen=True, slots=True)
class BrokerIdsUsed(Message):
    """All broker ids below `next_id` belong, or belonged, to a directory. None is given out again."""

    next_id: int


@message(kind=118)
@dataclass(frozen=True, slots=True)
class ClusterSettings(Message):
    """All settings of the cluster that are not at their defaults (`cluster_settings.py`)."""

    settings: tuple[Setting, ...]


@message(kind=114)
@dataclass(frozen=True, slots=True)
class ReassignmentThrottle(Message):
    """Bytes a second that each leader sends to replicas of a reassignment that are not in sync; −1: no limit."""

    bytes_per_second: int


@dataclass(frozen=True, slots=True)
class CommittedBatch:
    """One atomic change. `version` is the offset after it, `epoch` that of the controller that wrote it."""

    version: int
    epoch: int
    records: tuple[Message, ...]


# --- records of earlier versions ----------------------------------------------------------------------------------


def as_of_today(record: Message) -> Message:
    """Return the record in the form of this version. Fields that an earlier version did not have get neutral values."""
    if isinstance(record, PartitionChangedV1):
        return as_of_today(PartitionChangedV2(**_told_by(record), lost=(), unclean_epoch=NO_UNCLEAN_EPOCH))
    if isinstance(record, PartitionChangedV2):
        return PartitionChanged(**_told_by(record), may_have_acknowledged=record.leader_epoch != NEVER_LED)
    if isinstance(record, ReplicaRegisteredV1):
        return ReplicaRegistered(**_told_by(record), created_as=0)
    return record


def _told_by(record: PartitionChangedV1 | PartitionChangedV2 | ReplicaRegisteredV1) -> dict[str, Any]:
    return {each.name: getattr(record, each.name) for each in fields(record)}


# --- where coordinators run (rule 25) ---------------------------------------------------------------------------------

NO_RETIRED_ID: Final = -1


@message(kind=116)
@dataclass(frozen=True, slots=True)
class CoordinatorPlaced(Message):
    """A coordinator is to run on this broker's node, under this epoch; it does not serve yet.

    `producer_id` is reserved for it, and `epoch` is its producer epoch. `retired_id`: the one before it, whose epochs
    have run out. `term` counts all placements of this coordinator, under whatever producer id.
    """

    topic_id: bytes
    partition: int
    broker_id: int
    producer_id: int
    epoch: int
    retired_id: int
    term: int


@message(kind=117)
@dataclass(frozen=True, slots=True)
class CoordinatorServing(Message):
    """The coordinator of this epoch has replayed its partition, and serves here."""

    topic_id: bytes
    partition: int
    epoch: int
    endpoints: tuple[str, ...]
    pid: int

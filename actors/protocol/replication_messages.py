"""Requests of clients and followers to replicas, and pushes of a leader to its followers. Kinds 16 to 39, and
186 to 189.

Topic id and partition are in the frame; only record batches are a payload. A refused request is answered with an error
of `raylog.errors`. So the answers here are those of requests that were carried out.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias

from raylog.actors.protocol.messages import Message, message
from raylog.actors.protocol.transaction_messages import TransactionPartition

LATEST: Final = -1  # special timestamps of ListOffset, as in Kafka
EARLIEST: Final = -2
MAX_TIMESTAMP: Final = -3
NO_EPOCH: Final = -1

EpochEnd: TypeAlias = tuple[int, int]  # an epoch, and the offset after its last record
FileSlice: TypeAlias = tuple[str, int, int, int, int]  # path, inode, position, length, the offset where it ends
AbortedRange: TypeAlias = tuple[int, int]  # producer id, first offset

# --- clients ------------------------------------------------------------------------------------------------------


@message(kind=16, for_clients=True)
@dataclass(frozen=True, slots=True)
class Append(Message):
    """Sent by a producer: append the one batch of the payload. `leader_epoch`: from its metadata (NO_EPOCH: any)."""

    leader_epoch: int
    acks: int  # 0, 1, or −1 for all
    timeout_ms: int


@message(kind=17)
@dataclass(frozen=True, slots=True)
class Appended(Message):
    base_offset: int
    append_time_ms: int  # −1 where records keep their writer's time
    log_start_offset: int


@message(kind=18, for_clients=True)
@dataclass(frozen=True, slots=True)
class Fetch(Message):
    """Sent by a consumer: batches from `offset` on, once there are `min_bytes` or `max_wait_ms` are over."""

    offset: int
    leader_epoch: int
    last_epoch: int  # of the last batch that was fetched (KIP-320); NO_EPOCH: none
    min_bytes: int
    max_bytes: int
    max_wait_ms: int
    committed: bool  # read_committed
    node_id: str  # of the Ray node that the client runs on, where it can read files of that node; else empty


@message(kind=19, version=2)
@dataclass(frozen=True, slots=True)
class Fetched(Message):
    """The answer to Fetch: batches, as the payload or in a file. `diverged`: the client's last epoch ended elsewhere.

    The reader of a file checks inode, CRCs and chain. `next_offset` is then where the first of the batches begins, and
    the slice says where they end.
    """

    next_offset: int
    high_watermark: int
    last_stable_offset: int
    log_start_offset: int
    leader_epoch: int
    diverged: EpochEnd | None
    aborted: tuple[AbortedRange, ...]
    file: FileSlice | None


class WatchedPartition(NamedTuple):
    """A partition of which a reader has read all, and where it waits for more."""

    topic_id: bytes
    partition: int
    leader_epoch: int
    offset: int


@message(kind=186, for_clients=True)
@dataclass(frozen=True, slots=True)
class WatchRecords(Message):
    """Sent by a consumer of many partitions to a process of leaders: tell me which of these are worth a Fetch.

    A watch lasts: each message adds to it and takes from it. The answer before is given by then. `number` tells the
    watches of one stream apart; `is_over` ends this one.
    """

    number: int
    added: tuple[WatchedPartition, ...]
    removed: tuple[tuple[bytes, int], ...]  # topic id, partition; before others are added
    committed: bool  # read_committed
    max_wait_ms: int
    is_over: bool = False


@message(kind=187)
@dataclass(frozen=True, slots=True)
class RecordsArrived(Message):
    """The answer to WatchRecords: partitions with something to read, or not led there. They are watched no more."""

    partitions: tuple[tuple[bytes, int], ...]


@message(kind=20, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListOffset(Message):
    """Sent by a client: the first offset at `timestamp` or later, or that of LATEST, EARLIEST, MAX_TIMESTAMP."""

    timestamp: int
    leader_epoch: int
    committed: bool


@message(kind=21)
@dataclass(frozen=True, slots=True)
class ListedOffset(Message):
    """The answer to ListOffset. `offset` −1: there is none."""

    offset: int
    timestamp: int
    leader_epoch: int


@message(kind=188, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListOffsets(Message):
    """Sent by a client to a process of leaders: the beginnings or ends of several logs, as by ListOffset."""

    timestamp: int  # LATEST or EARLIEST
    committed: bool
    partitions: tuple[tuple[bytes, int, int], ...]  # topic id, partition, leader epoch


@message(kind=189)
@dataclass(frozen=True, slots=True)
class ListedOffsets(Message):
    """The answer to ListOffsets. It leaves out what a ListOffset would not be told at once: that has to be asked."""

    found: tuple[tuple[bytes, int, int, int, int], ...]  # topic id, partition, then as in ListedOffset


@message(kind=22)
@dataclass(frozen=True, slots=True)
class DeleteRecords(Message):
    """Sent by an administrator: begin the log at `before_offset` (−1: at the high watermark), on every replica."""

    before_offset: int
    timeout_ms: int


@message(kind=23)
@dataclass(frozen=True, slots=True)
class RecordsDeleted(Message):
    log_start_offset: int


@message(kind=24, for_clients=True)
@dataclass(frozen=True, slots=True)
class FindEpochEnd(Message):
    """Sent by a replica or a gateway: where did this epoch end, or the largest before it (rule 10)?"""

    leader_epoch: int
    epoch: int


@message(kind=25)
@dataclass(frozen=True, slots=True)
class EpochEndFound(Message):
    epoch: int
    end_offset: int


@message(kind=26, for_clients=True)
@dataclass(frozen=True, slots=True)
class AppendTransactional(Message):
    """Sent by a producer: as Append, in the open transaction of this transactional id (rule 20).

    `together`, with the first batch in this partition: where else the transaction begins now, for `AddPartition`.
    """

    leader_epoch: int
    acks: int
    timeout_ms: int
    transactional_id: str
    together: tuple[TransactionPartition, ...] = ()


@message(kind=27)
@dataclass(frozen=True, slots=True)
class WriteMarker(Message):
    """Sent by a transaction's coordinator: how it ended. Done once the marker is replicated; a repeat changes nothing.

    `producer_epoch` is above that of the transaction (rule 20); `coordinator_epoch` counts coordinators.
    """

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    commits: bool
    timeout_ms: int


@message(kind=28, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListOpenTransactions(Message):
    """Sent by an administrator: which transactions have no marker in this partition yet?"""


@message(kind=29)
@dataclass(frozen=True, slots=True)
class OpenTransactions(Message):
    """(producer id, epoch, first offset, when it wrote last, epoch of the coordinator that ended its last one; −1)."""

    transactions: tuple[tuple[int, int, int, int, int], ...]


@message(kind=35, for_clients=True)
@dataclass(frozen=True, slots=True)
class SuspectBatch(Message):
    """Sent by a reader that found a wrong CRC in the batch of `offset`: check your own copy (rule 1).

    Done: it is sound here, so the bytes were damaged on their way. InspectionUnderWay: ask again; another one may lead
    by then. OnlyCopyDamaged: no other replica could lead. NO_EPOCH asks a replica in any role.
    """

    leader_epoch: int
    offset: int


# --- between replicas ---------------------------------------------------------------------------------------------


@message(kind=30)
@dataclass(frozen=True, slots=True)
class Pull(Message):
    """A follower's fetch: it holds everything below `offset`, the last of it from `last_epoch` (rule 11).

    `session` counts the follower's pulls; a push belongs to the pull whose answer said `pushing`.
    """

    leader_epoch: int
    session: int
    broker_id: int
    incarnation: int
    offset: int
    last_epoch: int
    log_start_offset: int
    max_bytes: int


@message(kind=31)
@dataclass(frozen=True, slots=True)
class Pulled(Message):
    """The answer to Pull: batches, or where the logs diverge. `pushing`: that is all, and now the leader pushes."""

    leader_epoch: int
    high_watermark: int
    log_start_offset: int
    diverged: EpochEnd | None
    pushing: bool


@message(kind=32)
@dataclass(frozen=True, slots=True)
class Push(Message):
    """Sent by the leader: batches from `base_offset` on, after one of `previous_epoch` (rule 12); or only the marks."""

    leader_epoch: int
    session: int
    base_offset: int
    previous_epoch: int
    high_watermark: int
    log_start_offset: int


@message(kind=33, version=2)
@dataclass(frozen=True, slots=True)
class Pushed(Message):
    """The answer to Push: the follower's log end, and its log start, which is on disk.

    Not accepted: the batches did not join on, and it will pull.
    """

    log_end_offset: int
    log_start_offset: int
    accepted: bool


@message(kind=34)
@dataclass(frozen=True, slots=True)
class PullInstead(Message):
    """Sent by the leader, one-way: too many pushes are not answered; pull, once they are dealt with."""

    leader_epoch: int
    session: int


@message(kind=156)
@dataclass(frozen=True, slots=True)
class StopFollowing(Message):
    """Sent by a follower, one-way: push nothing more to it. Its stream goes on, since other replicas use it too."""

    leader_epoch: int
    broker_id: int
    incarnation: int

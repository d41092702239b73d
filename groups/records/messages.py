"""Requests of a group's members, and of its administrators, to its coordinator. Kinds 80 to 99.

Topics travel by id, so that what was meant for a deleted topic never meets the next one of that name. A refusal of a
whole request is an error of `raylog.errors`; where a request names many partitions the answer names those that were
refused, each with its error (`records/refusals.py`).

One message keeps a membership: `GroupHeartbeat`. It joins (epoch 0), tells what the member owns and asks what it is to
own, and leaves (epoch −1, or −2 for a static member that will be back). What must stay true between the two sides:

- A member has one heartbeat under way. Sending another, with a higher sequence, gives the one before up: its answer is
  never looked at. So what a heartbeat says of `owned` holds when it arrives, unless a later one came before it, and
  then it is refused (StaleHeartbeat).
- An answer with an assignment says what the member is to own. It gives up what is not in it, and says so by the
  `owned` of a later heartbeat; what is new it owns from the answer on (rule 23).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final, NamedTuple, TypeAlias, cast

from raylog.actors.protocol.messages import Message, message

JOINING: Final = 0  # as the epoch of a heartbeat
LEAVING: Final = -1
PAUSING: Final = -2
NO_EPOCH: Final = -1  # the epoch of a commit without membership
NO_OFFSET: Final = -1
MOST_OFFSETS: Final = 1_000  # in one request
_MOST_METADATA_BYTES: Final = 128 * 1024

PartitionId: TypeAlias = tuple[bytes, int]  # topic id, partition
Partitions: TypeAlias = tuple[tuple[bytes, tuple[int, ...]], ...]  # by topic id, both in ascending order
Refusal: TypeAlias = tuple[bytes, int, str, str, tuple[object, ...]]  # topic id, partition; name, text, arguments
OffsetToCommit: TypeAlias = tuple[bytes, int, int, int, str]  # topic id, partition, offset, leader epoch, metadata
ProfileFields: TypeAlias = tuple[str, str, str, str, int, int, str, tuple[str, ...], str]


class Profile(NamedTuple):
    """The description that a member sends of itself, in the order of `ProfileFields`."""

    instance_id: str  # of a static member; else empty
    rack: str
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int  # how long it may take to give a partition up
    assignor: str  # empty: as the others like
    topics: tuple[str, ...]
    pattern: str  # a regular expression that whole names of topics have to match; empty: none

    def fields(self) -> ProfileFields:
        """The profile as it is sent."""
        return cast(ProfileFields, tuple(self))


def grouped(partitions: object) -> Partitions:
    """Any collection of `PartitionId`, as it is sent."""
    by_topic: dict[bytes, list[int]] = {}
    for topic_id, partition in sorted(partitions):  # type: ignore[call-overload]  # a collection of pairs
        by_topic.setdefault(topic_id, []).append(partition)
    return tuple((topic_id, tuple(numbers)) for topic_id, numbers in by_topic.items())


def portions(entries: Sequence[OffsetToCommit]) -> Iterator[tuple[OffsetToCommit, ...]]:
    """Cut to what one request may carry: a coordinator looks at all of it in one go (rule 34). At least one portion."""
    portion: list[OffsetToCommit] = []
    room = _MOST_METADATA_BYTES
    for entry in entries:
        size = 4 * len(entry[-1])  # of UTF-8 at most
        if portion and (len(portion) == MOST_OFFSETS or size > room):
            yield tuple(portion)
            portion, room = [], _MOST_METADATA_BYTES
        portion.append(entry)
        room -= size
    yield tuple(portion)


def each_of(partitions: Partitions) -> frozenset[PartitionId]:
    return frozenset((topic_id, number) for topic_id, numbers in partitions for number in numbers)


# --- membership ---------------------------------------------------------------------------------------------------


@message(kind=80, for_clients=True)
@dataclass(frozen=True, slots=True)
class GroupHeartbeat(Message):
    """`profile` is told when joining, and when it has changed. The answer may wait `max_wait_ms` for something new."""

    group: str
    member: str
    epoch: int
    sequence: int
    max_wait_ms: int
    owned: Partitions
    profile: ProfileFields | None


@message(kind=81)
@dataclass(frozen=True, slots=True)
class GroupHeartbeatAnswer(Message):
    """`assignment` is None where the member owns exactly what it is to own."""

    epoch: int
    heartbeat_interval_ms: int
    assignment: Partitions | None


# --- offsets ------------------------------------------------------------------------------------------------------


@message(kind=82, version=2, for_clients=True)
@dataclass(frozen=True, slots=True)
class CommitOffsets(Message):
    """Commit offsets as a member, or with an empty member id and NO_EPOCH while the group has no members.

    A static member of a classic group says its `instance`: whoever has taken its place since is known by that alone,
    once another coordinator serves.
    """

    group: str
    member: str
    epoch: int
    offsets: tuple[OffsetToCommit, ...]
    instance: str = ""


@message(kind=83)
@dataclass(frozen=True, slots=True)
class OffsetsCommitted(Message):
    """All but these were done. Also the answer to staging, altering and deleting offsets."""

    refused: tuple[Refusal, ...]


@message(kind=84, for_clients=True)
@dataclass(frozen=True, slots=True)
class FetchOffsets(Message):
    """Fetch the offsets of these partitions, or (None) of all that have one. A member says which one it is, anybody
    else nothing.
    """

    group: str
    member: str
    epoch: int
    partitions: Partitions | None


@message(kind=85)
@dataclass(frozen=True, slots=True)
class OffsetsFetched(Message):
    """Offset NO_OFFSET: none is committed. Refused are those with staged offsets, as UnstableOffset (rule 22)."""

    offsets: tuple[OffsetToCommit, ...]
    refused: tuple[Refusal, ...]


@message(kind=86, for_clients=True)
@dataclass(frozen=True, slots=True)
class StageOffsets(Message):
    """Offsets that an open transaction will commit, if it does. `member` and `epoch` as in CommitOffsets.

    `sequence` rises with each request of a transaction: one that comes again, behind a later one, is late.
    """

    group: str
    member: str
    epoch: int
    producer_id: int
    producer_epoch: int
    sequence: int
    offsets: tuple[OffsetToCommit, ...]


# --- administration -----------------------------------------------------------------------------------------------


@message(kind=88, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListGroups(Message):
    """All groups of this coordinator."""


@message(kind=89)
@dataclass(frozen=True, slots=True)
class GroupsListed(Message):
    """(group id, state, number of members)."""

    groups: tuple[tuple[str, str, int], ...]


@message(kind=90, for_clients=True)
@dataclass(frozen=True, slots=True)
class DescribeGroup(Message):
    group: str


MemberDescription: TypeAlias = tuple[str, int, ProfileFields, Partitions, Partitions, Partitions, int]


@message(kind=91)
@dataclass(frozen=True, slots=True)
class GroupDescribed(Message):
    """`members`: (member id, epoch, profile, assigned, to be revoked, target, ms since it was heard; −1: not yet)."""

    group: str
    state: str
    epoch: int
    target_epoch: int
    assignor: str
    reason: str  # of the last rebalance
    problem: str  # why there is no assignment for the present members; else empty
    members: tuple[MemberDescription, ...]
    offsets: tuple[OffsetToCommit, ...]
    staged: Partitions


@message(kind=92, for_clients=True)
@dataclass(frozen=True, slots=True)
class DeleteGroup(Message):
    """A group without members, with its offsets."""

    group: str


@message(kind=93, for_clients=True)
@dataclass(frozen=True, slots=True)
class DeleteOffsets(Message):
    """Delete offsets of topics that no member is subscribed to."""

    group: str
    partitions: Partitions


@message(kind=94, for_clients=True)
@dataclass(frozen=True, slots=True)
class RemoveMembers(Message):
    """Remove members by member id or group_instance_id; with neither, all of them."""

    group: str
    members: tuple[str, ...]
    instances: tuple[str, ...]
    reason: str


@message(kind=95, for_clients=True)
@dataclass(frozen=True, slots=True)
class AlterOffsets(Message):
    """Alter offsets of a group without members."""

    group: str
    offsets: tuple[OffsetToCommit, ...]


@message(kind=96, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListStaged(Message):
    """List what transactions have staged with this coordinator and not decided yet."""


Staged: TypeAlias = tuple[int, int, int, int, tuple[str, ...]]


@message(kind=97)
@dataclass(frozen=True, slots=True)
class StagedListed(Message):
    """(producer id, epoch, coordinator epoch, when it staged last, groups).

    The coordinator epoch is that of whoever told the end of the producer's transaction before; −1: nobody did.
    """

    transactions: tuple[Staged, ...]

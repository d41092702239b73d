"""Requests of classic groups: Kafka's older protocol of membership, as gateways carry it to coordinators. Kinds 162 to
171, and the records of such a group, 172 and 173.

In a classic group a member, its leader, assigns the partitions; the coordinator does not look into what members say of
themselves (`metadata`), nor into what the leader gives them (`assignment`). Gateways are clients of the cluster, so a
request has no more bytes than one of a client may have.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, TypeAlias

from raylog.actors.protocol.messages import Message, message

NO_GENERATION: Final = -1

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # name, metadata; the one that the member likes most comes first


@message(kind=162, for_clients=True)
@dataclass(frozen=True, slots=True)
class JoinClassic(Message):
    """Join a group. The answer may wait until all members have joined, or the time for that is up."""

    group: str
    member: str  # empty: it has no id yet
    new_member: str  # the id that it is given then
    needs_id: bool  # it is told its id first, and joins again under that
    instance: str  # of a static member; else empty
    client_id: str
    host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocol_type: str
    protocols: Protocols


@message(kind=163)
@dataclass(frozen=True, slots=True)
class ClassicJoined(Message):
    """`generation` NO_GENERATION: join again as `member`. Only the leader is told of `members`."""

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    member: str
    members: tuple[tuple[str, str, bytes], ...]  # member id, instance id, metadata
    keeps_assignment: bool  # the leader is not to assign: it is a static member that came back as it was


@message(kind=164, for_clients=True)
@dataclass(frozen=True, slots=True)
class SyncClassic(Message):
    """Ask for the assignment, which the leader brings. The answer waits for that."""

    group: str
    member: str
    instance: str
    generation: int
    protocol_type: str  # empty: not said
    protocol: str  # likewise
    assignments: tuple[tuple[str, bytes], ...]  # by member id; of the leader


@message(kind=165)
@dataclass(frozen=True, slots=True)
class ClassicSynced(Message):
    protocol_type: str
    protocol: str
    assignment: bytes


@message(kind=166, for_clients=True)
@dataclass(frozen=True, slots=True)
class ClassicHeartbeat(Message):
    group: str
    member: str
    instance: str
    generation: int


@message(kind=167, for_clients=True)
@dataclass(frozen=True, slots=True)
class LeaveClassic(Message):
    """Take a member out of its group, named by its id or (empty) by its instance id."""

    group: str
    member: str
    instance: str


@message(kind=168, for_clients=True)
@dataclass(frozen=True, slots=True)
class ListBothKinds(Message):
    """List all groups of this coordinator, as Kafka clients see them."""


@message(kind=169)
@dataclass(frozen=True, slots=True)
class BothKindsListed(Message):
    """(group id, state, protocol type, whether it is a classic one)."""

    groups: tuple[tuple[str, str, str, bool], ...]


@message(kind=170, for_clients=True)
@dataclass(frozen=True, slots=True)
class DescribeClassic(Message):
    group: str


ClassicMemberDescription: TypeAlias = tuple[str, str, str, str, bytes, bytes]


@message(kind=171)
@dataclass(frozen=True, slots=True)
class ClassicDescribed(Message):
    """`members`: (member id, instance id, client id, host, metadata, assignment)."""

    group: str
    state: str
    protocol_type: str
    protocol: str
    members: tuple[ClassicMemberDescription, ...]


@message(kind=172)
@dataclass(frozen=True, slots=True)
class ClassicKey(Message):
    group: str


ClassicMemberFields: TypeAlias = tuple[str, str, str, str, int, int, bytes, bytes]


@message(kind=173)
@dataclass(frozen=True, slots=True)
class ClassicValue(Message):
    """A classic group after a rebalance. Members that are about to join are not in it, as in Kafka.

    `members`: (member id, instance id, client id, host, session and rebalance time-out in ms, metadata, assignment).
    """

    generation: int
    protocol_type: str
    protocol: str
    leader: str
    members: tuple[ClassicMemberFields, ...]
    empty_since_ms: int  # wall clock; −1: it has members

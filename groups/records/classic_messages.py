"""Requests of classic groups: Kafka's older protocol of membership, as gateways carry it to coordinators. Kinds 162 to
171, and the records of such a group, 172 and 173.

In a classic group a member, its leader, assigns the partitions; the coordinator does not look into what members say of
themselves (`metadata`), nor into what the leader gives them (`assignment`). Gateways are clients of the cluster, so a
message has no more bytes than one of a client may have.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from typing import Final, TypeAlias

from raylog.actors.protocol.messages import Message, message
from raylog.errors import InvalidRequest
from raylog.storage.format.record_batch import Bytes

NO_GENERATION: Final = -1

Protocols: TypeAlias = tuple[tuple[str, bytes], ...]  # name, metadata; the one that the member likes most comes first


Assignments: TypeAlias = tuple[tuple[str, bytes], ...]  # by member id
_LENGTHS: Final = struct.Struct(">HI")  # of the id and of the assignment, which follow


def packed_assignments(assignments: Assignments) -> bytes:
    """Return assignments as a payload."""
    parts: list[bytes] = []
    for member, assignment in assignments:
        name = member.encode()
        parts += (_LENGTHS.pack(len(name), len(assignment)), name, assignment)
    return b"".join(parts)


def read_assignments(payload: Bytes, most: int) -> Assignments:
    """Return the assignments in a payload, at most so many (rule 34). InvalidRequest."""
    found: list[tuple[str, bytes]] = []
    position, end = 0, len(payload)
    while position < end:
        if len(found) == most or end - position < _LENGTHS.size:
            raise InvalidRequest(f"More than {most} assignments, or {end - position} bytes that are none.")
        name_bytes, size = _LENGTHS.unpack_from(payload, position)
        begin = position + _LENGTHS.size + name_bytes
        position = begin + size
        if position > end:
            raise InvalidRequest("An assignment is cut off.")
        name = bytes(payload[begin - name_bytes : begin]).decode(errors="replace")
        found.append((name, bytes(payload[begin:position])))
    return tuple(found)


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
    """Ask for the assignment, which the leader brings. The answer waits for that.

    The assignments of all members are more than a client's message may hold, so they travel as the payload behind it
    (`packed_assignments`), and the field is empty.
    """

    group: str
    member: str
    instance: str
    generation: int
    protocol_type: str  # empty: not said
    protocol: str  # likewise
    assignments: Assignments


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

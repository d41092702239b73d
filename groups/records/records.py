"""The records of `__consumer_offsets`: what a coordinator's state is folded from. Kinds 140 to 159,
and those of classic groups (`classic_messages.py`).

A record is a key and a value, each a message: kind (1 byte), version (1 byte), and its fields as a msgpack array. A key
begins with its group; a record without a value takes away what its key names. What must stay true:

- The state is a fold of the last value of each key, in whatever order they come: the topic is compacted, and a
  member's assignment may stand before what the member says of itself.
- A value tells how something *is*; applying one decides nothing.
- A transaction's offsets are staged under keys of their own (with its producer's id), and its end is one batch of plain
  records: what they commit, the staged keys taken away, and `TransactionEnd`, which keeps what comes later from being
  taken for another transaction's (rules 20, 22). So no markers are needed in this topic, and nothing here waits for
  a last stable offset.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeAlias

from raylog.actors.protocol.coordinator_records import read_stored, stored
from raylog.actors.protocol.messages import Message, message
from raylog.errors import FrameInvalid
from raylog.groups.records.classic_messages import ClassicKey, ClassicValue
from raylog.groups.records.messages import ProfileFields

OFFSETS_TOPIC: Final = "__consumer_offsets"
_FIRST_KIND: Final = 140

OwnedPartition: TypeAlias = tuple[bytes, int, int]  # topic id, partition, epoch from which on the member owns it
Record: TypeAlias = tuple[Message, "Message | None"]
Records: TypeAlias = Sequence[Record]
EncodedRecord: TypeAlias = tuple[bytes, "bytes | None"]


def encode(record: Record) -> EncodedRecord:
    key, value = record
    return stored(key), None if value is None else stored(value)


def decode(key: bytes | None, value: bytes | None) -> Record:
    """Raises FrameInvalid where the bytes are no record of this topic, MessageUnknown where they are of a later
    version.
    """
    if key is None:
        raise FrameInvalid("A record of a group has a key.")
    record = read_stored(key, _FIRST_KIND), None if value is None else read_stored(value, _FIRST_KIND)
    if type(record[0]) not in _VALUE_OF or type(record[1]) not in (_VALUE_OF[type(record[0])], type(None)):
        names = " with a ".join(type(part).__name__ for part in record)
        raise FrameInvalid(f"No group has a record of a {names}.")
    return record


@message(kind=140)
@dataclass(frozen=True, slots=True)
class ClaimKey(Message):
    """The key of the coordinator that writes to this partition of the topic. The only key without a group, with that of
    `TransactionKey`.
    """


@message(kind=141)
@dataclass(frozen=True, slots=True)
class Claim(Message):
    """A coordinator of this epoch begins, or shows that nobody has replaced it (rule 25)."""

    coordinator_epoch: int


@message(kind=142)
@dataclass(frozen=True, slots=True)
class GroupKey(Message):
    group: str


@message(kind=143)
@dataclass(frozen=True, slots=True)
class GroupValue(Message):
    """`epoch` rises with every change that asks for a new assignment; the members' targets are of `target_epoch`."""

    epoch: int
    target_epoch: int
    assignor: str  # which made the targets
    metadata_version: int  # of the topics that they were made of
    topics: tuple[tuple[bytes, int], ...]  # these: topic id, number of partitions
    empty_since_ms: int  # wall clock; −1: it has members
    reason: str  # of the last change, for people


@message(kind=144)
@dataclass(frozen=True, slots=True)
class MemberKey(Message):
    group: str
    member: str


@message(kind=145)
@dataclass(frozen=True, slots=True)
class MemberValue(Message):
    profile: ProfileFields
    joined_at_ms: int  # wall clock


@message(kind=146)
@dataclass(frozen=True, slots=True)
class TargetKey(Message):
    group: str
    member: str


@message(kind=147)
@dataclass(frozen=True, slots=True)
class TargetValue(Message):
    """The partitions that the member will own when the group has settled."""

    partitions: tuple[tuple[bytes, tuple[int, ...]], ...]


@message(kind=148)
@dataclass(frozen=True, slots=True)
class CurrentKey(Message):
    group: str
    member: str


@message(kind=149)
@dataclass(frozen=True, slots=True)
class CurrentValue(Message):
    """The partitions that the member has the right to commit: `assigned`, and what it was asked to give up and has not
    yet.
    """

    epoch: int
    previous_epoch: int  # the last one that it has shown to know
    assigned: tuple[OwnedPartition, ...]
    revoking: tuple[OwnedPartition, ...]


@message(kind=150)
@dataclass(frozen=True, slots=True)
class OffsetKey(Message):
    group: str
    topic_id: bytes
    partition: int


@message(kind=151)
@dataclass(frozen=True, slots=True)
class OffsetValue(Message):
    topic: str  # its name when this was committed, for people
    offset: int
    leader_epoch: int
    metadata: str
    committed_at_ms: int  # wall clock


@message(kind=152)
@dataclass(frozen=True, slots=True)
class StagedKey(Message):
    group: str
    producer_id: int
    topic_id: bytes
    partition: int


@message(kind=153)
@dataclass(frozen=True, slots=True)
class StagedValue(Message):
    producer_epoch: int
    topic: str
    offset: int
    leader_epoch: int
    metadata: str
    staged_at_ms: int


@message(kind=154)
@dataclass(frozen=True, slots=True)
class TransactionKey(Message):
    producer_id: int


@message(kind=155)
@dataclass(frozen=True, slots=True)
class TransactionEnd(Message):
    """The last transaction of this producer that has ended here: each has a producer epoch of its own (rule 20)."""

    producer_epoch: int
    coordinator_epoch: int
    ended_at_ms: int


_VALUE_OF: Final[dict[type[Message], type[Message]]] = {
    ClaimKey: Claim,
    GroupKey: GroupValue,
    MemberKey: MemberValue,
    TargetKey: TargetValue,
    CurrentKey: CurrentValue,
    OffsetKey: OffsetValue,
    StagedKey: StagedValue,
    TransactionKey: TransactionEnd,
    ClassicKey: ClassicValue,
}

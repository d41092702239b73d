"""Messages between a process that hosts replicas and its broker. Kinds 36 to 38, 40, 42, 45 and 131.

    host ──HostHello──► broker ──OpenReplicas─► host ──ReplicaHello, or ReplicaFailed──► broker
                               ──StopReplica──►      ──Done, once its log is closed──►
                               ──StopHost─────►      ──Done, once all logs are closed──►

A host dials its broker, and says all of it again when it has had to dial anew. What concerns one replica names its
incarnation: an answer or an order for an earlier one means nothing.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, NamedTuple

from raylog.actors.protocol.control_messages import ReplicaMarks, Setting
from raylog.actors.protocol.messages import Message, message

SPARE: Final = "spare"  # it has had no replica yet, and may become either of these
OWN: Final = "own"  # it has room for one replica
SHARED: Final = "shared"  # it has room for many


@message(kind=38)
@dataclass(frozen=True, slots=True)
class HostHello(Message):
    """Sent by a host that takes streams. Answered with Done; a ReplicaHello of each replica in it follows."""

    incarnation: int
    pid: int
    endpoints: tuple[str, ...]
    room: str


@message(kind=37, version=2)
@dataclass(frozen=True, slots=True)
class HostHeartbeat(Message):
    """Sent by a host, one-way, every 0.3 s: which marks have changed, and all of them first after a HostHello."""

    marks: tuple[ReplicaMarks, ...]


@message(kind=36)
@dataclass(frozen=True, slots=True)
class StopHost(Message):
    """Sent by the broker: close all logs and end. Answered with Done when they are closed."""


class ReplicaToOpen(NamedTuple):
    """A replica whose directory is free."""

    topic: str
    topic_id: bytes
    partition: int
    incarnation: int
    settings: tuple[Setting, ...]
    directory: str


@message(kind=131, version=2)
@dataclass(frozen=True, slots=True)
class OpenReplicas(Message):
    """Sent by the broker: open their logs. Answered with Done at once; a ReplicaHello of each follows."""

    room: str  # OWN or SHARED: what kind of host this is from now on
    replicas: tuple[ReplicaToOpen, ...]


@message(kind=40, version=3)
@dataclass(frozen=True, slots=True)
class ReplicaHello(Message):
    """Sent by a replica that has opened its log. Answered with Done once the broker knows it; an Assign follows."""

    topic_id: bytes
    partition: int
    incarnation: int
    last_epoch: int
    log_end_offset: int
    unproven: str  # why it is not to be relied upon yet (rule 7, doubts.py); empty: it is
    created_as: int  # the incarnation that created its directory


@message(kind=42, version=2)
@dataclass(frozen=True, slots=True)
class ReplicaFailed(Message):
    """Sent one-way: a log is offline or damaged, or could not be opened. Its host closes it and goes on (rule 35)."""

    topic_id: bytes
    partition: int
    incarnation: int
    error: str
    text: str
    is_damaged: bool  # quarantined: to be set aside and fetched again (rule 14)


@message(kind=45, version=3)
@dataclass(frozen=True, slots=True)
class StopReplica(Message):
    """Sent by the broker: close this log. Answered with Done when it is closed, or was not open."""

    topic_id: bytes
    partition: int
    incarnation: int
    is_kept: bool = True  # else its directory is about to be removed, and nothing is synced before

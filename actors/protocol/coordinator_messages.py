"""Messages of coordinators, clients and the controller about coordinators. Kinds 76 to 79, 98, 99, 157 to 159.

    host ──CoordinatorHostHello──► controller ──OpenCoordinator──► host ──CoordinatorHeartbeat──► controller
                                              ──StopCoordinator──►      ──Done, once it has ended──►
                                              ──StopCoordinatorHost──►  ends

Requests of clients to coordinators are declared with each kind of coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raylog.actors.protocol.messages import Message, message


@message(kind=99)
@dataclass(frozen=True, slots=True)
class CoordinatorHostHello(Message):
    """Sent by a process that hosts coordinators to the controller, at the beginning of each stream."""

    broker_id: int
    node_id: str
    run: str  # drawn anew for each process
    pid: int
    endpoints: tuple[str, ...]


class CoordinatorSign(NamedTuple):
    """A coordinator that a process holds. It serves once it has replayed its partition."""

    topic_id: bytes
    partition: int
    epoch: int
    is_serving: bool


class CoordinatorEnded(NamedTuple):
    """A coordinator that has ended while its process goes on."""

    topic_id: bytes
    partition: int
    epoch: int
    reason: str


@message(kind=76, version=2)
@dataclass(frozen=True, slots=True)
class CoordinatorHeartbeat(Message):
    """Sent by a host to the controller: all coordinators in it, and those that have ended since the last answer."""

    coordinators: tuple[CoordinatorSign, ...]
    ended: tuple[CoordinatorEnded, ...]


class CoordinatorRefused(NamedTuple):
    """A coordinator that is not the one that was placed last, or is about to be replaced."""

    topic_id: bytes
    partition: int
    epoch: int


@message(kind=157, version=2)
@dataclass(frozen=True, slots=True)
class CoordinatorsHeard(Message):
    """The answer to a heartbeat. Those that it names have to end.

    The others may answer from memory for `granted_ms` from when the heartbeat was sent (rule 25).
    """

    refused: tuple[CoordinatorRefused, ...]
    granted_ms: int


@message(kind=158)
@dataclass(frozen=True, slots=True)
class OpenCoordinator(Message):
    """Sent by the controller: be this coordinator. Answered with Done at once; heartbeats tell what becomes of it."""

    topic: str
    topic_id: bytes
    partition: int
    producer_id: int
    epoch: int
    retired_id: int
    term: int
    brokers: tuple[str, ...]
    assignors: tuple[str, ...]


@message(kind=98, version=2)
@dataclass(frozen=True, slots=True)
class StopCoordinator(Message):
    """Sent by the controller: end this coordinator. Answered with Done when it has ended, or was not there."""

    topic_id: bytes
    partition: int
    epoch: int


@message(kind=159)
@dataclass(frozen=True, slots=True)
class StopCoordinatorHost(Message):
    """Sent by the controller, one-way: end all coordinators and the process. Another one has its place, or none."""


@message(kind=77, for_clients=True)
@dataclass(frozen=True, slots=True)
class EnsureCoordinators(Message):
    """Sent by a client by way of any broker to the controller: make this internal topic, and so its coordinators."""

    topic: str


@message(kind=78, version=2)
@dataclass(frozen=True, slots=True)
class FindTopicById(Message):
    """Sent by a coordinator by way of any broker to the controller, which knows every topic that exists.

    `seen`: the newest metadata version that the requester has heard of. ControllerNotReady: this controller knows less.
    One that was replaced does not know the topics that were made since, and would take them for deleted.
    """

    topic_id: bytes
    seen: int


@message(kind=79)
@dataclass(frozen=True, slots=True)
class TopicFoundById(Message):
    """The answer to FindTopicById: its name; empty: that topic was deleted. Ids are never used again."""

    name: str

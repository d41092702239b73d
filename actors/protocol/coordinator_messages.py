"""Messages of coordinators, clients and the controller about coordinators. Kinds 76 to 79, and 98.

Requests of clients to coordinators are declared with each kind of coordinator.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message, message


@message(kind=76)
@dataclass(frozen=True, slots=True)
class CoordinatorHeartbeat(Message):
    """Sent by a coordinator to the controller: its process runs, and if `is_serving`, it has replayed its partition."""

    topic_id: bytes
    partition: int
    epoch: int
    pid: int
    endpoints: tuple[str, ...]
    is_serving: bool


@message(kind=77, for_clients=True)
@dataclass(frozen=True, slots=True)
class EnsureCoordinators(Message):
    """Sent by a client by way of any broker to the controller: make this internal topic, and so its coordinators."""

    topic: str


@message(kind=78)
@dataclass(frozen=True, slots=True)
class FindTopicById(Message):
    """Sent by a coordinator by way of any broker to the controller, which knows every topic that ever existed."""

    topic_id: bytes


@message(kind=79)
@dataclass(frozen=True, slots=True)
class TopicFoundById(Message):
    """The answer to FindTopicById: its name; empty: that topic was deleted. Ids are never used again."""

    name: str


@message(kind=98)
@dataclass(frozen=True, slots=True)
class StopCoordinator(Message):
    """Sent by the controller, over the stream of the heartbeats: end, since the cluster is being shut down."""

"""What coordinators, clients and the controller say to each other about coordinators. Kinds 76 to 79, and 98.

What clients ask of the coordinators themselves belongs to each kind of them.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.messages import Message, message


@message(kind=76)
@dataclass(frozen=True, slots=True)
class CoordinatorHeartbeat(Message):
    """From a coordinator to the controller: its process runs, and if `is_serving`, it has replayed its partition."""

    topic_id: bytes
    partition: int
    epoch: int
    pid: int
    endpoints: tuple[str, ...]
    is_serving: bool


@message(kind=77, for_clients=True)
@dataclass(frozen=True, slots=True)
class EnsureCoordinators(Message):
    """From a client to any broker, and on to the controller: let this internal topic exist, and so its coordinators."""

    topic: str


@message(kind=78)
@dataclass(frozen=True, slots=True)
class FindTopicById(Message):
    """From a coordinator to any broker, and on to the controller, which knows of every topic that there ever was."""

    topic_id: bytes


@message(kind=79)
@dataclass(frozen=True, slots=True)
class TopicFoundById(Message):
    """Its name; empty: the topic of this id was deleted. An id that somebody has heard of is never used again."""

    name: str


@message(kind=98)
@dataclass(frozen=True, slots=True)
class StopCoordinator(Message):
    """From the controller, over the stream of the heartbeats: the cluster is being shut down, so end."""

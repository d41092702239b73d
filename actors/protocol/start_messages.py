"""Messages by which the controller has a broker start replicas, many at once. Kinds 53 and 161."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from raylog.actors.protocol.control_messages import Setting
from raylog.actors.protocol.messages import Message, message


class ReplicaStart(NamedTuple):
    """A replica that is to run in one of the hosts, and no older incarnation of it."""

    topic: str
    topic_id: bytes
    partition: int
    incarnation: int
    settings: tuple[Setting, ...]  # of the topic, where they differ from the defaults, at this moment


@message(kind=53, version=3)
@dataclass(frozen=True, slots=True)
class StartReplicas(Message):
    """Sent by the controller, with all that are to start on this broker just now, up to some hundred.

    Answered with StartsUnderWay when of each its directory is free (rule 26), a quarantined one set aside, and a host
    has been told to open it, or will be as soon as there is one; or when it was refused.
    """

    starts: tuple[ReplicaStart, ...]


class StartRefused(NamedTuple):
    """An error, as in `Failure`."""

    name: str
    text: str
    arguments: tuple[object, ...]


class StartUnderWay(NamedTuple):
    """The outcome of one start."""

    has_place: bool  # in a host that it shares; else it takes a process, or waits for one
    refused: StartRefused | None = None


@message(kind=161, version=2)
@dataclass(frozen=True, slots=True)
class StartsUnderWay(Message):
    """The answer to StartReplicas, in the same order."""

    outcomes: tuple[StartUnderWay, ...]

"""The arguments of a process that hosts replicas, and of a replica. They learn everything else from their broker.

A spec names one incarnation. The controller makes a new one for each process and each replica that it asks for
(rule 26).
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.control_messages import Setting
from raylog.actors.protocol.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class HostSpec:
    """One process with room for replicas."""

    cluster_id: str
    broker_id: int
    incarnation: int
    node_id: str  # of the Ray node of its broker, where it has to run
    broker: Endpoint  # where it finds its broker: the unix socket, where there is one

    def __str__(self) -> str:
        return f"host {self.incarnation:#x} of broker {self.broker_id}"


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One replica in a host."""

    cluster_id: str
    topic: str
    topic_id: bytes
    partition: int
    broker_id: int
    incarnation: int
    settings: tuple[Setting, ...]  # of the topic, where they differ from the defaults, at this moment
    directory: str  # on its broker's disk
    node_id: str  # of the Ray node of its broker
    room: str  # of its host: OWN or SHARED

    @property
    def id(self) -> tuple[bytes, int]:
        return self.topic_id, self.partition

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id} (incarnation {self.incarnation:#x})"

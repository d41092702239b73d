"""The arguments of a replica process. It learns everything else from its broker.

A spec names one incarnation. The controller makes a new one for each process that it asks for (rule 26).
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.control_messages import Setting
from raylog.actors.protocol.endpoint import Endpoint


@dataclass(frozen=True, slots=True)
class ReplicaSpec:
    """One replica process."""

    cluster_id: str
    topic: str
    topic_id: bytes
    partition: int
    broker_id: int
    incarnation: int
    settings: tuple[Setting, ...]  # of the topic, where they differ from the defaults, at this moment
    directory: str  # of the replica, on its broker's disk
    node_id: str  # of the Ray node of its broker, where it has to run
    broker: Endpoint  # where it finds its broker: the unix socket, where there is one

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition} on broker {self.broker_id} (incarnation {self.incarnation:#x})"

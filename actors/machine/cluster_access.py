"""What a client needs to speak to a cluster's processes. It may be pickled and used where there is no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raylog.actors.machine.actor_address import Address
from raylog.actors.protocol.cluster_secrets import ClusterSecrets


@dataclass(frozen=True)
class ClusterAccess:
    """It holds the clients' secret: whoever has it may read and write all topics, and end any group or transaction."""

    cluster_id: str
    secrets: ClusterSecrets
    brokers: Mapping[int, Address]

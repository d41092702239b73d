"""The means of a client to reach a cluster's processes. They can be pickled, and used without Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raylog.actors.machine.actor_address import Address
from raylog.actors.protocol.cluster_secrets import ClusterSecrets


@dataclass(frozen=True)
class ClusterAccess:
    """Addresses and the clients' secret. With it one may read and write all topics, and end groups and transactions."""

    cluster_id: str
    secrets: ClusterSecrets
    brokers: Mapping[int, Address]

"""What a client needs to speak to a cluster's processes. It may be pickled and used where there is no Ray."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from raylog.actors.actor_address import Address
from raylog.actors.cluster_secret import ClusterSecret


@dataclass(frozen=True)
class ClusterAccess:
    """It holds the cluster's secret: whoever has it may do whatever any process of the cluster may do."""

    cluster_id: str
    secret: ClusterSecret
    brokers: Mapping[int, Address]

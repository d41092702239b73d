"""The clusters that are measured: raylog on a Ray of its own, and Apache Kafka where somebody runs it."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

import raylog
from bench.gateway.comparing import KAFKA, RAYLOG, Server
from bench.partitions.kafka import KafkaCluster
from bench.real_cluster import own_ray

_LISTEN: Final = "127.0.0.1:0"


@contextmanager
def servers(against: str | None) -> Iterator[list[Server]]:
    """Yield raylog with three brokers on a Ray of its own, and whoever is at `against`."""
    with own_ray() as folder:
        cluster = raylog.start(f"{folder}/data", brokers=3, kafka=_LISTEN)
        address = ",".join(cluster.kafka_addresses())
        found = [Server(RAYLOG, address, KafkaCluster(address))]
        if against is not None:
            found.append(Server(KAFKA, against, KafkaCluster(against)))
        yield found
        cluster.shutdown()

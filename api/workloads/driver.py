"""Interface of a system that is measured, and which systems there are.

A driver is made anew in each process, of a `Target` that can be pickled. Its modules are imported only then, since most
need a client library of their own.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from importlib import import_module
from typing import Any, Final, Protocol

from raylog.api.workloads.workload import Workload

RAYLOG: Final = "raylog"
REDIS: Final = "redis"
NATS: Final = "nats"
KAFKA: Final = "kafka"
_MODULES: Final = {
    RAYLOG: "raylog.api.workloads.raylog_driver",
    REDIS: "raylog.api.workloads.redis_driver",
    NATS: "raylog.api.workloads.nats_driver",
    KAFKA: "raylog.api.workloads.kafka_driver",
}


@dataclass(frozen=True)
class Target:
    """A system to measure, and where it is."""

    kind: str
    address: Any  # host:port; of raylog what `Cluster.access` returns
    version: str = ""


class Publisher(Protocol):
    async def publish(self, payloads: Sequence[bytes]) -> None:
        """Returns when all of them are acknowledged, in the sense of the driver's guarantee."""
        ...

    async def close(self) -> None: ...


class Subscriber(Protocol):
    async def poll(self, seconds: float) -> Sequence[bytes]:
        """Return what has come, or nothing after so long."""
        ...

    async def close(self) -> None: ...


class Driver(Protocol):
    async def create(self, topic: str, workload: Workload) -> None: ...

    async def delete(self, topic: str) -> None: ...

    async def publisher(self, topic: str, workload: Workload) -> Publisher: ...

    async def subscriber(self, topic: str, workload: Workload) -> Subscriber:
        """Subscribe to all there is in the topic, from its beginning on."""
        ...

    def guarantee(self, workload: Workload) -> str:
        """Return what an acknowledged record survives, in a few words."""
        ...

    async def close(self) -> None: ...


async def open_driver(target: Target) -> Driver:
    driver: Driver = await import_module(_MODULES[target.kind]).open_driver(target)
    return driver

"""How the controller gets replica processes. The shell does it through Ray, the simulator by itself."""

from __future__ import annotations

from typing import Protocol

from raylog.actors.replica_spec import ReplicaSpec


class ReplicaLauncher(Protocol):
    """Starts replica processes on their brokers' nodes. Whether they live is found out by their brokers."""

    async def start(self, spec: ReplicaSpec) -> None:
        """Returns when the process was asked to start. ReplicaNotStarted: it was not, and will not be."""

    async def stop(self, spec: ReplicaSpec) -> None:
        """This process is not wanted any more: never start it, or end it. Nothing where there is none."""

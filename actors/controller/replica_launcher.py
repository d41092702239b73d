"""How the controller gets replica processes. The shell does it through Ray, the simulator by itself."""

from __future__ import annotations

from typing import Protocol

from raylog.actors.protocol.replica_spec import ReplicaSpec


class ReplicaLauncher(Protocol):
    """Starts replica processes on their brokers' nodes. Whether they live is found out by their brokers."""

    async def start(self, spec: ReplicaSpec) -> None:
        """Returns when the process was asked to start. ReplicaNotStarted: it was not, and will not be."""

    def starts_at_once(self, node_id: str) -> int:
        """How many processes are best under way on that node: what is asked for beyond that waits its turn unsorted."""

    async def stop(self, spec: ReplicaSpec) -> None:
        """This process is not wanted any more: never start it, or end it. Nothing where there is none."""

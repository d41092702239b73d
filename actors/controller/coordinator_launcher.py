"""How the controller gets coordinator processes. The shell does it through Ray, the simulator by itself."""

from __future__ import annotations

from typing import Protocol

from raylog.actors.protocol.coordinator_spec import CoordinatorSpec


class CoordinatorLauncher(Protocol):
    """Whether the processes live, they tell the controller themselves."""

    async def start(self, spec: CoordinatorSpec) -> None:
        """Returns when the process was asked to start. CoordinatorNotStarted: it was not, and will not be."""

    async def stop(self, spec: CoordinatorSpec) -> None:
        """This process is not wanted any more: never start it, or end it. Nothing where there is none."""

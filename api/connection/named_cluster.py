"""A cluster by its name, as far as a client needs it. Imports Ray."""

from __future__ import annotations

from typing import TypeVar

from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.on_ray.runtime.join_ray import join_ray, tell_if_open
from raylog.actors.protocol.actor_names import namespace
from raylog.api.connection.call_times import CALL_SECONDS, INSIDE
from raylog.api.connection.controller_calls import ControllerCalls


class NamedCluster:
    """The cluster of this name, on the Ray that this process is on. What `Cluster` adds is administration."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._calls = ControllerCalls(name)

    def access(self, timeout: float = CALL_SECONDS) -> ClusterAccess:
        """Return what a client of this cluster needs to open streams. It holds the clients' secret."""
        answer: ClusterAccess = self._calls.ask("access", timeout=timeout, repeatable=True)
        return answer

    def wait_until_ready(self, timeout: float = CALL_SECONDS) -> None:
        """Wait until there is a controller that takes calls. ClusterNotFound, ClusterNotReady."""
        self._calls.ask("wait_until_ready", INSIDE * timeout, timeout=timeout, repeatable=True)


_C = TypeVar("_C", bound=NamedCluster)


def find_cluster(handle: type[_C], name: str, timeout: float) -> _C:
    """Join Ray, and wait until the cluster of this name takes calls. What `raylog.connect` raises."""
    namespace(name)
    join_ray()
    tell_if_open()
    found = handle(name)
    found.wait_until_ready(timeout)
    return found

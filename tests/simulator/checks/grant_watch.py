"""Looks at all coordinators of a simulated cluster: none may answer from memory once a later one has served (rule 25).

What clients are told is checked beside it (`kept_numbers.py`); here it shows also where nobody happens to ask. It looks
after each callback of a process, and goes on only where one of its coordinators serves now, or was granted something.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

from raylog.actors.coordinators.coordinator import HostedCoordinator
from tests.simulator.checks.history import InvariantBroken

if TYPE_CHECKING:
    from tests.simulator.cluster.simulated_cluster import SimulatedCluster
    from tests.simulator.cluster.simulated_coordinators import SimulatedCoordinatorHost

_Hosted: TypeAlias = "tuple[SimulatedCoordinatorHost, HostedCoordinator]"


class GrantWatch:
    """One for a cluster: call `look` after each callback of a process for coordinators."""

    def __init__(self, cluster: SimulatedCluster) -> None:
        self._cluster = cluster
        self._seen: dict[HostedCoordinator, tuple[bool, float]] = {}
        self._served: dict[tuple[bytes, int], int] = {}  # the latest term of a partition that has served

    def look(self, host: SimulatedCoordinatorHost) -> None:
        for coordinator in host._coordinators.values():
            now = coordinator.is_serving, coordinator._sure_until
            if now != self._seen.get(coordinator):
                self._seen[coordinator] = now
                if coordinator.is_serving:
                    self._look_at((host, coordinator))

    def _look_at(self, hosted: _Hosted) -> None:
        partition, term = hosted[1].spec.id, hosted[1].spec.term
        if term > self._served.get(partition, -1):
            self._served[partition] = term
            for other in self._all():
                if other[1].spec.id == partition:
                    self._check(other)
        self._check(hosted)

    def _all(self) -> list[_Hosted]:
        return [(host, each) for host in self._cluster.coordinator_hosts for each in host.hosted()]

    def _check(self, hosted: _Hosted) -> None:
        host, coordinator = hosted
        latest = self._served[coordinator.spec.id]
        left = coordinator._sure_until - host.process.loop.time()
        is_there = host.process.is_alive and coordinator.is_serving and not coordinator._partition_log.ended.done()
        if is_there and left > 0 and coordinator.spec.term < latest:
            raise InvariantBroken(
                f"{coordinator.spec} may answer from memory for {left:.3f} s, and that of term {latest} has served"
            )

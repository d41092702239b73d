"""Asks the parts of a simulated process, after each callback that it has run, what is broken in them.

The parts answer for the invariants at the heads of their own files (`broken_invariants`). Beside these stands here what
must hold from one step to the next: a high watermark moves only where all that it waits for have got to (rule 3), and
the epochs of a partition rise with its changes.

What must stay true: a simulation may not become slower by more than a tenth for this. So each check first compares a
few values, and goes on only where one of them has changed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.actors.cluster.partition import PartitionId, PartitionState
from raylog.actors.cluster.state import ClusterState
from raylog.actors.controller.controller import Controller
from raylog.actors.coordinators.coordinator import HostedCoordinator
from raylog.actors.coordinators.host import CoordinatorHost
from raylog.actors.replica.host import ReplicaHost
from raylog.actors.replica.hosted_log import HostedLog
from raylog.actors.replica.hosted_replica import HostedReplica
from raylog.actors.replica.leader import LeaderRole
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.coordinator.core import GroupCore
from tests.simulator.checks.history import InvariantBroken


def demand_none(where: object, broken: Iterable[str]) -> None:
    found = list(broken)
    if found:
        raise InvariantBroken(f"{where}: {'; '.join(found)}")


class HostSteps:
    """The replicas of one host."""

    def __init__(self, host: ReplicaHost) -> None:
        self._host = host
        self._steps: dict[HostedReplica, ReplicaSteps] = {}

    def __call__(self) -> None:
        for replica in self._host._replicas.values():
            (self._steps.get(replica) or self.steps_of(replica))()

    def steps_of(self, replica: HostedReplica) -> ReplicaSteps:
        """Return what looks at this replica."""
        steps = self._steps.get(replica)
        if steps is None:
            steps = self._steps[replica] = ReplicaSteps(replica)
        return steps


class ReplicaSteps:
    """The log of one replica, and its role while it leads."""

    def __init__(self, hosted: HostedReplica) -> None:
        self._replica = hosted
        self._then: object = None
        self._role: LeaderRole | None = None
        self._high_watermark = 0

    def __call__(self) -> None:
        hosted, replica = self._replica._hosted, self._replica._replica
        if hosted is None or replica is None:
            return
        log, role = hosted.log, replica._role
        marks = log.marks
        if isinstance(role, LeaderRole):
            leadership, waiting = role._leadership, len(role._appends._heap)
            leading: object = role, role._ended, leadership.recorded, leadership.proposed, waiting
        else:
            leading = None
        end = log.segments.active.next_offset
        now = end, marks.high_watermark, marks.log_start_offset, marks.recovery_point, leading
        if now == self._then or log.offline_because is not None:
            return
        self._then = now
        demand_none(hosted.name, log.broken_invariants())
        if isinstance(role, LeaderRole):
            self._look_at_leader(hosted, role)

    def _look_at_leader(self, hosted: HostedLog, role: LeaderRole) -> None:
        demand_none(hosted.name, role.broken_invariants())
        before, high_watermark = self._high_watermark, role._marks.high_watermark
        if role is self._role and high_watermark > before and not role.may_stand_at(high_watermark):
            raise InvariantBroken(f"{hosted.name}: the high watermark moved too early, {before} to {high_watermark}")
        self._role, self._high_watermark = role, high_watermark


class PartitionChanges:
    """The partitions of a cluster as one process has seen them, from state to state."""

    def __init__(self) -> None:
        self._known: dict[PartitionId, PartitionState] = {}

    def broken(self, state: ClusterState) -> Iterator[str]:
        known = self._known
        for key, after in state.partitions.items():
            before = known.get(key)
            if after is not before:
                yield from after.broken_invariants()
                if before is not None:
                    yield from after.broken_since(before)
        self._known = state.partitions.copy()


class ControllerSteps:
    """The state and the log of a controller that serves."""

    def __init__(self, controller: Controller) -> None:
        self._controller = controller
        self._partitions = PartitionChanges()
        self._then: object = None

    def __call__(self) -> None:
        controller = self._controller
        if not controller._is_serving:
            return
        changes, writer = controller.reign.changes, controller.reign.writer
        now = changes._fold.version, writer._rule.committed, len(writer._uncommitted), len(changes._replicas)
        if now != self._then:
            self._then = now
            demand_none(controller._spec.name, changes.broken_invariants())
            demand_none(controller._spec.name, self._partitions.broken(changes.state))


class CoordinatorHostSteps:
    """The coordinators of one process."""

    def __init__(self, host: CoordinatorHost) -> None:
        self._host = host
        self._steps: dict[HostedCoordinator, CoordinatorSteps] = {}

    def __call__(self) -> None:
        for coordinator in self._host._coordinators.values():
            steps = self._steps.get(coordinator)
            if steps is None:
                steps = self._steps[coordinator] = CoordinatorSteps(coordinator)
            steps()


class CoordinatorSteps:
    """The state of a coordinator of groups or of transactions that serves."""

    def __init__(self, coordinator: HostedCoordinator) -> None:
        self._coordinator = coordinator
        self._then: object = None

    def __call__(self) -> None:
        hosted = self._coordinator
        if not hosted._is_serving or hosted._partition_log.ended.done():
            return
        core, log = hosted._core, hosted._partition_log
        if isinstance(core, TransactionCoordinator):
            now = log._last, len(core._known), len(core._ending), len(core._fresh)  # each change is appended at once
            if now != self._then:
                self._then = now
                demand_none(hosted.spec, core.broken_invariants())
        elif isinstance(core, GroupCore):
            self._then = look_at_groups(hosted.spec, core._coordinator, self._then)


def look_at_groups(where: object, coordinator: GroupCoordinator, then: object) -> object:
    """Look at its groups if anything was added or committed since `then`; returns what to pass the next time."""
    line = coordinator._line
    now = line.last_ticket, len(line._open.records), line.committed_until
    if now != then:
        demand_none(where, coordinator.broken_invariants())
    return now

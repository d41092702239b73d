"""What a controller rules with under one epoch: the changes that it makes, and all that acts on them.

    MetadataWriter ◄── ClusterChanges ◄── BrokerSessions, ControllerAdmin           they decide
                             └─committed──► supervisors, ReplicaRemoval, LeadershipUpkeep   they act

A writer is good for one beginning, so what stands on it is made with it, whole. A controller that was to form a
cluster, and finds a log that is not blank, begins again with another reign.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from raylog.actors.controller.admin import ControllerAdmin
from raylog.actors.controller.changes import ClusterChanges, ReplicaChange
from raylog.actors.controller.coordinator_starts import CoordinatorLauncher, CoordinatorSupervisor
from raylog.actors.controller.leadership_upkeep import LeadershipUpkeep
from raylog.actors.controller.replica_removal import ReplicaRemoval
from raylog.actors.controller.replica_starts import ReplicaLauncher, ReplicaSupervisor
from raylog.actors.controller.secret_rotation import SecretRotation
from raylog.actors.controller.sessions import BrokerSessions, ReplicaEvents
from raylog.actors.kernel.background_tasks import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.timers import Timers
from raylog.actors.metadata_log.writer import MetadataWriter, Recovered


class ReignMeans(NamedTuple):
    """What the reigns of one controller have in common."""

    env: Environment
    tasks: BackgroundTasks
    timers: Timers
    cluster_id: str
    balance_leaders: bool
    replica_launcher: ReplicaLauncher
    coordinator_launcher: CoordinatorLauncher


class ControllerReign:
    """All that one epoch of a controller consists of. `on_broker` hears first of each broker that has registered."""

    def __init__(self, means: ReignMeans, writer: MetadataWriter, on_broker: Callable[[int], None]) -> None:
        self.writer = writer
        self._on_broker = on_broker
        self.changes = changes = ClusterChanges(writer, self._committed)
        self.supervisor = ReplicaSupervisor(changes, means.replica_launcher, means.tasks, means.cluster_id)
        self.coordinators = CoordinatorSupervisor(
            changes, means.coordinator_launcher, means.tasks, means.timers, means.cluster_id
        )
        self.removal = ReplicaRemoval(changes, means.tasks)
        self.leadership = LeadershipUpkeep(changes, balance_leaders=means.balance_leaders)
        events = ReplicaEvents(
            registered=self.supervisor.registered,
            lost=self.supervisor.lost,
            unwanted=self.supervisor.unwanted,
            broker_registered=self._broker_registered,
        )
        self.sessions = BrokerSessions(changes, writer, means.timers, events)
        self.rotation = SecretRotation(
            means.env, means.tasks, lambda: writer.epoch, lambda: (each.stream for each in self.sessions.all())
        )
        self.admin = ControllerAdmin(
            changes,
            self.sessions,
            writer,
            means.env.random,
            self.removal.broker_removed,
            self.coordinators.settings_changed,
            self.coordinators.describe,
        )

    def take_over(self, recovered: Recovered) -> None:
        """Fold what the log holds; nothing acts on it yet."""
        self.changes.begin(recovered)

    def begin(self) -> None:
        """Act on the recovered state."""
        self.sessions.begin()
        self.supervisor.begin(self.sessions)
        self.coordinators.begin()
        self.removal.begin(self.sessions)
        self.leadership.begin()

    def end(self) -> None:
        """Start nothing any more, and let no lease run out."""
        self.supervisor.stop()
        self.coordinators.stop()
        self.sessions.close()

    def _broker_registered(self, broker_id: int) -> None:
        self._on_broker(broker_id)
        self.supervisor.check_broker(broker_id)
        self.rotation.look()
        self.removal.check_broker(broker_id)

    def _committed(self, changes: Sequence[ReplicaChange]) -> None:
        """Tell those who act, in the order in which work is wanted.

        What serves comes first: replicas that are to run, then coordinators. What may wait comes after that: data that
        nobody needs any more, and leaders in their preferred places.
        Each only takes notes and starts tasks of its own, so none sees the work of another that was told before.
        """
        self.supervisor.committed(changes)
        self.coordinators.committed(changes)
        self.removal.committed(changes)
        self.leadership.committed(changes)

"""A watch for a candidate that does not hold all that is committed, among those that a controller may elect.

An election of such a candidate loses records, but it happens only if all others fail in the right order. So every
candidate is checked for as long as the controller takes it for one: every member of the ISR, and every eligible
leaver, holds all that any high watermark has ever passed (rules 3, 5 and 7).

Left out are processes that the controller has not registered yet, and controllers that have been replaced: what these
believe is let out to nobody.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.cluster.partition import PartitionId
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.controller.controller import Controller
from raylog.storage.format.record_batch import MAX_OFFSET
from raylog.storage.log.partition_log import PartitionLog
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster


@dataclass
class GivenUp:
    """Records that an unclean election has given up (rule 7). Until they are cut they are there, and do not count."""

    _offsets: dict[tuple[str, int], int] = field(default_factory=dict)
    _epochs: dict[PartitionId, int] = field(default_factory=dict)  # an earlier topic of the name has others
    _news: set[tuple[str, int]] = field(default_factory=set)

    def from_offset(self, topic: str, partition: int, offset: int) -> None:
        self._offsets[topic, partition] = min(offset, self._offsets.get((topic, partition), offset))

    def is_from_before(self, cluster: SimulatedCluster, running: RunningReplica, log: PartitionLog) -> bool:
        """Whether this log has nothing of the last unclean epoch yet."""
        controller = cluster.serving()
        partitions = {} if controller is None else controller.reign.changes.state.partitions
        partition = running.spec.topic_id, running.spec.partition
        known = partitions.get(partition)
        if known is not None and known.unclean_epoch > self._epochs.get(partition, -1):
            # Remembered while nobody serves.
            self._epochs[partition] = known.unclean_epoch
            self._news.add((running.spec.topic, running.spec.partition))
        return log.epochs.latest < self._epochs.get(partition, -1)

    def untold(self, topic: str, partition: int) -> int:
        """The offset from which on all is given up by an election that no log has heard of yet; else beyond any log."""
        return self._offsets.get((topic, partition), MAX_OFFSET) if (topic, partition) in self._news else MAX_OFFSET

    def news_of(self, running: RunningReplica) -> int:
        """The offset from which on all was given up just now; else none that is in any log."""
        name = running.spec.topic, running.spec.partition
        if name not in self._news:
            return MAX_OFFSET
        self._news.remove(name)
        return self._offsets.pop(name, MAX_OFFSET)


@dataclass
class CandidateWatch:
    """`look` now and then. `forgiven`: partitions of which more was lost than was promised to survive."""

    cluster: SimulatedCluster
    forgiven: set[tuple[str, int]]
    _highest: dict[PartitionId, int] = field(default_factory=dict)
    _names: dict[PartitionId, tuple[str, int]] = field(default_factory=dict)
    _given_up: GivenUp = field(default_factory=GivenUp)
    _epoch: int = -1  # of the newest controller that was seen to serve

    def look(self) -> None:
        open_logs = [(running, running.log) for running in self.cluster.replicas if running.process.is_alive]
        for running, log in open_logs:
            if log is not None and not self._given_up.is_from_before(self.cluster, running, log):
                partition = running.spec.topic_id, running.spec.partition
                self._highest[partition] = min(self._highest.get(partition, 0), self._given_up.news_of(running))
                self._highest[partition] = max(self._highest.get(partition, 0), log.high_watermark)
                self._names[partition] = running.spec.topic, running.spec.partition
        controller = self.cluster.serving()
        if controller is None or controller.reign.changes.epoch < self._epoch:
            return
        self._epoch = controller.reign.changes.epoch
        for running, log in open_logs:
            if log is not None and log.offline_because is None:
                self._check(controller, running, log)

    def was_lost_from(self, topic: str, partition: int, offset: int) -> None:
        for found, name in self._names.items():
            if name == (topic, partition):
                self._highest[found] = min(self._highest[found], offset)
        self._given_up.from_offset(topic, partition, offset)

    def _check(self, controller: Controller, running: RunningReplica, log: PartitionLog) -> None:
        spec, state = running.spec, controller.reign.changes.state
        partition = spec.topic_id, spec.partition
        known = state.partitions.get(partition)
        registered = state.replicas.get(ReplicaKey(*partition, spec.broker_id))
        if known is None or registered is None or registered.incarnation != spec.incarnation:
            return
        name = spec.topic, spec.partition
        if name in self.forgiven or spec.broker_id not in known.last_members or partition not in self._highest:
            return
        committed = min(self._highest[partition], self._given_up.untold(spec.topic, spec.partition))
        if log.log_end_offset < committed:
            broken = (
                f"{spec} may be elected (ISR {known.isr}, eligible {known.elr}) and ends at {log.log_end_offset}, "
                f"but {committed} is committed"
            )
            self.cluster.world.fail("The watcher of candidates", InvariantBroken(broken))

"""Random sequences of decisions, with logs in memory beside them that show what each decision would cost.

The logs are lists of (epoch, number); a machine that crashes loses the ends of its logs. What all recorded members of
an ISR of the required size hold is acknowledged. Whoever is then elected cleanly has to hold it.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any, TypeAlias

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from raylog.actors.cluster.broker_membership import register_broker, replicas_not_running
from raylog.actors.cluster.election.leader_election import (
    BY_CHOICE,
    IN_DOUBT,
    PREFERRED,
    UNCLEAN,
    UNUSED,
    elect_leaders,
    may_have_lost_records,
)
from raylog.actors.cluster.election.persons_choice import choose, hold, incarnations_of, let_go
from raylog.actors.cluster.election.replica_registration import replica_lost
from raylog.actors.cluster.partition import PartitionState
from raylog.actors.cluster.placement.draining import drain_broker, undrain_broker
from raylog.actors.cluster.placement.reassignment import change_replication_factor, reassign_partitions
from raylog.actors.cluster.state import ReplicaKey
from raylog.actors.cluster.topic_admin import create_partitions
from raylog.actors.cluster.topic_settings import alter_topic_settings
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_records import PartitionChanged
from raylog.errors import AdminError, InvalidConfig
from raylog.storage.directory.doubts import BLANK, REBOOTED, may_be_elected
from tests.unit.actors.small_cluster import SmallCluster, registration

BROKERS = range(1, 6)
TOPIC = "t"

Log: TypeAlias = list[tuple[int, int]]

brokers = st.sampled_from(list(BROKERS))
numbers = st.integers(0, 1)
wishes = st.lists(brokers, min_size=1, max_size=4, unique=True)


class CheckedCluster(SmallCluster):
    """Looks at every change of a partition as it is recorded."""

    def __init__(self, brokers: int) -> None:
        self.led: dict[tuple[int, int], int] = {}  # by partition and leader epoch
        self.acknowledged: dict[int, Log] = {}
        self.used: set[int] = set()  # partitions whose leaders could once answer acks=all
        self.proposed: set[int] = set()  # by a leader just now: who joins may be elected by the same record
        super().__init__(brokers)

    def apply(self, records: Iterable[Message]) -> list[Message]:
        records = list(records)
        touched = [record.partition for record in records if isinstance(record, PartitionChanged)]
        assert len(touched) == len(set(touched)), "one record for each partition"
        applied = []
        for record in records:
            if isinstance(record, PartitionChanged):
                self._check(self.state.partitions.get((record.topic_id, record.partition)), record)
            applied += super().apply([record])
        return applied

    def _check(self, before: PartitionState | None, record: PartitionChanged) -> None:
        number, epoch = record.partition, record.leader_epoch
        if may_have_lost_records(record):
            self.acknowledged[number] = []
        if record.leader != -1:
            assert self.led.setdefault((number, epoch), record.leader) == record.leader, "one leader in an epoch"
        if before is None:
            return
        assert list(PartitionState.of_record(record).broken_since(before)) == []
        assert record.partition_epoch == before.partition_epoch + 1
        assert epoch in (before.leader_epoch, before.leader_epoch + 1)
        assert epoch > before.leader_epoch or record.leader == before.leader
        if epoch > before.leader_epoch and record.leader != -1:
            if record.reason.endswith(UNUSED):
                assert record.partition not in self.used, "any copy may lead only while nothing was acknowledged"
            if may_have_lost_records(record) or record.reason.endswith(UNUSED):
                assert record.unclean_epoch == epoch
            else:
                assert record.leader in {*before.last_members, *self.proposed}, "a clean leader was in sync or eligible"
            self._check_electable(before, record)
            if record.reason.endswith((IN_DOUBT, UNUSED)):
                self._check_largest(record)

    def _check_electable(self, before: PartitionState, record: PartitionChanged) -> None:
        registered = self.state.replicas[ReplicaKey(record.topic_id, record.partition, record.leader)]
        chosen = before.never_led or record.reason.endswith((BY_CHOICE, UNUSED)) or record.leader in self.proposed
        assert chosen or may_be_elected(registered.unproven), "without its log only a person lets it lead (rule 7)"

    def _check_largest(self, record: PartitionChanged) -> None:
        """See that none that is there has told of a larger log than the leader has (rule 7)."""
        own = self._told(ReplicaKey(record.topic_id, record.partition, record.leader))
        for broker in self.live_brokers.intersection(record.replicas):
            key = ReplicaKey(record.topic_id, record.partition, broker)
            told = self._told(key)
            if told is not None and own is not None and may_be_elected(self.state.replicas[key].unproven):
                assert told <= own

    def _told(self, key: ReplicaKey) -> tuple[int, int] | None:
        marks = self.marks.get(key)
        if marks is None or marks.incarnation != self.running.get(key):
            return None
        return marks.last_epoch, marks.log_end_offset


class Decisions(RuleBasedStateMachine):
    """Partition 0 is in use; replicas of partition 1 have yet to start."""

    def __init__(self) -> None:
        super().__init__()
        self.cluster = CheckedCluster(len(BROKERS))
        self.cluster.create(TOPIC, [1, 2, 3], [2, 3, 4], start=False)
        for broker in (1, 2, 3):
            self.cluster.start_replica(TOPIC, broker, unproven=BLANK)
        self.logs: dict[tuple[int, int], Log] = {(key[1], key[2]): [] for key in self.cluster.running}
        self.processes = set(self.logs)  # by partition number and broker; some may be silent
        self.doubts: dict[tuple[int, int], str] = {}
        self.written = 0

    # --- what happens to machines and processes -------------------------------------------------------------------

    @rule(lost=st.lists(brokers, min_size=1, max_size=4, unique=True))
    def leases_end(self, lost: list[int]) -> None:
        self.cluster.lose_broker(*[broker for broker in lost if broker in self.cluster.live_brokers])

    @rule(broker=brokers, back=st.booleans(), kept=st.integers(0, 3))
    def machine_crashes(self, broker: int, back: bool, kept: int) -> None:
        """`back`: before its lease was over. `kept` batches of each log were synced."""
        for (number, owner), log in self.logs.items():
            if owner == broker:
                del log[kept:]
                self.doubts[number, owner] = REBOOTED
        self._stop_processes(broker)
        if not back:
            if broker in self.cluster.live_brokers:
                self.cluster.lose_broker(broker)
            return
        self.broker_registers(broker, f"run-{self.cluster.offset}")

    @rule(broker=brokers, run=st.sampled_from(["run", "second"]))
    def broker_registers(self, broker: int, run: str) -> None:
        """It may be that it was only silent: its processes, if any, are still there."""
        cluster = self.cluster
        request = registration(broker, run=run)
        cluster.live_brokers.add(broker)
        cluster.apply(register_broker(cluster.state, cluster.live, request))
        for loss in replicas_not_running(cluster.state, request):
            if (loss.topic_id, loss.partition, broker) not in cluster.running:
                cluster.apply(replica_lost(cluster.state, cluster.live, broker, loss))

    @rule(number=numbers, broker=brokers)
    def silent_process_returns(self, number: int, broker: int) -> None:
        key = ReplicaKey(self._partition(number).topic_id, number, broker)
        known = key in self.cluster.state.replicas and (number, broker) in self.processes
        if known and broker in self.cluster.live_brokers:
            self.cluster.return_replica(TOPIC, broker, number)

    @rule(number=numbers, broker=brokers)
    def process_starts(self, number: int, broker: int) -> None:
        """In the place of one that runs, or not."""
        if broker not in self._partition(number).replicas or broker not in self.cluster.live_brokers:
            return
        new = (number, broker) not in self.logs
        log = self.logs.setdefault((number, broker), [])
        last_epoch = log[-1][0] if log else -1
        unproven = BLANK if new else self.doubts.pop((number, broker), "")
        self.processes.add((number, broker))
        self.cluster.start_replica(TOPIC, broker, number, log=(last_epoch, len(log)), unproven=unproven)

    @rule(number=numbers, broker=brokers, damaged=st.booleans())
    def process_dies(self, number: int, broker: int, damaged: bool) -> None:
        if (self._partition(number).topic_id, number, broker) not in self.cluster.running:
            return
        self.processes.discard((number, broker))
        if damaged:
            del self.logs[number, broker]
        self.cluster.lose_replica(TOPIC, broker, number, damaged=damaged)

    @rule(number=numbers)
    def all_is_well_for_a_while(self, number: int) -> None:
        """Everybody is back, and something is written and acknowledged."""
        for broker in BROKERS:
            if broker not in self.cluster.live_brokers:
                self.broker_registers(broker, "run")
        for broker in self._partition(number).replicas:
            self.silent_process_returns(number, broker)
            if not self._runs(number, broker):
                self.process_starts(number, broker)
        self.leader_appends(number)
        for broker in self._partition(number).replicas:
            self.follower_catches_up(number, broker)
        self.leader_proposes(number, set(BROKERS))

    @rule(number=numbers)
    def replicas_tell(self, number: int) -> None:
        """How far they are goes to the controller with heartbeats."""
        for broker in self._partition(number).replicas:
            if self._runs(number, broker):
                log = self.logs[number, broker]
                self.cluster.tell(TOPIC, broker, log[-1][0] if log else -1, len(log), number)

    # --- what leaders and followers do ----------------------------------------------------------------------------

    @rule(number=numbers)
    def leader_appends(self, number: int) -> None:
        partition = self._partition(number)
        if self._runs(number, partition.leader):
            self.written += 1
            self.logs[number, partition.leader].append((partition.leader_epoch, self.written))

    @rule(number=numbers, broker=brokers)
    def follower_catches_up(self, number: int, broker: int) -> None:
        leader = self._partition(number).leader
        if self._runs(number, leader) and self._runs(number, broker):
            self.logs[number, broker] = list(self.logs[number, leader])

    @rule(number=numbers, members=st.sets(brokers))
    def leader_proposes(self, number: int, members: set[int]) -> None:
        partition = self._partition(number)
        if not self._runs(number, partition.leader):
            return
        whole = self.logs[number, partition.leader]
        isr = [
            broker
            for broker in members & set(partition.replicas)
            if self._runs(number, broker) and self._may_join(partition, broker, whole)
        ]
        self.cluster.proposed = {*isr, partition.leader}
        self.cluster.propose(TOPIC, *self.cluster.proposed, number=number)
        self.cluster.proposed = set()

    # --- what people ask for --------------------------------------------------------------------------------------

    @rule(number=numbers, wanted=wishes | st.none())
    def reassign(self, number: int, wanted: Sequence[int] | None) -> None:
        self._ask(lambda c: reassign_partitions(c.state, c.live, {(TOPIC, number): wanted}))

    @rule(factor=st.integers(1, 4))
    def change_factor(self, factor: int) -> None:
        self._ask(lambda c: change_replication_factor(c.state, c.live, TOPIC, factor))

    @rule(minimum=st.integers(1, 3) | st.none())
    def change_minimum(self, minimum: int | None) -> None:
        self._ask(lambda c: alter_topic_settings(c.state, c.live, TOPIC, {"min.insync.replicas": minimum}))

    @rule(allowed=st.booleans())
    def allow_unclean(self, allowed: bool) -> None:
        change = {"unclean.leader.election.enable": allowed}
        self._ask(lambda c: alter_topic_settings(c.state, c.live, TOPIC, change))

    @rule(broker=brokers, force=st.booleans())
    def drain(self, broker: int, force: bool) -> None:
        self._ask(lambda c: drain_broker(c.state, c.live, broker, force=force))

    @rule(broker=brokers)
    def undrain(self, broker: int) -> None:
        self._ask(lambda c: undrain_broker(c.state, broker))

    @rule(kind=st.sampled_from([PREFERRED, UNCLEAN]))
    def elect_leaders(self, kind: str) -> None:
        self._ask(lambda c: elect_leaders(c.state, c.live, kind).records)

    @rule(number=numbers, broker=brokers)
    def choose(self, number: int, broker: int) -> None:
        self._ask(lambda c: choose(c.state, c.live, self._partition(number).id, broker))

    @rule(number=numbers, back=st.booleans())
    def hold(self, number: int, back: bool) -> None:
        """And let go of it again, at once."""
        before = self._partition(number)
        incarnations = incarnations_of(self.cluster.state, before)
        self._ask(lambda c: hold(c.state, before.id))
        if back:
            self.cluster.proposed = set(before.last_members)
            self._ask(lambda c: let_go(c.state, c.live, before, incarnations))
            self.cluster.proposed = set()

    @rule(number=numbers)
    def elect(self, number: int) -> None:
        self.cluster.elect(TOPIC, number, waited=True)

    @precondition(lambda self: self.cluster.state.topic(TOPIC).partitions == 2)
    @rule()
    def grow(self) -> None:
        self._ask(lambda c: create_partitions(c.state, c.live, TOPIC, 3))

    # --- what has to hold -----------------------------------------------------------------------------------------

    @invariant()
    def partitions_are_in_order(self) -> None:
        assert list(self.cluster.state.broken_invariants()) == []
        for partition in self.cluster.state.partitions.values():
            isr, elr, replicas = set(partition.isr), set(partition.elr), set(partition.replicas)
            assert len(replicas) == len(partition.replicas)
            assert isr | elr | set(partition.doubtful_brokers) <= replicas
            assert not isr & elr
            assert not (isr | elr) & set(partition.doubtful_brokers)
            assert partition.leader == -1 or partition.leader in isr
            assert isr or (partition.leader == -1 and (partition.doubtful or partition.lost))
            assert partition.leader == -1 or not partition.lost
            assert not elr or len(isr) < self.cluster.state.min_insync(partition)
            assert set(partition.adding) <= set(partition.target) <= replicas

    @invariant()
    def leaders_are_alive(self) -> None:
        for partition in self.cluster.state.partitions.values():
            if partition.leader != -1:
                assert partition.leader in self.cluster.live_brokers
                assert ReplicaKey(*partition.id, partition.leader) in self.cluster.running

    @invariant()
    def leaders_hold_what_was_acknowledged(self) -> None:
        for number in range(2):
            partition = self._partition(number)
            if partition.leader == -1:
                continue
            log = self.logs.get((number, partition.leader), [])
            acknowledged = self.cluster.acknowledged.setdefault(number, [])
            assert log[: len(acknowledged)] == acknowledged
            if len(partition.isr) >= self.cluster.state.min_insync(partition):
                self.cluster.used.add(number)
                shared = min(self._shared(number, broker, log) for broker in partition.isr)
                self.cluster.acknowledged[number] = log[: max(shared, len(acknowledged))]

    @invariant()
    def snapshots_are_equal(self) -> None:
        assert self.cluster.copy_of_state() == self.cluster.state

    # --- underneath -----------------------------------------------------------------------------------------------

    def _partition(self, number: int) -> PartitionState:
        return self.cluster.partition(TOPIC, number)

    def _runs(self, number: int, broker: int) -> bool:
        key = ReplicaKey(self._partition(number).topic_id, number, broker)
        known = self.cluster.running.get(key) == self.cluster.state.incarnation(*key)
        return known and (number, broker) in self.logs and broker in self.cluster.live_brokers

    def _may_join(self, partition: PartitionState, broker: int, whole: Log) -> bool:
        draining = self.cluster.state.broker(broker).draining
        return broker in partition.isr or (not draining and self.logs[partition.partition, broker] == whole)

    def _shared(self, number: int, broker: int, log: Log) -> int:
        other = self.logs.get((number, broker), [])
        same = [ours == theirs for ours, theirs in zip(log, other, strict=False)]
        return same.index(False) if False in same else len(same)

    def _stop_processes(self, broker: int) -> None:
        self.processes = {each for each in self.processes if each[1] != broker}
        for key in [key for key in self.cluster.running if key[2] == broker]:
            del self.cluster.running[key]

    def _ask(self, decide: Any) -> None:
        try:
            records = decide(self.cluster)
        except (AdminError, InvalidConfig):  # more in sync than there are replicas
            return
        self.cluster.apply(records)


TestDecisions = Decisions.TestCase
TestDecisions.settings = settings(max_examples=100, stateful_step_count=30, deadline=None)

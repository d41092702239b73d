"""One seed: a cluster, its clients, a safety phase under faults, a liveness phase without, and the reckoning.

    python -m tests.simulator.simulate --seed 123      replays one
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from random import Random
from typing import Protocol

from raylog.actors.kernel.environment import Environment
from raylog.storage.log.partition_log import PartitionLog
from raylog.storage.log.reader import Isolation
from tests.simulator.checks.history import InvariantBroken, PartitionHistory
from tests.simulator.checks.watcher import Watcher, unobserved
from tests.simulator.clients.clients import ACKS_ALL, PartitionClient, Reader, Writer, records_of
from tests.simulator.cluster.chooser import Chooser
from tests.simulator.cluster.operator import Operator
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.faults import Faults
from tests.simulator.faults.rot import Rot
from tests.simulator.plan import TOPIC, Plan
from tests.simulator.world.world import World

_RECOVERY_SECONDS = 60.0
_MAX_EVENTS = 2_000_000


class WritingClient(Protocol):
    is_stopped: bool

    @property
    def producer_id(self) -> int: ...

    @property
    def acknowledged(self) -> int: ...

    @property
    def unresolved(self) -> int: ...

    @property
    def last_error(self) -> str: ...


class ReadingClient(Protocol):
    is_stopped: bool

    @property
    def history(self) -> PartitionHistory: ...

    def loses_from(self, offset: int) -> None: ...


@dataclass
class Outcome:
    seed: int
    events: int
    acknowledged: int
    fingerprint: int
    faults: dict[str, int]


@dataclass
class Scenario:
    """Everything that one seed decides."""

    world: World
    random: Random = field(init=False)
    plan: Plan = field(init=False)
    cluster: SimulatedCluster = field(init=False)
    watcher: Watcher = field(init=False)
    histories: list[PartitionHistory] = field(default_factory=list)
    writers: list[WritingClient] = field(default_factory=list)
    readers: list[ReadingClient] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.world.random.getrandbits(64))
        self.plan = Plan.drawn(self.random).of_seed(self.world.seed)
        self.cluster = SimulatedCluster(self.world)
        self.watcher = Watcher(self.cluster)

    def run(self) -> Outcome:
        cluster, world, plan = self.cluster, self.world, self.plan
        world.trace("{}", plan)
        cluster.form(plan.brokers)
        cluster.limit_own_replicas(plan.own_replicas)
        cluster.until_complete()
        cluster.create_topic(TOPIC, plan.partitions, plan.replication, plan.settings)
        self._start_clients()
        self.watcher.begin()
        chooser = Chooser(cluster, Random(world.seed), plan, self.histories, self._was_lost_from)
        chooser.begin()
        faults = Faults(cluster, self.random, plan, self._was_lost_from, chooser)
        rot = faults.losses.rot
        self.watcher.is_rotten = rot.is_in
        operator = Operator(cluster, self.random, plan)
        faults.begin()
        if plan.has_operator:
            operator.begin()
        world.run_for(plan.fault_seconds, max_events=_MAX_EVENTS)
        faults.stop()
        operator.stop()
        self._recover(rot)
        self._reckon()
        chooser.check_final()
        cluster.is_over = True
        acknowledged = sum(len(history.acknowledged) for history in self.histories)
        counts = faults.counts | operator.counts | ({"choose_copy": chooser.choices} if chooser.choices else {})
        return Outcome(world.seed, world.scheduler.events, acknowledged, world.fingerprint, counts)

    def _was_lost_from(self, partition: int, offset: int) -> None:
        """Note from where all machines lost records at once: no disk held them."""
        if partition >= len(self.histories):  # nobody writes to what the operator has added
            return
        self.histories[partition].was_lost_from(offset)
        self.watcher.was_lost_from(TOPIC, partition, offset)
        for reader in self.readers:
            if reader.history is self.histories[partition]:
                reader.loses_from(offset)

    def _start_clients(self) -> None:
        machine = self.world.add_machine("clients")
        for partition in range(self.plan.partitions):
            history = PartitionHistory(f"{TOPIC}-{partition}")
            self.histories.append(history)
            if self.plan.is_unclean:
                history.forgiven = "elections may be unclean"
                self.watcher.forgiven.add((TOPIC, partition))
            is_divorced = self.plan.theme == "divorces"  # where only acks=1 is answered
            for number in range(2 if is_divorced else self.random.choice((1, 2))):
                producer_id = 100 * (partition + 1) + number
                is_weak = number and (is_divorced or self.random.random() < 0.5)
                acks = self.random.choice((0, 1)) if is_weak else ACKS_ALL
                machine.start(f"writer-{producer_id}", self._write, partition, history, producer_id, acks)
            machine.start(f"reader-{partition}", self._read, partition, history)

    def _client(self, env: Environment, partition: int) -> PartitionClient:
        return PartitionClient(env, self.cluster.broker_endpoints, TOPIC, partition)

    async def _write(
        self, env: Environment, partition: int, history: PartitionHistory, producer_id: int, acks: int
    ) -> None:
        writer = Writer(self._client(env, partition), history, producer_id, env.random, acks)
        self.writers.append(writer)
        await writer.run()

    async def _read(self, env: Environment, partition: int, history: PartitionHistory) -> None:
        reader = Reader(self._client(env, partition), history, env.random, self.plan.may_delete)
        self.readers.append(reader)
        await reader.run()

    # --- liveness -----------------------------------------------------------------------------------------------

    def _recover(self, rot: Rot) -> None:
        """Check that without faults everything is in sync, sound and writable again in bounded time."""
        counts = [writer.acknowledged for writer in self.writers]

        def is_well() -> bool:
            goes_on = all(w.acknowledged > before for w, before in zip(self.writers, counts, strict=True))
            return goes_on and not rot.is_anywhere and self._is_in_sync()

        if not self._wait_for(is_well):
            errors = [f"{writer.producer_id}: {writer.last_error}" for writer in self.writers]
            raise InvariantBroken(f"It does not recover: {self._state()}; writers: {errors}")
        for writer in self.writers:
            writer.is_stopped = True
        for reader in self.readers:
            reader.is_stopped = True
        if not self._wait_for(lambda: all(not writer.unresolved for writer in self.writers)):
            raise InvariantBroken("Writers do not get their last batches acknowledged.")
        if not self._wait_for(self._is_at_rest):
            raise InvariantBroken(f"The replicas do not come to rest: {self._state()}")

    def _wait_for(self, predicate) -> bool:  # type: ignore[no-untyped-def]
        """Looks four times a virtual second: the predicates are not cheap."""
        end = self.world.now + _RECOVERY_SECONDS
        while self.world.now < end:
            if predicate():
                return True
            self.world.run_for(0.25, max_events=_MAX_EVENTS)
        return bool(predicate())

    def _is_in_sync(self) -> bool:
        controller = self.cluster.serving()
        if controller is None:
            return False
        partitions = controller.reign.changes.state.partitions.values()
        return all(
            p.leader >= 0 and sorted(p.isr) == sorted(p.replicas) and not p.is_reassigning for p in partitions
        )

    def _logs(self, partition: tuple[bytes, int]) -> list[tuple[PartitionLog, bool]]:
        """(log, whether it leads) of each running replica."""
        return [
            (running.log, running.leads_epoch is not None)
            for running in self.cluster.replicas
            if (running.spec.topic_id, running.spec.partition) == partition and running.log is not None
        ]

    def _is_at_rest(self) -> bool:
        """Each partition is on the brokers that it is to be on, and all of it everywhere below the high watermark."""
        controller = self.cluster.serving()
        if controller is None or not self._is_in_sync():
            return False
        wanted = controller.reign.changes.state.partitions
        if any((each.spec.topic_id, each.spec.partition) not in wanted for each in self.cluster.replicas):
            return False  # of a topic that was deleted
        for partition in wanted.values():
            running = [
                each
                for each in self.cluster.replicas
                if (each.spec.topic_id, each.spec.partition) == partition.id
            ]
            if sorted(each.spec.broker_id for each in running) != sorted(partition.replicas):
                return False
            logs = self._logs(partition.id)
            marks = {(log.log_start_offset, log.high_watermark, log.log_end_offset) for log, _ in logs}
            if len(logs) != len(running) or len(marks) != 1 or any(high != end for _, high, end in marks):
                return False
            if sum(leads for _, leads in logs) != 1:
                return False
        return True

    def _state(self) -> str:
        controller = self.cluster.serving()
        if controller is None:
            return "no controller serves"
        partitions = [
            f"{p.partition}: leader {p.leader} epoch {p.leader_epoch} ISR {p.isr} ELR {p.elr} doubtful {p.doubtful}"
            for p in controller.reign.changes.state.partitions.values()
        ]
        logs = [
            f"{running.spec}: " + ("offline" if running.log is None else
                                   f"[.., {running.log.high_watermark}, {running.log.log_end_offset})")
            for running in self.cluster.replicas
        ]  # fmt: skip
        return "; ".join(partitions + logs)

    # --- the reckoning ------------------------------------------------------------------------------------------

    def _reckon(self) -> None:
        self.watcher.look()
        self.world.check()
        with ExitStack() as looking:
            for running in self.cluster.replicas:
                looking.enter_context(unobserved(running))
            self._compare()

    def _compare(self) -> None:
        controller = self.cluster.serving()
        assert controller is not None
        topic_id = controller.reign.changes.state.topic(TOPIC).id
        for partition, history in enumerate(self.histories):
            logs = self._logs((topic_id, partition))
            contents = [_records(log) for log, _ in logs]
            leader = next(number for number, (_, leads) in enumerate(logs) if leads)
            log = logs[leader][0]
            start = log.log_start_offset  # it may lie inside a batch, which not all need to have
            if any(_from(start, each) != _from(start, contents[leader]) for each in contents):
                raise InvariantBroken(f"{history.name}: its replicas differ: {[len(each) for each in contents]}")
            history.check_final(contents[leader], log.log_start_offset, log.high_watermark)


def _from(start: int, records: list[tuple[int, bytes]]) -> list[tuple[int, bytes]]:
    return [record for record in records if record[0] >= start]


def _contents(log: PartitionLog) -> bytes:
    data, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, Isolation.LOG_END)
        data.append(read.data)
        offset = read.next_offset
    return b"".join(data)


def _records(log: PartitionLog) -> list[tuple[int, bytes]]:
    return records_of(_contents(log))


def plan_of(seed: int) -> Plan:
    """Return what this seed would set up."""
    with World(seed) as world:
        return Scenario(world).plan


def run_seed(seed: int, *, trace_lines: int = 200, look: Callable[[World], None] | None = None) -> Outcome:
    """Raises what was found, with the end of the trace in its text. `look` sees the world at its end either way."""
    with World(seed, trace_lines=trace_lines) as world:
        scenario = Scenario(world)
        try:
            return scenario.run()
        except AssertionError:
            world.trace("state: {}", scenario._state())
            raise
        finally:
            if look is not None:
                look(world)

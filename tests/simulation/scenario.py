"""One seed: a cluster, its clients, a safety phase under faults, a liveness phase without, and the reckoning.

    python -m tests.simulation.simulate SEED      replays one
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random

from raylog.actors.environment import Environment
from raylog.storage.log_reader import Isolation
from raylog.storage.partition_log import PartitionLog
from tests.simulation.clients import ACKS_ALL, PartitionClient, Reader, Writer, records_of
from tests.simulation.faults import Faults
from tests.simulation.history import InvariantBroken, PartitionHistory
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.watcher import Watcher
from tests.simulation.world import World

TOPIC = "topic"
_FAULT_SECONDS = (4.0, 12.0)
_RECOVERY_SECONDS = 60.0
_MAX_EVENTS = 2_000_000


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
    cluster: SimulatedCluster = field(init=False)
    histories: list[PartitionHistory] = field(default_factory=list)
    writers: list[Writer] = field(default_factory=list)
    readers: list[Reader] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = Random(self.world.random.getrandbits(64))
        self.cluster = SimulatedCluster(self.world)
        self.brokers = self.random.choice((3, 3, 3, 4, 5))
        self.partitions = self.random.choice((1, 1, 2))
        self.is_fsync = self.random.random() < 0.2
        # Clocks jump by a day here, and a batch that is refused for its timestamp would be refused for ever.
        self.settings = {"message.timestamp.after.max.ms": str(10**15)}
        if self.is_fsync:
            self.settings["flush.policy"] = "fsync"
        if self.random.random() < 0.3:
            self.settings["segment.bytes"] = "2000"

    def run(self) -> Outcome:
        cluster, world = self.cluster, self.world
        cluster.form(self.brokers)
        cluster.create_topic(TOPIC, self.partitions, 3, self.settings)
        watcher = Watcher(cluster)
        watcher.begin()
        self._start_clients()
        faults = Faults(cluster, self.random, may_crash_all=self.is_fsync)
        faults.begin()
        world.run_for(self.random.uniform(*_FAULT_SECONDS), max_events=_MAX_EVENTS)
        faults.stop()
        self._recover()
        self._reckon(watcher)
        cluster.is_over = True
        acknowledged = sum(len(history.acknowledged) for history in self.histories)
        return Outcome(world.seed, world.scheduler.events, acknowledged, world.fingerprint, faults.counts)

    def _start_clients(self) -> None:
        machine = self.world.add_machine("clients")
        for partition in range(self.partitions):
            history = PartitionHistory(f"{TOPIC}-{partition}")
            self.histories.append(history)
            for number in range(self.random.choice((1, 2))):
                producer_id = 100 * (partition + 1) + number
                acks = 1 if number and self.random.random() < 0.5 else ACKS_ALL
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
        reader = Reader(self._client(env, partition), history, env.random)
        self.readers.append(reader)
        await reader.run()

    # --- liveness -----------------------------------------------------------------------------------------------

    def _recover(self) -> None:
        """Without faults everything is in sync and writable again in bounded time."""
        counts = [writer.acknowledged for writer in self.writers]

        def is_well() -> bool:
            goes_on = all(w.acknowledged > before for w, before in zip(self.writers, counts, strict=True))
            return goes_on and self._is_in_sync()

        if not self._wait_for(is_well):
            errors = [f"{writer.producer_id}: {writer.last_error}" for writer in self.writers]
            raise InvariantBroken(f"It does not recover: {self._state()}; writers: {errors}")
        for writer in self.writers:
            writer.is_stopped = True
        for reader in self.readers:
            reader.is_stopped = True
        if not self._wait_for(lambda: all(not writer._unresolved for writer in self.writers)):
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
        partitions = controller._changes.state.partitions.values()
        return all(p.leader >= 0 and sorted(p.isr) == sorted(p.replicas) and not p.adding for p in partitions)

    def _logs(self, partition: int) -> list[tuple[PartitionLog, bool]]:
        """(log, whether it leads) of each running replica."""
        return [
            (running.log, running.leads_epoch is not None)
            for running in self.cluster.replicas
            if running.spec.partition == partition and running.log is not None
        ]

    def _is_at_rest(self) -> bool:
        if not self._is_in_sync():
            return False
        for partition in range(self.partitions):
            logs = self._logs(partition)
            marks = {(log.high_watermark, log.log_end_offset) for log, _ in logs}
            if len(logs) != 3 or len(marks) != 1 or any(high != end for high, end in marks):
                return False
        return True

    def _state(self) -> str:
        controller = self.cluster.serving()
        if controller is None:
            return "no controller serves"
        partitions = [
            f"{p.partition}: leader {p.leader} epoch {p.leader_epoch} ISR {p.isr} ELR {p.elr} doubtful {p.doubtful}"
            for p in controller._changes.state.partitions.values()
        ]
        logs = [
            f"{running.spec}: " + ("offline" if running.log is None else
                                   f"[.., {running.log.high_watermark}, {running.log.log_end_offset})")
            for running in self.cluster.replicas
        ]  # fmt: skip
        return "; ".join(partitions + logs)

    # --- the reckoning ------------------------------------------------------------------------------------------

    def _reckon(self, watcher: Watcher) -> None:
        watcher.look()
        self.world.check()
        for partition, history in enumerate(self.histories):
            contents = [_contents(log) for log, _ in self._logs(partition)]
            if any(each != contents[0] for each in contents):
                raise InvariantBroken(f"{history.name}: its replicas differ: {[len(each) for each in contents]}")
            leader = next(log for log, leads in self._logs(partition) if leads)
            history.check_final(_records(leader), leader.high_watermark)


def _contents(log: PartitionLog) -> bytes:
    data, offset = [], log.log_start_offset
    while offset < log.log_end_offset:
        read = log.read(offset, 1 << 20, Isolation.LOG_END)
        data.append(read.data)
        offset = read.next_offset
    return b"".join(data)


def _records(log: PartitionLog) -> list[tuple[int, bytes]]:
    return records_of(_contents(log))


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

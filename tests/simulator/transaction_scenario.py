"""One seed of transactions: writers of every kind under faults, then without, and what a reader finds in the end.

All of a transaction is there or nothing of it, once; offsets go with it; and when the faults are over none stays open.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from random import Random
from typing import TypeAlias, TypeVar

from raylog.actors.coordinators.coordinator import MakeCore
from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.names import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.transactions import coordinator
from raylog.actors.transactions.rules import transaction
from raylog.actors.transactions.rules.transaction import LAST_EPOCH
from raylog.groups.coordinator import core
from tests.simulator.clients.family_drivers import FamilyDriver
from tests.simulator.clients.transaction_clients import CommittedReader, Outcomes, TransactionWriter
from tests.simulator.clients.transactional_producers import OffsetWriter, ProducerWriter, committed_offset
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.faults.disturbances import Disturbances
from tests.simulator.mutations.mutations import Patches
from tests.simulator.scenario import Outcome
from tests.simulator.world.world import World

_TOPIC = "accounts"
_PARTITIONS = 3
_FAULT_SECONDS = 20.0
_RECOVERY_SECONDS = 60.0
_QUIET_SECONDS = 12.0  # until the last transaction that nobody ends has timed out
_ENOUGH = 40  # transactions once the faults are over
_EPOCHS = 4  # of a producer id, in every other seed: so they run out again and again
_MAKERS: dict[str, MakeCore] = {TRANSACTIONS_TOPIC: coordinator.make, OFFSETS_TOPIC: core.make}

Writer: TypeAlias = "TransactionWriter | ProducerWriter"
_WRITERS: tuple[tuple[str, type[Writer]], ...] = (
    ("a", TransactionWriter),
    ("b", ProducerWriter),
    ("c", OffsetWriter),
    ("job", FamilyDriver),
)
_Found = TypeVar("_Found")


class TransactionBroken(AssertionError):
    """A check of transactions failed: something happened that may not happen."""


class TransactionScenario:
    def __init__(self, world: World) -> None:
        self.world = world
        self.random = Random(world.random.getrandbits(64))
        self.cluster = SimulatedCluster(world, coordinator_makers=_MAKERS)
        self.outcomes = Outcomes()
        self.writers: list[Writer] = []
        self.disturbances = Disturbances(self.cluster, self.random, about_grants=5 if world.seed % 16 == 9 else 0)

    def run(self) -> Outcome:
        self.cluster.form(3)
        self.cluster.create_topic(_TOPIC, _PARTITIONS, 3, {})
        self._start_writers()
        self.disturbances.go_on(_FAULT_SECONDS)
        self._recover()
        reader = read_committed(self.cluster, _TOPIC, _PARTITIONS)
        problems = [*reader.open, *self.outcomes.problems(reader.found)]
        for writer in self.writers:
            if isinstance(writer, FamilyDriver):
                problems += writer.problems(reader.found)
            elif isinstance(writer, OffsetWriter):
                problems += writer.problems(reader.found, self._committed(writer.group.group_id))
        self.cluster.is_over = True
        if problems:
            raise TransactionBroken("; ".join(problems))
        return Outcome(
            self.world.seed, self.world.scheduler.events, len(self.outcomes.committed), self.world.fingerprint,
            dict(self.disturbances.counts),
        )  # fmt: skip

    def _start_writers(self) -> None:
        """One that makes its requests by hand, two that use the core of a producer, and a job with a family."""

        async def write(env: Environment, name: str, kind: type[Writer]) -> None:
            writer = kind(env, self.cluster.broker_endpoints(), _TOPIC, _PARTITIONS, name, self.outcomes)
            self.writers.append(writer)
            await writer.run()

        machine = self.world.add_machine("clients")
        self._processes = [machine.start(f"writer-{name}", write, name, kind) for name, kind in _WRITERS]
        assert self.world.run_until_idle_or(lambda: len(self.writers) == len(_WRITERS), 5.0)

    def _recover(self) -> None:
        """Transactions go on in bounded time, and each writer gets to the end of its last one."""
        before = self._committed_by()
        self._until(lambda: self._have_gone_on(before), "do not go on")
        for writer in self.writers:
            writer.is_stopped = True
        self._until(lambda: not any(each.is_alive for each in self._processes), "do not come to an end")
        self.world.run_for(_QUIET_SECONDS)

    def _committed_by(self) -> list[int]:
        names = [name for name, _ in _WRITERS]
        return [sum(each.startswith(f"{name}/") for each in self.outcomes.committed) for name in names]

    def _have_gone_on(self, before: list[int]) -> bool:
        now = self._committed_by()
        each_has = all(count > then for count, then in zip(now, before, strict=True))
        return each_has and sum(now) >= sum(before) + _ENOUGH

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        """Looks four times a virtual second: the conditions are not cheap."""
        end = self.world.now + _RECOVERY_SECONDS
        while not condition():
            if self.world.now >= end:
                errors = [writer.last_error for writer in self.writers]
                raise TransactionBroken(f"Transactions {what}: {errors}")
            self.world.run_for(0.25)

    def _committed(self, group: str) -> int:
        async def look(env: Environment) -> int:
            link = ClusterLink(env, self.cluster.broker_endpoints())
            offset = await committed_offset(link, group)
            await link.close()
            return offset

        return _ask(self.cluster, look)


def read_committed(cluster: SimulatedCluster, topic: str, partitions: int) -> CommittedReader:
    """All there is of a topic that nobody writes to any more."""

    async def read(env: Environment) -> CommittedReader:
        reader = CommittedReader(env, cluster.broker_endpoints(), topic, partitions)
        await reader.run()
        return reader

    return _ask(cluster, read)


def _ask(cluster: SimulatedCluster, question: Callable[[Environment], Awaitable[_Found]]) -> _Found:
    """Ask from a process of its own, and return what it finds out."""
    answers: list[_Found] = []

    async def ask(env: Environment) -> None:
        answers.append(await question(env))

    world = cluster.world
    world.add_machine(f"reader-{len(world.machines)}").start("reader", ask)
    if not world.run_until_idle_or(lambda: bool(answers), _RECOVERY_SECONDS):
        raise TransactionBroken("What was written is not served.")
    return answers[0]


def run_transaction_seed(seed: int, *, trace_lines: int = 200, look: Callable[[World], None] | None = None) -> Outcome:
    """Raises what was found. `look` sees the world at its end either way."""
    patches = Patches()
    patches.attribute(transaction, "FIRST_EPOCH", LAST_EPOCH - _EPOCHS if seed % 2 else 0)
    with World(seed, trace_lines=trace_lines) as world:
        try:
            return TransactionScenario(world).run()
        finally:
            patches.undo()
            if look is not None:
                look(world)

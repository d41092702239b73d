"""An administrator of a simulated cluster during faults, who works through the controller as `Cluster` does.

What is asked for keeps the plan's promise: neither `min.insync.replicas` nor the replication factor goes below what the
faults count on. Refusals and time-outs are as good as any other answer here; what matters is what becomes of the data.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from random import Random

from raylog.actors.cluster.election.leader_election import PREFERRED
from raylog.actors.cluster.topic_admin import NewTopic
from raylog.actors.controller.admin import ControllerAdmin
from raylog.config import BATCHES_AS_PRODUCED, BATCHES_OF_COLUMNS, BATCHES_OF_KAFKA
from raylog.errors import RaylogError
from tests.simulator.checks.history import InvariantBroken
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.plan import OTHER_TOPIC, TOPIC, Plan

_BETWEEN_SECONDS = (0.2, 2.0)
_PUT_RIGHT_SECONDS = 0.5
_MAX_PARTITIONS = 3
_SECONDS = 5.0
_FORMATS = (BATCHES_AS_PRODUCED, BATCHES_OF_KAFKA, BATCHES_OF_COLUMNS, BATCHES_OF_COLUMNS)


@dataclass
class Operator:
    """`begin`, and in the end `stop`, after which nobody asks for anything but that brokers are drained no more."""

    cluster: SimulatedCluster
    random: Random
    plan: Plan
    counts: dict[str, int] = field(default_factory=dict)
    _allocated: list[tuple[int, int]] = field(default_factory=list)
    _stopped: bool = False

    def __post_init__(self) -> None:
        self._sizes = range(self.plan.least_copies, min(3, self.plan.brokers) + 1)
        self._minimums = range(self.plan.least_insync, self.plan.min_insync + 1)

    def begin(self) -> None:
        self.cluster.world.after(self.random.uniform(*_BETWEEN_SECONDS), self._act)

    def stop(self) -> None:
        self._stopped = True
        self._put_right()

    def _act(self) -> None:
        if self._stopped:
            return
        asks: list[tuple[int, Callable[[ControllerAdmin], Awaitable[object]]]] = [
            (5, self._reassign),
            (1, self._cancel),
            (2, self._change_replication_factor),
            (2, self._elect),
            (1, self._drain),
            (2, self._undrain),
            (2, self._alter_settings),
            (1, self._create_partitions),
            (3, self._allocate_ids),
            (2, self._make_other_topic),
            (2, self._delete_other_topic),
        ]
        self._ask(self.random.choices([ask for _, ask in asks], [weight for weight, _ in asks])[0])
        self.begin()

    def _ask(self, ask: Callable[[ControllerAdmin], Awaitable[object]]) -> None:
        running = self.cluster.in_office()
        if running is None or running.controller is None or running.process.is_paused:
            return
        name = ask.__name__.strip("_")
        self.counts[name] = self.counts.get(name, 0) + 1
        running.process.run(self._carry_out(running.controller.admin, ask, name))

    async def _carry_out(
        self, admin: ControllerAdmin, ask: Callable[[ControllerAdmin], Awaitable[object]], name: str
    ) -> None:
        try:
            await ask(admin)
        except RaylogError as error:
            self.cluster.world.trace("the operator cannot {}: {}", name, str(error))
        else:
            self.cluster.world.trace("the operator did {}", name)

    def _put_right(self) -> None:
        """An order may be lost with its controller, so it is given until it is seen to be done."""
        controller = self.cluster.serving()
        brokers = {} if controller is None else controller.reign.changes.state.brokers
        if any(broker.draining for broker in brokers.values()):
            self._ask(self._undrain)
        if not self.cluster.is_over:
            self.cluster.world.after(_PUT_RIGHT_SECONDS, self._put_right)

    # --- what is asked for --------------------------------------------------------------------------------------

    def _some(self, size: int) -> list[int]:
        return self.random.sample(list(self.cluster.homes), size)

    def _partition(self) -> tuple[str, int]:
        return TOPIC, self.random.randrange(self.plan.partitions)

    async def _reassign(self, admin: ControllerAdmin) -> None:
        await admin.reassign({self._partition(): self._some(self.random.choice(self._sizes))}, timeout=_SECONDS)

    async def _cancel(self, admin: ControllerAdmin) -> None:
        await admin.cancel_reassignments(timeout=_SECONDS)

    async def _change_replication_factor(self, admin: ControllerAdmin) -> None:
        await admin.change_replication_factor(TOPIC, self.random.choice(self._sizes), timeout=_SECONDS)

    async def _elect(self, admin: ControllerAdmin) -> None:
        await admin.elect_leaders(PREFERRED, timeout=_SECONDS)

    async def _drain(self, admin: ControllerAdmin) -> None:
        await admin.drain_broker(self._some(1)[0], wait=False, timeout=_SECONDS)

    async def _undrain(self, admin: ControllerAdmin) -> None:
        for broker in admin.list_brokers():
            await admin.undrain_broker(broker.broker, timeout=_SECONDS)

    async def _alter_settings(self, admin: ControllerAdmin) -> None:
        minimum = self.random.choice(self._minimums)
        changes = {"min.insync.replicas": minimum, "segment.bytes": self.random.choice((700, 2_000, 100_000))}
        await admin.alter_topic_settings(TOPIC, changes, timeout=_SECONDS)

    async def _create_partitions(self, admin: ControllerAdmin) -> None:
        total = len(admin.describe_topic(TOPIC).partitions) + 1
        if total <= _MAX_PARTITIONS:
            await admin.create_partitions(TOPIC, total, timeout=_SECONDS)

    async def _make_other_topic(self, admin: ControllerAdmin) -> None:
        """Make a topic under a name that may have been another topic's, whose data may still be there."""
        new = NewTopic(OTHER_TOPIC, self.random.randint(1, 2), self.random.choice(self._sizes))
        await admin.create_topic(new, timeout=_SECONDS)

    async def _delete_other_topic(self, admin: ControllerAdmin) -> None:
        await admin.delete_topic(OTHER_TOPIC, timeout=_SECONDS)

    async def _change_format(self, admin: ControllerAdmin) -> None:
        """Writers hear of it one after the other, so that batches of both forms follow each other."""
        await admin.alter_topic_settings(TOPIC, {"batch.format": self.random.choice(_FORMATS)}, timeout=_SECONDS)

    async def _allocate_ids(self, admin: ControllerAdmin) -> None:
        """Rule 18: never twice."""
        first, end = await admin.allocate_producer_ids(timeout=_SECONDS)
        for other_first, other_end in self._allocated:
            if first < other_end and other_first < end:
                broken = f"producer ids {first} to {end} were given out, and before that {other_first} to {other_end}"
                self.cluster.world.fail("The operator", InvariantBroken(broken))
        self._allocated.append((first, end))


class FormatChanger(Operator):
    """An administrator who does nothing but change the form of new batches."""

    def _act(self) -> None:
        if not self.cluster.is_over:
            self._ask(self._change_format)
            self.begin()

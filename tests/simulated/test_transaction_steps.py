"""Transactions of a simulated cluster, case by case: a kill between any two steps; what comes late, or twice.

Each case is also run with a clause of a rule switched off, and then has to fail.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC
from raylog.actors.protocol.replication_messages import Appended, AppendTransactional, WriteMarker
from raylog.actors.protocol.transaction_messages import EndTransaction, TransactionEnded, TransactionRecord
from raylog.actors.replica.parked_appends import LeaderTransactions
from raylog.actors.transactions import coordinator
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.actors.transactions.rules import transaction
from raylog.actors.transactions.rules.transaction import Ended, Phase
from raylog.errors import InvalidTransactionState, ProducerFenced
from raylog.storage.format.batch_codec import encode_batch
from raylog.storage.format.control_records import Marker, MarkerType, encode_marker
from tests.simulated.test_transactions import _quiet
from tests.simulator.clients.transaction_clients import Outcomes, TransactionWriter
from tests.simulator.cluster.simulated_cluster import SimulatedCluster
from tests.simulator.cluster.stepwise_coordinator import Points, stepwise
from tests.simulator.transaction_scenario import read_committed
from tests.simulator.world.fake_network import NetworkSettings
from tests.simulator.world.machines import Process
from tests.simulator.world.world import World
from tests.unit.actors.control_cluster import CALM

__all__ = ["_quiet"]

_TOPIC = "accounts"
_MOST_POINTS = 40
_TERM = 1 << 20  # of a coordinator; no younger one exists
# The kills are the only trouble here: a packet or an order that is lost takes longer than a transaction may be open.
_CALM = NetworkSettings(stuck_chance=0.0)


class OneByOne(TransactionWriter):
    """Transactions when the test wants one, each into two partitions. `gives_up`: whoever asks does not ask again."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self.wanted: list[bool] = []  # whether to commit
        self.is_idle = False
        self._working: asyncio.Task[None] | None = None

    async def run(self) -> None:
        self._link = ClusterLink(self._env, self._brokers)
        await self._init()
        while not self.is_stopped:
            self.is_idle = not self.wanted
            if self.wanted:
                self._working = asyncio.ensure_future(self._one(self.wanted[0]))
                await asyncio.wait([self._working])
                if self._working.cancelled():
                    await self._init()
                else:
                    self._working.result()
                self.wanted.pop(0)
            await asyncio.sleep(0.01)

    def give_up(self) -> None:
        if self._working is not None:
            self._working.cancel()

    async def _one(self, commits: bool) -> None:
        self._count += 1
        name = f"{self._name}/{self._count}"
        self._outcomes.written[name] = {0, 1}
        await asyncio.gather(*(self._write(partition, name) for partition in (0, 1)))
        answer = await self._ask(EndTransaction(self._name, *self._identity, commits), TransactionEnded)
        (self._outcomes.committed if commits else self._outcomes.aborted).add(name)
        self._identity = answer.producer_id, answer.epoch


class Case:
    def __init__(self, world: World, points: Points) -> None:
        self.world = world
        self.points = points
        self.outcomes = Outcomes()
        self.cluster = SimulatedCluster(world, coordinator_makers={TRANSACTIONS_TOPIC: stepwise(points)})
        self.cluster.loses_orders = False
        self.cluster.form(3)
        self.cluster.create_topic(_TOPIC, 2, 3, {})
        writers: list[OneByOne] = []

        async def write(env: Environment) -> None:
            writers.append(OneByOne(env, self.cluster.broker_endpoints(), _TOPIC, 2, "mover", self.outcomes))
            await writers[0].run()

        world.add_machine("clients").start("writer", write)
        self.until(lambda: bool(writers) and writers[0].is_idle)
        self.writer = writers[0]

    def until(self, condition: Callable[[], bool]) -> None:
        assert self.world.run_until_idle_or(condition, 60.0)

    def transaction(self, commits: bool) -> None:
        self.writer.wanted.append(commits)
        self.writer.is_idle = False
        self.until(lambda: self.writer.is_idle)

    def kill_coordinator(self) -> None:
        for process in self.cluster.coordinator_processes():
            self.world.after(0.0, process.kill)

    def kill_both(self) -> None:
        self.kill_coordinator()
        assert self.writer._working is not None
        self.writer._working.get_loop().call_soon(self.writer.give_up)

    def kill_leader(self) -> None:
        """Kill the leader of a partition that the transaction writes to."""
        leading = [each for each in self.cluster.replicas if each.spec.topic == _TOPIC and each.leads_epoch is not None]
        process: Process = min(leading, key=lambda each: each.spec.partition).process
        self.world.after(0.0, process.kill)

    def problems(self) -> list[str]:
        self.world.run_for(10.0)
        found = read_committed(self.cluster, _TOPIC, 2)
        self.cluster.is_over = True
        return [*found.open, *self.outcomes.problems(found.found)]


def sweep(victim: str) -> list[str]:
    """A transaction for each point, with a kill there. What is wrong in the end."""
    points = Points(ends_here=victim != "leader")
    with World(11, settings=_CALM) as world:
        case = Case(world, points)
        kill = {"leader": case.kill_leader, "coordinator": case.kill_coordinator, "both": case.kill_both}[victim]
        passed: list[str] = []
        for at in range(1, _MOST_POINTS):
            points.arm(at, kill)
            case.transaction(commits=at % 3 != 0)
            world.run_for(0.3)
            if points.is_armed:
                break
            passed = points.passed
        assert {"before a record", "behind a record", "before a marker", "behind a marker"} == set(passed)
        assert len(passed) >= 10
        return case.problems()


@pytest.mark.parametrize("victim", ["coordinator", "both", "leader"])
def test_a_kill_between_any_two_steps_leaves_all_or_nothing(victim: str) -> None:
    assert not sweep(victim)


def test_where_prepare_is_not_durable_the_sweep_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    change = TransactionCoordinator._change

    async def without_prepare(self: TransactionCoordinator, record: TransactionRecord) -> None:
        if Phase(record.phase).is_prepared:
            self.apply(record)
            self.follow_up(record)
        else:
            await change(self, record)

    monkeypatch.setattr(TransactionCoordinator, "_change", without_prepare)
    assert any("half there" in each for each in sweep("both"))


# --- late, and twice ----------------------------------------------------------------------------------------------


class LateScript(TransactionWriter):
    """Two transactions in partition 0, and after each step whatever may still be on its way from before."""

    async def run(self) -> None:
        self._link = ClusterLink(self._env, self._brokers)
        await self._init()
        first = self._identity
        await self._append(first, 0, b"first")
        second = await self._end(first, commits=True)
        assert await self._end(first, commits=True) == second
        await self._refused(first, second)
        await self._append(second, 0, b"second")
        await self._refused(first, second)
        await self._marker_again(second)
        third = await self._end(second, commits=True)
        fourth = await self._end(third, commits=False)  # of which nothing was heard: its first batch may be late
        with pytest.raises(ProducerFenced):
            await self._append(third, 0, b"late first batch")
        with pytest.raises(InvalidTransactionState):
            await self._end(third, commits=True)
        assert await self._end(fourth, commits=True) == fourth
        await self._link.close()

    async def _refused(self, first: tuple[int, int], second: tuple[int, int]) -> None:
        """Check the refusals of the first transaction, whether the second has begun or not."""
        with pytest.raises(InvalidTransactionState):
            await self._end(first, commits=False)
        for partition in (0, 1):
            with pytest.raises(ProducerFenced):
                await self._append(first, partition, b"late")
        with pytest.raises(ProducerFenced):
            await self._end((second[0], second[1] + 1), commits=True)

    async def _append(self, identity: tuple[int, int], partition: int, value: bytes) -> None:
        producer_id, epoch = identity
        batch = encode_batch(
            [value], timestamps=self._env.wall_ms(), producer_id=producer_id, producer_epoch=epoch,
            base_sequence=0, transactional=True,
        )  # fmt: skip
        leader = (await self._link.find_topic(_TOPIC, 5.0)).partitions[partition]
        message = AppendTransactional(leader.epoch, -1, 5000, "mover")
        await self._link.ask(leader, message, batch, expect=Appended, timeout=5.0)

    async def _end(self, identity: tuple[int, int], *, commits: bool) -> tuple[int, int]:
        answer = await self._ask(EndTransaction("mover", *identity, commits), TransactionEnded)
        return answer.producer_id, answer.epoch

    async def _marker_again(self, second: tuple[int, int]) -> None:
        """The first transaction's, and with the other outcome too, while the second is open."""
        leader = (await self._link.find_topic(_TOPIC, 5.0)).partitions[0]
        for commits in (False, True):
            await self._link.ask(leader, WriteMarker(*second, _TERM, commits, 5000), expect=Done, timeout=5.0)


def late_words() -> list[str]:
    """Return what a reader of committed records finds in partition 0, or the error that the script has met."""
    with World(5, settings=CALM) as world:  # one leader throughout: the script sends nothing twice by itself
        cluster = SimulatedCluster(world, coordinator_makers={TRANSACTIONS_TOPIC: coordinator.make})
        cluster.form(3)
        cluster.create_topic(_TOPIC, 2, 3, {})
        met: list[BaseException | None] = []

        async def run(env: Environment) -> None:
            try:
                await LateScript(env, cluster.broker_endpoints(), _TOPIC, 2, "mover", Outcomes()).run()
                met.append(None)
            except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 (it is looked at below)
                met.append(error)

        # Not a client's machine: late markers come from processes of the cluster, and only theirs are taken (rule 33).
        world.add_machine("coordinators").start("script", run)
        assert world.run_until_idle_or(lambda: bool(met), 60.0)
        world.run_for(1.0)
        found = read_committed(cluster, _TOPIC, 2)
        cluster.is_over = True
        told = [] if met[0] is None else [f"{type(met[0]).__name__}: {met[0]}"]
        return [*told, *found.open, *found.found[0], *found.found[1]]


def test_what_comes_late_or_twice_changes_nothing() -> None:
    assert late_words() == ["first", "second"]


@pytest.mark.parametrize("mutation", ["epochs stay", "leaders do not ask", "outcomes change", "markers count again"])
def test_with_a_clause_switched_off_it_does(mutation: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if mutation == "epochs stay":
        monkeypatch.setattr(transaction, "_next_identity", lambda known, _fresh: (known.producer_id, known.epoch))
    elif mutation == "leaders do not ask":
        monkeypatch.setattr(LeaderTransactions, "_is_open", lambda _self, _header: True)
    elif mutation == "outcomes change":
        monkeypatch.setattr(transaction, "_asked_again", _whatever_is_asked)
    else:
        monkeypatch.setattr(LeaderTransactions, "marker", _write_again)
    assert late_words() != ["first", "second"]


def _whatever_is_asked(known: TransactionRecord, _request: EndTransaction) -> Ended:
    return Ended(None, TransactionEnded(known.producer_id, known.epoch))


def _write_again(self: LeaderTransactions, message: WriteMarker, now_ms: int) -> bytearray:
    del self
    kind = MarkerType.COMMIT if message.commits else MarkerType.ABORT
    return encode_marker(Marker(kind, message.coordinator_epoch), message.producer_id, message.producer_epoch, now_ms)

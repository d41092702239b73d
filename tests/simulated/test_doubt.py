"""An election in doubt (rule 7) goes to the log that is the largest now, whatever it was when its replica began."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator
from random import Random
from typing import Final

import pytest

from raylog.actors.cluster.partition import PartitionState
from raylog.actors.kernel.environment import Environment
from tests.simulator.checks.history import PartitionHistory
from tests.simulator.clients.clients import PartitionClient, Writer
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster
from tests.simulator.mutations.mutations import switched_off
from tests.simulator.plan import TOPIC
from tests.simulator.world.world import World

_SETTINGS: Final = {
    "min.insync.replicas": "1",
    "replica.lag.time.max.ms": "300",
    "message.timestamp.after.max.ms": "1000000000000000",
    "producer.id.expiration.ms": "1000000000000000",
    "retention.ms": "-1",
}
_SECONDS: Final = 120.0
_SEEDS: Final = range(3)
_FEW: Final = 20  # records
_MORE: Final = 100
_MANY: Final = 200


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of what is lost."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class _NothingSurvives(Random):
    """Decide of a power cut that nothing is left that was not synced."""

    def random(self) -> float:
        return 0.0


class _Cluster(SimulatedCluster):
    """A cluster that opens no replica on one broker, if it is told so."""

    closed: int | None = None

    def may_open(self, broker_id: int) -> bool:
        return broker_id != self.closed


class OneThatCaughtUp:
    """A follower that holds all, and is not in the recorded ISR: the head was lost as it was about to join."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.cluster = _Cluster(world, loses_orders=False)
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, 1, 2, _SETTINGS)
        self.writers: list[Writer] = []
        world.add_machine("client").start("writer", self._write)
        self._until(lambda: len(self.state().isr) == 2 and self.written() > _FEW)
        self.leader = self.state().leader
        self.follower = next(broker for broker in self.state().replicas if broker != self.leader)
        self._leave_follower_behind()
        self._let_follower_catch_up()

    async def _write(self, env: Environment) -> None:
        client = PartitionClient(env, self.cluster.broker_endpoints, TOPIC, 0)
        self.writers.append(Writer(client, PartitionHistory(f"{TOPIC}-0"), 100, env.random))
        await self.writers[0].run()

    def _leave_follower_behind(self) -> None:
        behind = self.running_follower()
        assert behind is not None
        self.cluster.closed = self.follower
        behind.process.kill()
        self._until(lambda: self.written() > _MORE)
        self.cluster.homes[self.leader].machine.disk.sync_everything()
        self._until(lambda: self.written() > _MANY)
        self.writers[0].is_stopped = True
        self._until(lambda: not self.writers[0].unresolved)

    def _let_follower_catch_up(self) -> None:
        self.cluster.closed = None
        self._until(self._is_following)
        self.cluster.lose_head()
        self._until(lambda: self.end_of_follower() >= self.written())

    def _is_following(self) -> bool:
        running = self.running_follower()
        return running is not None and running.replica.marks().role == "follower"

    def _until(self, holds: Callable[[], bool]) -> None:
        assert self.world.run_until_idle_or(holds, _SECONDS)

    def written(self) -> int:
        return self.writers[0].acknowledged if self.writers else 0

    def running_follower(self) -> RunningReplica | None:
        running = (each for each in self.cluster.replicas if each.spec.broker_id == self.follower)
        return next((each for each in running if each.log is not None), None)

    def state(self) -> PartitionState:
        controller = self.cluster.serving()
        assert controller is not None
        return controller.reign.changes.state.partition_named(TOPIC, 0)

    def end_of_follower(self) -> int:
        running = self.running_follower()
        return 0 if running is None or running.log is None else running.log.log_end_offset

    def leader_loses_its_power(self) -> None:
        """Let it come back without anything that was not synced."""
        home = self.cluster.homes[self.leader]
        home.machine.disk.crash_machine(_NothingSurvives())
        self.cluster.crash_machine(home)

    def until_led_again(self) -> None:
        self.cluster.bring_head_back()
        self._until(lambda: self.cluster.serving() is not None and self.state().leader_epoch > 0 <= self.state().leader)


@pytest.mark.parametrize("seed", _SEEDS)
def test_one_that_was_not_in_sync_leads_where_it_has_more_than_the_last_member(seed: int) -> None:
    with World(seed) as world:
        partition = OneThatCaughtUp(world)
        partition.leader_loses_its_power()
        partition.until_led_again()
        assert (partition.state().leader, partition.state().unclean_epoch) == (partition.follower, 2)
        assert partition.end_of_follower() >= partition.written()
        partition.cluster.is_over = True


@pytest.mark.parametrize("seed", _SEEDS)
def test_where_only_its_start_counts_the_others_records_are_lost(seed: int) -> None:
    """The same again, without what a replica has told since it registered."""
    with switched_off("old_ends_in_doubt"), pytest.raises(AssertionError):
        test_one_that_was_not_in_sync_leads_where_it_has_more_than_the_last_member(seed)

"""Partitions that wait for a person (rule 7), and what the simulator's own person says of them.

Two replicas and a minimum of two: one copy alone acknowledges nothing, so any copy may be taken.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import replace
from random import Random
from typing import Final

import pytest

from tests.simulator.checks.history import PartitionHistory
from tests.simulator.cluster.chooser import Chooser
from tests.simulator.cluster.simulated_cluster import RunningReplica, SimulatedCluster
from tests.simulator.faults.faults import Faults
from tests.simulator.mutations.mutations import switched_off
from tests.simulator.plan import TOPIC, Plan
from tests.simulator.world.world import SimulationFailed, World

_SECONDS: Final = 120.0
_HEARD_SECONDS: Final = 1.0  # by then all have heard of the election, the chooser too
_SEEDS: Final = range(3)


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of what is lost."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


class _Cluster(SimulatedCluster):
    """Opens replicas on one broker only, if it is restricted: the first that was asked for, or the one that is set."""

    is_restricted: bool = False
    only_broker: int | None = None

    def may_open(self, broker_id: int) -> bool:
        if self.only_broker is None:
            self.only_broker = broker_id
        return not self.is_restricted or broker_id == self.only_broker


class OnePartition:
    """A topic's only partition, with nobody who writes to it."""

    def __init__(self, world: World, *, starts_alone: bool = False) -> None:
        self.world = world
        self.cluster = _Cluster(world, loses_orders=False)
        self.cluster.is_restricted = starts_alone
        plan = replace(Plan.drawn(Random(0)), theme="lost copies", replication=2, min_insync=2, is_unclean=False)
        self.chooser = Chooser(self.cluster, Random(0), plan, [PartitionHistory(f"{TOPIC}-0")], _forget)
        self.losses = Faults(self.cluster, Random(0), plan, _forget, self.chooser).losses
        self.cluster.form(3)
        self.cluster.create_topic(TOPIC, 1, 2, {"min.insync.replicas": "2"})
        self.chooser.begin()
        self.until_in_sync(1 if starts_alone else 2)
        self.world.run_for(_HEARD_SECONDS)

    @property
    def leader(self) -> RunningReplica:
        return next(each for each in self.cluster.replicas if each.leads_epoch is not None)

    def end_follower(self) -> None:
        """End a follower, and let it come back only with `let_all_start`."""
        leader = self.leader
        self.cluster.is_restricted, self.cluster.only_broker = True, leader.spec.broker_id
        next(each for each in self.cluster.replicas if each is not leader).process.kill()
        self.until_in_sync(1)

    def let_all_start(self) -> None:
        self.cluster.is_restricted = False

    @property
    def follower(self) -> RunningReplica:
        return next(each for each in self.cluster.replicas if each.leads_epoch is None)

    def let_follower_start_cut_off_from_its_leader(self) -> None:
        leader = self.leader.process.machine
        others = [each for each in self.world.machines if each is not leader]
        self.let_all_start()
        assert self.world.run_until_idle_or(lambda: len(self.cluster.replicas) == 2, _SECONDS)
        for other in others:
            self.world.network.block(other, leader)

    def take_all_copies(self) -> None:
        for running in list(self.cluster.replicas):
            self.losses._take_directory(running)

    def take_leaders_copy(self) -> None:
        leader = self.leader
        self.chooser.copy_goes(leader, lambda: self.losses._take_directory(leader))

    def until_in_sync(self, replicas: int) -> None:
        assert self.world.run_until_idle_or(lambda: self._are_in_sync(replicas), _SECONDS)

    def _are_in_sync(self, replicas: int) -> bool:
        controller = self.cluster.serving()
        if controller is None:
            return False
        state = controller.reign.changes.state.partition_named(TOPIC, 0)
        is_led = any(each.leads_epoch == state.leader_epoch for each in self.cluster.replicas)
        return is_led and len(state.isr) == replicas

    def end(self) -> None:
        self.cluster.is_over = True


def _forget(partition: int, offset: int) -> None:
    """Nothing was written."""


@pytest.mark.parametrize("seed", _SEEDS)
def test_where_the_only_copy_went_before_anything_was_acknowledged_nobody_has_to_choose(seed: int) -> None:
    with World(seed) as world:
        partition = OnePartition(world, starts_alone=True)
        partition.take_leaders_copy()
        partition.let_all_start()
        partition.until_in_sync(2)
        assert not partition.chooser.choices
        partition.end()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_copy_that_was_never_in_sync_leads_where_nothing_was_acknowledged(seed: int) -> None:
    with World(seed) as world:
        partition = OnePartition(world, starts_alone=True)
        partition.let_follower_start_cut_off_from_its_leader()
        partition.take_leaders_copy()
        world.network.heal()
        partition.until_in_sync(2)
        assert not partition.chooser.choices
        partition.end()


@pytest.mark.parametrize("seed", _SEEDS)
def test_one_that_lost_its_power_leads_where_nothing_was_acknowledged(seed: int) -> None:
    with World(seed) as world:
        partition = OnePartition(world, starts_alone=True)
        partition.let_follower_start_cut_off_from_its_leader()
        follower = partition.follower
        partition.cluster.crash_machine(partition.cluster.homes[follower.spec.broker_id])
        partition.take_leaders_copy()
        world.network.heal()
        partition.until_in_sync(2)
        assert not partition.chooser.choices
        partition.end()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_person_chooses_where_all_copies_that_were_in_sync_went(seed: int) -> None:
    with World(seed) as world:
        partition = OnePartition(world)
        partition.chooser.last_copy_goes(0, partition.take_all_copies)
        assert world.run_until_idle_or(lambda: partition.chooser.choices > 0, _SECONDS)
        partition.until_in_sync(2)
        partition.end()


@pytest.mark.parametrize("seed", _SEEDS)
def test_one_that_left_below_the_minimum_leads_without_a_person(seed: int) -> None:
    with World(seed) as world:
        partition = OnePartition(world)
        partition.end_follower()
        partition.take_leaders_copy()
        partition.let_all_start()
        partition.until_in_sync(2)
        assert not partition.chooser.choices
        partition.end()


@pytest.mark.parametrize("seed", _SEEDS)
def test_a_partition_that_forgets_who_may_lead_is_noticed(seed: int) -> None:
    """The same again, with the clause of rule 7 switched off that lets that one lead."""
    with switched_off("leavers_not_eligible"), pytest.raises(SimulationFailed, match="waits for a person: why"):
        test_one_that_left_below_the_minimum_leads_without_a_person(seed)

"""Transactions of a simulated cluster under faults: all of one or nothing, once, and in the end none is left open."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from random import Random

import pytest

from raylog.actors import transaction_core, transaction_state
from raylog.actors.cluster_link import ClusterLink
from raylog.actors.coordinator_process import MakeCore
from raylog.actors.coordinator_state import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from raylog.actors.environment import Environment
from raylog.actors.transaction_state import LAST_EPOCH
from raylog.groups import group_core
from tests.simulation.family_drivers import FamilyDriver
from tests.simulation.machines import Process
from tests.simulation.simulated_cluster import SimulatedCluster
from tests.simulation.transaction_clients import CommittedReader, Outcomes, TransactionWriter
from tests.simulation.transactional_producers import OffsetWriter, ProducerWriter, committed_offset
from tests.simulation.world import World

_TOPIC = "accounts"
_PARTITIONS = 3
_FAULT_SECONDS = 20.0
_QUIET_SECONDS = 25.0
_MAKERS: dict[str, MakeCore] = {TRANSACTIONS_TOPIC: transaction_core.make, OFFSETS_TOPIC: group_core.make}
_WRITERS = (("a", TransactionWriter), ("b", ProducerWriter), ("c", OffsetWriter), ("job", FamilyDriver))


@pytest.fixture(autouse=True)
def _quiet() -> Iterator[None]:
    """The cluster warns of each fault."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)


@pytest.mark.parametrize("seed", range(7))
def test_a_transaction_is_there_whole_or_not_at_all(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    first_epoch = LAST_EPOCH - 4 if seed % 2 else 0  # of every producer id: so they run out again and again
    monkeypatch.setattr(transaction_state, "FIRST_EPOCH", first_epoch)
    with World(seed) as world:
        random = Random(world.random.getrandbits(64))
        cluster = SimulatedCluster(world, coordinator_makers=_MAKERS)
        cluster.form(3)
        cluster.create_topic(_TOPIC, _PARTITIONS, 3, {})
        outcomes = Outcomes()
        writers = _start_writers(cluster, outcomes)
        end = world.now + _FAULT_SECONDS
        while world.now < end:
            world.run_for(random.uniform(0.2, 2.0))
            _disturb(cluster, random)
        before = len(outcomes.committed)
        world.run_for(_QUIET_SECONDS / 2)
        for writer in writers:
            writer.is_stopped = True
        world.run_for(_QUIET_SECONDS / 2)
        found = _read(cluster)
        offsets = {each: _committed(cluster, each.group.group_id) for each in writers if isinstance(each, OffsetWriter)}
        cluster.is_over = True
        assert len(outcomes.committed) > before + 20, [writer.last_error for writer in writers]
        assert not found.open
        assert isinstance(writers[0], TransactionWriter)
        assert writers[0]._identity[1] >= first_epoch
        assert not outcomes.problems(found.found)
        for writer in writers:
            if isinstance(writer, FamilyDriver):
                assert writer.last_batch > 10, writer.last_error
                assert not writer.problems(found.found)
            elif isinstance(writer, OffsetWriter):
                assert not writer.problems(found.found, offsets[writer])


def _start_writers(cluster: SimulatedCluster, outcomes: Outcomes) -> list[TransactionWriter | ProducerWriter]:
    """One that makes its requests by hand, two that use the core of a producer, and a job with a family."""
    machine = cluster.world.add_machine("clients")
    writers: list[TransactionWriter | ProducerWriter] = []

    async def write(env: Environment, name: str, kind: type[TransactionWriter | ProducerWriter]) -> None:
        writer = kind(env, cluster.broker_endpoints(), _TOPIC, _PARTITIONS, name, outcomes)
        writers.append(writer)
        await writer.run()

    for name, kind in _WRITERS:
        machine.start(f"writer-{name}", write, name, kind)
    assert cluster.world.run_until_idle_or(lambda: len(writers) == len(_WRITERS), 5.0)
    return writers


def _read(cluster: SimulatedCluster, topic: str = _TOPIC, partitions: int = _PARTITIONS) -> CommittedReader:
    readers: list[CommittedReader] = []

    async def read(env: Environment) -> None:
        reader = CommittedReader(env, cluster.broker_endpoints(), topic, partitions)
        readers.append(reader)
        await reader.run()

    process = cluster.world.add_machine("reader").start("reader", read)
    assert cluster.world.run_until_idle_or(lambda: not process.is_alive, 30.0)
    return readers[0]


def _committed(cluster: SimulatedCluster, group: str) -> int:
    offsets: list[int] = []

    async def look(env: Environment) -> None:
        link = ClusterLink(env, cluster.broker_endpoints())
        offsets.append(await committed_offset(link, group))
        await link.close()

    cluster.world.add_machine(group).start("reader", look)
    assert cluster.world.run_until_idle_or(lambda: bool(offsets), 30.0)
    return offsets[0]


def _disturb(cluster: SimulatedCluster, random: Random) -> None:
    """Kill or stop something; what was stopped comes back as a zombie."""
    chance = random.random()
    coordinators = _processes(cluster)
    replicas = [running.process for running in cluster.replicas if running.process.is_alive]
    if chance < 0.3 and coordinators:
        random.choice(coordinators).kill()
    elif chance < 0.5 and coordinators:
        random.choice(coordinators).pause(random.uniform(0.5, 6.0))
    elif chance < 0.75 and replicas:
        random.choice(replicas).kill()
    elif chance < 0.85 and replicas:
        random.choice(replicas).pause(random.uniform(0.5, 4.0))
    elif chance < 0.93 and cluster.controllers:
        cluster.controllers[-1].process.kill()


def _processes(cluster: SimulatedCluster) -> list[Process]:
    return [
        process
        for home in cluster.homes.values()
        for process in home.machine.processes
        if process.name.startswith("coordinator")
    ]

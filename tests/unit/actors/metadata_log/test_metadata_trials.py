"""Several controllers against several brokers, with everything going wrong at random, checked from outside.

No committed batch is lost or replaced, all committed prefixes agree, commit offsets never go back, and no two
controllers commit under one epoch. When the faults stop, a controller gets through and all brokers end at one state.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Coroutine
from functools import partial
from random import Random
from typing import Any

import pytest

from raylog.actors.metadata_log.writer import Recovered
from raylog.actors.protocol.metadata_quorum_records import Voter
from raylog.errors import (
    ControllerFenced,
    ControllerStopped,
    DiskError,
    LogOffline,
    MetadataQuorumUnavailable,
    VotersNotChanged,
)
from tests.simulator.world.faulty_disk import MOMENTS
from tests.unit.actors.metadata_world import Broker, Cluster, Note, notes_in, pause, run

SECONDS = 20.0


class Controller:
    """One that reigns until it is fenced, killed, or cannot begin."""

    def __init__(self, trial: Trial, name: str) -> None:
        self.name = name
        self.links = trial.cluster.links()
        self._trial = trial
        self._random = trial.random
        self._writer = trial.cluster.writer(name)
        self._notes: list[tuple[int, Note]] = []  # (version after it, note), committed or not
        self._count = 0
        self._changes: set[asyncio.Future[None]] = set()
        self.task = asyncio.ensure_future(self._reign())

    async def _reign(self) -> None:
        try:
            self._begin_with(await self._writer.recover(self.links, timeout=self._random.uniform(1, 8)))
            while not self._writer.fenced.done():
                self.links.reconnect(self._writer)
                self._random.choice((self._append, self._append, self._append, self._snapshot, self._change))()
                await pause(self._random.expovariate(5))
        except (MetadataQuorumUnavailable, ControllerFenced):
            return
        finally:
            for change in self._changes:
                change.cancel()

    def _begin_with(self, recovered: Recovered) -> None:
        truth = self._trial.cluster.truth
        self._notes = [(recovered.state_version, note) for note in notes_in(recovered.state)]
        truth.reached(recovered.state_version, self._notes_at(recovered.state_version))
        for batch in recovered.batches:
            self._notes += [(batch.version, note) for note in notes_in(batch.records)]
            truth.committed(batch)
            truth.reached(batch.version, self._notes_at(batch.version))

    def _notes_at(self, version: int) -> tuple[Note, ...]:
        return tuple(note for end, note in self._notes if end <= version)

    def _append(self) -> None:
        for _ in range(self._random.choice((1, 1, 3, 20))):
            notes = [self._note() for _ in range(self._random.choice((1, 1, 2)))]
            end = self._writer.tail.end_offset + len(notes)
            committed = self._writer.append(notes)
            if committed.done():
                return
            self._notes += [(end, note) for note in notes]
            committed.add_done_callback(partial(self._acknowledged, notes))

    def _note(self) -> Note:
        self._count += 1
        return Note(f"{self.name} {self._count}")

    def _acknowledged(self, notes: list[Note], committed: asyncio.Future[int]) -> None:
        if not committed.cancelled() and committed.exception() is None:
            self._trial.acknowledged += [(committed.result(), note) for note in notes]

    def _snapshot(self) -> None:
        version = self._writer.version
        if version > self._writer.tail.start_offset:
            self._trial.cluster.truth.reached(version, self._notes_at(version))
            self._writer.snapshot(self._notes_at(version), version)

    def _change(self) -> None:
        if not self._changes:
            count = self._random.choice((1, 3, 3, 4))
            voters = [each.voter for each in self._random.sample(self._trial.cluster.brokers, count)]
            change = asyncio.ensure_future(self._change_voters(voters))
            self._changes.add(change)
            change.add_done_callback(self._changes.discard)

    async def _change_voters(self, voters: list[Voter]) -> None:
        try:
            await self._writer.change_voters(voters, timeout=self._random.uniform(0.1, 3))
        except (VotersNotChanged, ControllerFenced, ControllerStopped):
            return

    async def stop(self) -> None:
        self.task.cancel()
        await self._writer.close()


class Trial:
    """One seed."""

    def __init__(self, seed: int) -> None:
        self.random = Random(seed)
        self.cluster = Cluster(5, seed)
        self.acknowledged: list[tuple[int, Note]] = []  # the version that the author was told
        self.controllers: list[Controller] = []
        self._tasks: set[asyncio.Future[None]] = set()
        self._names = 0

    async def run(self) -> None:
        writer, _ = await self.cluster.formed()
        await writer.close()
        await self._suffer()
        await self._settle()
        self._check()

    async def _suffer(self) -> None:
        faults = self.cluster.faults
        faults.slowest = self.random.choice((0.005, 0.05, 0.5))
        faults.lost = self.random.choice((0.0, 0.01, 0.1))
        deadline = asyncio.get_running_loop().time() + SECONDS
        misfortunes = (
            *(self._new_controller, self._new_controller, self._end_one),
            *(self._kill, self._kill, self._break_disk, self._cut, self._heal),
        )
        while asyncio.get_running_loop().time() < deadline:
            self.random.choice(misfortunes)()
            self._bury_and_raise()
            await pause(self.random.expovariate(2))

    def _new_controller(self) -> None:
        self.controllers = [each for each in self.controllers if not each.task.done()]
        if len(self.controllers) < 3:
            self._names += 1
            self.controllers.append(Controller(self, f"c{self._names}"))

    def _end_one(self) -> None:
        if self.controllers:
            gone = self.controllers.pop(self.random.randrange(len(self.controllers)))
            self._keep(gone.stop())

    def _kill(self) -> None:
        broker = self.random.choice(self.cluster.brokers)
        if broker.copy is not None:
            if self.random.random() < 0.5:
                broker.kill(machine=self.random.random() < 0.5)
            else:
                broker.env.disk.crash_after(self.random.randint(1, 30), self.random.choice(MOMENTS))

    def _break_disk(self) -> None:
        broker = self.random.choice(self.cluster.brokers)
        if broker.copy is not None and self.random.random() < 0.5:
            broker.env.disk.fail_next(self.random.choice(("sync", "write_at")))

    def _cut(self) -> None:
        if self.controllers:
            self.random.choice(self.controllers).links.cut(self.random.randrange(5))

    def _heal(self) -> None:
        for controller in self.controllers:
            controller.links.only = set(range(5))

    def _bury_and_raise(self) -> None:
        """A copy whose disk failed goes with its machine; a broker that is down may come back."""
        for broker in self.cluster.brokers:
            if broker.copy is not None and broker.copy.offline.done():
                failed = broker.copy.offline.result()
                self.cluster.truth.require(isinstance(failed, (DiskError, LogOffline)), str(failed))
                broker.kill(machine=True)
            elif broker.copy is None and self.random.random() < 0.5:
                broker.kill(machine=self.random.random() < 0.3)  # ends an earlier start that is still under way
                self._keep(self._start(broker))

    async def _start(self, broker: Broker) -> None:
        try:
            await broker.start()
        except (DiskError, LogOffline):
            broker.kill(machine=True)

    def _keep(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    # --- afterwards ---

    async def _settle(self) -> None:
        self.cluster.faults.slowest, self.cluster.faults.lost = 0.005, 0.0
        for controller in self.controllers:
            await controller.stop()
        for broker in self.cluster.brokers:
            broker.kill(machine=self.random.random() < 0.5)
            try:
                await broker.start()
            except DiskError:  # its disk failed since the machine was booted, so somebody boots it
                broker.kill(machine=True)
                await broker.start()
        self.last = self.cluster.writer("last")
        await self.last.recover(self.cluster.links(), timeout=10.0)
        version = await self.last.append([Note("last 1")])
        await self.cluster.all_at(version)

    def _check(self) -> None:
        truth = self.cluster.truth
        truth.check()
        final = self.cluster.brokers[0].notes
        assert all(broker.notes == final for broker in self.cluster.brokers)
        assert {note for _, note in self.acknowledged} <= set(final)
        for version, note in self.acknowledged:
            if version in truth.batches:  # a snapshot may stand for it since
                assert note in truth.batches[version].records


@pytest.fixture(autouse=True)
def _quiet(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.CRITICAL + 1)


@pytest.mark.parametrize("seed", range(10))
def test_nothing_committed_is_lost_or_replaced(seed: int) -> None:
    run(Trial(seed).run())


@pytest.mark.thorough
@pytest.mark.parametrize("seed", range(10, 100))
def test_nothing_committed_is_lost_or_replaced_with_more_seeds(seed: int) -> None:
    run(Trial(seed).run())

"""Jobs that write batches by families of transactions in a simulated cluster, and what they have been told.

A driver writes one batch after the other: some attempts join its family, each writes to some partitions, most of them
win. Now and then a new driver takes over, before the decision, while it is under way, or after it; attempts go on
that nobody waits for; drivers are silent for longer than their members may be. What was not committed is tried again,
and now and then what was.
"""

from __future__ import annotations

import asyncio

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.transaction_family_messages import (
    EndFamily,
    FamilyEnded,
    FamilyInitialised,
    FamilyJoined,
    InitFamily,
    JoinFamily,
    KeepFamily,
)
from raylog.actors.transactions.rules.family import NO_BATCH, split_member
from raylog.errors import FamilyFenced, ProducerError, RaylogError
from tests.simulator.clients.transaction_clients import Outcomes, TransactionWriter

_TIMEOUT_MS = 4_000
_PAUSE_SECONDS = 0.05
_HOLDER_BYTES = 8


class FamilyDriver(TransactionWriter):
    """`run` until it is stopped."""

    def __init__(
        self, env: Environment, brokers: list[Endpoint], topic: str, partitions: int, name: str, outcomes: Outcomes
    ) -> None:
        super().__init__(env, brokers, topic, partitions, name, outcomes)
        self.tries: dict[int, list[str]] = {}  # by batch: what was written for it, each time
        self.last_batch = NO_BATCH
        self._epoch = -1

    async def run(self) -> None:
        self._link = ClusterLink(self._env, self._brokers)
        await self._take_over()
        while not self.is_stopped:
            try:
                again = self.last_batch > NO_BATCH and self._env.random.random() < 0.1
                await self._batch(self.last_batch if again else self.last_batch + 1)
            except ProducerError as error:  # a member that was aborted meanwhile, say: as a job fails
                self.last_error = str(error)
                await self._take_over()
            await asyncio.sleep(self._env.random.uniform(0.0, _PAUSE_SECONDS))
        await self._ask(EndFamily(self._name, self._epoch, NO_BATCH, ()), FamilyEnded)
        if self._late:
            await asyncio.wait(self._late)
        await self._link.close()

    def problems(self, found: dict[int, list[str]]) -> list[str]:
        """Each batch that is committed is there by one of its tries, and none that is not."""
        names = {name.partition(".")[0] for each in found.values() for name in each}
        problems = []
        for batch, tries in self.tries.items():
            there = sum(each in names for each in tries)
            if there != (batch <= self.last_batch):
                problems.append(f"{self._name}: batch {batch} of {self.last_batch} is there {there} times")
        return problems

    async def _take_over(self) -> None:
        holder = self._env.random.getrandbits(8 * _HOLDER_BYTES).to_bytes(_HOLDER_BYTES, "big")
        answer = await self._ask(InitFamily(self._name, holder, _TIMEOUT_MS, -1), FamilyInitialised)
        assert answer.last_batch >= self.last_batch
        self._epoch, self.last_batch = answer.epoch, answer.last_batch

    async def _batch(self, batch: int) -> None:
        random, was_committed = self._env.random, batch <= self.last_batch
        tries = self.tries.setdefault(batch, [])
        name = f"{self._name}/{batch}~{len(tries)}"
        parts = [f"{name}.{number}" for number in range(random.randint(1, 4))]
        tries.append(name)
        winners = await asyncio.gather(*(self._attempt(part) for part in parts))
        lost = [f"{name}!{number}" for number in range(random.randint(0, 2))]
        self._outcomes.aborted.update(lost)
        for each in lost:
            self._late.add(asyncio.ensure_future(self._late_attempt(each)))
        if random.random() < 0.05:
            await asyncio.sleep(1.5 * _TIMEOUT_MS / 1000)
        elif random.random() < 0.1:
            await self._ask(KeepFamily(self._name, self._epoch), Done)
        await self._decide(batch, tuple(winners))
        counts = self.last_batch == batch and not was_committed
        (self._outcomes.committed if counts else self._outcomes.aborted).update(parts)

    async def _decide(self, batch: int, winners: tuple[tuple[int, int, int], ...]) -> None:
        asked = EndFamily(self._name, self._epoch, batch, winners)
        chance = self._env.random.random()
        if chance < 0.1:  # a new driver is there first
            await self._take_over()
            try:
                await self._ask(asked, FamilyEnded)
            except FamilyFenced as error:
                self.last_error = str(error)
            else:
                raise AssertionError("An older driver has ended something.")
        elif chance < 0.2:  # nobody knows who is there first
            ending = asyncio.ensure_future(self._ask(asked, FamilyEnded))
            await self._take_over()
            await asyncio.wait([ending])
            self.last_error = str(ending.exception())
        else:
            answer = await self._ask(asked, FamilyEnded)
            self.last_batch = answer.last_batch
            if chance < 0.3:
                await self._take_over()

    async def _attempt(self, name: str) -> tuple[int, int, int]:
        random = self._env.random
        joined = await self._ask(JoinFamily(self._name, self._epoch), FamilyJoined)
        member = split_member(joined.transactional_id)
        assert member is not None
        writer = _Attempt(self, self._link, joined)
        partitions = random.sample(range(self._partitions), random.randint(1, self._partitions))
        self._outcomes.written[name] = set(partitions)
        await asyncio.gather(*(writer.write(partition, name) for partition in partitions))
        return member[1], joined.producer_id, joined.epoch

    async def _late_attempt(self, name: str) -> None:
        """One that does not win; it may still write when all is decided, and is refused then."""
        try:
            await asyncio.sleep(self._env.random.uniform(0.0, 4 * _PAUSE_SECONDS))
            await self._attempt(name)
        except RaylogError as error:
            self.last_error = str(error)
        finally:
            self._late.discard(asyncio.current_task())


class _Attempt(TransactionWriter):
    """An attempt to write, under a member's transactional id."""

    def __init__(self, driver: FamilyDriver, link: ClusterLink, joined: FamilyJoined) -> None:
        super().__init__(
            driver._env, driver._brokers, driver._topic, driver._partitions, joined.transactional_id, driver._outcomes
        )
        self._link = link
        self._identity = joined.producer_id, joined.epoch

    async def write(self, partition: int, name: str) -> None:
        await self._write(partition, name)

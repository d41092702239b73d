"""Clients of transactions in a simulated cluster, and what they have been told.

A writer has a transactional id of its own, writes to some partitions in each transaction, and commits or aborts. What
it cannot find out (a time-out has ended the transaction, say) stays open. In the end a reader of committed records
tells what is there.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TypeVar

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink, CoordinatorAddress, PartitionLeader
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import TRANSACTIONS_TOPIC, coordinator_hash
from raylog.actors.protocol.replication_messages import (
    LATEST,
    NO_EPOCH,
    Appended,
    AppendTransactional,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
)
from raylog.actors.protocol.transaction_messages import (
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
)
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.rules.fetched import Chunk, VisibleBatches
from raylog.errors import (
    FamilyFenced,
    InvalidTransactionState,
    OutOfOrderSequence,
    ProducerFenced,
    RaylogError,
    TransactionTimedOut,
    UnknownTransactionalId,
)
from raylog.storage.format.batch_codec import decode_checked, encode_batch

_ASK_SECONDS = 3.0
_PAUSE_SECONDS = 0.05
_LATEST_SECONDS = 1.0
_COMES_AGAIN = 0.3  # of the transactions
_TIMEOUT_MS = 4_000
_ACKS_ALL = -1
_FINAL = (ProducerFenced, InvalidTransactionState, TransactionTimedOut, UnknownTransactionalId, FamilyFenced)
_FETCH_BYTES = 1 << 20
_Answer = TypeVar("_Answer", bound=Message)


@dataclass
class Outcomes:
    """Outcomes by transaction, or part of one (`name.part`): what was written where, and what the writer was told."""

    written: dict[str, set[int]] = field(default_factory=dict)  # the partitions in which all of it was acknowledged
    committed: set[str] = field(default_factory=set)
    aborted: set[str] = field(default_factory=set)

    def problems(self, found: dict[int, list[str]]) -> list[str]:
        """`found`: by partition, the transactions of the records that a reader of committed ones has seen."""
        problems: list[str] = []
        parts: dict[str, set[bool]] = {}
        for name, partitions in self.written.items():
            seen = {partition: found.get(partition, []).count(name) for partition in found}
            there = {partition for partition, count in seen.items() if count}
            problems += [f"{name} is {count} times in {each}" for each, count in seen.items() if count > 1]
            if name in self.committed and there != partitions:
                problems.append(f"{name} was committed in {partitions}, and is in {there}")
            if name in self.aborted and there:
                problems.append(f"{name} was aborted, and is in {there}")
            if there and there != partitions:
                problems.append(f"{name} is half there: in {there} of {partitions}")
            parts.setdefault(name.partition(".")[0], set()).add(bool(there))
        problems += [f"{name} is half there" for name, found_ in parts.items() if len(found_) > 1]
        return problems


class TransactionWriter:
    """`run` until it is stopped; one transaction after the other."""

    def __init__(
        self, env: Environment, brokers: list[Endpoint], topic: str, partitions: int, name: str, outcomes: Outcomes
    ) -> None:
        self.is_stopped = False
        self.last_error = ""
        self._env = env
        self._brokers = brokers
        self._topic = topic
        self._partitions = partitions
        self._name = name
        self._outcomes = outcomes
        self._identity = (-1, -1)
        self._count = 0
        self._late: set[asyncio.Task[None]] = set()

    async def run(self) -> None:
        self._link = ClusterLink(self._env, self._brokers)
        await self._init()
        while not self.is_stopped:
            try:
                await self._transaction()
            except _FINAL as error:
                self.last_error = str(error)
                await self._init()
            await asyncio.sleep(self._env.random.uniform(0.0, _PAUSE_SECONDS))
        await asyncio.gather(*self._late)
        await self._link.close()

    async def _init(self) -> None:
        answer = await self._ask(InitProducer(self._name, _TIMEOUT_MS, -1, -1), ProducerInitialised)
        self._identity = answer.producer_id, answer.epoch

    async def _transaction(self) -> None:
        self._count += 1
        name, random = f"{self._name}/{self._count}", self._env.random
        partitions = random.sample(range(self._partitions), random.randint(1, self._partitions))
        self._outcomes.written[name] = set(partitions)
        together = tuple(random.sample(partitions, random.randint(0, len(partitions))))
        try:
            await asyncio.gather(*(self._write(partition, name, together) for partition in partitions))
            commits = random.random() < 0.7
        except OutOfOrderSequence as error:  # the first batch was given up, as the transaction timed out
            self.last_error = str(error)
            commits = False
        if random.random() < 0.03:
            await asyncio.sleep(1.5 * _TIMEOUT_MS / 1000)
        answer = await self._ask(EndTransaction(self._name, *self._identity, commits), TransactionEnded)
        (self._outcomes.committed if commits else self._outcomes.aborted).add(name)
        if random.random() < _COMES_AGAIN:
            late = self._repeat(name, partitions[0], self._identity, commits)
            self._late.add(asyncio.ensure_future(late))
        self._identity = answer.producer_id, answer.epoch

    async def _repeat(self, name: str, partition: int, identity: tuple[int, int], commits: bool) -> None:
        """Repeat a request late, for example during the next transaction. It changes nothing."""
        random = self._env.random
        await asyncio.sleep(random.uniform(0.0, _LATEST_SECONDS))
        with suppress(RaylogError):
            await self._append_once(partition, self._batch_of(name, identity), ())
        await asyncio.sleep(random.uniform(0.0, _PAUSE_SECONDS))
        is_other = random.random() < 0.5
        with suppress(RaylogError):
            place = await self._coordinator()
            ending = EndTransaction(self._name, *identity, commits != is_other)
            await self._link.ask(place, ending, expect=TransactionEnded, timeout=_ASK_SECONDS)
            assert not is_other, f"{name} has ended in one way, and then in the other"

    async def _write(self, partition: int, name: str, together: tuple[int, ...] = ()) -> None:
        """One record; the same batch until it is acknowledged. `together`: what its leader hears of the others."""
        identity = self._identity
        while True:
            try:
                if await self._append_once(partition, self._batch_of(name, identity), together):
                    return
            except (*_FINAL, OutOfOrderSequence):
                raise
            except RaylogError as error:
                self.last_error = str(error)
            await self._link.changed(_PAUSE_SECONDS)

    def _batch_of(self, name: str, identity: tuple[int, int]) -> bytearray:
        producer_id, epoch = identity
        return encode_batch(
            [name.encode()], timestamps=self._env.wall_ms(), producer_id=producer_id, producer_epoch=epoch,
            base_sequence=0, transactional=True,
        )  # fmt: skip

    async def _append_once(self, partition: int, batch: bytearray, together: tuple[int, ...]) -> bool:
        """Once, to whoever leads. False: nobody does."""
        view = await self._link.find_topic(self._topic, _ASK_SECONDS)
        leader = view.partitions[partition]
        if leader.endpoints:
            others = tuple((self._topic, view.topic_id, each) for each in together)
            message = AppendTransactional(leader.epoch, _ACKS_ALL, 1000 * int(_ASK_SECONDS), self._name, others)
            await self._link.ask(leader, message, batch, expect=Appended, timeout=_ASK_SECONDS)
        return bool(leader.endpoints)

    async def _coordinator(self) -> CoordinatorAddress:
        hashed = coordinator_hash(self._name)
        return await self._link.find_coordinator(TRANSACTIONS_TOPIC, hashed, _ASK_SECONDS)

    async def _ask(self, message: Message, expect: type[_Answer]) -> _Answer:
        while True:
            try:
                place = await self._coordinator()
                return (await self._link.ask(place, message, expect=expect, timeout=_ASK_SECONDS)).message
            except _FINAL:
                raise
            except RaylogError as error:
                self.last_error = str(error)
            await asyncio.sleep(_PAUSE_SECONDS)


class CommittedReader:
    """Reads the whole topic once, as a reader of committed records."""

    def __init__(self, env: Environment, brokers: list[Endpoint], topic: str, partitions: int) -> None:
        self.found: dict[int, list[str]] = {}
        self.open: list[str] = []  # partitions whose last stable offset is not their end
        self._link_of: Callable[[], ClusterLink] = lambda: ClusterLink(env, brokers)
        self._topic = topic
        self._partitions = range(partitions)

    async def run(self) -> None:
        link = self._link_of()
        for partition in self._partitions:
            while partition not in self.found:
                leader = (await link.find_topic(self._topic, _ASK_SECONDS)).partitions[partition]
                try:
                    await self._read_partition(link, leader)
                except RaylogError:  # another one leads by now, or nobody yet; whoever waits has a time limit
                    await link.changed(_PAUSE_SECONDS)
        await link.close()

    async def _read_partition(self, link: ClusterLink, leader: PartitionLeader) -> None:
        end, stable = await self._end(link, leader, committed=False), await self._end(link, leader, committed=True)
        found = list(await self._read(link, leader, stable))
        if stable < end:
            self.open.append(f"{self._topic}-{leader.partition}: stable up to {stable} of {end}")
        self.found[leader.partition] = found

    async def _end(self, link: ClusterLink, leader: PartitionLeader, *, committed: bool) -> int:
        question = ListOffset(LATEST, leader.epoch, committed)
        return (await link.ask(leader, question, expect=ListedOffset, timeout=_ASK_SECONDS)).message.offset

    async def _read(self, link: ClusterLink, leader: PartitionLeader, end: int) -> Iterable[str]:
        found: list[str] = []
        offset = 0
        while offset < end:
            fetch = Fetch(offset, leader.epoch, NO_EPOCH, 1, _FETCH_BYTES, 100, True, "")
            response = await link.ask(leader, fetch, expect=Fetched, timeout=_ASK_SECONDS)
            answer = response.message
            partition = TopicPartition(self._topic, leader.partition)
            chunk = Chunk(partition, 0, offset, answer.next_offset, response.payload, answer.aborted)
            walk = VisibleBatches(chunk)
            while (batch := walk.next()) is not None:
                found += [(value or b"").decode() for value in decode_checked(*batch).values]
                walk.passed(batch[0])
            offset = answer.next_offset
        return found

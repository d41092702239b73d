"""Programs that write transactions through the real core of a producer, and what they have been told."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from raylog.actors.kernel.environment import Environment
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.endpoint import Endpoint
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.records import GroupMetadata
from raylog.api.producer.sending.transaction_requests import GivenOffsets, TransactionRequests
from raylog.errors import ProducerError, RaylogError, TransactionPending
from raylog.groups.records.messages import NO_EPOCH, FetchOffsets, OffsetsFetched
from tests.simulator.clients.transaction_clients import Outcomes
from tests.unit.api.producer_world import LoopProducer

_CALL_SECONDS = 3.0
_FETCH_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_TIMEOUT_MS = 4_000
_OPTIONS = {
    "transaction_timeout_ms": _TIMEOUT_MS,
    "delivery_timeout_ms": 6_000,
    "request_timeout_ms": 3_000,
    "batch_size": 300,
}


class ProducerWriter:
    """`run` until it is stopped: several records a transaction, some of them aborted while they are under way."""

    def __init__(
        self, env: Environment, brokers: list[Endpoint], topic: str, partitions: int, name: str, outcomes: Outcomes
    ) -> None:
        self.is_stopped = False
        self.last_error = ""
        self._env = env
        self._link = ClusterLink(env, brokers)
        self._topic = topic
        self._partitions = partitions
        self._name = name
        self._outcomes = outcomes
        self._count = 0

    async def run(self) -> None:
        await self._find_topic()
        while not self.is_stopped:
            producer = LoopProducer(self._link, transactional_id=self._name, **_OPTIONS)
            self._producer, self._calls = producer, TransactionRequests(producer.sender)
            try:
                await self._until_known(lambda: self._calls.init(_CALL_SECONDS))
                while not self.is_stopped:
                    await self._transaction()
                    await asyncio.sleep(self._env.random.uniform(0.0, _PAUSE_SECONDS))
            except ProducerError as error:
                if not error.fatal:
                    raise
                self.last_error = str(error)
            await producer.sender.close()
        await self._link.close()

    async def _find_topic(self) -> None:
        while True:
            try:
                await self._link.find_topic(self._topic, _CALL_SECONDS)
                return
            except RaylogError as error:
                self.last_error = str(error)

    async def _transaction(self) -> None:
        self._count += 1
        random = self._env.random
        await self._calls.begin()
        rounds = [f"{self._name}/{self._count}.{number}" for number in range(random.randint(1, 4))]
        for name in rounds:
            await self._send(name)
        if random.random() < 0.03:
            await asyncio.sleep(1.5 * _TIMEOUT_MS / 1000)
        if random.random() < 0.7 and await self._commit():
            self._outcomes.committed.update(rounds)
            return
        await self._until_known(lambda: self._calls.abort(_CALL_SECONDS))
        self._outcomes.aborted.update(rounds)

    async def _send(self, name: str) -> None:
        random = self._env.random
        partitions = random.sample(range(self._partitions), random.randint(1, self._partitions))
        self._outcomes.written[name] = set(partitions)
        for partition in partitions:
            self._producer.send(self._topic, partition, name.encode())
        if random.random() < 0.5:
            await asyncio.sleep(random.uniform(0.0, _PAUSE_SECONDS))

    async def _commit(self) -> bool:
        """False: it has to be aborted."""
        try:
            await self._until_known(lambda: self._calls.commit(_CALL_SECONDS))
        except ProducerError as error:
            if not error.abortable:
                raise
            self.last_error = str(error)
            return False
        return True

    async def _until_known(self, call: Callable[[], Awaitable[None]]) -> None:
        while True:
            try:
                await call()
                return
            except TransactionPending as error:
                self.last_error = str(error)


class OffsetWriter(ProducerWriter):
    """Commits with each transaction its number, as an offset of a group of its own. Some are staged in vain."""

    @property
    def group(self) -> GroupMetadata:
        return GroupMetadata(f"offsets of {self._name}", "", NO_EPOCH)

    def problems(self, found: dict[int, list[str]], committed: int) -> list[str]:
        """`committed`: the group's offset. It is the number of the last transaction that can be read."""
        mine = [name for names in found.values() for name in names if name.startswith(f"{self._name}/")]
        last = max((int(name.split("/")[1].split(".")[0]) for name in mine), default=-1)
        return [] if committed == last else [f"{self._name} has committed offset {committed} with transaction {last}"]

    async def _send(self, name: str) -> None:
        await super()._send(name)
        if self._env.random.random() < 0.2:
            await self._stage(self._count + 1_000_000)  # what is staged last counts, and only if it is committed

    async def _commit(self) -> bool:
        if not await self._stage(self._count):
            return False
        return await super()._commit()

    async def _stage(self, offset: int) -> bool:
        """False: it has to be aborted."""
        given = GivenOffsets.checked({(self._topic, 0): offset}, self.group)
        try:
            await self._calls.send_offsets(given, self._env.random.choice((0.01, _CALL_SECONDS)))
        except TransactionPending:
            return True  # the commit makes good for it
        except ProducerError as error:
            if not error.abortable:
                raise
            self.last_error = str(error)
            return False
        return True


async def committed_offset(link: ClusterLink, group: str) -> int:
    """−1: none."""
    question = FetchOffsets(group, "", NO_EPOCH, None)
    answer = await GroupCalls(link, group).ask_until(question, OffsetsFetched, _FETCH_SECONDS)
    assert not answer.refused, "a transaction is still open"
    return max((offset for _, _, offset, _, _ in answer.offsets), default=-1)

"""What transactions cost their coordinator's log: each append is replicated before anybody goes on."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.coordinator_records import CLAIM_KEY
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.replication_messages import (
    Append,
    Appended,
    Fetch,
    Fetched,
    ListedOffset,
    ListOffset,
    WriteMarker,
)
from raylog.actors.protocol.transaction_messages import (
    AddPartition,
    EndTransaction,
    InitProducer,
    ProducerInitialised,
    TransactionEnded,
    TransactionPartition,
)
from raylog.actors.transactions.coordinator import TransactionCoordinator
from raylog.storage.format.batch_codec import decode_batch
from raylog.storage.format.record_batch import Bytes
from tests.simulator.world.world import World
from tests.unit.actors.transaction_stand_ins import HandLink, OneProcess

_TOPIC = b"t" * 16
_PARTITIONS: tuple[TransactionPartition, ...] = tuple(("t", _TOPIC, each) for each in range(3))


class _Leaders(HandLink):
    """Of the coordinator's partition, which takes a millisecond for an append, and of those that are written to."""

    def __init__(self, env: Any) -> None:
        super().__init__()
        self.env = env
        leaders = (PartitionLeader("t", _TOPIC, each, 1, 0, (Endpoint.parse("tcp:h:1"),), "n") for each in range(3))
        self.view = TopicView("t", _TOPIC, tuple(leaders))
        self.appended: list[int] = []  # records of each batch

    def leader(self, _topic: str, partition: int) -> PartitionLeader:
        assert self.view is not None
        return self.view.partitions[partition]

    async def ask(
        self, _leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[Any], timeout: float
    ) -> Any:
        await asyncio.sleep(0.001)
        if isinstance(message, Append):
            keys = decode_batch(payload).keys
            if keys != [CLAIM_KEY]:
                self.appended.append(len(keys))
            return Response(Appended(0, -1, 0))
        if isinstance(message, ListOffset):
            return Response(ListedOffset(0, -1, 0))
        if isinstance(message, Fetch):
            return Response(Fetched(1, 1, 1, 0, 0, None, (), None))
        assert isinstance(message, WriteMarker)
        return None


class _Coordinator:
    def __init__(self, world: World) -> None:
        self.one = OneProcess(world)
        self.link = _Leaders(self.one.env)
        log = self.one.make(lambda: CoordinatorLog(cast(Any, self.link), "t", 0, 7, 1))
        spec = cast(Any, SimpleNamespace(term=0, partition=0))
        self.core = self.one.make(lambda: TransactionCoordinator(self.one.env, spec, log, cast(Any, self.link)))
        self.one.do(self.core.start())
        began = self.one.do(self.ask(InitProducer("mover", 60_000, -1, -1)))
        assert isinstance(began, ProducerInitialised)
        self.identity = began.producer_id, began.epoch

    async def ask(self, message: Message) -> Any:
        answer = await self.core.handle(cast(Any, SimpleNamespace(message=message)))
        return None if answer is None else cast(Any, answer).message

    async def transaction(self, *, together: bool) -> None:
        """The leaders ask one after the other, sooner than an append takes."""
        asked = []
        for topic, topic_id, number in _PARTITIONS:
            others = _PARTITIONS if together else ()
            add = AddPartition("mover", *self.identity, topic, topic_id, number, others)
            asked.append(asyncio.ensure_future(self.ask(add)))
            await asyncio.sleep(0.0001)
        await asyncio.gather(*asked)
        ended = await self.ask(EndTransaction("mover", *self.identity, True))
        assert isinstance(ended, TransactionEnded)
        self.identity = ended.producer_id, ended.epoch

    def appends_of(self, *, together: bool) -> list[int]:
        """Of three transactions one behind the other, until all is written."""
        self.link.appended.clear()

        async def work() -> None:
            for _ in range(3):
                await self.transaction(together=together)
            await asyncio.sleep(0.1)

        self.one.do(work())
        return self.link.appended


def test_a_transaction_of_a_producer_that_goes_on_is_two_appends() -> None:
    """All partitions that begin together, with the record that the one before is complete; and its end."""
    with World(1) as world:
        assert _Coordinator(world).appends_of(together=True) == [1, 1, 2, 1, 2, 1, 1]


def test_partitions_that_nobody_has_told_of_wait_for_the_append_before_theirs() -> None:
    with World(1) as world:
        assert _Coordinator(world).appends_of(together=False) == [1, 2, 1, 2, 2, 1, 2, 2, 1, 1]

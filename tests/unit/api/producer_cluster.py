"""A cluster in memory behind a link, for a real producer with its real thread: no streams, no Ray."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

import pytest

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.replication_messages import Append, Appended
from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.producer import producer_core
from raylog.api.producer.buffer import record_accumulator
from raylog.api.producer.producer import Producer
from raylog.errors import RaylogError, UnknownTopic
from raylog.storage.format.batch_codec import DecodedBatch, decode_batch

TOPIC = "clicks"
_T = TypeVar("_T")


class _Environment:
    random = random.Random(3)

    def off_loop(self, work: Callable[[], _T]) -> Awaitable[_T]:
        return asyncio.get_running_loop().run_in_executor(None, work)


class FakeLink:
    """`hold`: answers wait until `release`. `errors` are raised in place of the next answers."""

    def __init__(self, partitions: int) -> None:
        self.env = _Environment()
        self.errors: list[RaylogError] = []
        self.batches: list[list[DecodedBatch]] = []
        self._changed: list[Callable[[], None]] = []
        self._held: asyncio.Event | None = None
        self._hold = False
        self.view = TopicView(TOPIC, b"t" * 16, ())
        self.grow(partitions)

    def grow(self, partitions: int) -> None:
        place = (Endpoint(path="/nowhere"),)
        leaders = (PartitionLeader(TOPIC, b"t" * 16, number, 1, 1, place, "") for number in range(partitions))
        self.view = replace(self.view, partitions=tuple(leaders))
        self.batches += [[] for _ in range(partitions - len(self.batches))]

    broker_count = 3

    def hold(self) -> None:
        self._hold = True

    async def release(self) -> None:
        self._hold = False
        if self._held is not None:
            self._held.set()

    async def tell(self) -> None:
        for callback in self._changed:
            callback()

    def values(self, partition: int) -> list[bytes | None]:
        return [value for batch in self.batches[partition] for value in batch.values]

    def all_values(self) -> list[bytes | None]:
        return [value for partition in range(len(self.batches)) for value in self.values(partition)]

    def records(self, partition: int) -> list[tuple[bytes | None, bytes | None]]:
        return [pair for batch in self.batches[partition] for pair in zip(batch.keys, batch.values, strict=True)]

    # --- as ClusterLink ---

    def topic(self, name: str) -> TopicView | None:
        return self.view if name == TOPIC else None

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        return self.view.partitions[partition] if topic == TOPIC else None

    async def find_topic(self, name: str, timeout: float) -> TopicView:
        if name != TOPIC:
            raise UnknownTopic(name)
        return self.view

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        self._changed.append(callback)
        return lambda: self._changed.remove(callback)

    async def refresh(self, timeout: float) -> None:
        pass

    async def changed(self, timeout: float) -> bool:
        return True

    async def producer_id(self, timeout: float) -> int:
        return 7

    async def connect(self, leader: PartitionLeader, timeout: float) -> None:
        pass

    def say(self, leader: PartitionLeader, message: Append, payload: bytes) -> None:
        self.batches[leader.partition].append(decode_batch(bytes(payload)))

    async def ask(
        self, leader: PartitionLeader, message: Append, payload: bytes, *, expect: type[Any], timeout: float
    ) -> Response:
        if self._hold:
            self._held = self._held or asyncio.Event()
            await self._held.wait()
        if self.errors:
            raise self.errors.pop(0)
        base = sum(map(len, self.batches[leader.partition]))
        self.batches[leader.partition].append(decode_batch(bytes(payload)))
        return Response(Appended(base, -1, 0))

    async def close(self) -> None:
        pass


@contextmanager
def fake_cluster(monkeypatch: pytest.MonkeyPatch, partitions: int = 3) -> Iterator[FakeLink]:
    """Producers made in here send there."""
    link = FakeLink(partitions)

    async def acquire(_runtime: ClientRuntime, _address: object) -> FakeLink:
        return link

    async def release(_runtime: ClientRuntime, _link: object) -> None:
        pass

    with monkeypatch.context() as patch:
        # Whoever meets the loop at a partition's gate lets it run, and does not sleep as it would elsewhere.
        patch.setattr(record_accumulator, "_GATE_PAUSE", 0.0)
        patch.setattr(producer_core, "link_address", lambda *_: None)
        patch.setattr(ClientRuntime, "acquire_link", acquire)
        patch.setattr(ClientRuntime, "release_link", release)
        yield link


@contextmanager
def producer_of(
    monkeypatch: pytest.MonkeyPatch, partitions: int = 3, **options: Any
) -> Iterator[tuple[Producer, FakeLink]]:
    with fake_cluster(monkeypatch, partitions) as link, Producer(**options) as producer:
        yield producer, link

"""What a coordinator stands on, as the test wants it: its log, and its link to the cluster. On virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from random import Random
from types import SimpleNamespace
from typing import Any, TypeVar

from raylog.actors.coordinators.claimed_log import Replayed
from raylog.actors.link.rules.topic_cache import CoordinatorAddress, PartitionLeader, TopicView
from raylog.actors.protocol.coordinator_records import Entry
from raylog.actors.protocol.messages import Message
from raylog.errors import (
    ClusterUnreachable,
    CoordinatorStopped,
    FrameInvalid,
    MessageUnknown,
    RaylogError,
    UnknownTopic,
)
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World

_T = TypeVar("_T")


class HandLog:
    """A `CoordinatorLog` that commits when it is told to, or at once."""

    def __init__(self) -> None:
        self.commits_at_once = True
        self.entries: list[Entry] = []
        self.replayed: list[Entry] = []
        self.strays: list[int] = []
        self.gave_up: BaseException | None = None
        self.ended: asyncio.Future[RaylogError] = asyncio.get_running_loop().create_future()
        self._waiting: list[asyncio.Future[None]] = []
        self._last: asyncio.Future[None] | None = None

    async def claim(self) -> int:
        return 0

    async def replay(self, _end: int) -> AsyncIterator[list[Replayed]]:
        yield [Replayed(*entry, offset) for offset, entry in enumerate(self.replayed)]

    def cannot_read(self, offset: int, error: FrameInvalid | MessageUnknown) -> None:
        if isinstance(error, MessageUnknown):
            raise error
        self.strays.append(offset)

    def append(self, entries: Sequence[Entry], *, is_urgent: bool = True) -> asyncio.Future[None]:
        done: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.entries += entries
        self._last = done
        self._waiting.append(done)
        if self.commits_at_once:
            self.commit()
        return done

    def commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set_result(None)

    def lose(self) -> None:
        """What is not committed never will be."""
        waiting, self._waiting = self._waiting, []
        for each in waiting:
            each.set_exception(CoordinatorStopped("t", 0, 0))

    async def settled(self) -> None:
        if self._last is not None:
            await asyncio.wait([self._last])
            self._last.result()

    def give_up(self, reason: BaseException) -> None:
        self.gave_up = reason


class HandLink:
    """A `ClusterLink`: one topic, or none, and leaders that take everything, or refuse it."""

    def __init__(self) -> None:
        self.env = SimpleNamespace(random=Random(5))
        self.view: TopicView | None = None
        self.newer: TopicView | None = None  # what brokers know, and `refresh` learns
        self.asked: list[tuple[PartitionLeader, Message]] = []
        self.hashes: list[int] = []  # of the coordinators that were looked for
        self.refusal: RaylogError | None = None
        self.no_ids: RaylogError | None = None
        self.deleted: set[bytes] = set()  # topics, by their ids
        self._ids = 100

    async def producer_id(self, _timeout: float) -> int:
        if self.no_ids is not None:
            raise self.no_ids
        self._ids += 1
        return self._ids

    def topic(self, _name: str) -> TopicView | None:
        return self.view

    async def is_deleted(self, topic_id: bytes, _timeout: float) -> bool:
        if isinstance(self.refusal, ClusterUnreachable):
            raise self.refusal
        return topic_id in self.deleted

    async def find_topic(self, name: str, _timeout: float) -> TopicView:
        self.view = self.view or self.newer
        if self.view is None:
            raise UnknownTopic(name)
        return self.view

    async def find_coordinator(self, topic: str, hashed: int, _timeout: float) -> CoordinatorAddress:
        self.hashes.append(hashed)
        return CoordinatorAddress(topic, b"", 0, -1, 1, (), "")

    async def refresh(self, _timeout: float) -> None:
        if self.newer is not None:
            self.view = self.newer

    async def changed(self, timeout: float) -> bool:
        await asyncio.sleep(timeout)
        return False

    async def ask(self, leader: PartitionLeader, message: Message, *, expect: type[Any], timeout: float) -> None:
        if self.refusal is not None:
            raise self.refusal
        self.asked.append((leader, message))


class OneProcess:
    """A process of its own world, in which the test's coroutines run."""

    def __init__(self, world: World) -> None:
        self.world = world
        self._envs: list[SimEnvironment] = []
        self.process = world.add_machine("one").start("one", self._main)
        world.run_until_idle_or(lambda: bool(self._envs), 1.0)

    @property
    def env(self) -> SimEnvironment:
        return self._envs[0]

    async def _main(self, env: SimEnvironment) -> None:
        self._envs.append(env)
        await asyncio.sleep(1e6)

    def begin(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        return self.process.run(work)

    def do(self, work: Coroutine[Any, Any, _T], limit: float = 30.0) -> _T:
        task = self.begin(work)
        self.until(task.done, limit)
        return task.result()

    def make(self, made: Callable[[], _T]) -> _T:
        async def make() -> _T:
            return made()

        return self.do(make())

    def until(self, predicate: Callable[[], bool], limit: float = 30.0) -> None:
        assert self.world.run_until_idle_or(predicate, limit), f"It does not hold after {limit} s."

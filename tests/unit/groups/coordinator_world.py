"""A coordinator on a loop with virtual time, with a log that a test holds in its hand."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Coroutine, Sequence
from random import Random
from typing import Any, TypeVar

from raylog.actors.protocol.messages import Message
from raylog.errors import CoordinatorReplaced, FrameInvalid, MessageUnknown
from raylog.groups.assignors.calling import Assignors
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.records.messages import (
    CommitOffsets,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    Partitions,
    Profile,
    each_of,
    grouped,
)
from raylog.groups.records.records import Claim, ClaimKey, EncodedRecord, Record, decode, encode
from raylog.groups.records.settings import GroupSettings
from tests.simulator.world.scheduler import MICROSECONDS, Scheduler
from tests.simulator.world.virtual_loop import VirtualLoop
from tests.unit.groups.small_group import WALL_MS, ToldTopics, topic_id
from tests.unit.longest_pauses import LongestPauses

_T = TypeVar("_T")


class HandLog:
    """Commits each append after `delay` seconds, unless it is held, or claimed by another."""

    def __init__(self, records: Sequence[Record] = ()) -> None:
        self.batches: list[list[EncodedRecord]] = [[encode(record) for record in records]] if records else []
        self.delay = 0.001
        self.is_held = False
        self.claimed = -1
        self.epoch = -1
        self.calls: list[str] = []
        self.strays: list[int] = []
        self._held: list[asyncio.Future[None]] = []

    async def claim(self, coordinator_epoch: int) -> None:
        self.calls.append("claim")
        await asyncio.sleep(self.delay)
        if coordinator_epoch < self.claimed:
            raise CoordinatorReplaced(coordinator_epoch, self.claimed)
        self.claimed = self.epoch = coordinator_epoch

    async def replay(self) -> AsyncIterator[tuple[bytes | None, bytes | None, int]]:
        self.calls.append("replay")
        for offset, record in enumerate([record for batch in self.batches for record in batch]):
            yield *record, offset

    def cannot_read(self, offset: int, error: FrameInvalid | MessageUnknown) -> None:
        if isinstance(error, MessageUnknown):
            raise error
        self.strays.append(offset)

    def append(self, records: Sequence[EncodedRecord]) -> Awaitable[object]:
        self.calls.append("append")
        return self._append(list(records))

    async def _append(self, records: list[EncodedRecord]) -> None:
        if self.is_held:
            future = asyncio.get_running_loop().create_future()
            self._held.append(future)
            await future
        await asyncio.sleep(self.delay)
        if self.epoch < self.claimed:
            raise CoordinatorReplaced(self.epoch, self.claimed)
        self.batches.append(records)

    def let_go(self) -> None:
        self.is_held = False
        for future in self._held:
            future.set_result(None)
        self._held.clear()

    @property
    def records(self) -> list[Record]:
        return [decode(*record) for batch in self.batches for record in batch]

    @property
    def changes(self) -> int:
        """Records that are no claims."""
        return sum(not isinstance(key, ClaimKey) for key, _ in self.records)


async def beside(work: Callable[[], _T]) -> _T:
    """As `Environment.off_loop`: others have their turns before it is done."""
    await asyncio.sleep(0.001)
    return work()


class World:
    """The loop's time is in seconds; the coordinator serves after `start`."""

    def __init__(
        self, settings: GroupSettings, log: HandLog, assignors: Assignors | None = None, **topics: int
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.log = log
        self.topics = ToldTopics(**topics)
        self.settings = settings
        self.coordinator = GroupCoordinator(
            log, self.topics, 5, self.wall_ms, beside, LongestPauses(), settings, assignors
        )
        self.ended: asyncio.Task[BaseException] = self.loop.create_task(self.coordinator.run())
        self._sequence = 0

    def wall_ms(self) -> int:
        return WALL_MS + int(self.loop.time() * 1000)

    async def start(self) -> None:
        while not self.coordinator.is_serving:
            assert not self.ended.done(), self.ended.result()
            await asyncio.sleep(0.001)

    async def beat(
        self, member: str, epoch: int, owned: Partitions = (), *topics: str, wait_ms: int = 0, group: str = "g",
        session_ms: int = 10_000,
    ) -> GroupHeartbeatAnswer:  # fmt: skip
        self._sequence += 1
        profile = Profile("", "", "test", "", session_ms, 60_000, "", topics, "").fields() if topics else None
        request = GroupHeartbeat(group, member, epoch, self._sequence, wait_ms, owned, profile)
        answer = await self.coordinator.handle(request)
        assert isinstance(answer, GroupHeartbeatAnswer)
        return answer

    async def join(self, member: str, *topics: str, session_ms: int = 10_000) -> GroupHeartbeatAnswer:
        return await self.beat(member, 0, (), *topics, wait_ms=1_000, session_ms=session_ms)

    async def commit(self, member: str, epoch: int, offset: int, group: str = "g") -> Message:
        entry = (topic_id("t"), 0, offset, -1, "")
        return await self.coordinator.handle(CommitOffsets(group, member, epoch, (entry,)))


def t(*numbers: int) -> Partitions:
    return grouped((topic_id("t"), number) for number in numbers)


def numbers(answer: GroupHeartbeatAnswer) -> list[int]:
    assert answer.assignment is not None
    return sorted(number for _, number in each_of(answer.assignment))


def claimed(epoch: int) -> Record:
    return ClaimKey(), Claim(epoch)


def play(
    scene: Callable[[World], Coroutine[Any, Any, None]],
    settings: GroupSettings | None = None,
    log: HandLog | None = None,
    assignors: Assignors | None = None,
    **topics: int,
) -> None:
    """Run a scene to its end, and the coordinator with it."""
    scheduler = Scheduler(Random(1))
    complaints: list[object] = []
    loop = VirtualLoop(scheduler, "coordinator", lambda _loop, context: complaints.append(context), base=100.0)  # type: ignore[abstract]

    async def main() -> None:
        world = World(settings or GroupSettings(), log or HandLog(), assignors, **topics)
        await scene(world)
        world.coordinator.stop()
        await world.ended

    task = loop.create_task(main())
    scheduler.run(1_000 * MICROSECONDS, task.done, max_events=200_000)
    try:
        assert task.done(), "the scene did not end"
        task.result()
        assert not complaints, complaints
    finally:
        loop.kill()
        loop.dispose()
        scheduler.clear()

"""A make-believe cluster that has a real coordinator for its groups, on the same loop and with its log in memory."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from random import Random
from typing import Any, TypeVar

from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import Response
from raylog.actors.link.rules.topic_cache import CoordinatorAddress, PartitionLeader
from raylog.actors.protocol.messages import Message
from raylog.errors import RequestTimedOut
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.records.messages import CommitOffsets
from raylog.groups.records.offsets_log import KnownTopic
from raylog.groups.records.records import EncodedRecord
from raylog.groups.records.settings import GroupSettings
from raylog.storage.format.record_batch import Bytes
from tests.unit.api.fake_link import TIME, FakeLink

_T = TypeVar("_T")
_PLACE = CoordinatorAddress("__consumer_offsets", b"", 0, -1, 1, (), "")


class _Log:
    def __init__(self) -> None:
        self.records: list[EncodedRecord] = []

    async def claim(self, coordinator_epoch: int) -> None:
        """Claim nothing: there is only one coordinator."""

    async def replay(self) -> AsyncIterator[tuple[bytes | None, bytes | None, int]]:
        for offset, (key, value) in enumerate(list(self.records)):
            yield key, value, offset

    def cannot_read(self, offset: int, error: Exception) -> None:
        raise AssertionError(f"One coordinator alone writes here, but offset {offset} is {error!r}.")

    async def append(self, records: Sequence[EncodedRecord]) -> None:
        self.records += records
        await asyncio.sleep(0)


async def _beside(work: Callable[[], _T]) -> _T:
    """Instead of a thread: tests count those."""
    await asyncio.sleep(0)
    return work()


class GroupLink(FakeLink):
    def __init__(self, env: Environment, random: Random) -> None:
        super().__init__(env, random)
        self._offsets_log = _Log()
        self._topics_version = 0
        self.racks: dict[str, tuple[frozenset[str], ...]] = {}
        self.answers_lost_until = 0.0
        self.commit_seconds = 0.0  # that a commit is under way
        self.on_change(self._rise)
        self._coordinator: GroupCoordinator
        self._running: asyncio.Task[BaseException]
        self.start_coordinator()

    def start_coordinator(self) -> None:
        settings = GroupSettings(heartbeat_interval_ms=200)
        self._topics_version += 1
        self._coordinator = GroupCoordinator(
            self._offsets_log, self, self._topics_version, lambda: TIME, _beside, self.random, settings
        )
        self._running = asyncio.get_running_loop().create_task(self._coordinator.run())

    def replace_coordinator(self) -> None:
        self._coordinator.stop()
        self.start_coordinator()

    async def find_coordinator(self, topic: str, hashed: int, timeout: float) -> CoordinatorAddress:
        await self._pause()
        return _PLACE

    async def ask(
        self, leader: PartitionLeader, message: Message, payload: Bytes = b"", *, expect: type[Any], timeout: float
    ) -> Response:
        if not isinstance(leader, CoordinatorAddress):
            return await super().ask(leader, message, payload, expect=expect, timeout=timeout)
        await self._pause()
        if isinstance(message, CommitOffsets):
            await asyncio.sleep(self.commit_seconds)
        answer = asyncio.ensure_future(self._coordinator.handle(message))
        if time.monotonic() < self.answers_lost_until:
            await asyncio.sleep(timeout)
            answer.cancel()
            raise RequestTimedOut("the coordinator", round(1000 * timeout))
        try:
            return Response(await asyncio.wait_for(answer, timeout))
        except asyncio.TimeoutError:
            raise RequestTimedOut("the coordinator", round(1000 * timeout)) from None

    # --- `Topics` -------------------------------------------------------------------------------------------------

    def _rise(self) -> None:
        self._topics_version += 1

    @property
    def version(self) -> int:
        return self._topics_version

    def by_name(self) -> Mapping[str, KnownTopic]:
        return {
            name: KnownTopic(name, view.topic_id, self.racks.get(name, (frozenset(),) * len(view.partitions)))
            for name, view in self._known.items()
        }

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return next((each for each in self.by_name().values() if each.topic_id == topic_id), None)

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        return None



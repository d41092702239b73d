"""A process that is a member of a group: the real `GroupMember`, driven as a consumer drives it, and an application.

The application reads nothing; it counts on each partition's position, and commits it now and then.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import suppress
from random import Random
from typing import Protocol

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.protocol.messages import Message
from raylog.errors import NotCoordinator, RaylogError, RequestTimedOut
from raylog.groups.member.member import Changes, GroupMember
from raylog.groups.records.messages import (
    FetchOffsets,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    OffsetsCommitted,
    OffsetsFetched,
    PartitionId,
    Profile,
)
from tests.simulator.checks.group_checks import GroupChecker
from tests.simulator.world.virtual_loop import VirtualLoop


class Coordinator(Protocol):
    """A process that may be the group's coordinator."""


class Network(Protocol):
    async def ask(self, to: Coordinator | None, request: Message, timeout: float) -> Message: ...

    def find_coordinator(self) -> Coordinator | None: ...


class WholeNetwork(Network, Protocol):
    """One that finds those too that were replaced."""

    def any_coordinator(self) -> Coordinator | None: ...


class Observer:
    """Reads the committed offsets now and then, of whomever it takes for the coordinator, and is no member."""

    def __init__(self, loop: VirtualLoop, network: WholeNetwork, checker: GroupChecker, random: Random) -> None:
        self.loop = loop
        self._network = network
        self._checker = checker
        self._random = random
        self._tasks = BackgroundTasks(self._failed)
        loop.deliver(lambda: self._tasks.start(self._observe()))

    def _failed(self, error: BaseException) -> None:
        self.loop.call_exception_handler({"message": "the observer failed", "exception": error})

    async def _observe(self) -> None:
        while True:
            await asyncio.sleep(self._random.uniform(0.05, 0.4))
            group = self._random.choice(("g1", "g2"))
            at_least = self._checker.all_before_fetch(group)
            with suppress(RaylogError):
                request = FetchOffsets(group, "", -1, None)
                answer = await self._network.ask(self._network.any_coordinator(), request, 2.0)
                assert isinstance(answer, OffsetsFetched)
                found = {(of, number): metadata for of, number, _, _, metadata in answer.offsets}
                for partition, place in at_least.items():
                    self._checker.fetched(group, partition, found.get(partition, ""), place)


class MemberProcess:
    def __init__(
        self, name: str, group: str, profile: Profile, max_poll_ms: int,
        loop: VirtualLoop, network: Network, checker: GroupChecker, random: Random,
    ) -> None:  # fmt: skip
        self.name = name
        self.group = group
        self.profile = profile
        self.loop = loop
        self._network = network
        self._checker = checker
        self._random = random
        self._ids = 0
        self._commits = 0
        self._coordinator = network.find_coordinator()
        self._positions: dict[PartitionId, int] = {}
        self._wake: asyncio.Event | None = None
        self._tasks = BackgroundTasks(self._failed)
        self._is_polling = True
        self.member = GroupMember(group, profile, max_poll_ms, self._draw_id, random, self._now_ms())

    def _draw_id(self) -> str:
        self._ids += 1
        return f"{self.name}.{self._ids}"

    def _now_ms(self) -> int:
        return int(self.loop.time() * 1000)

    def start(self) -> None:
        self.loop.deliver(lambda: self._tasks.start(self._heartbeats()))
        self.loop.deliver(lambda: self._tasks.start(self._work()))

    def _failed(self, error: BaseException) -> None:
        self.loop.call_exception_handler({"message": f"{self.name} failed", "exception": error})

    def stop_polling(self, seconds: float) -> None:
        """The application is busy for so long; its heartbeats go on."""
        self._is_polling = False
        self.loop.call_later(seconds, self._poll_again)

    def _poll_again(self) -> None:
        self._is_polling = True

    def leave(self) -> None:
        self._stops(self.member.leave(self._now_ms()))
        self._nudge()

    def subscribe(self, profile: Profile) -> None:
        self.profile = profile
        self.member.change_profile(profile, self._now_ms())
        self._nudge()

    # --- heartbeats -----------------------------------------------------------------------------------------------

    async def _heartbeats(self) -> None:
        self._wake = asyncio.Event()
        while not self.member.is_over:
            now = self._now_ms()
            self._follow(self.member.tick(now))
            request = self.member.next_heartbeat(now)
            if request is not None:
                self._tasks.start(self._heartbeat(request))
            wake_at = self.member.wake_at()
            seconds = 60.0 if wake_at is None else max(0.0, wake_at / 1000 - self.loop.time()) + 0.001
            with suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._wake.wait(), seconds)
            self._wake.clear()

    async def _heartbeat(self, request: GroupHeartbeat) -> None:
        member = self.member
        try:
            answer = await self._ask(request, request.max_wait_ms / 1000 + 1.0)
        except RaylogError as error:
            self._follow(member.failed(request, error, self._now_ms()))
        else:
            assert isinstance(answer, GroupHeartbeatAnswer)
            self._follow(member.answered(request, answer, self._now_ms()))
        self._nudge()

    def _nudge(self) -> None:
        if self._wake is not None:
            self._wake.set()

    async def _ask(self, request: Message, timeout: float) -> Message:
        try:
            return await self._network.ask(self._coordinator, request, timeout)
        except (NotCoordinator, RequestTimedOut):
            self._coordinator = self._network.find_coordinator()
            raise

    def _follow(self, changes: Changes) -> None:
        if changes.lost:
            self._stops(changes.lost)
        if changes.assigned:
            self._checker.reads(self.group, self.name, self.member.member_id, changes.assigned)
            for partition in sorted(changes.assigned):  # sets differ in their order from process to process
                self._tasks.start(self._begin(partition, self.member.member_id))
        if changes.revoke:
            self._tasks.start(self._revoke(changes.revoke, self.member.member_id))

    def _stops(self, partitions: Collection[PartitionId]) -> None:
        self._checker.stops(self.group, self.name, partitions)
        for partition in partitions:
            self._positions.pop(partition, None)

    # --- the application ------------------------------------------------------------------------------------------

    async def _begin(self, partition: PartitionId, member_id: str) -> None:
        """Begin where the predecessor has committed."""
        while partition in self.member.reads and self.member.member_id == member_id:
            at_least = self._checker.before_fetch(self.group, partition)
            try:
                answer = await self._ask(self.member.fetch_offsets([partition]), 2.0)
            except RaylogError:
                await asyncio.sleep(0.1)
                continue
            assert isinstance(answer, OffsetsFetched)
            _, _, offset, _, metadata = answer.offsets[0]
            self._checker.fetched(self.group, partition, metadata, at_least)
            if partition in self.member.reads and self.member.member_id == member_id:
                self._positions[partition] = max(0, offset)
            return

    async def _work(self) -> None:
        while not self.member.is_over:
            if self._is_polling:
                self.member.polled(self._now_ms())
                self._nudge()
                for partition in sorted(self.member.reads & self._positions.keys()):
                    self._positions[partition] += self._random.randrange(3)
                if self._random.random() < 0.5:
                    await self._commit(self._positions.keys() & self.member.holds)
            await asyncio.sleep(self._random.uniform(0.02, 0.3))

    async def _commit(self, partitions: Collection[PartitionId]) -> None:
        if not partitions or not self.member.is_member:
            return
        self._commits += 1
        text = f"{self.member.member_id}|{self.member.epoch}|{self._commits}"
        request = self.member.commit([(*each, self._positions[each], -1, text) for each in sorted(partitions)])
        try:
            answer = await self._ask(request, 2.0)
        except RaylogError:
            self.member.doubted(self._now_ms())
            self._nudge()
            return
        assert isinstance(answer, OffsetsCommitted)
        refused = {(each[0], each[1]) for each in answer.refused}
        for partition in partitions:
            if partition not in refused:
                self._checker.acknowledged(self.group, partition, text)

    async def _revoke(self, partitions: frozenset[PartitionId], member_id: str) -> None:
        """The application's listener commits what is done; then they are let go."""
        await asyncio.sleep(self._random.uniform(0.0, 0.3))
        if self.member.member_id == member_id:
            await self._commit(partitions & self._positions.keys() & self.member.holds)
        if self.member.member_id == member_id:
            mine = partitions & self.member.revoking
            self._stops(mine)
            self.member.revoked(mine, self._now_ms())
            self._nudge()

"""A group coordinator in its process: the core of `coordinator.py` on a real log, with the real topics.

What must stay true:
- What the coordinator calls its epoch is its term, which rises with each that is placed; the producer epoch, which has
  16 bits, begins anew under another id.
- It begins only when it knows all topics once: else it would take those that it has not heard of for deleted.
- When the core ends, for whatever reason, so does the log, and with it the process (rule 25).
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final

from raylog.actors.coordinators.claimed_log import CoordinatorLog
from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.metrics import GROUP_LAG, GROUP_MEMBERS, GROUP_OFFSET, Reading
from raylog.actors.kernel.stream_interface import Answer, LaterAnswer, Request, Response
from raylog.actors.link.cluster_link import ClusterLink, TopicView
from raylog.actors.protocol.coordinator_spec import CoordinatorSpec
from raylog.actors.protocol.messages import Message
from raylog.errors import CoordinatorReplaced, CoordinatorStopped, FrameInvalid, MessageUnknown, ProducerFenced
from raylog.groups.assignors.calling import Assignors
from raylog.groups.coordinator.coordinator import GroupCoordinator
from raylog.groups.coordinator.log_ends import LogEnds, Place
from raylog.groups.records.classic_messages import SyncClassic, read_assignments
from raylog.groups.records.offsets_log import KnownTopic, OffsetsLog
from raylog.groups.records.records import EncodedRecord
from raylog.groups.records.settings import GroupSettings

_TOPICS_SECONDS: Final = 60.0
_CLOSE_SECONDS: Final = 2.0


class ClaimedLog:
    """An `OffsetsLog`: a partition of `__consumer_offsets`."""

    def __init__(self, log: CoordinatorLog) -> None:
        self._log = log
        self._term = -1
        self._end = 0

    async def claim(self, coordinator_epoch: int) -> None:
        self._term = coordinator_epoch
        try:
            self._end = await self._log.claim()
        except ProducerFenced as error:
            raise self._replaced() from error

    async def replay(self) -> AsyncIterator[tuple[bytes | None, bytes | None, int]]:
        async for entries in self._log.replay(self._end):
            for entry in entries:
                yield entry

    def cannot_read(self, offset: int, error: FrameInvalid | MessageUnknown) -> None:
        self._log.cannot_read(offset, error)

    async def append(self, records: Sequence[EncodedRecord]) -> None:
        try:
            await self._log.append(records)
        except CoordinatorStopped as error:
            reason = self._log.ended.result() if self._log.ended.done() else error
            raise (self._replaced() if isinstance(reason, ProducerFenced) else reason) from error

    def _replaced(self) -> CoordinatorReplaced:
        return CoordinatorReplaced(self._term, self._term + 1)  # or a later one: the log knows producer epochs only


class LinkTopics:
    """`Topics` of a link that follows all of them. Ends of logs it does not know."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._version = -1
        self._by_name: dict[str, KnownTopic] = {}
        self._by_id: dict[bytes, KnownTopic] = {}
        self._callbacks: dict[object, Callable[[], None]] = {}

    async def begin(self) -> Callable[[], None]:
        """Know them, and follow them from here on. Returns what ends that."""
        stop = self._link.on_change(self._learn)
        try:
            await self._link.follow_all(_TOPICS_SECONDS)
            self._learn()
        except BaseException:
            stop()  # the link outlives a coordinator that does not come to serve
            raise
        return stop

    @property
    def version(self) -> int:
        return self._version

    def by_name(self) -> Mapping[str, KnownTopic]:
        return self._by_name

    def by_id(self, topic_id: bytes) -> KnownTopic | None:
        return self._by_id.get(topic_id)

    def end_offset(self, topic_id: bytes, partition: int) -> int | None:
        del topic_id, partition
        return None

    def on_change(self, callback: Callable[[], None]) -> Callable[[], None]:
        key = object()
        self._callbacks[key] = callback
        return lambda: self._callbacks.pop(key, None) and None

    def _learn(self) -> None:
        version, views = self._link.topics()
        if version <= self._version:
            return
        self._version = version
        racks = _Racks(self._link.rack_of)
        known = [KnownTopic(view.name, view.topic_id, racks.of(view)) for view in views]
        if known == list(self._by_name.values()):
            return
        self._by_name = {each.name: each for each in known}
        self._by_id = {each.topic_id: each for each in known}
        for callback in list(self._callbacks.values()):
            callback()


class _Racks:
    """The racks of partitions as of one moment. Thousands of partitions have few different lists of replicas."""

    def __init__(self, rack_of: Callable[[int], str]) -> None:
        self._rack_of = rack_of
        self._of_replicas: dict[tuple[int, ...], frozenset[str]] = {}

    def of(self, view: TopicView) -> tuple[frozenset[str], ...]:
        found = self._of_replicas
        for replicas in {each.replicas for each in view.partitions} - found.keys():
            found[replicas] = frozenset(filter(None, map(self._rack_of, replicas)))
        return tuple([found[each.replicas] for each in view.partitions])


class GroupCore:
    """A `CoordinatorCore`."""

    def __init__(
        self,
        env: Environment,
        spec: CoordinatorSpec,
        log: CoordinatorLog,
        link: ClusterLink,
        offsets_log: OffsetsLog,
        settings: GroupSettings | None = None,
        assignors: Assignors | None = None,
    ) -> None:
        self._log = log
        settings = settings or GroupSettings()
        self._most_members = settings.max_members
        self._topics = LinkTopics(link)
        self._coordinator = GroupCoordinator(
            offsets_log, self._topics, spec.term, env.wall_ms, env.off_loop, env.random, settings, assignors
        )
        self._ends = LogEnds(link, self._places, self._unread_places)
        self._tasks = BackgroundTasks(self._mistaken)
        self._running: asyncio.Task[BaseException] | None = None
        self._stop_following: Callable[[], None] | None = None

    async def start(self) -> None:
        self._stop_following = await self._topics.begin()
        self._running = asyncio.get_running_loop().create_task(self._coordinator.run())
        self._running.add_done_callback(self._over)
        either: list[asyncio.Future[Any]] = [self._running, self._coordinator.serving]
        await asyncio.wait(either, return_when=asyncio.FIRST_COMPLETED)
        if not self._coordinator.serving.done():
            raise self._running.result()
        self._tasks.start(self._ends.follow())

    def handle(self, request: Request) -> Answer | Awaitable[Answer]:
        message = request.message
        if request.payload and isinstance(message, SyncClassic):
            message = replace(message, assignments=read_assignments(request.payload, self._most_members))
        answer = self._coordinator.answer(message)
        if isinstance(answer, Message):
            return Response(answer)
        return answer if isinstance(answer, LaterAnswer) else _responded(answer)

    def readings(self) -> Iterator[Reading]:
        for group, count in self._coordinator.members():
            yield Reading(GROUP_MEMBERS, (group,), count)
        for group, topic, number, offset in self._coordinator.committed():
            tags = group, topic, str(number)
            yield Reading(GROUP_OFFSET, tags, offset)
            end = self._ends.end((topic, number))
            if end is not None:
                yield Reading(GROUP_LAG, tags, max(0, end - offset))
        for group, topic, number in self._coordinator.uncommitted():
            size = self._ends.size((topic, number))
            if size is not None:
                yield Reading(GROUP_LAG, (group, topic, str(number)), size)

    def _places(self) -> Iterator[Place]:
        return ((topic, number) for _, topic, number, _ in self._coordinator.committed())

    def _unread_places(self) -> Iterator[Place]:
        return ((topic, number) for _, topic, number in self._coordinator.uncommitted())

    async def close(self) -> None:
        await self._tasks.close()
        if self._stop_following is not None:
            self._stop_following()
        if self._running is not None:
            self._coordinator.stop()
            await asyncio.wait([self._running], timeout=_CLOSE_SECONDS)

    def _mistaken(self, error: BaseException) -> None:
        if not self._log.ended.done():
            self._log.give_up(error)

    def _over(self, running: asyncio.Task[BaseException]) -> None:
        if running.cancelled():
            return
        self._mistaken(running.exception() or running.result())


async def _responded(answer: Awaitable[Message]) -> Response:
    return Response(await answer)


def make(env: Environment, spec: CoordinatorSpec, log: CoordinatorLog, link: ClusterLink) -> GroupCore:
    """Make a core for `coordinators/host.py` in a simulated cluster; `coordinator/process.py` has the one for a real
    machine.
    """
    return GroupCore(env, spec, log, link, ClaimedLog(log))

"""The half of a consumer's group that lives on the client loop: its membership, while it has one, and its offsets.

What must stay true: with a membership offsets are committed as that member, and as nobody only where the consumer was
told its partitions (`assign`). So a consumer that was fenced cannot commit by the other way.

`GroupMembership` is one membership: heartbeats, apart from polling, and news for the thread that polls.

    joins ──► heartbeats ──news──► Granted, AskedBack, Taken ──► (the polling thread) ──► gave_up ──► heartbeat
      ▲           └── fenced, removed, silent for too long: Taken, and it joins anew, under another id ──┘

What must stay true:
- News is told in the order in which it came, by one task; what it names is what the member holds (rule 23).
- A partition is given up when the polling thread says so, with the number under which it was asked back: an answer to
  an earlier request gives nothing up that was granted since.
- No poll waits for the network here, and a program that does not poll is a member until `max_poll_interval_ms` is over.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable, Iterable, Mapping
from typing import Final, NamedTuple

from raylog.actors.kernel.background import BackgroundTasks
from raylog.actors.kernel.wait_notices import LoopNotices
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import may_pass
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.api.consumer.group.group_offsets import GroupOffsets, Speaker
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.group_events import AskedBack, Committed, Ended, Granted, GroupEvent, Taken
from raylog.errors import GroupError, GroupRequestTimedOut, RaylogError, StaleHeartbeat
from raylog.groups.member.member import Changes, GroupMember
from raylog.groups.records.messages import GroupHeartbeat, GroupHeartbeatAnswer, PartitionId, Profile

_PAUSE_SECONDS: Final = 0.1
_FIND_SECONDS: Final = 3.0
_LAST_SECONDS: Final = 0.1
_LOOK_SECONDS: Final = 1.0  # whether the program still polls
_ANSWER_SECONDS: Final = 2.0  # at most, beyond what a coordinator may hold a heartbeat
_ANSWER_SHARE: Final = 6  # that part of the session, so that another heartbeat is in time to keep it
_NAMES_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 2.0  # in which a broker may hear of a topic that the coordinator knows already
_LEAVE_STEP_SECONDS: Final = 0.05

_numbers = itertools.count(1)  # of what is asked back, by whichever membership: an answer to another's finds nothing

_log = logging.getLogger(__name__)


class _News(NamedTuple):
    changes: Changes
    member_id: str
    epoch: int


class GroupMembership:
    """One membership, on the link's loop, where all of it runs; `is_idle` may be read from any thread.

    `since_poll`: the seconds since the program polled last. `tell` takes news; `linger` is called about once a second
    while the program does not poll.
    """

    def __init__(
        self,
        link: ClusterLink,
        calls: GroupCalls,
        profile: Profile,
        max_poll_interval_ms: int,
        since_poll: Callable[[], float],
        tell: Callable[[GroupEvent], None],
        linger: Callable[[], None],
    ) -> None:
        self._link = link
        self._calls = calls
        self._max_poll_ms = max_poll_interval_ms
        self._patience = min(_ANSWER_SECONDS, profile.session_timeout_ms / 1000 / _ANSWER_SHARE)
        self._since_poll = since_poll
        self._tell = tell
        self._linger = linger
        self._loop = asyncio.get_running_loop()
        self._wake = asyncio.Event()
        self._news: asyncio.Queue[_News] = asyncio.Queue()
        self._names: dict[bytes, str] = {}
        self._ids: dict[TopicPartition, PartitionId] = {}  # of what was granted
        self._asked_back: dict[int, set[PartitionId]] = {}  # by number, what is still held of it
        self._last_error = ""
        self._notices = LoopNotices()
        self._tasks = BackgroundTasks(self._broke)
        self.member = GroupMember(
            calls.group, profile, max_poll_interval_ms, lambda: _draw_id(link), link.env.random, self._now_ms()
        )
        self._tasks.start(self._beat())
        self._tasks.start(self._pass_on())

    @property
    def is_idle(self) -> bool:
        """Whether the member has left because nobody polled, and is to be woken with the next poll."""
        return self.member.state == "idle"

    def id_of(self, partition: TopicPartition) -> PartitionId | None:
        """Return the id of a partition that it holds."""
        known = self._ids.get(partition)
        return known if known in self.member.holds else None

    def nudge(self) -> None:
        """Look anew what is to be said now: something has changed."""
        self._wake.set()

    def change_profile(self, profile: Profile) -> None:
        self.member.change_profile(profile, self._now_ms())
        self.nudge()

    def gave_up(self, number: int) -> None:
        """Answer AskedBack: all that it named is given up."""
        self.member.revoked(self._asked_back.pop(number, set()), self._now_ms())
        self.nudge()

    async def leave(self, timeout: float) -> None:
        """A static member keeps its place until its session is over."""
        deadline = self._loop.time() + timeout
        self.member.leave(self._now_ms())
        self.nudge()
        try:
            while not self.member.is_over and self._loop.time() < deadline:
                await asyncio.sleep(_LEAVE_STEP_SECONDS if self._loop.time() + _LEAVE_STEP_SECONDS < deadline else 0.0)
        finally:
            self._notices.close()
            await self._tasks.close()  # nobody heartbeats for a consumer that is no more

    # --- heartbeats -----------------------------------------------------------------------------------------------

    def _now_ms(self) -> int:
        return int(self._loop.time() * 1000)

    async def _beat(self) -> None:
        while not self.member.is_over:
            self._wake.clear()
            self._note_polls()
            now_ms = self._now_ms()
            changes = self.member.tick(now_ms)
            if changes.error is not None:
                self._note(changes.error)
            self._follow(changes)
            request = self.member.next_heartbeat(now_ms)
            if request is not None:
                self._tasks.start(self._send(request))
            await self._until_due()

    def _note_polls(self) -> None:
        """The program may have polled since; where it has not for a while, what it iterates over is to end."""
        seconds = self._since_poll()
        if seconds * 1000 < self._max_poll_ms:
            self.member.polled(self._now_ms() - int(seconds * 1000))
        if seconds > _LOOK_SECONDS:
            self._linger()

    async def _until_due(self) -> None:
        wake_at = self.member.wake_at()
        due = _LOOK_SECONDS if wake_at is None else wake_at / 1000 - self._loop.time() + 0.001
        try:
            await asyncio.wait_for(self._wake.wait(), min(max(due, 0.001), _LOOK_SECONDS))
        except asyncio.TimeoutError:
            return

    async def _send(self, request: GroupHeartbeat) -> None:
        try:
            seconds = request.max_wait_ms / 1000 + self._patience
            answer = await self._calls.ask(request, GroupHeartbeatAnswer, seconds)
        except RaylogError as error:
            if not isinstance(error, StaleHeartbeat):  # of one that was given up for a later one
                self._note(error)
            self._follow(self.member.failed(request, error, self._now_ms()))
        else:
            self._last_error = ""
            self._notices.close()
            self._follow(self.member.answered(request, answer, self._now_ms()))
        self.nudge()

    def _note(self, error: RaylogError) -> None:
        passes = may_pass(error)
        if passes:
            self._notices.waits(f"the coordinator of group {self.member.group!r}", error)
        text = str(error)
        if text != self._last_error:
            self._last_error = text
            level = logging.INFO if passes else logging.WARNING
            _log.log(level, "Group %s, member %s: %s", self.member.group, self.member.member_id, text)

    # --- news -----------------------------------------------------------------------------------------------------

    def _follow(self, changes: Changes) -> None:
        news = _News(changes, self.member.member_id, self.member.epoch)
        if changes.lost or changes.revoke or changes.assigned:
            self._news.put_nowait(news)
        if changes.error is not None and self.member.stopped_by is changes.error:
            self._news.put_nowait(news)

    async def _pass_on(self) -> None:
        while True:
            news = await self._news.get()
            await self._learn_names({each[0] for each in news.changes.assigned})
            self._pass(*news)

    def _pass(self, changes: Changes, member_id: str, epoch: int) -> None:
        if changes.lost:
            for asked in self._asked_back.values():
                asked.difference_update(changes.lost)
            self._tell(Taken(self._named(changes.lost)))
        if changes.revoke:
            number = next(_numbers)
            self._asked_back[number] = set(changes.revoke)
            self._tell(AskedBack(self._named(changes.revoke), number))
        if changes.assigned:
            known = [each for each in changes.assigned if each[0] in self._names]
            self._ids.update((TopicPartition(self._names[each[0]], each[1]), each) for each in known)
            self._tell(Granted(self._named(known), member_id, epoch))
        if changes.error is not None and self.member.stopped_by is changes.error:
            self._tell(Ended(changes.error))

    def _named(self, partitions: Iterable[PartitionId]) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(self._names[each[0]], each[1]) for each in partitions if each[0] in self._names)

    async def _learn_names(self, topic_ids: set[bytes]) -> None:
        """Learn names of topics that this process has not heard of yet. One that no broker knows for a while was
        deleted.
        """
        grace = self._loop.time() + _GRACE_SECONDS
        while topic_ids - self._names.keys():
            try:
                views = await self._link.list_topics(_NAMES_SECONDS)
            except RaylogError as error:
                self._note(error)
            else:
                self._names.update((view.topic_id, view.name) for view in views)
                if self._loop.time() >= grace:
                    return
            if topic_ids - self._names.keys():
                await asyncio.sleep(_PAUSE_SECONDS)

    def _broke(self, error: BaseException) -> None:
        """A mistake here: whoever polls hears of it."""
        _log.critical("The membership in group %s is over.", self.member.group, exc_info=error)
        self._tell(Ended(GroupError(f"The membership in group {self.member.group!r} met a mistake: {error!r}")))


def _draw_id(link: ClusterLink) -> str:
    return f"{link.env.random.getrandbits(128):032x}"


class GroupClient:
    """The group of one consumer, on the link's loop. `known_end`: see `GroupOffsets`; the rest: `GroupMembership`."""

    def __init__(
        self,
        link: ClusterLink,
        options: ConsumerOptions,
        since_poll: Callable[[], float],
        tell: Callable[[GroupEvent], None],
        linger: Callable[[], None],
        known_end: Callable[[TopicPartition], int],
    ) -> None:
        assert options.group_id is not None
        self._link = link
        self._options = options
        self._since_poll = since_poll
        self._tell = tell
        self._linger = linger
        self._timeout = options.request_timeout_ms / 1000
        self._tasks = BackgroundTasks(self._broke)
        self._calls = GroupCalls(link, options.group_id)
        self.membership: GroupMembership | None = None
        self._leaving: asyncio.Future[None] | None = None
        self._join_next: tuple[tuple[str, ...], str] | None = None
        self.offsets = GroupOffsets(link, self._calls, self._member, self._id_of, known_end)

    def join(self, topics: tuple[str, ...], pattern: str) -> None:
        """Subscribe to these, in place of those before."""
        if self._leaving is not None:
            self._join_next = topics, pattern
            return
        options = self._options
        profile = Profile(
            instance_id=options.group_instance_id or "",
            rack=options.client_rack,
            client_id=options.client_id,
            host=socket.gethostname(),
            session_timeout_ms=options.session_timeout_ms,
            rebalance_timeout_ms=options.max_poll_interval_ms,
            assignor=options.group_remote_assignor,
            topics=topics,
            pattern=pattern,
        )
        if self.membership is not None and not self.membership.member.is_over:
            self.membership.change_profile(profile)
            return
        self.membership = GroupMembership(
            self._link, self._calls, profile, options.max_poll_interval_ms,
            self._since_poll, self._tell, self._linger,
        )  # fmt: skip
        self._tasks.start(self._look_for(topics))

    def locate(self, generations: Mapping[TopicPartition, int]) -> None:
        """Tell where each of these was left, as soon as that is known."""
        self._tasks.start(self._locate(dict(generations)))

    def nudge(self) -> None:
        if self.membership is not None:
            self.membership.nudge()

    def gave_up(self, number: int) -> None:
        """Answer that the partitions are given up, as soon as all commits that were asked for before have an outcome:
        later ones would come too late.
        """
        if self.membership is not None:
            self._tasks.start(self._give_up(self.membership, number))

    async def _give_up(self, membership: GroupMembership, number: int) -> None:
        await self.offsets.settled(self._timeout)
        membership.gave_up(number)

    def start_leaving(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float, speaker: Speaker | None
    ) -> asyncio.Future[None]:
        """Begin to leave the group, with these offsets where they can still be committed. A member that joins meanwhile
        does so when this is over.
        """
        self._join_next = None
        if self._leaving is None:
            self._leaving = asyncio.get_running_loop().create_future()
            self._tasks.start(self._leave_and_join(self._leaving, offsets, timeout, speaker))
        return self._leaving

    async def _leave_and_join(
        self,
        left: asyncio.Future[None],
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        timeout: float,
        speaker: Speaker | None,
    ) -> None:
        try:
            await self._leave(offsets, timeout, speaker)
        finally:
            left.set_result(None)
            self._leaving = None
        self._join_as_wished()

    def _join_as_wished(self) -> None:
        if self._join_next is not None:
            self.join(*self._join_next)

    async def _leave(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float, speaker: Speaker | None
    ) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        try:
            if offsets:
                await self.offsets.commit(offsets, timeout, speaker)
            else:
                await self.offsets.settled(timeout)
        except RaylogError as error:
            _log.warning("Group %s: positions were not committed at the end: %s", self._calls.group, error)
        membership, self.membership = self.membership, None
        if membership is not None:
            await membership.leave(max(deadline - loop.time(), _LAST_SECONDS))

    async def close(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float, speaker: Speaker | None = None
    ) -> None:
        """A coordinator that does not answer in that time hears no farewell, and no heartbeat either."""
        await asyncio.wait([self.start_leaving(offsets, timeout, speaker)], timeout=timeout)
        await self._tasks.close()
        membership, self.membership = self.membership, None
        if membership is not None:
            await membership.leave(_LAST_SECONDS)

    # --- within ---------------------------------------------------------------------------------------------------

    def _member(self) -> GroupMember | None:
        return None if self.membership is None else self.membership.member

    def _id_of(self, partition: TopicPartition) -> PartitionId | None:
        return None if self.membership is None else self.membership.id_of(partition)

    async def _look_for(self, topics: tuple[str, ...]) -> None:
        """A name that is wrong is nothing that a coordinator tells: the topic may still come."""
        for topic in topics:
            try:
                await self._link.find_topic(topic, _FIND_SECONDS)
            except RaylogError as error:
                _log.warning("Group %s: subscribed all the same: %s", self._calls.group, error)

    async def _locate(self, wanted: dict[TopicPartition, int]) -> None:
        membership = self.membership
        last = ""
        while wanted:
            try:
                found, _ = await self.offsets.known_now(wanted, self._timeout)
            except RaylogError as error:
                if not may_pass(error) and not isinstance(error, GroupRequestTimedOut):
                    self._tell(Ended(error))
                    return
                if str(error) != last:
                    last = str(error)
                    _log.info("Group %s: where it was left is asked again: %s", self._calls.group, error)
            else:
                self._tell(Committed({each: (wanted.pop(each), offset) for each, offset in found.items()}))
            if wanted:
                await asyncio.sleep(_PAUSE_SECONDS)
            if membership is not None:
                wanted = {each: number for each, number in wanted.items() if membership.id_of(each) is not None}

    def _broke(self, error: BaseException) -> None:
        _log.critical("A consumer of group %s met a mistake.", self._calls.group, exc_info=error)
        self._tell(Ended(GroupError(f"A consumer of group {self._calls.group!r} met a mistake: {error!r}")))

"""One membership of one consumer: heartbeats on the client loop, apart from polling, and news for whoever polls.

    joins ──► heartbeats ──news──► Granted, AskedBack, Taken ──► (the polling thread) ──► gave_up ──► heartbeat
      ▲           └── fenced, removed, silent for too long: Taken, and it joins anew, under another id ──┘

What must stay true:
- News is told in the order in which it came, by one task; what it names is what the member holds (rule 23).
- A partition is given up when whoever polls says so, with the number under which it was asked back: an answer to an
  earlier request gives nothing up that was granted since.
- Nobody who polls waits for the network here, and a program that does not poll is a member until
  `max_poll_interval_ms` is over.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Iterable
from typing import Final, NamedTuple

from raylog.actors.kernel.background_tasks import BackgroundTasks
from raylog.actors.kernel.wait_notices import LoopNotices
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.until_answered import may_pass
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.records import TopicPartition
from raylog.api.consumer.rules.group_events import AskedBack, Ended, Granted, GroupEvent, Taken
from raylog.errors import GroupError, RaylogError, StaleHeartbeat
from raylog.groups.member.member import Changes, GroupMember
from raylog.groups.records.messages import GroupHeartbeat, GroupHeartbeatAnswer, PartitionId, Profile

_LOOK_SECONDS: Final = 1.0  # whether the program still polls
_ANSWER_SECONDS: Final = 2.0  # at most, beyond what a coordinator may hold a heartbeat
_ANSWER_SHARE: Final = 6  # that part of the session, so that another heartbeat is in time to keep it
_NAMES_SECONDS: Final = 5.0
_GRACE_SECONDS: Final = 2.0  # in which a broker may hear of a topic that the coordinator knows already
_PAUSE_SECONDS: Final = 0.1
_LEAVE_STEP_SECONDS: Final = 0.05

_log = logging.getLogger(__name__)
_numbers = itertools.count(1)  # of what is asked back, by whichever membership: an answer to another's finds nothing


class _News(NamedTuple):
    changes: Changes
    member_id: str
    epoch: int


class GroupMembership:
    """Made on the link's loop, where all of it runs; `is_idle` may be read from any thread.

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

"""The half of a consumer's group that lives on the client loop: its membership, while it has one, and its offsets.

What must stay true: with a membership offsets are committed as that member, and as nobody only where the consumer was
told its partitions (`assign`). So a consumer that was fenced cannot commit by the other way.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Callable, Mapping
from typing import Final

from raylog.actors.kernel.background_tasks import BackgroundTasks
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.until_answered import may_pass
from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.api.consumer.group.group_membership import GroupMembership
from raylog.api.consumer.group.group_offsets import GroupOffsets, Speaker
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.api.consumer.rules.group_events import Committed, Ended, GroupEvent
from raylog.errors import GroupError, GroupRequestTimedOut, RaylogError
from raylog.groups.member.member import GroupMember
from raylog.groups.records.messages import PartitionId, Profile

_PAUSE_SECONDS: Final = 0.1
_FIND_SECONDS: Final = 3.0
_LAST_SECONDS: Final = 0.1

_log = logging.getLogger(__name__)


class GroupClient:
    """Made on the link's loop. `since_poll`, `tell`, `linger`: see `group_membership.py`; `known_end`: GroupOffsets."""

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

"""Requests to the coordinator of one group, wherever it is.

What must stay true: only what may be done twice is repeated by itself: a commit of the same offsets under the same
epoch, a question, a deletion. Whatever waits ends within its time-out, in an answer or in one typed error.
"""

from __future__ import annotations

import asyncio
from typing import Final

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.api.connection.records import OffsetAndMetadata
from raylog.errors import (
    ClusterUnreachable,
    GroupError,
    GroupNotRead,
    GroupRequestTimedOut,
    MessageUnknown,
    PeerNotAdmitted,
    RaylogError,
    StreamError,
)
from raylog.groups.records.messages import NO_OFFSET, DescribeGroup, FetchOffsets, ListGroups, OffsetToCommit

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5
_ONE_TRY_SECONDS: Final = 5.0
_QUESTIONS: Final = (DescribeGroup, FetchOffsets, ListGroups)
_FINAL: Final = (PeerNotAdmitted, MessageUnknown)


class GroupCalls:
    """`coordinator`: that of this partition of the offsets topic, in place of the group's."""

    def __init__(self, link: ClusterLink, group: str, coordinator: int | None = None) -> None:
        self.group = group
        self._link = link
        self._hashed = group_hash(group) if coordinator is None else coordinator
        self._loop = asyncio.get_running_loop()

    async def ask(self, message: Message, timeout: float) -> Message:
        """Once. Errors of the coordinator as themselves; CoordinatorNotReady, ClusterUnreachable, StreamError."""
        deadline = self._loop.time() + timeout
        place = await self._link.find_coordinator(OFFSETS_TOPIC, self._hashed, timeout)
        left = max(deadline - self._loop.time(), 0.0)
        return (await self._link.ask(place, message, timeout=left)).message

    async def ask_until(self, message: Message, timeout: float) -> Message:
        """Ask again and again until there is an answer, or an error that no repetition mends.

        GroupRequestTimedOut; GroupNotRead where nothing was to be changed.
        """
        wait = Wait(f"the coordinator of group {self.group!r}")
        try:
            return await self._ask_until(message, timeout, wait)
        finally:
            wait.over()

    async def _ask_until(self, message: Message, timeout: float, wait: Wait) -> Message:
        deadline = self._loop.time() + timeout
        backoff = Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, self._link.env.random)
        last: RaylogError | None = None
        while (left := deadline - self._loop.time()) > 0:
            try:
                return await self.ask(message, min(left, _ONE_TRY_SECONDS))
            except RaylogError as error:
                if not may_be_repeated(error):
                    raise
                last = error
                wait.failed(error)
            await asyncio.sleep(min(backoff.next(), max(0.0, deadline - self._loop.time())))
        if isinstance(last, ClusterUnreachable):
            raise last
        if isinstance(message, _QUESTIONS):
            raise GroupNotRead(self.group, round(timeout * 1000), "" if last is None else last.describe()) from last
        raise GroupRequestTimedOut(self.group, round(timeout * 1000)) from last


def may_be_repeated(error: RaylogError) -> bool:
    """Whether the next attempt may have another outcome."""
    return error.retriable or (isinstance(error, StreamError) and not isinstance(error, _FINAL))


def offset_of(entry: OffsetToCommit) -> OffsetAndMetadata | None:
    """None: none is committed."""
    _, _, offset, epoch, metadata = entry
    return None if offset == NO_OFFSET else OffsetAndMetadata(offset, metadata, epoch)


def unexpected(answer: object) -> GroupError:
    return GroupError(f"The coordinator answered {type(answer).__name__}.")

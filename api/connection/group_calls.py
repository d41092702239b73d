"""Requests to the coordinator of one group, wherever it is.

What must stay true: only what may be done twice is repeated by itself: a commit of the same offsets under the same
epoch, a question, a deletion. Whatever waits ends within its time-out, in an answer or in one typed error.
"""

from __future__ import annotations

import asyncio
from functools import partial
from typing import Final, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import may_pass, until_answered
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.api.connection.records import OffsetAndMetadata
from raylog.errors import (
    ClusterUnreachable,
    GroupNotRead,
    GroupRequestTimedOut,
    RaylogError,
)
from raylog.groups.records.messages import NO_OFFSET, DescribeGroup, FetchOffsets, ListGroups, OffsetToCommit

_FIRST_PAUSE_SECONDS: Final = 0.02
_LONGEST_PAUSE_SECONDS: Final = 0.5
_ONE_TRY_SECONDS: Final = 5.0
_QUESTIONS: Final = (DescribeGroup, FetchOffsets, ListGroups)
_Answer = TypeVar("_Answer", bound=Message)


class GroupCalls:
    """`coordinator`: that of this partition of the offsets topic, in place of the group's."""

    def __init__(self, link: ClusterLink, group: str, coordinator: int | None = None) -> None:
        self.group = group
        self._link = link
        self._hashed = group_hash(group) if coordinator is None else coordinator
        self._loop = asyncio.get_running_loop()

    async def ask(self, message: Message, expect: type[_Answer], timeout: float) -> _Answer:
        """Ask once. Errors of the coordinator as themselves; CoordinatorNotReady, ClusterUnreachable, StreamError."""
        deadline = self._loop.time() + timeout
        place = await self._link.find_coordinator(OFFSETS_TOPIC, self._hashed, timeout)
        left = max(deadline - self._loop.time(), 0.0)
        return (await self._link.ask(place, message, expect=expect, timeout=left)).message

    async def ask_until(self, message: Message, expect: type[_Answer], timeout: float) -> _Answer:
        """Ask again and again until there is an answer, or an error that no repetition mends.

        GroupRequestTimedOut; GroupNotRead where nothing was to be changed.
        """
        try:
            with Wait(f"the coordinator of group {self.group!r}") as wait:
                return await until_answered(
                    partial(self._ask_once, message, expect),
                    Backoff(_FIRST_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS, self._link.env.random),
                    is_final=_is_final,
                    failed=wait.failed,
                    seconds=timeout,
                )
        except RaylogError as error:
            if _is_final(error) or isinstance(error, ClusterUnreachable):
                raise
            if isinstance(message, _QUESTIONS):
                raise GroupNotRead(self.group, round(timeout * 1000), error.describe()) from error
            raise GroupRequestTimedOut(self.group, round(timeout * 1000)) from error

    async def _ask_once(self, message: Message, expect: type[_Answer], left: float) -> _Answer:
        return await self.ask(message, expect, min(left, _ONE_TRY_SECONDS))


def _is_final(error: RaylogError) -> bool:
    return not may_pass(error)


def offset_of(entry: OffsetToCommit) -> OffsetAndMetadata | None:
    """None: none is committed."""
    _, _, offset, epoch, metadata = entry
    return None if offset == NO_OFFSET else OffsetAndMetadata(offset, metadata, epoch)

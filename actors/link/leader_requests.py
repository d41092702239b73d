"""What this client has under way to leaders, so that it ends when a leader is replaced.

What must stay true: a request that was sent ends in its answer, or in an error that says that its outcome is unknown.
It is not waited for once a newer leader epoch is known, for then the answer may never come (rule 27).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.errors import RaylogError, RequestTimedOut, StreamNotOpen


class LeaderRequests:
    def __init__(self) -> None:
        self._sent: dict[asyncio.Future[Any], PartitionLeader] = {}
        self._dialling: dict[asyncio.Future[Any], PartitionLeader] = {}

    def __len__(self) -> int:
        return len(self._sent) + len(self._dialling)

    async def sent(self, future: asyncio.Future[Any], leader: PartitionLeader) -> Any:
        """Wait for an answer."""
        self._sent[future] = leader
        try:
            return await future
        finally:
            del self._sent[future]

    async def dialling(self, future: asyncio.Future[Any], leader: PartitionLeader) -> Any:
        """Wait for a stream."""
        self._dialling[future] = leader
        try:
            return await future
        finally:
            del self._dialling[future]

    def give_up(self, is_outdated: Callable[[PartitionLeader], bool]) -> None:
        """What was asked of such leaders."""
        for future, leader in self._dialling.items():
            if is_outdated(leader):
                _fail(future, replaced(leader))
        for future, leader in self._sent.items():
            if is_outdated(leader):
                _fail(future, RequestTimedOut(f"{_name(leader)}, which is replaced,", 0))


def replaced(leader: PartitionLeader) -> StreamNotOpen:
    """Nothing was sent, and nothing should be."""
    return StreamNotOpen(_name(leader), "it does not lead any more")


def _name(leader: PartitionLeader) -> str:
    return f"the leader of {leader.topic}-{leader.partition} under epoch {leader.epoch}"


def _fail(future: asyncio.Future[Any], error: RaylogError) -> None:
    if not future.done():
        future.set_exception(error)

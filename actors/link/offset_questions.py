"""Questions for beginnings and ends of logs, those of one moment to one process together.

    ask ──same turn of the loop──► one ListOffsets for each process ──► answers, to whoever asked
                                           └─ left out, or it failed ──► ListOffset of its own

A consumer of a thousand partitions asks a thousand such questions when it begins, and so does who describes a group.

What must stay true: whatever becomes of a question that was asked together, each caller gets the answer or the error of
a question of its own. So a process that is cut off costs `_TOGETHER_SECONDS`, and then what it always did.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final, TypeAlias

from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    LATEST,
    ListedOffset,
    ListedOffsets,
    ListOffset,
    ListOffsets,
)
from raylog.errors import RaylogError

if TYPE_CHECKING:
    from raylog.actors.kernel.background import BackgroundTasks
    from raylog.actors.link.cluster_link import ClusterLink
    from raylog.actors.link.rules.topic_cache import PartitionLeader
    from raylog.actors.protocol.endpoint import Endpoint

_FEWEST: Final = 4  # fewer are asked one by one
_MOST: Final = 2_000  # partitions in one question: 30 bytes each
_TOGETHER_SECONDS: Final = 2.0
_ASKED_TOGETHER: Final = (EARLIEST, LATEST)  # a look-up by time may have to read batches

_Waiting: TypeAlias = "tuple[PartitionLeader, asyncio.Future[ListedOffset | None]]"
_log = logging.getLogger(__name__)


class OffsetQuestions:
    """The questions of one link."""

    def __init__(self, link: ClusterLink, tasks: BackgroundTasks) -> None:
        self._link = link
        self._tasks = tasks
        self._loop = asyncio.get_running_loop()
        self._waiting: dict[tuple[tuple[Endpoint, ...], int, bool], list[_Waiting]] = {}

    async def ask(self, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float) -> ListedOffset:
        """Return the offset at a timestamp, or LATEST or EARLIEST. Errors are those of `ClusterLink.ask`."""
        deadline = self._loop.time() + timeout
        if timestamp in _ASKED_TOGETHER:
            told = await self._ask_with_others(leader, timestamp, committed)
            if told is not None:
                return told
        left = max(deadline - self._loop.time(), 0.0)
        message = ListOffset(timestamp, leader.epoch, committed)
        return (await self._link.ask(leader, message, expect=ListedOffset, timeout=left)).message

    async def _ask_with_others(self, leader: PartitionLeader, timestamp: int, committed: bool) -> ListedOffset | None:
        if not self._waiting:
            self._loop.call_soon(self._ask_all)
        told: asyncio.Future[ListedOffset | None] = self._loop.create_future()
        self._waiting.setdefault((leader.endpoints, timestamp, committed), []).append((leader, told))
        return await told

    def _ask_all(self) -> None:
        every, self._waiting = self._waiting, {}
        for (_, timestamp, committed), waiting in every.items():
            if len(waiting) < _FEWEST:
                _tell(waiting, ListedOffsets(()))
                continue
            for first in range(0, len(waiting), _MOST):
                self._tasks.start(self._ask_together(waiting[first : first + _MOST], timestamp, committed))

    async def _ask_together(self, waiting: list[_Waiting], timestamp: int, committed: bool) -> None:
        partitions = tuple((leader.topic_id, leader.partition, leader.epoch) for leader, _ in waiting)
        question = ListOffsets(timestamp, committed, partitions)
        answer = ListedOffsets(())
        try:
            told = await self._link.ask_process(
                waiting[0][0], question, expect=ListedOffsets, timeout=_TOGETHER_SECONDS
            )
            answer = told.message
        except RaylogError as error:
            _log.debug("%d offsets are asked for one by one: %s", len(waiting), error)
        finally:
            _tell(waiting, answer)


def _tell(waiting: list[_Waiting], answer: ListedOffsets) -> None:
    found = {(topic_id, partition): ListedOffset(*listed) for topic_id, partition, *listed in answer.found}
    for leader, told in waiting:
        if not told.done():
            told.set_result(found.get((leader.topic_id, leader.partition)))

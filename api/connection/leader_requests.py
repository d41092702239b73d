"""Requests of clients to leaders: the leader of a partition now, what to do when asking it has failed, and offsets.

    look_up ──► ask_until_answered ──► leader_of ──► ListOffset ──► beginning, end, or the offset of a time

What must stay true:
- After a failure no leader is asked again before metadata tells of another one, or a pause is over. So neither a
  partition without a leader nor a broken network makes a loop spin.
- An end offset that was told never goes back. A leader that cannot know its end yet says so (OffsetNotAvailable, rule
  16), and is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final, Generic, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.questions import until_answered
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.control_messages import NO_LEADER
from raylog.actors.protocol.replication_messages import NO_EPOCH, ListedOffset
from raylog.api.connection.records import TopicPartition
from raylog.errors import (
    ClusterUnreachable,
    CorruptBatch,
    InspectionUnderWay,
    NotLeader,
    OffsetNotAvailable,
    PeerNotAdmitted,
    RaylogError,
    TooManyBytesInFlight,
    UnknownLeaderEpoch,
    UnknownPartition,
    UnknownTopic,
)

_Answer = TypeVar("_Answer")

_LEADERLESS_SECONDS: Final = 1.0
_MOST_PAUSE_SECONDS: Final = 0.5
_SAYS_SOMETHING_SECONDS: Final = 1.0
_FINAL: Final = (UnknownTopic, PeerNotAdmitted, ClusterUnreachable)
FIRST_PAUSE_SECONDS: Final = 0.005  # short, for a new leader is there within moments
# The leader itself says that it is the right one, and busy: newer metadata would not help.
_SAME_LEADER: Final = (OffsetNotAvailable, UnknownLeaderEpoch, TooManyBytesInFlight, CorruptBatch, InspectionUnderWay)
NO_OFFSET: Final = -1  # what a leader answers where there is none


async def leader_of(link: ClusterLink, partition: TopicPartition, timeout: float) -> PartitionLeader | None:
    """None: nobody leads it now, and that has been so for a moment. UnknownTopic, UnknownPartition and what else
    `ClusterLink.find_topic` raises."""
    leader = link.leader(*partition)
    if leader is None:
        view = await link.find_topic(partition.topic, timeout)
        if not 0 <= partition.partition < len(view.partitions):
            raise UnknownPartition(*partition)
        leader = view.partitions[partition.partition]
    if leader.broker >= 0:
        return leader
    await link.changed(min(_LEADERLESS_SECONDS, timeout))
    leader = link.leader(*partition)
    return leader if leader is not None and leader.broker >= 0 else None


async def ask_until_answered(
    link: ClusterLink,
    partition: TopicPartition,
    ask: Callable[[PartitionLeader, float], Awaitable[_Answer]],
    timeout: float,
) -> _Answer:
    """Ask the leader of a partition, whichever replica that is. `ask` is called again until it returns.

    UnknownTopic, UnknownPartition, ClusterUnreachable, PeerNotAdmitted; or, when the time is over, what came last.
    """
    with Wait(f"an answer of the leader of {partition}") as wait:
        question = _Question(link, partition, ask, timeout, wait)
        return await until_answered(
            question.ask,
            Backoff(FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS, link.env.random),
            is_final=_is_final,
            failed=question.failed,
            pause=question.pause,
            seconds=timeout,
        )


class _Question(Generic[_Answer]):
    """A question to whoever leads a partition, and what became of it the last time."""

    def __init__(
        self,
        link: ClusterLink,
        partition: TopicPartition,
        ask: Callable[[PartitionLeader, float], Awaitable[_Answer]],
        timeout: float,
        wait: Wait,
    ) -> None:
        self._link = link
        self._partition = partition
        self._ask = ask
        self._wait = wait
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._tried: PartitionLeader | None = None
        self._last: RaylogError = NotLeader(*partition, NO_LEADER, NO_EPOCH)

    async def ask(self, left: float) -> _Answer:
        self._tried = None
        while (leader := await leader_of(self._link, self._partition, left)) is None:
            self._wait.failed(self._last)
            left = self._left()
            if left == 0.0:
                raise self._last
        self._tried = leader
        return await self._ask(leader, self._left())

    def failed(self, error: RaylogError) -> None:
        self._last = error
        self._wait.failed(error)

    async def pause(self, seconds: float) -> None:
        left = self._left()
        try:
            await after_failure(self._link, self._tried, self._last, seconds, left)
        except ClusterUnreachable:
            if left < _SAYS_SOMETHING_SECONDS:  # nobody could have answered in what was left
                raise self._last from None
            raise

    def _left(self) -> float:
        return max(0.0, self._deadline - self._loop.time())


def _is_final(error: RaylogError) -> bool:
    return isinstance(error, _FINAL)


async def after_failure(
    link: ClusterLink, tried: PartitionLeader | None, error: RaylogError, pause: float, timeout: float
) -> None:
    """Return when it makes sense to ask again. ClusterUnreachable, PeerNotAdmitted: no broker tells more."""
    if tried is None or isinstance(error, _SAME_LEADER):
        await asyncio.sleep(pause)
        return
    if is_replaced(link, tried):
        return
    await link.refresh(timeout)
    if not is_replaced(link, tried):
        await link.changed(pause)


def is_replaced(link: ClusterLink, tried: PartitionLeader) -> bool:
    """Whether metadata names another leadership than the one that was asked."""
    known = link.leader(tried.topic, tried.partition)
    return known is None or (known.topic_id, known.epoch, known.broker) != (tried.topic_id, tried.epoch, tried.broker)


async def ask_offset(
    link: ClusterLink, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float
) -> ListedOffset:
    """Once."""
    return await link.offset_at(leader, timestamp, committed, timeout)


async def look_up(
    link: ClusterLink, wanted: Mapping[TopicPartition, int], committed: bool, timeout: float
) -> dict[TopicPartition, ListedOffset]:
    """Return for each partition the offset at its timestamp (or LATEST, EARLIEST). All are asked at once, each until it
    is known.

    UnknownTopic, UnknownPartition, ClusterUnreachable, PeerNotAdmitted; or, when the time is over, what came last.
    """
    tasks = [
        asyncio.ensure_future(ask_until_answered(link, partition, partial(_ask, link, timestamp, committed), timeout))
        for partition, timestamp in wanted.items()
    ]
    try:
        return dict(zip(wanted, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()


async def _ask(
    link: ClusterLink, timestamp: int, committed: bool, leader: PartitionLeader, timeout: float
) -> ListedOffset:
    return await ask_offset(link, leader, timestamp, committed, timeout)

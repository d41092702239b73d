"""The leader of a partition now, and what to do when asking it has failed: for the requests of consumers.

What must stay true: after a failure nobody is asked again before metadata tells of another leader, or a pause is over;
so neither a partition without a leader nor a broken network makes a loop spin.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Final, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.wait_notices import Wait
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
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
    wait = Wait(f"an answer of the leader of {partition}")
    try:
        return await _until_answered(link, partition, ask, timeout, wait)
    finally:
        wait.over()


async def _until_answered(
    link: ClusterLink,
    partition: TopicPartition,
    ask: Callable[[PartitionLeader, float], Awaitable[_Answer]],
    timeout: float,
    wait: Wait,
) -> _Answer:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    last: RaylogError = NotLeader(*partition, -1, -1)
    backoff = Backoff(FIRST_PAUSE_SECONDS, _MOST_PAUSE_SECONDS, link.env.random)
    while (left := deadline - loop.time()) > 0:
        leader = None
        try:
            leader = await leader_of(link, partition, left)
            if leader is None:
                wait.failed(last)
                continue
            return await ask(leader, max(0.0, deadline - loop.time()))
        except _FINAL:
            raise
        except RaylogError as error:
            last = error
            wait.failed(error)
        left = max(0.0, deadline - loop.time())
        pause = min(left, backoff.next())
        try:
            await after_failure(link, leader, last, pause, left)
        except ClusterUnreachable:
            if left < _SAYS_SOMETHING_SECONDS:  # nobody could have answered in what was left
                raise last from None
            raise
    raise last


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

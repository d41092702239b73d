"""Where a log begins, where it ends, and which offset belongs to a time: questions to leaders.

What must stay true: an end offset that was told never goes back. A leader that cannot know its end yet says so
(OffsetNotAvailable, rule 16), and is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from typing import Final

from raylog.actors.cluster_link import ClusterLink
from raylog.actors.replication_messages import ListedOffset, ListOffset
from raylog.actors.topic_cache import PartitionLeader
from raylog.api.leader_search import after_failure, leader_of, pause_after
from raylog.api.records import TopicPartition
from raylog.errors import ClusterUnreachable, NotLeader, PeerNotAdmitted, RaylogError, RemoteFailed, UnknownTopic

NO_OFFSET: Final = -1  # what a leader answers where there is none
_MOST_PAUSE_SECONDS: Final = 0.5
_SAYS_SOMETHING_SECONDS: Final = 1.0
_FINAL: Final = (UnknownTopic, PeerNotAdmitted, ClusterUnreachable)


async def ask_offset(
    link: ClusterLink, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float
) -> ListedOffset:
    """Once."""
    message = ListOffset(timestamp, leader.epoch, committed)
    answer = (await link.ask(leader, message, timeout=timeout)).message
    if not isinstance(answer, ListedOffset):
        raise RemoteFailed(leader.topic, type(answer).__name__, "that answers no ListOffset.")
    return answer


async def look_up(
    link: ClusterLink, wanted: Mapping[TopicPartition, int], committed: bool, timeout: float
) -> dict[TopicPartition, ListedOffset]:
    """For each partition the offset at its timestamp (or LATEST, EARLIEST). All at once, each until it is known.

    UnknownTopic, UnknownPartition, ClusterUnreachable, PeerNotAdmitted; or, when the time is over, what came last.
    """
    tasks = [
        asyncio.ensure_future(_until_known(link, partition, timestamp, committed, timeout))
        for partition, timestamp in wanted.items()
    ]
    try:
        return dict(zip(wanted, await asyncio.gather(*tasks), strict=True))
    finally:
        for task in tasks:
            task.cancel()


async def _until_known(
    link: ClusterLink, partition: TopicPartition, timestamp: int, committed: bool, timeout: float
) -> ListedOffset:
    loop = asyncio.get_running_loop()
    deadline = loop.time() + timeout
    last: RaylogError = NotLeader(*partition, -1, -1)
    failures = 0
    while (left := deadline - loop.time()) > 0:
        leader = None
        try:
            leader = await leader_of(link, partition, left)
            if leader is None:
                continue
            return await ask_offset(link, leader, timestamp, committed, max(0.0, deadline - loop.time()))
        except _FINAL:
            raise
        except RaylogError as error:
            last = error
        failures += 1
        left = max(0.0, deadline - loop.time())
        pause = min(left, pause_after(failures, _MOST_PAUSE_SECONDS, link.env.random.random()))
        try:
            await after_failure(link, leader, last, pause, left)
        except ClusterUnreachable:
            if left < _SAYS_SOMETHING_SECONDS:  # nobody could have answered in what was left
                raise last from None
            raise
    raise last

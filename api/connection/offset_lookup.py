"""Offsets of a log: its beginning, its end, and the one that belongs to a time. Leaders are asked for them.

What must stay true: an end offset that was told never goes back. A leader that cannot know its end yet says so
(OffsetNotAvailable, rule 16), and is asked again.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from functools import partial
from typing import Final

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.replication_messages import ListedOffset, ListOffset
from raylog.api.connection.leader_search import ask_until_answered
from raylog.api.connection.records import TopicPartition

NO_OFFSET: Final = -1  # what a leader answers where there is none


async def ask_offset(
    link: ClusterLink, leader: PartitionLeader, timestamp: int, committed: bool, timeout: float
) -> ListedOffset:
    """Once."""
    message = ListOffset(timestamp, leader.epoch, committed)
    return (await link.ask(leader, message, expect=ListedOffset, timeout=timeout)).message


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

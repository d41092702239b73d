"""Beginnings and ends of several logs of one host, in one answer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from raylog.actors.kernel.stream_interface import Response
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    LATEST,
    ListedOffset,
    ListedOffsets,
    ListOffset,
    ListOffsets,
)
from raylog.actors.replica.reads import LeaderReads
from raylog.errors import RaylogError


def listed_offsets(
    message: ListOffsets, leader_of: Callable[[tuple[bytes, int]], LeaderReads | None]
) -> ListedOffsets:
    """Return those that are known at once. Of the others the client hears why when it asks for each by itself."""
    if message.timestamp not in (EARLIEST, LATEST):  # to look for a time may read batches beside the loop
        return ListedOffsets(())
    return ListedOffsets(tuple(_found(message, leader_of)))


def _found(
    message: ListOffsets, leader_of: Callable[[tuple[bytes, int]], LeaderReads | None]
) -> Iterator[tuple[bytes, int, int, int, int]]:
    for topic_id, partition, leader_epoch in message.partitions:
        leader = leader_of((topic_id, partition))
        if leader is None:
            continue
        try:
            answer = leader.list_offset(ListOffset(message.timestamp, leader_epoch, message.committed))
        except RaylogError:
            continue
        if isinstance(answer, Response) and isinstance(answer.message, ListedOffset):
            listed = answer.message
            yield topic_id, partition, listed.offset, listed.timestamp, listed.leader_epoch

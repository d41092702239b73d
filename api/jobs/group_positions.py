"""Offsets that a group has committed, for a job that is no member of it. Blocks.

What must stay true: an offset that a transaction has staged is waited for (rule 22). A driver that goes on from an
older one would read again what its predecessor has committed.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Final

from raylog.api.connection.group_calls import GroupCalls
from raylog.api.connection.link_calls import call_over_link
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.api.consumer.group.group_offsets import GroupOffsets

if TYPE_CHECKING:
    from raylog.actors.link.cluster_link import ClusterLink
    from raylog.api.admin.cluster import Cluster

_SECONDS: Final = 60.0


def committed_offsets(
    cluster: Cluster, group_id: str, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return those that there are. UnstableOffset: a transaction stayed open for so long. InvalidGroupId."""

    async def ask(link: ClusterLink) -> dict[TopicPartition, OffsetAndMetadata | None]:
        nobody = GroupOffsets(link, GroupCalls(link, group_id), lambda: None, lambda _: None, lambda _: 0)
        return await nobody.committed(partitions, _SECONDS)

    found = call_over_link(cluster, ask, _SECONDS)
    return {place: each.offset for place, each in found.items() if each is not None}

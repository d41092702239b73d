"""Partitions of groups by the names of their topics, for metrics. Topics that are gone are left out."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from raylog.groups.records.messages import PartitionId
from raylog.groups.records.offsets_log import Topics
from raylog.groups.rules.group import Group


def committed(groups: Iterable[Group], topics: Topics) -> Iterator[tuple[str, str, int, int]]:
    """Yield the committed offsets: group, topic, partition, offset."""
    for group in groups:
        for partition, value in group.offsets.items():
            name = _name_of(partition, topics)
            if name is not None:
                yield group.group_id, name, partition[1], value.offset


def uncommitted(groups: Iterable[Group], topics: Topics) -> Iterator[tuple[str, str, int]]:
    """Yield what members have and their group has never committed: group, topic, partition."""
    for group in groups:
        for partition in group.owners.keys() - group.offsets.keys():
            name = _name_of(partition, topics)
            if name is not None:
                yield group.group_id, name, partition[1]


def _name_of(partition: PartitionId, topics: Topics) -> str | None:
    topic_id, number = partition
    known = topics.by_id(topic_id)
    return None if known is None or number >= known.partitions else known.name

"""The frame that `raylog top` shows: the difference of two looks at a cluster, as text."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from raylog.api.cli.terminal.output import size

if TYPE_CHECKING:
    from raylog.actors.cluster.descriptions import ClusterDescription, ReplicaDescription, TopicDescription
    from raylog.api.admin.rules.group_descriptions import GroupDescription


@dataclass(frozen=True)
class Sample:
    """One look."""

    at: float  # seconds of a clock that does not jump
    cluster: ClusterDescription
    topics: tuple[tuple[TopicDescription, tuple[ReplicaDescription, ...]], ...]
    groups: tuple[GroupDescription, ...]

    @property
    def is_healthy(self) -> bool:
        found = self.cluster
        alive = all(each.alive for each in found.brokers)
        return alive and not (found.offline or found.under_replicated or found.under_min_isr)

    def written(self, topic: str) -> int:
        """Return the sum of the ends of a topic's logs."""
        found = (each for each, _ in self.topics if each.name == topic)
        return sum(max(0, one.log_end_offset) for each in found for one in each.partitions)

    def committed(self, topic: str | None = None, group: str | None = None) -> int:
        return sum(
            one.committed.offset
            for each in self.groups
            if group in (None, each.group_id)
            for one in each.partitions
            if one.committed is not None and topic in (None, one.partition.topic)
        )


def headline(name: str, now: Sample) -> str:
    found = now.cluster
    alive = sum(each.alive for each in found.brokers)
    parts = [f"cluster {name}", f"brokers {alive}/{len(found.brokers)}", f"partitions {found.partitions}"]
    parts += [f"under-replicated {found.under_replicated}", f"offline {found.offline}"]
    return "   ".join([*parts, *([f"moving {found.reassigning}"] if found.reassigning else [])])


def topic_rows(before: Sample, now: Sample) -> list[tuple[str, ...]]:
    """Return a row for each topic, those with most traffic first."""
    rows = []
    for found, replicas in now.topics:
        come = _rate(now.written(found.name) - before.written(found.name), before, now)
        gone = _rate(now.committed(topic=found.name) - before.committed(topic=found.name), before, now)
        rows.append((come + gone, found.name, _topic(found, replicas, come, gone)))
    return [row for _, _, row in sorted(rows, key=lambda each: (-each[0], each[1]))]


def _topic(
    found: TopicDescription, replicas: Sequence[ReplicaDescription], come: float, gone: float
) -> tuple[str, ...]:
    in_sync = sum(len(each.isr) for each in found.partitions)
    wanted = sum(len(each.replicas) for each in found.partitions)
    records = sum(max(0, each.log_end_offset) - max(0, each.log_start_offset) for each in found.partitions)
    stored = sum(max(0, each.size_bytes) for each in replicas)
    under = sum(each.is_under_replicated for each in found.partitions)
    return (
        found.name,
        str(len(found.partitions)),
        f"{come:,.0f}",
        f"{gone:,.0f}",
        f"{records:,}",
        size(stored),
        f"{in_sync}/{wanted}",
        str(under),
    )


def group_rows(before: Sample, now: Sample) -> list[tuple[str, ...]]:
    """Return a row for each group, those furthest behind first."""
    rows = []
    for each in now.groups:
        moved = now.committed(group=each.group_id) - before.committed(group=each.group_id)
        rate = f"{_rate(moved, before, now):,.0f}"
        rows.append((each.lag, (each.group_id, each.state, str(len(each.members)), rate, f"{each.lag:,}")))
    return [row for _, row in sorted(rows, key=lambda pair: (-pair[0], pair[1]))]


def _rate(records: int, before: Sample, now: Sample) -> float:
    """Offsets that went back (a group was reset, a topic made anew) are no traffic."""
    seconds = now.at - before.at
    return max(0, records) / seconds if seconds > 0 else 0.0

"""Kills of leaders: SIGKILL for the process, once nothing is missing."""

from __future__ import annotations

import os
import signal
from collections.abc import Sequence

import raylog
from tests.cluster.conftest import until


def until_whole(cluster: raylog.Cluster, topics: Sequence[str]) -> None:
    """Wait until each partition is led and has all its replicas in sync: what is killed next is missing alone."""
    until(lambda: all(_is_whole(cluster, topic) for topic in topics))


def _is_whole(cluster: raylog.Cluster, topic: str) -> bool:
    partitions = cluster.describe_topic(topic).partitions
    return all(each.leader >= 0 and len(each.isr) == len(each.replicas) for each in partitions)


def leaders(cluster: raylog.Cluster, topic: str) -> dict[int, int]:
    """Return the process that leads each partition."""
    return {each.partition: each.pid for each in cluster.describe_replicas(topic) if each.role == "leader"}


def kill_leader(cluster: raylog.Cluster, topic: str, partition: int) -> int:
    """SIGKILL for who leads a partition. Return its process."""
    victim = leaders(cluster, topic)[partition]
    os.kill(victim, signal.SIGKILL)
    return victim


def ends_of(topic: str) -> dict[int, int]:
    """Return the offset behind the last record of each partition, as its leader says it now."""
    with raylog.Consumer() as consumer:
        numbers = consumer.partitions_for_topic(topic) or ()
        ends = consumer.end_offsets([raylog.TopicPartition(topic, number) for number in numbers])
    return {each.partition: offset for each, offset in ends.items()}

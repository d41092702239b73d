"""What metadata has told of topics: who leads which partition, since when, and where.

What must stay true:
- What is known of a partition only moves forward: to a higher leader epoch, or to a newer metadata version under the
  same one. A broker that lags behind changes nothing, unless the topic was made anew since (another topic id).
- Partitions of a topic are numbered from 0 without a gap, and never become fewer while it lives.
"""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.stream_interface import Endpoint


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """Who leads a partition, by the newest word of any broker."""

    topic: str
    topic_id: bytes
    partition: int
    broker: int  # -1: nobody leads now
    epoch: int  # leader epoch
    endpoints: tuple[Endpoint, ...]  # nearest first; empty where nobody leads
    node_id: str  # the leader's Ray node


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionLeader, ...]  # by number, from 0, without a gap

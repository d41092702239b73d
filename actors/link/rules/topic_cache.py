"""Known topics and coordinators, by metadata: who leads which partition, in which epoch, and where.

What must stay true:
- What is known of a topic only moves forward, to a newer metadata version. The leader epoch of a partition never falls,
  unless the topic was made anew (it has another topic id). So a broker that lags behind changes nothing.
- What is known of coordinators is that of the newest metadata version, as a whole.
- A part of the metadata counts only where the rest is known as of the version that it goes on from.
- Partitions of a topic are numbered from 0 without a gap.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import Final

from raylog.actors.protocol.control_messages import NOTHING_KNOWN, Metadata, PartitionMetadata, TopicMetadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import NO_TOPIC
from raylog.config import TopicConfig

_DEFAULTS: Final = TopicConfig()

_MOST_PLACES: Final = 1_024


@dataclass(frozen=True, slots=True)
class PartitionLeader:
    """The leader of a partition, by the newest metadata of any broker."""

    topic: str
    topic_id: bytes
    partition: int
    broker: int  # -1: there is no leader now
    epoch: int  # leader epoch
    endpoints: tuple[Endpoint, ...]  # nearest first; empty where there is no leader
    node_id: str  # the leader's Ray node
    replicas: tuple[int, ...] = ()  # brokers


class CoordinatorAddress(PartitionLeader):
    """The coordinator of a partition of an internal topic, which is asked as a leader is. `epoch` is its own."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class TopicView:
    name: str
    topic_id: bytes
    partitions: tuple[PartitionLeader, ...]  # by number, from 0, without a gap
    batch_format: str = _DEFAULTS.batch_format  # the form that its writers give new batches
    max_batch_bytes: int = _DEFAULTS.max_batch_bytes  # the size of the largest batch that its leaders take


class TopicCache:
    """The knowledge of one client. `node_id`: the Ray node of this process; empty: none, or unknown."""

    def __init__(self, node_id: str) -> None:
        self.version = -1  # the newest that any answer had
        self.complete_version = -1  # of the newest that was about all topics
        self._node_id = node_id
        self._topics: dict[str, TopicView] = {}
        self._versions: dict[str, int] = {}  # of what is known of a topic, or of its absence
        self._coordinators: dict[tuple[str, int], CoordinatorAddress] = {}
        self._coordinators_version = -1
        self._places: dict[tuple[tuple[str, ...], str], tuple[Endpoint, ...]] = {}  # one object for each process

    def topic(self, name: str) -> TopicView | None:
        return self._topics.get(name)

    def leader(self, topic: str, partition: int) -> PartitionLeader | None:
        view = self._topics.get(topic)
        return view.partitions[partition] if view is not None and 0 <= partition < len(view.partitions) else None

    def coordinator(self, topic: str, partition: int) -> CoordinatorAddress | None:
        """Return the coordinator of a partition. One without endpoints does not serve just now.

        Its process tells it from others by the id of the topic, which has to be known to ask it.
        """
        known, view = self._coordinators.get((topic, partition)), self._topics.get(topic)
        if known is not None and view is not None and known.topic_id != view.topic_id:
            known = self._coordinators[topic, partition] = replace(known, topic_id=view.topic_id)
        return known

    def is_outdated(self, leader: PartitionLeader) -> bool:
        """Return whether this leadership is over: there is another leader, a higher epoch, or no leader."""
        if isinstance(leader, CoordinatorAddress):
            return leader != self.coordinator(leader.topic, leader.partition)
        known = self.leader(leader.topic, leader.partition)
        if known is None:
            return leader.topic in self._versions
        return known.topic_id != leader.topic_id or known.epoch > leader.epoch

    def endpoints(self) -> set[tuple[Endpoint, ...]]:
        """Return the endpoints of all leaders and coordinators."""
        partitions = [each for view in self._topics.values() for each in view.partitions]
        leading = set({id(each.endpoints): each.endpoints for each in partitions}.values())  # a few, of thousands
        coordinating = {each.endpoints for each in self._coordinators.values()}
        return (leading | coordinating) - {()}

    def version_of(self, topics: Collection[str]) -> int:
        """Return as of which version all these topics are known; no names: all that there are."""
        if not topics:
            return self.complete_version
        return min(self._versions.get(name, NOTHING_KNOWN) for name in topics)

    def learn(self, answer: Metadata, asked: Collection[str]) -> bool:
        """Take over what is new in an answer to a question for these topics. Return whether anything changed."""
        return self._learn(answer, asked, self.complete_version)

    def _learn(self, answer: Metadata, asked: Collection[str], all_known: int) -> bool:
        """`all_known`: as of which version all topics are known. That no topic has a name is known too."""
        found = {topic.name: topic for topic in answer.topics}
        is_change = False
        for name in asked:
            known = max(self._versions.get(name, NOTHING_KNOWN), all_known)
            if answer.version > known >= answer.since:
                self._versions[name] = answer.version
                if answer.since == NOTHING_KNOWN or name in answer.gone:
                    is_change |= self._replace(name, found.get(name))
                elif name in found:
                    is_change |= self._replace_part(found[name])
        is_change |= self._learn_coordinators(answer)
        self.version = max(self.version, answer.version)
        return is_change

    def learn_all(self, answer: Metadata) -> bool:
        """Take over an answer about all topics: those that it does not name do not exist. Return as `learn`."""
        all_known = self.complete_version
        if all_known >= answer.since:
            self.complete_version = max(all_known, answer.version)
        return self._learn(answer, {*self._topics, *(topic.name for topic in answer.topics)}, all_known)

    def topics(self) -> Iterable[TopicView]:
        return self._topics.values()

    def view_of(self, topic: TopicMetadata) -> TopicView:
        """Return what this answer alone says of the topic."""
        leaders = tuple(self._leader(topic, each) for each in sorted(topic.partitions))
        return TopicView(topic.name, topic.topic_id, leaders, topic.batch_format, topic.max_batch_bytes)

    def _learn_coordinators(self, answer: Metadata) -> bool:
        if answer.version <= self._coordinators_version:
            return False
        self._coordinators_version = answer.version
        known, self._coordinators = self._coordinators, {}
        for each in answer.coordinators:
            places = nearest_first(each.endpoints, each.node_id, self._node_id)
            before = known.get((each.topic, each.partition))
            topic_id = NO_TOPIC if before is None else before.topic_id
            address = CoordinatorAddress(each.topic, topic_id, each.partition, -1, each.epoch, places, each.node_id)
            self._coordinators[each.topic, each.partition] = address
        return known != self._coordinators

    def _replace(self, name: str, topic: TopicMetadata | None) -> bool:
        known = self._topics.get(name)
        if topic is None:
            return self._topics.pop(name, None) is not None
        view = self.view_of(topic)
        if known is not None and known.topic_id == view.topic_id:
            view = replace(view, partitions=_newer(known.partitions, view.partitions))
        self._topics[name] = view
        return view != known

    def _replace_part(self, topic: TopicMetadata) -> bool:
        """Take over the partitions that have changed. Of a new topic these are all."""
        known = self._topics.get(topic.name)
        if known is None or known.topic_id != topic.topic_id:
            return self._replace(topic.name, topic)
        told, partitions = self.view_of(topic), list(known.partitions)
        for new in told.partitions:
            if new.partition == len(partitions):
                partitions.append(new)
            elif partitions[new.partition].epoch <= new.epoch:
                partitions[new.partition] = new
        view = replace(told, partitions=tuple(partitions))
        self._topics[topic.name] = view
        return view != known

    def _leader(self, topic: TopicMetadata, told: PartitionMetadata) -> PartitionLeader:
        places = self._nearest_first(told.endpoints, told.node_id) if told.leader >= 0 else ()
        return PartitionLeader(
            topic=topic.name,
            topic_id=topic.topic_id,
            partition=told.partition,
            broker=told.leader,
            epoch=told.leader_epoch,
            endpoints=places,
            node_id=told.node_id,
            replicas=told.replicas,
        )

    def _nearest_first(self, endpoints: tuple[str, ...], node_id: str) -> tuple[Endpoint, ...]:
        places = self._places.get((endpoints, node_id))
        if places is None:
            if len(self._places) >= _MOST_PLACES:
                self._places.clear()
            places = self._places[endpoints, node_id] = nearest_first(endpoints, node_id, self._node_id)
        return places


def nearest_first(endpoints: Iterable[str], of_node: str, from_node: str) -> tuple[Endpoint, ...]:
    """Return the endpoints that a process on `from_node` can use, the nearest first: unix sockets on its node only."""
    parsed = tuple(map(Endpoint.parse, endpoints))
    if from_node and from_node != of_node:
        parsed = tuple(each for each in parsed if not each.is_unix)
    return parsed


def _newer(known: tuple[PartitionLeader, ...], told: tuple[PartitionLeader, ...]) -> tuple[PartitionLeader, ...]:
    newer = (old if old.epoch > new.epoch else new for old, new in zip(known, told, strict=False))
    return (*newer, *(known if len(known) > len(told) else told)[min(len(known), len(told)) :])

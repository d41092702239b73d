"""Topics as Kafka clients name them: by name or, in newer versions, by id. The cluster link keeps them up to date."""

from __future__ import annotations

import asyncio
from typing import Final

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.control_messages import TopicMetadata
from raylog.actors.protocol.metadata_records import NEVER_LED
from raylog.errors import NotLeader, UnknownPartition, UnknownTopic, UnknownTopicId

_FORMING_SECONDS: Final = 10.0  # in which a new topic is not told by halves


class KnownTopics:
    """The topics of a link that follows all of them (`ClusterLink.follow_all`)."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._by_id: dict[bytes, TopicView] | None = None
        self._heard_at: dict[bytes, float] = {}
        self._loop = asyncio.get_running_loop()
        self._stop = link.on_change(self._changed)

    def close(self) -> None:
        """Listen to the link no more."""
        self._stop()

    def find(self, name: str | None, topic_id: bytes, *, by_id: bool) -> TopicView:
        """Return the topic of this name or, `by_id`, of this id. UnknownTopic, UnknownTopicId."""
        view = self.of_id(topic_id) if by_id else self._link.topic(name or "")
        if view is not None:
            return view
        raise UnknownTopicId(topic_id.hex()) if by_id else UnknownTopic(name or "")

    def leader(self, view: TopicView, partition: int) -> PartitionLeader:
        """Return the leader of a partition, which can be asked. UnknownPartition, NotLeader: nobody leads it now."""
        if not 0 <= partition < len(view.partitions):
            raise UnknownPartition(view.name, partition)
        leader = view.partitions[partition]
        if not leader.endpoints:
            raise NotLeader(view.name, partition, leader.broker, leader.epoch)
        return leader

    def of_id(self, topic_id: bytes) -> TopicView | None:
        """Return the topic of this id; None: there is none."""
        if self._by_id is None:
            self._by_id = {view.topic_id: view for view in self._link.topics()[1]}
        return self._by_id.get(topic_id)

    def is_forming(self, topic: TopicMetadata) -> bool:
        """Return whether a topic is new here, and some of its partitions are yet to get their first leaders.

        Kafka's topics have all their leaders at once, and some clients rely on that.
        """
        now = self._loop.time()
        is_new = now < self._heard_at.get(topic.topic_id, now) + _FORMING_SECONDS
        return is_new and any(each.leader_epoch == NEVER_LED for each in topic.partitions)

    def _changed(self) -> None:
        self._by_id = None
        now, heard_at = self._loop.time(), self._heard_at
        self._heard_at = {view.topic_id: heard_at.get(view.topic_id, now) for view in self._link.topics()[1]}

"""Topics as Kafka clients name them: by name or, in newer versions, by id. The cluster link keeps them up to date."""

from __future__ import annotations

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.errors import NotLeader, UnknownPartition, UnknownTopic, UnknownTopicId


class KnownTopics:
    """The topics of a link that follows all of them (`ClusterLink.follow_all`)."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link
        self._by_id: dict[bytes, TopicView] | None = None
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

    def _changed(self) -> None:
        self._by_id = None

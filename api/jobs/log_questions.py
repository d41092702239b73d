"""Questions of a driver to the brokers: which topics there are, and how far their partitions go. Blocks."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from typing import TYPE_CHECKING, Final

from raylog.actors.link.cluster_link import TopicView
from raylog.actors.machine.cluster_access import ClusterAccess
from raylog.actors.protocol.names import is_internal
from raylog.actors.protocol.replication_messages import LATEST
from raylog.api.connection.leader_requests import look_up
from raylog.api.connection.records import TopicPartition
from raylog.api.jobs.channel import Channel, channel_to
from raylog.api.jobs.rules.subscription import Subscription
from raylog.errors import UnknownPartition, UnknownTopic

if TYPE_CHECKING:
    from raylog.api.admin.cluster import Cluster

_SECONDS: Final = 30.0


class LogQuestions:
    """`cluster`: a name, a handle, its access, or None for the one of this Ray."""

    def __init__(self, cluster: Cluster | ClusterAccess | str | None, reads_committed: bool) -> None:
        self._cluster = cluster
        self._reads_committed = reads_committed
        self.access = _access_of(cluster)

    def find_again(self) -> None:
        """Find out where the brokers are now: after a restart they may have other addresses."""
        self.access = _access_of(self._cluster)

    def topics(self, subscription: Subscription, *, all_of_them: bool = True) -> dict[TopicPartition, bytes]:
        """The partitions that are read, each with its topic's id.

        UnknownTopic, UnknownPartition: one is not there; without `all_of_them` those that are there are told.
        """
        channel = self._channel()
        if subscription.pattern:
            pattern = re.compile(subscription.pattern)
            self.hear_others()  # what is missed here would begin at another place later, or be taken for deleted
            views = channel.run(channel.link.list_topics(_SECONDS))
            return _all_of([each for each in views if _is_meant(pattern, each.name)])
        found = {}
        for topic, numbers in (subscription.partitions or dict.fromkeys(subscription.topics)).items():
            known = self._partitions(channel, topic, all_of_them)
            wanted = known if numbers is None else [TopicPartition(topic, number) for number in numbers]
            for place in wanted:
                if place in known:
                    found[place] = known[place]
                elif all_of_them:
                    raise UnknownPartition(*place)
        return found

    def hear_others(self) -> None:
        """Let several brokers say what they know, so that from here on one that is cut off is not believed."""
        channel = self._channel()
        channel.run(channel.link.hear_others())

    def offsets(self, wanted: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Each at a time, EARLIEST or LATEST, which is the last stable offset for whoever reads committed records."""
        if not wanted:
            return {}
        channel = self._channel()
        answers = channel.run(look_up(channel.link, wanted, self._reads_committed, _SECONDS))
        return {place: answer.offset for place, answer in answers.items()}

    def ends(self, partitions: Collection[TopicPartition]) -> dict[TopicPartition, int]:
        return self.offsets(dict.fromkeys(partitions, LATEST))

    def _partitions(self, channel: Channel, topic: str, has_to_be: bool) -> dict[TopicPartition, bytes]:
        try:
            return _all_of([channel.run(channel.link.find_topic(topic, _SECONDS))])
        except UnknownTopic:
            if has_to_be:
                raise
            return {}

    def _channel(self) -> Channel:
        return channel_to(self.access)


def _access_of(cluster: Cluster | ClusterAccess | str | None) -> ClusterAccess:
    if isinstance(cluster, ClusterAccess):
        return cluster
    if cluster is None or isinstance(cluster, str):
        from raylog.api.admin.formation import connect

        cluster = connect() if cluster is None else connect(cluster)
    return cluster.access()


def _is_meant(pattern: re.Pattern[str], topic: str) -> bool:
    return not is_internal(topic) and pattern.fullmatch(topic) is not None


def _all_of(views: list[TopicView]) -> dict[TopicPartition, bytes]:
    return {
        TopicPartition(view.name, number): view.topic_id for view in views for number in range(len(view.partitions))
    }



"""What consumers ask the cluster: which topics there are, and where in them something is."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import TYPE_CHECKING

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.connection.client_runtime import ClientRuntime
from raylog.api.connection.kafka_hints import keywords_wanted
from raylog.api.connection.offset_lookup import NO_OFFSET, look_up
from raylog.api.connection.records import OffsetAndTimestamp, TopicPartition, as_partition
from raylog.api.consumer.fetching.fetcher import Fetcher
from raylog.api.consumer.rules.consumer_options import ConsumerOptions
from raylog.errors import UnknownTopic

if TYPE_CHECKING:
    from raylog.actors.link.rules.topic_cache import TopicView


class ConsumerQuestions:
    """What `Consumer` answers without being assigned anything."""

    _options: ConsumerOptions
    _timeout: float
    _runtime: ClientRuntime
    _link: ClusterLink
    _fetcher: Fetcher

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset of the first record of each. UnknownTopic, UnknownPartition, ClusterUnreachable."""
        return self._offsets_at(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """The offset behind the last record of each that this consumer may see."""
        return self._offsets_at(partitions, LATEST)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """For each the first record at this time (milliseconds since 1970) or later; None: there is none.

        >>> hour_ago = int(time.time() * 1000) - 3_600_000
        >>> found = consumer.offsets_for_times({partition: hour_ago for partition in consumer.assignment()})
        """
        wanted = {as_partition(partition): int(timestamp) for partition, timestamp in timestamps.items()}
        for timestamp in wanted.values():
            if timestamp < 0:
                raise ValueError(f"A timestamp is in milliseconds since 1970, and not {timestamp}.")
        self._check_open()
        answers = self._runtime.run(look_up(self._link, wanted, self._options.reads_committed, self._timeout))
        return {
            partition: None
            if found.offset == NO_OFFSET
            else OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)
            for partition, found in answers.items()
        }

    def highwater(self, partition: TopicPartition) -> int | None:
        """The offset behind the last replicated record, as the last fetch told; None: there was no fetch yet."""
        marks = self._fetcher.marks.get(as_partition(partition))
        return None if marks is None else marks.high_watermark

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """The numbers of its partitions; None: there is no such topic."""
        self._check_open()
        try:
            return {each.partition for each in self._find_topic(topic).partitions}
        except UnknownTopic:
            return None

    def topics(self) -> set[str]:
        """All topics there are. ClusterUnreachable."""
        self._check_open()
        names = {view.name for view in self._runtime.run(self._link.list_topics(self._timeout))}
        return {name for name in names if not (self._options.exclude_internal_topics and name.startswith("__"))}

    def _find_topic(self, name: str) -> TopicView:
        return self._runtime.run(self._link.find_topic(as_topic_name(name), self._timeout))

    def _offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        self._check_open()
        wanted = {as_partition(partition): timestamp for partition in partitions}
        answers = self._runtime.run(look_up(self._link, wanted, self._options.reads_committed, self._timeout))
        return {partition: found.offset for partition, found in answers.items()}

    def _check_open(self) -> None:
        raise NotImplementedError


def check_topics(topics: tuple[object, ...], client: str) -> None:
    """TypeError: what stands first in `Consumer(…)` is no topic, but all options in a dictionary, say."""
    for topic in topics:
        if isinstance(topic, Mapping):
            raise TypeError(keywords_wanted(client))
        as_topic_name(topic)


def as_topic_name(name: object) -> str:
    if not isinstance(name, str):
        raise TypeError(f"A topic's name is text, and not {name!r}.")
    return name

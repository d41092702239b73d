"""The methods of a consumer that ask the cluster: which topics there are, and which offsets they have."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from raylog.actors.protocol.names import is_internal
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST, ListedOffset
from raylog.api.connection.leader_requests import NO_OFFSET, look_up
from raylog.api.connection.records import OffsetAndTimestamp, TopicPartition, as_partition
from raylog.api.consumer.consumer_core import ConsumerCore
from raylog.errors import UnknownTopic


class ConsumerQueries:
    """The methods of `Consumer` that ask the cluster about topics and offsets. They need no assignment."""

    _core: ConsumerCore

    def beginning_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset of the first record of each of `partitions`.

        UnknownTopic, UnknownPartition, ClusterUnreachable.
        """
        return self._offsets_at(partitions, EARLIEST)

    def end_offsets(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offset after the last record of each of `partitions` that this consumer may see."""
        return self._offsets_at(partitions, LATEST)

    def offsets_for_times(
        self, timestamps: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, OffsetAndTimestamp | None]:
        """Return for each partition its first record at or after its time in `timestamps`; None: there is none.

        `timestamps` are milliseconds since 1970, by partition.

        >>> hour_ago = int(time.time() * 1000) - 3_600_000
        >>> found = consumer.offsets_for_times({partition: hour_ago for partition in consumer.assignment()})
        """
        wanted = {as_partition(partition): int(timestamp) for partition, timestamp in timestamps.items()}
        for timestamp in wanted.values():
            if timestamp < 0:
                raise ValueError(f"A timestamp is in milliseconds since 1970, and not {timestamp}.")
        return {
            partition: None
            if found.offset == NO_OFFSET
            else OffsetAndTimestamp(found.offset, found.timestamp, found.leader_epoch)
            for partition, found in self._look_up(wanted).items()
        }

    def highwater(self, partition: TopicPartition) -> int | None:
        """Return the offset after the last replicated record of `partition`, as of the last fetch.

        None: nothing was fetched yet.
        """
        marks = self._core.fetcher.marks.get(as_partition(partition))
        return None if marks is None else marks.high_watermark

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        """Return the numbers of the partitions of `topic`; None: there is no such topic."""
        core = self._core
        core.check_open()
        try:
            return {each.partition for each in core.find_topic(topic).partitions}
        except UnknownTopic:
            return None

    def topics(self) -> set[str]:
        """Return the names of all topics. ClusterUnreachable."""
        core = self._core
        core.check_open()
        names = {view.name for view in core.runtime.run(core.link.list_topics(core.timeout))}
        return {name for name in names if not (core.options.exclude_internal_topics and is_internal(name))}

    def _offsets_at(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        found = self._look_up({as_partition(partition): timestamp for partition in partitions})
        return {partition: each.offset for partition, each in found.items()}

    def _look_up(self, wanted: dict[TopicPartition, int]) -> dict[TopicPartition, ListedOffset]:
        core = self._core
        core.check_open()
        return core.runtime.run(look_up(core.link, wanted, core.options.reads_committed, core.timeout))

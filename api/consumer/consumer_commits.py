"""The methods of a consumer that commit offsets to its group, and read what is committed."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TypeAlias

from raylog.api.connection.records import GroupMetadata, OffsetAndMetadata, TopicPartition, as_partition
from raylog.api.consumer.consumer_core import ConsumerCore
from raylog.api.consumer.group_commits import CommitCallback

Offset: TypeAlias = "int | OffsetAndMetadata"


class ConsumerCommits:
    """The methods of `Consumer` that need a `group_id`; without one each raises GroupRequired."""

    _core: ConsumerCore

    def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout_ms: float | None = None) -> None:
        """Commit `offsets` to the group: of each partition, the next record to read. None: how far this consumer is.

        UnknownMember, FencedMember, PartitionNotOwned: the partition is another member's. GroupRequestTimedOut: not
        within `timeout_ms` (request_timeout_ms by default).

        >>> consumer.commit({TopicPartition("clicks", 0): OffsetAndMetadata(43, "a note")})
        """
        given = None if offsets is None else _to_commit(offsets)
        core = self._core
        core.in_group("commit").commits.commit(given, core.timeout if timeout_ms is None else timeout_ms / 1000)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """Commit `offsets` without waiting; see `commit`. A later poll calls `callback(offsets, error or None)`."""
        given = None if offsets is None else _to_commit(offsets)
        return self._core.in_group("commit_async").commits.commit_async(given, callback)

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """Return the offset that the group has committed last for `partition`; None: there is none.

        With `metadata` it comes with its note. GroupRequestTimedOut: not within `timeout_ms`.

        >>> consumer.committed(TopicPartition("clicks", 0))
        """
        found = self.committed_offsets([partition], timeout_ms)[as_partition(partition)]
        return found if metadata or found is None else found.offset

    def committed_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Return `committed` of many `partitions` at once. GroupRequestTimedOut: not within `timeout_ms`."""
        core = self._core
        seconds = core.timeout if timeout_ms is None else timeout_ms / 1000
        return core.in_group("committed").commits.committed(list(map(as_partition, partitions)), seconds)

    def group_metadata(self) -> GroupMetadata:
        """Return this consumer's place in its group at present, for commits within a transaction."""
        return self._core.in_group("group_metadata").metadata()


def _to_commit(offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetAndMetadata]:
    given = {as_partition(partition): offset for partition, offset in offsets.items()}
    return {
        partition: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for partition, offset in given.items()
    }

"""What consumers ask of their group: to remember offsets, and what it remembers."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from concurrent.futures import Future
from typing import TypeAlias

from raylog.api.connection.records import GroupMetadata, OffsetAndMetadata, TopicPartition, as_partition
from raylog.api.consumer.group_subscription import CommitCallback, GroupDesk
from raylog.errors import GroupRequired

Offset: TypeAlias = "int | OffsetAndMetadata"


class ConsumerCommits:
    """What `Consumer` has for those with a `group_id`; without one each call is GroupRequired."""

    _timeout: float
    _group: GroupDesk | None
    _is_group_followed: bool

    def commit(self, offsets: Mapping[TopicPartition, Offset] | None = None, timeout_ms: float | None = None) -> None:
        """Have the group remember these offsets, of the next record to read; without any: how far this consumer is.

        UnknownMember, FencedMember, PartitionNotOwned: the partition is another member's. GroupRequestTimedOut.

        >>> consumer.commit({TopicPartition("clicks", 0): OffsetAndMetadata(43, "a note")})
        """
        given = None if offsets is None else _to_commit(offsets)
        self._in_group("commit").commit(given, self._timeout if timeout_ms is None else timeout_ms / 1000)

    def commit_async(
        self, offsets: Mapping[TopicPartition, Offset] | None = None, callback: CommitCallback | None = None
    ) -> Future[None]:
        """`commit` without waiting. A later poll calls `callback(offsets, error or None)`."""
        given = None if offsets is None else _to_commit(offsets)
        return self._in_group("commit_async").commit_async(given, callback)

    def committed(
        self, partition: TopicPartition, metadata: bool = False, timeout_ms: float | None = None
    ) -> int | OffsetAndMetadata | None:
        """The offset that the group has committed last, `metadata`: with its note; None: there is none.

        >>> consumer.committed(TopicPartition("clicks", 0))
        """
        found = self.committed_offsets([partition], timeout_ms)[as_partition(partition)]
        return found if metadata or found is None else found.offset

    def committed_offsets(
        self, partitions: Iterable[TopicPartition], timeout_ms: float | None = None
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """`committed` of many partitions at once."""
        seconds = self._timeout if timeout_ms is None else timeout_ms / 1000
        return self._in_group("committed").committed(list(map(as_partition, partitions)), seconds)

    def group_metadata(self) -> GroupMetadata:
        """Who this consumer is in its group just now; for commits within a transaction."""
        return self._in_group("group_metadata").metadata()

    def follow_group_elsewhere(self) -> None:
        """From now on polls leave the group alone, and whoever polls calls `follow_group` when `has_group_news`."""
        self._is_group_followed = False

    def has_group_news(self) -> bool:
        self._check_open()
        return self._group is not None and self._group.has_news

    def follow_group(self) -> None:
        """Commit, listen, take and give up partitions, as the group asks; see `subscribe`."""
        if self._group is not None:
            self._group.follow()

    def _in_group(self, what: str) -> GroupDesk:
        self._check_open()
        if self._group is None:
            raise GroupRequired(what)
        return self._group

    def _check_open(self) -> None:
        raise NotImplementedError


def _to_commit(offsets: Mapping[TopicPartition, Offset]) -> dict[TopicPartition, OffsetAndMetadata]:
    given = {as_partition(partition): offset for partition, offset in offsets.items()}
    return {
        partition: offset if isinstance(offset, OffsetAndMetadata) else OffsetAndMetadata(offset)
        for partition, offset in given.items()
    }

"""The versions at which partitions changed and topics went, so that clients need hear only of what is new.

What must stay true: of whatever a client is told about a partition, nothing changes unnoticed. A record that is not
known here to change single partitions may have changed all of them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Final, TypeVar

from raylog.actors.cluster.partition import PartitionId
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.metadata_quorum_records import ControllerStarted, Voters
from raylog.actors.protocol.metadata_records import (
    BrokerDraining,
    BrokerFenced,
    BrokerIdsUsed,
    ClusterFormed,
    ClusterSettings,
    CoordinatorPlaced,
    CoordinatorServing,
    DirectoryMarked,
    GatewayServes,
    PartitionChanged,
    ProducerIdBlock,
    ReassignmentThrottle,
    ReplicaRegistered,
    TopicCreated,
    TopicDeleted,
    TopicRemoved,
    TopicSettings,
)
from raylog.actors.security.security_state import SECURITY_RECORDS

_OF_PARTITIONS: Final = (PartitionChanged, ReplicaRegistered, TopicCreated, TopicSettings, TopicDeleted, TopicRemoved)
_OF_NONE: Final = (
    BrokerDraining,
    BrokerFenced,
    BrokerIdsUsed,
    ClusterFormed,
    ClusterSettings,
    ControllerStarted,
    CoordinatorPlaced,
    CoordinatorServing,
    DirectoryMarked,
    GatewayServes,
    ProducerIdBlock,
    ReassignmentThrottle,
    Voters,
    *SECURITY_RECORDS,
)
_MOST_GONE: Final = 10_000

_Key = TypeVar("_Key")


class ChangeTimes:
    """`all_since`: from this version on each change is known."""

    def __init__(self) -> None:
        self.all_since = 0
        self._changed: dict[PartitionId, int] = {}  # in the order of these versions
        self._gone: dict[str, int] = {}  # too

    def forget(self, version: int) -> None:
        """Know nothing of what was before this version."""
        self.all_since = version
        self._changed.clear()
        self._gone.clear()

    def note(self, record: Message, partitions: Iterable[PartitionId], version: int) -> None:
        """Take note of a record, the partitions that it has changed, and the version that holds it."""
        if isinstance(record, TopicDeleted):
            for partition in partitions:
                self._changed.pop(partition, None)
            self._gone.pop(record.name, None)
            self._gone[record.name] = version
            if len(self._gone) > _MOST_GONE:
                self.forget(version)
        elif isinstance(record, _OF_PARTITIONS):
            for partition in partitions:
                self._changed.pop(partition, None)
                self._changed[partition] = version
        elif not isinstance(record, _OF_NONE):
            self.forget(version)

    def changed(self, since: int) -> Iterator[PartitionId]:
        """Yield the partitions that have changed after `since`, which is no earlier than `all_since`."""
        return _later(self._changed, since)

    def gone(self, since: int) -> Iterator[str]:
        """Yield the names of topics that were deleted after `since`. There may be new ones of the same name."""
        return _later(self._gone, since)


def _later(versions: dict[_Key, int], since: int) -> Iterator[_Key]:
    """Yield what has a later version than `since`, from the end: it costs what has changed, not what there is."""
    for key in reversed(versions):
        if versions[key] <= since:
            return
        yield key

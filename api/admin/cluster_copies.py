"""The part of a cluster's handle for copies of partitions: which there are, and which of them is to lead (rule 7)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from raylog.actors.cluster.admin_requests import DescribeCopies, DropSetAsideLog, ListSetAsideLogs, RecoverPartition
from raylog.actors.cluster.copies import PartitionCopies, SetAsideListing
from raylog.api.admin.asking import ask_admin

if TYPE_CHECKING:
    from raylog.api.connection.controller_calls import ControllerCalls

_CALL_SECONDS: Final = 30.0


class ClusterCopies:
    """`Cluster` is one of these."""

    _calls: ControllerCalls

    # --- copies ---------------------------------------------------------------------------------------------------

    def describe_copies(self, topic: str, partition: int, *, timeout: float = _CALL_SECONDS) -> PartitionCopies:
        """Every copy of a partition: of running replicas and missing ones, and the logs that were set aside.

        UnknownTopic, UnknownPartition.

        >>> cluster.describe_copies("clicks", 0).waits      # why nobody leads
        """
        return ask_admin(self._calls, DescribeCopies(topic, partition), timeout)

    def recover_partition(
        self,
        topic: str,
        partition: int,
        *,
        from_broker: int,
        accept_loss: bool = False,
        aside: str = "",
        timeout: float = _CALL_SECONDS,
    ) -> PartitionCopies:
        """Let this broker's copy lead, whatever it lacks; the copies afterwards.

        `aside`: first put the log that is set aside there under this name in the place of the broker's replica.
        Nothing is lost by it for good: what other copies have more is set aside before it is cut. LossNotAccepted says
        what would not be read any more; BrokerNotAvailable, ElectionNotNeeded, NeverLed, SetAsideUnknown,
        SetAsideUnusable.
        """
        return ask_admin(self._calls, RecoverPartition(topic, partition, from_broker, accept_loss, aside), timeout)

    def list_set_aside(self, *, timeout: float = _CALL_SECONDS) -> SetAsideListing:
        """All logs that were set aside, on the brokers that answer: raylog itself removes none of them."""
        return ask_admin(self._calls, ListSetAsideLogs(), timeout)

    def drop_set_aside(self, name: str, *, broker: int | None = None, timeout: float = _CALL_SECONDS) -> int:
        """Remove a log that was set aside, for good; returns its broker. SetAsideUnknown, SetAsideUnusable.

        `broker`: where several have one of this name.
        """
        return ask_admin(self._calls, DropSetAsideLog(name, broker), timeout)

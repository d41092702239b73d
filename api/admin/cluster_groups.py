"""The part of a cluster's handle that looks after consumer groups: calls to their coordinators, over a link.

Every call has a time-out and ends in an answer or in one typed error. All may be repeated.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Coroutine, Iterable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeVar

from raylog.api.admin.rules.group_descriptions import GroupDescription, GroupListing
from raylog.api.connection.former_names import formerly
from raylog.api.connection.link_calls import call_over_link
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition

if TYPE_CHECKING:
    from raylog.api.admin.group_administration import GroupAdministration

_T = TypeVar("_T")
_CALL_SECONDS: Final = 30.0


class ClusterGroups:
    """`Cluster` is one of these."""

    # --- consumer groups ------------------------------------------------------------------------------------------

    def list_groups(self, *, timeout: float = _CALL_SECONDS) -> tuple[GroupListing, ...]:
        """All groups, by name: id, state, number of members."""
        return self._administer(lambda admin: admin.list_groups(), timeout)

    @formerly(group="group_id")
    def describe_group(self, group_id: str, *, timeout: float = _CALL_SECONDS) -> GroupDescription:
        """Members, who has what, offsets and lag of each partition. UnknownGroup.

        >>> cluster.describe_group("billing").lag
        """
        return self._administer(lambda admin: admin.describe(group_id), timeout)

    @formerly(group="group_id")
    def delete_group(self, group_id: str, *, timeout: float = _CALL_SECONDS) -> None:
        """A group without members, with its offsets. UnknownGroup, GroupNotEmpty, UnstableOffset."""
        self._administer(lambda admin: admin.delete(group_id), timeout)

    @formerly(group="group_id")
    def remove_members(
        self,
        group_id: str,
        members: Collection[str] = (),
        *,
        instances: Collection[str] = (),
        reason: str = "removed by an administrator",
        timeout: float = _CALL_SECONDS,
    ) -> None:
        """Remove members by member id or group_instance_id; with neither, all. A member that lives joins anew.

        UnknownGroup, UnknownMember.
        """
        self._administer(lambda admin: admin.remove_members(group_id, members, instances, reason), timeout)

    @formerly(group="group_id")
    def list_group_offsets(
        self, group_id: str, *, timeout: float = _CALL_SECONDS
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what the group has committed. UnknownGroup."""
        return self._administer(lambda admin: admin.offsets(group_id), timeout)

    @formerly(group="group_id")
    def alter_group_offsets(
        self,
        group_id: str,
        offsets: Mapping[tuple[str, int], int | OffsetAndMetadata],
        *,
        timeout: float = _CALL_SECONDS,
    ) -> None:
        """Set committed offsets of a group without members. GroupNotEmpty, UnknownTopic, UnknownPartition,
        OffsetBeyondEnd.

        >>> cluster.alter_group_offsets("billing", {("clicks", 0): 42})
        """
        given = {
            TopicPartition(*each): at if isinstance(at, OffsetAndMetadata) else OffsetAndMetadata(at)
            for each, at in offsets.items()
        }
        self._administer(lambda admin: admin.alter_offsets(group_id, given), timeout)

    @formerly(group="group_id", timestamp="timestamp_ms")
    def reset_group_offsets(
        self,
        group_id: str,
        to: Literal["earliest", "latest"] | None = None,
        *,
        offset: int | None = None,
        timestamp_ms: int | None = None,
        shift: int | None = None,
        topics: Collection[str] | None = None,
        partitions: Collection[tuple[str, int]] | None = None,
        dry_run: bool = False,
        timeout: float = _CALL_SECONDS,
    ) -> dict[TopicPartition, int]:
        """Put the offsets of a group without members to "earliest", "latest", an offset, a time, or so much further.

        No offset goes beyond what the logs hold. The group need not exist yet where topics or partitions are named;
        None: all partitions that it has committed. Returns where each is then; with `dry_run` nothing is changed, and
        the group may have members. GroupNotEmpty, UnknownGroup, UnknownTopic, UnknownPartition.

        >>> cluster.reset_group_offsets("billing", shift=-100, dry_run=True)
        """
        from raylog.api.admin.group_administration import ResetTo

        place = ResetTo(to, offset, timestamp_ms, shift)
        place.check()
        chosen = None if partitions is None else [TopicPartition(*each) for each in partitions]
        return self._administer(lambda admin: admin.reset(group_id, place, topics, chosen, dry_run), timeout)

    @formerly(group="group_id")
    def delete_group_offsets(
        self, group_id: str, partitions: Iterable[tuple[str, int]], *, timeout: float = _CALL_SECONDS
    ) -> None:
        """Delete committed offsets of topics that no member reads. UnknownGroup, GroupNotEmpty, UnknownTopic,
        UnknownPartition.
        """
        chosen = [TopicPartition(*each) for each in partitions]
        self._administer(lambda admin: admin.delete_offsets(group_id, chosen), timeout)

    def _administer(self, call: Callable[[GroupAdministration], Coroutine[Any, Any, _T]], timeout: float) -> _T:
        """Run `call` on the loop of this process's clients; nothing stays open."""
        from raylog.api.admin.group_administration import GroupAdministration

        return call_over_link(self, lambda link: call(GroupAdministration(link, timeout)), timeout)

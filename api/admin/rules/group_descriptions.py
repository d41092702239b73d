"""Groups as people and programs are shown them (`Cluster.list_groups`, `describe_group`, …)."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.cluster.html_tables import html_table
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition


@dataclass(frozen=True, slots=True)
class GroupListing:
    group_id: str
    state: str
    members: int


@dataclass(frozen=True, slots=True)
class MemberDescription:
    member_id: str
    group_instance_id: str  # of a static member; else empty
    client_id: str
    host: str
    epoch: int
    assignment: frozenset[TopicPartition]  # what it may commit
    revoking: frozenset[TopicPartition]  # of that: what it has been asked to give up
    target: frozenset[TopicPartition]  # what it is to have when the group has settled
    ms_since_heard: int  # −1: not since this coordinator serves


@dataclass(frozen=True, slots=True)
class GroupPartition:
    """One partition that the group has committed, or that a member has.

    Where the group begins without a commit is for its members to say (`auto_offset_reset`); the lag counts the most.
    """

    partition: TopicPartition
    member_id: str  # empty: nobody's
    committed: OffsetAndMetadata | None
    end_offset: int  # −1: not known now
    lag: int | None  # records from there to the end; without a commit, all in the log. None: that is not known now


@dataclass(frozen=True, slots=True)
class GroupDescription:
    """A group as administrators see it: its members, and what each reads."""
    group_id: str
    state: str
    epoch: int
    assignor: str
    reason: str  # of the last rebalance
    problem: str  # why there is no assignment for the present members; else empty
    members: tuple[MemberDescription, ...]
    partitions: tuple[GroupPartition, ...]

    @property
    def lag(self) -> int:
        """The sum over all partitions where it is known."""
        return sum(each.lag or 0 for each in self.partitions)

    def _repr_html_(self) -> str:
        """Return a table for notebooks, with a row for each partition."""
        problem = f", {self.problem}" if self.problem else ""
        heading = f"Group {self.group_id!r}: {self.state}, {len(self.members)} members, lag {self.lag}{problem}"
        columns = ("topic", "partition", "committed", "end offset", "lag", "member")
        rows = [
            (
                each.partition.topic,
                each.partition.partition,
                None if each.committed is None else each.committed.offset,
                None if each.end_offset < 0 else each.end_offset,
                each.lag,
                each.member_id,
            )
            for each in self.partitions
        ]
        return html_table(heading, columns, rows)

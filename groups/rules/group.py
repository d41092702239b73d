"""The state of the groups of one coordinator, and how it follows from records: one `replay`, live and on recovery.

    a member, by what it owns             the group, by its epochs
    fresh      epoch > target epoch       Empty        no members
    revoking   gives partitions up        Assigning    epoch > target epoch: a new target is due
    waiting    others still own its       Reconciling  a member is not stable
    stable     owns its target            Stable

What must stay true (rule 23): of each partition one member at most has the right to commit. It is in that member's
`assigned` or `revoking`, and in `owners`. Only records change any of this; what a member's fields hold beyond them,
under "heard", is lost with the coordinator and begins anew with the next.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

from raylog.actors.protocol.messages import Message
from raylog.groups.records.classic_messages import ClassicKey, ClassicValue
from raylog.groups.records.messages import PartitionId, Partitions, Profile, each_of, grouped
from raylog.groups.records.offsets_log import Racks
from raylog.groups.records.records import (
    Claim,
    ClaimKey,
    CurrentKey,
    CurrentValue,
    GroupKey,
    GroupValue,
    MemberKey,
    MemberValue,
    OffsetKey,
    OffsetValue,
    StagedKey,
    StagedValue,
    TargetKey,
    TargetValue,
    TransactionEnd,
    TransactionKey,
)

if TYPE_CHECKING:
    from raylog.groups.rules.classic_group import ClassicGroup  # which needs `Moment`, and so this module

EMPTY: Final = "Empty"
ASSIGNING: Final = "Assigning"
RECONCILING: Final = "Reconciling"
STABLE: Final = "Stable"

_NEVER: Final = GroupValue(0, 0, "", -1, (), -1, "")
_NOBODY: Final = Profile("", "", "", "", 0, 0, "", (), "")


class Member:
    """One member."""

    __slots__ = (
        "assigned",
        "epoch",
        "epoch_since_ms",
        "heard_at_ms",
        "joined_at_ms",
        "member_id",
        "owned",
        "previous_epoch",
        "profile",
        "revoking",
        "revoking_since_ms",
        "sequence",
        "target",
    )

    def __init__(self, member_id: str) -> None:
        self.member_id = member_id
        self.profile = _NOBODY
        self.joined_at_ms = 0
        self.epoch = 0
        self.previous_epoch = 0
        self.assigned: dict[PartitionId, int] = {}  # and from which epoch on
        self.revoking: dict[PartitionId, int] = {}
        self.target: frozenset[PartitionId] = frozenset()
        self.owned: Partitions = ()  # `assigned`, as it is sent
        # heard
        self.sequence = -1
        self.heard_at_ms = -1
        self.epoch_since_ms = -1
        self.revoking_since_ms = -1

    def right_since(self, partition: PartitionId) -> int | None:
        """The epoch from which on it may commit offsets of this partition; None: it may not."""
        since = self.assigned.get(partition)
        return self.revoking.get(partition) if since is None else since


@dataclass(slots=True)
class Group:
    group_id: str
    value: GroupValue = _NEVER
    exists: bool = False  # it has a record of its own; without one it has only offsets
    members: dict[str, Member] = field(default_factory=dict)
    unknown: dict[str, Member] = field(default_factory=dict)  # on recovery: other records came before their own
    by_instance: dict[str, str] = field(default_factory=dict)
    named: Counter[str] = field(default_factory=Counter)  # topics, by how many members name them
    patterns: Counter[str] = field(default_factory=Counter)  # likewise
    owners: dict[PartitionId, str] = field(default_factory=dict)
    offsets: dict[PartitionId, OffsetValue] = field(default_factory=dict)
    staged: dict[PartitionId, dict[int, StagedValue]] = field(default_factory=dict)  # by producer id
    classic_value: ClassicValue | None = None
    # not from records
    racks: Racks | None = None  # that the targets were made by; None: by another process
    problem: Exception | None = None  # why there is no assignment for the present epoch
    classic: ClassicGroup | None = None  # where Kafka clients are its members, or were the last ones

    @property
    def epoch(self) -> int:
        return self.value.epoch

    @property
    def target_epoch(self) -> int:
        return self.value.target_epoch

    @property
    def is_assigning(self) -> bool:
        return bool(self.members) and self.value.epoch > self.value.target_epoch

    @property
    def is_blank(self) -> bool:
        has_records = self.exists or self.unknown or self.offsets or self.staged or self.classic_value is not None
        return not (has_records or self.has_members)

    @property
    def has_classic_members(self) -> bool:
        """Whether Kafka clients are in it, or about to be. Then it has no others."""
        return self.classic is not None and self.classic.is_active

    @property
    def is_classic(self) -> bool:
        """Whether its last members were Kafka clients."""
        return self.classic is not None and not self.members

    @property
    def has_members(self) -> bool:
        return bool(self.members) or self.has_classic_members

    @property
    def member_count(self) -> int:
        """Members of whichever kind."""
        return len(self.members) or (0 if self.classic is None else len(self.classic.members))

    @property
    def empty_since_ms(self) -> int:
        """The wall clock's time when the last member left, as far as that was written."""
        classic = -1 if self.classic_value is None else self.classic_value.empty_since_ms
        return max(self.value.empty_since_ms, classic)

    @property
    def state(self) -> str:
        if not self.members:
            return EMPTY if self.classic is None else self.classic.state
        if self.is_assigning:
            return ASSIGNING
        return STABLE if all(map(self.is_stable, self.members.values())) else RECONCILING

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file. The group was loaded whole."""
        rights = [
            (partition, member.member_id)
            for member in self.members.values()
            for partition in (*member.assigned, *member.revoking)
        ]
        if len(rights) != len(self.owners) or dict(rights) != self.owners:
            yield f"members have the right to commit {rights}, and the owners are {self.owners}"
        for member in self.members.values():
            if not self.target_epoch <= self.epoch >= member.epoch >= member.previous_epoch:
                yield (
                    f"{member.member_id}: epoch {member.epoch} after {member.previous_epoch}; "
                    f"target epoch {self.target_epoch}, group epoch {self.epoch}"
                )
            instance_id = member.profile.instance_id
            if instance_id and instance_id not in self.by_instance:
                yield f"{member.member_id} is not found under its instance id {instance_id}"
        if not {*self.by_instance.values()} <= self.members.keys() or self.unknown:
            yield f"{self.by_instance} and {list(self.unknown)} are not all members"
        if self.classic is not None:
            yield from self.classic.broken_invariants()
            if self.members and self.classic.is_active:
                yield "it has members of both kinds"
        if self.named != Counter(topic for member in self.members.values() for topic in member.profile.topics):
            yield f"topics are counted as {self.named}"

    def is_stable(self, member: Member) -> bool:
        return (
            member.epoch == self.value.target_epoch
            and not member.revoking
            and len(member.assigned) == len(member.target)
        )


class GroupsState:
    """All groups of one partition of the offsets topic, and the transactions that have ended there."""

    def __init__(self) -> None:
        self.groups: dict[str, Group] = {}
        self.staged_in: dict[int, dict[tuple[str, PartitionId], None]] = {}  # by producer id
        self.ended: dict[int, TransactionEnd] = {}
        self.claimed_epoch = -1
        self._appliers: dict[type[Message], Callable[[Any, Any], None]] = {
            GroupKey: self._group,
            MemberKey: self._member,
            TargetKey: self._target,
            CurrentKey: self._current,
            OffsetKey: self._offset,
            StagedKey: self._staged,
            TransactionKey: self._transaction,
            ClaimKey: self._claim,
            ClassicKey: self._classic,
        }

    def replay(self, key: Message, value: Message | None) -> None:
        """Apply one record."""
        self._appliers[type(key)](key, value)

    def finish_recovery(self) -> None:
        """All there is was replayed: what is known of members that are no more goes."""
        for group in list(self.groups.values()):
            group.unknown.clear()
            group.owners = {
                partition: member.member_id
                for member in group.members.values()
                for partition in (*member.assigned, *member.revoking)
            }
            self.forget_if_blank(group)

    def broken_invariants(self) -> Iterator[str]:
        """Say in words what contradicts the top of this file, once all was loaded."""
        staged: dict[int, dict[tuple[str, PartitionId], None]] = {}
        for group_id, group in self.groups.items():
            for broken in group.broken_invariants():
                yield f"{group_id}: {broken}"
            if group.is_blank:
                yield f"{group_id} is kept, and holds nothing"
            for partition, by_producer in group.staged.items():
                for producer_id in by_producer:
                    staged.setdefault(producer_id, {})[group_id, partition] = None
        if self.staged_in != staged:
            yield f"staged offsets are listed as {self.staged_in}, and there are {staged}"

    def group(self, group_id: str) -> Group:
        """Return that group, made if there is none."""
        found = self.groups.get(group_id)
        if found is None:
            found = self.groups[group_id] = Group(group_id)
        return found

    def forget_if_blank(self, group: Group) -> None:
        """Drop a group of which nothing is known."""
        if group.is_blank:
            self.groups.pop(group.group_id, None)

    def _claim(self, _key: ClaimKey, value: Claim | None) -> None:
        if value is not None:
            self.claimed_epoch = max(self.claimed_epoch, value.coordinator_epoch)

    def _group(self, key: GroupKey, value: GroupValue | None) -> None:
        group = self.group(key.group)
        group.value, group.exists = (_NEVER, False) if value is None else (value, True)
        self.forget_if_blank(group)

    def _classic(self, key: ClassicKey, value: ClassicValue | None) -> None:
        group = self.group(key.group)
        group.classic_value = value
        self.forget_if_blank(group)

    # --- members --------------------------------------------------------------------------------------------------

    def _member(self, key: MemberKey, value: MemberValue | None) -> None:
        group = self.group(key.group)
        if value is None:
            _take_out(group, key.member)
            self.forget_if_blank(group)
            return
        member = group.members.get(key.member)
        if member is None:
            member = _found(group, key.member, value)
            assert member is not None
            group.unknown.pop(key.member, None)
            group.members[key.member] = member
        _count_subscription(group, member.profile, -1)
        member.profile = Profile(*value.profile)
        _count_subscription(group, member.profile, 1)
        member.joined_at_ms = value.joined_at_ms
        if member.profile.instance_id:
            group.by_instance[member.profile.instance_id] = key.member

    def _target(self, key: TargetKey, value: TargetValue | None) -> None:
        group = self.group(key.group)
        member = _found(group, key.member, value)
        if member is not None:
            member.target = frozenset() if value is None else each_of(value.partitions)
        self.forget_if_blank(group)

    def _current(self, key: CurrentKey, value: CurrentValue | None) -> None:
        group = self.group(key.group)
        member = _found(group, key.member, value)
        if member is not None:
            _release(group, member)
            if value is not None:
                _set_current(group, member, value)
        self.forget_if_blank(group)

    # --- offsets --------------------------------------------------------------------------------------------------

    def _offset(self, key: OffsetKey, value: OffsetValue | None) -> None:
        group = self.group(key.group)
        if value is None:
            group.offsets.pop((key.topic_id, key.partition), None)
            self.forget_if_blank(group)
        else:
            group.offsets[key.topic_id, key.partition] = value

    def _staged(self, key: StagedKey, value: StagedValue | None) -> None:
        group = self.group(key.group)
        partition = (key.topic_id, key.partition)
        by_producer = group.staged.setdefault(partition, {})
        of_producer = self.staged_in.setdefault(key.producer_id, {})
        if value is None:
            by_producer.pop(key.producer_id, None)
            of_producer.pop((key.group, partition), None)
        else:
            by_producer[key.producer_id] = value
            of_producer[key.group, partition] = None
        if not by_producer:
            del group.staged[partition]
        if not of_producer:
            del self.staged_in[key.producer_id]
        self.forget_if_blank(group)

    def _transaction(self, key: TransactionKey, value: TransactionEnd | None) -> None:
        if value is None:
            self.ended.pop(key.producer_id, None)
        else:
            self.ended[key.producer_id] = value


def _found(group: Group, member_id: str, value: Message | None) -> Member | None:
    """The member a record is about. On recovery it may be one whose own record comes later, or never."""
    member = group.members.get(member_id) or group.unknown.get(member_id)
    if member is None and value is not None:
        member = group.unknown[member_id] = Member(member_id)
    return member


def _set_current(group: Group, member: Member, value: CurrentValue) -> None:
    member.epoch, member.previous_epoch = value.epoch, value.previous_epoch
    member.assigned = {(topic_id, number): epoch for topic_id, number, epoch in value.assigned}
    member.revoking = {(topic_id, number): epoch for topic_id, number, epoch in value.revoking}
    member.owned = grouped(member.assigned)
    for partition in (*member.assigned, *member.revoking):
        group.owners[partition] = member.member_id


def _release(group: Group, member: Member) -> None:
    """Note that a member owns nothing any more. On recovery a later owner's record may have come before this one."""
    for partition in (*member.assigned, *member.revoking):
        if group.owners.get(partition) == member.member_id:
            del group.owners[partition]
    member.assigned, member.revoking, member.owned = {}, {}, ()


def _count_subscription(group: Group, profile: Profile, by: int) -> None:
    """Count a subscription, so that what a group wants is known without a look at each of its members."""
    _count(group.named, profile.topics, by)
    _count(group.patterns, (profile.pattern,) if profile.pattern else (), by)


def _count(counts: Counter[str], names: Iterable[str], by: int) -> None:
    for name in names:
        counts[name] += by
        if not counts[name]:
            del counts[name]


def _take_out(group: Group, member_id: str) -> None:
    group.unknown.pop(member_id, None)
    member = group.members.pop(member_id, None)
    if member is not None:
        _release(group, member)
        _count_subscription(group, member.profile, -1)
        instance_id = member.profile.instance_id
        if group.by_instance.get(instance_id) == member_id:
            del group.by_instance[instance_id]

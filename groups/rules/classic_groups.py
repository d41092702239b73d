"""The classic groups of one offsets partition: requests of Kafka clients to them, and what is written of them.

A group has members of one kind at a time. The first one that joins a group without members decides which; the offsets
stay. What must stay true: what has changed is written before anybody hears of it, like all that a shard does.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final

from raylog.actors.protocol.messages import Done, Message
from raylog.errors import InconsistentGroupProtocol, UnknownMember
from raylog.groups.records.classic_messages import (
    ClassicHeartbeat,
    ClassicKey,
    DescribeClassic,
    JoinClassic,
    LeaveClassic,
    ListBothKinds,
    SyncClassic,
)
from raylog.groups.records.records import Record
from raylog.groups.records.settings import GroupSettings, check_group_id, check_join
from raylog.groups.rules import admin
from raylog.groups.rules.classic_group import ClassicGroup, HeldRequest, Released
from raylog.groups.rules.group import Group, GroupsState
from raylog.groups.rules.membership import Moment

_NOT_JOINED: Final = "it has not joined, or was removed long ago"


class ClassicGroups:
    """`apply` replays records and puts them down to be written."""

    def __init__(
        self, state: GroupsState, settings: GroupSettings, apply: Callable[[Sequence[Record]], None]
    ) -> None:
        self._state = state
        self._settings = settings
        self._apply = apply
        self.to_release: dict[str, None] = {}  # groups in which held requests may have got their answers
        self._promised: dict[str, int] = {}  # ids given out for groups without members; the oldest group first
        self._promised_ids = 0
        self.to_time: dict[str, None] = {}  # groups whose `due_ms` may have come nearer
        self._sizes: dict[str, int] = {}  # of groups
        self._size = 0  # of all of them together
        self.handlers: dict[type[Message], Callable[[Any, Moment], Message]] = {
            ClassicHeartbeat: self._heartbeat,
            LeaveClassic: self._leave,
            ListBothKinds: lambda _request, _at: admin.list_both_kinds(self._state),
            DescribeClassic: lambda request, _at: admin.describe_classic(self._state, request),
        }

    def finish_recovery(self, at: Moment) -> None:
        """All is replayed: make the groups of what was written last."""
        for group in self._state.groups.values():
            if group.classic_value is not None:
                group.classic = ClassicGroup(group.group_id, self._settings)
                group.classic.restore(group.classic_value, at)
                self.to_time[group.group_id] = None
                self._count_size(group.group_id, group.classic.size)

    def enter(self, request: JoinClassic | SyncClassic, at: Moment) -> Message | None:
        """Answer a JoinGroup or a SyncGroup. None: it is held; its answer will be in `take_released`."""
        if isinstance(request, SyncClassic):
            classic = self._existing(request.group, request.member)
            self._make_room(classic)
            try:
                return classic.sync(request, at)
            finally:
                self.took_turn(request.group, at)
        check_join(request, self._settings)
        group = self._for_join(request)
        assert group.classic is not None
        self._make_room(group.classic)
        try:
            return group.classic.join(request, at)
        finally:
            self.took_turn(request.group, at)

    def take_released(self, group_id: str) -> dict[HeldRequest, Released]:
        """Return the answers to held requests of this group that have come about."""
        self.to_release.pop(group_id, None)
        group = self._state.groups.get(group_id)
        return {} if group is None or group.classic is None else group.classic.take_released()

    def took_turn(self, group_id: str, at: Moment) -> None:
        """Note what has become of a group."""
        group = self._state.groups[group_id]
        assert group.classic is not None
        self.to_release[group_id] = None
        self.to_time[group_id] = None
        if group.classic.is_changed:
            group.classic.is_changed = False
            self._apply([(ClassicKey(group_id), group.classic.value(at))])
        self._count_size(group_id, group.classic.size)
        self._count_promised(group_id, group.classic.promised)
        self._state.forget_if_blank(group)  # nobody has joined it after all

    def _make_room(self, classic: ClassicGroup) -> None:
        """Say how much a group may hold, besides what the others do (rule 34). A little is there for each."""
        others = self._size - self._sizes.get(classic.group_id, 0)
        settings = self._settings
        classic.most_bytes = max(settings.min_classic_bytes, settings.max_all_classic_bytes - others)

    def _count_size(self, group_id: str, size: int) -> None:
        self._size += size - self._sizes.pop(group_id, 0)
        if size:
            self._sizes[group_id] = size

    def _count_promised(self, group_id: str, count: int) -> None:
        """Keep a bounded number of ids of groups that nobody is in: each costs its group (rule 34)."""
        self._promised_ids += count - self._promised.pop(group_id, 0)
        if count:
            self._promised[group_id] = count
        while self._promised_ids > self._settings.max_promised_ids:
            oldest = next(iter(self._promised))
            self._promised_ids -= self._promised.pop(oldest)
            group = self._state.groups[oldest]
            assert group.classic is not None
            group.classic.forget_promised()
            self._state.forget_if_blank(group)

    def drop_empty(self, group: Group) -> None:
        """Members of the other kind come: what is known of Kafka clients goes. InconsistentGroupProtocol."""
        if group.has_classic_members:
            raise InconsistentGroupProtocol(group.group_id, "Kafka clients are its members, by the classic protocol")
        group.classic = None
        self._count_size(group.group_id, 0)
        if group.classic_value is not None:
            self._apply([(ClassicKey(group.group_id), None)])

    def remove_members(self, group: Group, members: Sequence[str], instances: Sequence[str], at: Moment) -> None:
        """Remove members by their ids and instance ids, or all of them. UnknownMember, FencedInstance."""
        assert group.classic is not None
        try:
            if not members and not instances:
                group.classic.remove_all("an administrator removed it", at)
            for member_id in members:
                group.classic.leave(LeaveClassic(group.group_id, member_id, ""), at)
            for instance in instances:
                group.classic.leave(LeaveClassic(group.group_id, "", instance), at)
        finally:
            self.took_turn(group.group_id, at)

    def _for_join(self, request: JoinClassic) -> Group:
        group = self._state.groups.get(request.group)
        if group is not None and group.members:
            raise InconsistentGroupProtocol(request.group, "its members do not use the classic protocol")
        if group is None or group.classic is None:
            if request.member:
                raise UnknownMember(request.group, request.member, -1, -1, _NOT_JOINED)
            group = self._state.group(request.group)
            group.classic = ClassicGroup(request.group, self._settings)
        return group

    def _existing(self, group_id: str, member_id: str) -> ClassicGroup:
        check_group_id(group_id)
        group = self._state.groups.get(group_id)
        if group is None or group.classic is None:
            raise UnknownMember(group_id, member_id, -1, -1, _NOT_JOINED)
        return group.classic

    def _heartbeat(self, request: ClassicHeartbeat, at: Moment) -> Done:
        classic = self._existing(request.group, request.member)
        classic.heartbeat(request.member, request.instance, request.generation, at)
        return Done()

    def _leave(self, request: LeaveClassic, at: Moment) -> Done:
        classic = self._existing(request.group, request.member)
        try:
            classic.leave(request, at)
        finally:
            self.took_turn(request.group, at)
        return Done()

    # --- time -----------------------------------------------------------------------------------------------------

    def due_ms(self, group_id: str) -> int | None:
        """Return when to look at the group; None: nothing is waited for."""
        group = self._state.groups.get(group_id)
        return None if group is None or group.classic is None else group.classic.due_ms()

    def expels(self, group_id: str, at: Moment) -> bool:
        """Whether `look` would remove a member."""
        group = self._state.groups.get(group_id)
        return group is not None and group.classic is not None and group.classic.expels(at)

    def look(self, group_id: str, at: Moment) -> None:
        """Remove the members whose time is over, and go on with a rebalance whose time is up."""
        group = self._state.groups.get(group_id)
        if group is not None and group.classic is not None:
            group.classic.look(at)
            self.took_turn(group_id, at)

"""The groups of one offsets partition as one state machine: a request and the time go in, records and an answer out.

    shard.answer(request, at)         → the answer, or an error raised; what it changed is in `take_records()`
    shard.begin_assignment(group)     → what a new target is made from, where one is due
    shard.finish_assignment(…)        → new targets, of what the assignor has answered
    shard.news(held, at)              → what a waiting heartbeat is to be told now
    shard.look_at(...)                → whether a member has been silent, or slow to give up, for too long

What takes long is not done here: assignors are run, and patterns matched, between two calls (rule 34).

What must stay true: all that changes the state is a record that went through `_apply`, which replays it and puts it
down to be written. Nobody hears of a change before its records are committed; that is the coordinator's part.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any, Final, NamedTuple

from raylog.actors.protocol.messages import Done, Message
from raylog.errors import AssignorFailed, FencedInstance, UnknownAssignor, UnknownMember
from raylog.groups.assignors.calling import Given
from raylog.groups.records.classic_messages import JoinClassic, SyncClassic
from raylog.groups.records.messages import (
    JOINING,
    LEAVING,
    PAUSING,
    GroupHeartbeat,
    GroupHeartbeatAnswer,
    PartitionId,
    Profile,
    RemoveMembers,
    each_of,
)
from raylog.groups.records.offsets_log import Topics
from raylog.groups.records.records import CurrentKey, GroupKey, MemberValue, Record
from raylog.groups.records.settings import GroupSettings, check_heartbeat
from raylog.groups.rules import admin, membership
from raylog.groups.rules.classic_groups import ClassicGroups
from raylog.groups.rules.group import Group, GroupsState, Member
from raylog.groups.rules.membership import Moment
from raylog.groups.rules.offset_requests import OffsetRequests
from raylog.groups.rules.pattern_topics import PatternTopics, PatternWork
from raylog.groups.rules.rebalance import (
    TargetBasis,
    TargetPlan,
    knows_patterns,
    next_current,
    racks_that_count,
    target_basis,
    target_records,
    topic_changes,
    wanted_topics,
)

log = logging.getLogger(__name__)

_REMOVED_KEPT: Final = 1_000
_NOTHING: Final[frozenset[PartitionId]] = frozenset()


class Held(NamedTuple):
    """A heartbeat that waits for news: what it said when it came, which holds until it is answered."""

    group: str
    member: str
    epoch: int
    owned: frozenset[PartitionId]


class Due(Enum):
    """Whether a group is to get a new target, where it cannot be made now."""

    NOT = "not due, or as soon as something changes"
    LATER = "due, and to be tried again"


class _Removed(NamedTuple):
    at_ms: int
    reason: str
    instance: str  # which another process has taken; else empty


class GroupShard:
    """Synchronous, and without a clock."""

    def __init__(self, settings: GroupSettings, topics: Topics) -> None:
        self.state = GroupsState()
        self.to_assign: dict[str, None] = {}  # groups that need a new target
        self._behind: dict[str, None] = {}  # groups that wait for news of topics
        self.to_wake: dict[str, None] = {}  # groups of which some member may have to be told something
        self.to_watch: dict[tuple[str, str], None] = {}  # members that `look_at` has another time for now
        self._settings = settings
        self._topics = topics
        self._records: list[Record] = []
        self._removed: OrderedDict[tuple[str, str], _Removed] = OrderedDict()
        self._patterns = PatternTopics()
        self.has_new_pattern = False
        self._unmatched: dict[str, None] = {}  # groups that wait for their patterns to be matched
        self._offsets = OffsetRequests(
            self.state, settings, topics, self._patterns, self._apply, self._known_member
        )
        self.classic = ClassicGroups(self.state, settings, self._apply)
        self._answers: dict[type[Message], Callable[[Any, Moment], Message]] = {
            GroupHeartbeat: self.heartbeat,
            **self.classic.handlers,
            RemoveMembers: self._remove_members,
            **self._offsets.handlers,
        }

    def knows(self, request: Message) -> bool:
        """Whether this is a request that `answer` or, as it may be held, `classic.enter` takes."""
        return type(request) in self._answers or isinstance(request, (JoinClassic, SyncClassic))

    def answer(self, request: Message, at: Moment) -> Message:
        """Answer a request, or raise any of `raylog.errors`. Also then there may be records to take."""
        return self._answers[type(request)](request, at)

    def take_records(self) -> list[Record]:
        """Return the records of what has changed since this was last asked."""
        taken, self._records = self._records, []
        return taken

    def finish_recovery(self, at: Moment) -> None:
        """All is replayed. Sessions begin anew, for nobody knows when the members were last heard."""
        self.state.finish_recovery()
        self.classic.finish_recovery(at)
        for group in self.state.groups.values():
            for member in group.members.values():
                member.heard_at_ms = at.now_ms
                member.revoking_since_ms = at.now_ms if member.revoking else -1
            if group.is_assigning:
                self.to_assign[group.group_id] = None
        self.topics_changed(at)

    def _apply(self, records: Sequence[Record]) -> None:
        for key, value in records:
            self.state.replay(key, value)
            if isinstance(key, CurrentKey):
                self.to_wake[key.group] = None
            elif isinstance(key, GroupKey):
                group = self.state.groups.get(key.group)
                if group is not None and group.is_assigning:
                    self.to_assign[key.group] = None
                self.to_wake[key.group] = None
            elif isinstance(value, MemberValue) and not self._patterns.knows(Profile(*value.profile).pattern):
                self.has_new_pattern = True
        self._records += records

    # --- membership -----------------------------------------------------------------------------------------------

    def heartbeat(self, request: GroupHeartbeat, at: Moment) -> GroupHeartbeatAnswer:
        group = self.state.groups.get(request.group)
        member = group.members.get(request.member) if group is not None else None
        if group is None or member is None or not _changes_nothing(group, member, request):
            return self._full_heartbeat(request, at)
        member.sequence, member.heard_at_ms = request.sequence, at.now_ms
        return GroupHeartbeatAnswer(member.epoch, self.interval_of(member), None)

    def _full_heartbeat(self, request: GroupHeartbeat, at: Moment) -> GroupHeartbeatAnswer:
        check_heartbeat(request, self._settings)
        if request.epoch in (LEAVING, PAUSING):
            return self._leave(request, at)
        if request.epoch == JOINING:
            member = self._join(request, at)
            owned = _NOTHING
        else:
            member = self._known_member(request.group, request.member, request.epoch, at)
            membership.check_member(self.state.groups[request.group], member, request, at)
            self._change(request.group, membership.update(self.state.groups[request.group], member, request, at))
            owned = each_of(request.owned)
        member.sequence, member.heard_at_ms = request.sequence, at.now_ms
        group = self.state.groups[request.group]
        self._reconcile(group, member, owned, request.epoch, at)
        if group.problem is not None and member.epoch == request.epoch > group.target_epoch:
            raise group.problem
        return self._answer_for(member, owned)

    def _join(self, request: GroupHeartbeat, at: Moment) -> Member:
        group = self.state.groups.get(request.group) or Group(request.group)
        self.classic.drop_empty(group)
        change = membership.join(group, request, self._settings.max_members, at)
        if change.replaced:
            holder = group.members[change.replaced]
            self._remember(holder, request.group, "", at, instance=holder.profile.instance_id)
            log.info("Group %s: %s takes the place of %s.", group.group_id, request.member, change.replaced)
        self._change(request.group, change)
        member = self.state.groups[request.group].members[request.member]
        member.epoch_since_ms = at.now_ms
        self._removed.pop((request.group, request.member), None)
        return member

    def _leave(self, request: GroupHeartbeat, at: Moment) -> GroupHeartbeatAnswer:
        """Leaving twice is leaving. A static member that will be back keeps its place until its session is over."""
        answer = GroupHeartbeatAnswer(request.epoch, self._settings.heartbeat_interval_ms, None)
        group = self.state.groups.get(request.group)
        member = group.members.get(request.member) if group is not None else None
        if group is None or member is None:
            return answer
        membership.check_sequence(group, member, request)
        member.sequence = request.sequence
        if request.epoch == PAUSING and member.profile.instance_id:
            member.heard_at_ms = at.now_ms
        else:
            self._remove(group, member, "left", at)
        return answer

    def _known_member(self, group_id: str, member_id: str, epoch: int, at: Moment) -> Member:
        """Raises UnknownMember, or FencedInstance, which say what became of it where that is still known."""
        group = self.state.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if member is not None:
            return member
        removed = self._removed.get((group_id, member_id))
        if removed is None:
            raise UnknownMember(group_id, member_id, epoch, -1, "it has not joined, or was removed long ago")
        elapsed = at.now_ms - removed.at_ms
        if removed.instance:
            raise FencedInstance(group_id, removed.instance, member_id, epoch, elapsed)
        raise UnknownMember(group_id, member_id, epoch, elapsed, removed.reason)

    def _change(self, group_id: str, change: membership.Change) -> None:
        self._apply(change.records)
        if change.reason:
            group = self.state.groups[group_id]
            group.problem = None
            log.info("Group %s, epoch %d: %s.", group_id, group.epoch, change.reason)

    def _remove(self, group: Group, member: Member, why: str, at: Moment) -> None:
        self._remember(member, group.group_id, f"it {why}", at)
        self._change(group.group_id, membership.remove(group, member, why, at))

    def _remember(self, member: Member, group_id: str, reason: str, at: Moment, *, instance: str = "") -> None:
        self._removed[group_id, member.member_id] = _Removed(at.now_ms, reason, instance)
        while len(self._removed) > _REMOVED_KEPT:
            self._removed.popitem(last=False)

    # --- what members own -----------------------------------------------------------------------------------------

    def news(self, held: Held, at: Moment) -> GroupHeartbeatAnswer | None:
        """The answer to a waiting heartbeat, once there is something in it. UnknownMember, FencedInstance."""
        member = self._known_member(held.group, held.member, held.epoch, at)
        group = self.state.groups[held.group]
        self._reconcile(group, member, held.owned, held.epoch, at)
        answer = self._answer_for(member, held.owned)
        return answer if self.is_news(answer, held) else None

    def is_news(self, answer: GroupHeartbeatAnswer, held: Held) -> bool:
        """Whether an answer need not wait. A fresh member's does, as long as its target may still be made."""
        group = self.state.groups.get(held.group)
        if group is not None and answer.epoch > group.target_epoch and group.problem is None:
            return False
        return answer.assignment is not None or answer.epoch != held.epoch

    def interval_of(self, member: Member) -> int:
        """Return how often the member has to be heard, and the longest that its heartbeat is held."""
        return min(self._settings.heartbeat_interval_ms, member.profile.session_timeout_ms // 3)

    def _reconcile(
        self, group: Group, member: Member, owned: frozenset[PartitionId], known_epoch: int, at: Moment
    ) -> None:
        value = next_current(group, member, owned, known_epoch)
        if value is None:
            return
        was_revoking = bool(member.revoking)
        epoch = member.epoch
        self._apply([(CurrentKey(group.group_id, member.member_id), value)])
        if not member.revoking:
            member.revoking_since_ms = -1
        elif not was_revoking:
            member.revoking_since_ms = at.now_ms
            self.to_watch[group.group_id, member.member_id] = None
        if member.epoch != epoch:
            member.epoch_since_ms = at.now_ms

    def _answer_for(self, member: Member, owned: frozenset[PartitionId]) -> GroupHeartbeatAnswer:
        is_same = member.assigned.keys() == owned
        return GroupHeartbeatAnswer(member.epoch, self.interval_of(member), None if is_same else member.owned)

    # --- targets --------------------------------------------------------------------------------------------------

    def begin_assignment(self, group_id: str, *, regardless: bool = False) -> TargetBasis | Due:
        """Return what the group's new target is made from; or whether a new target is due at all.

        LATER: this process has heard less of the topics than the one that made the targets before. It is due again with
        the next news of topics, or (`regardless`) after a while.
        """
        self.to_assign.pop(group_id, None)
        group = self.state.groups.get(group_id)
        if group is None or not group.is_assigning:
            return Due.NOT
        if not knows_patterns(group, self._patterns):
            self._unmatched[group_id] = None
            return Due.NOT
        if self._topics.version < group.value.metadata_version and not regardless:
            self._behind[group_id] = None
            return Due.LATER
        return target_basis(group, self._topics, self._patterns)

    def finish_assignment(self, plan: TargetPlan, given: Given) -> None:
        """Take what the assignor has answered. Where the group has changed meanwhile, a new target is due again."""
        group = self._planned(plan)
        if group is None:
            return
        group.problem = None
        group.racks = racks_that_count(group, plan.wanted)
        records = target_records(group, plan, given)
        self._apply(records)
        count = sum(number for _, number in group.value.topics)
        log.info(
            "Group %s, epoch %d: %d partitions for %d members by %s; %d targets changed. Last: %s.",
            plan.group_id, group.epoch, count, len(group.members), group.value.assignor, len(records) - 1,
            group.value.reason,
        )  # fmt: skip

    def fail_assignment(self, plan: TargetPlan, error: AssignorFailed | UnknownAssignor) -> None:
        """The group keeps its assignment, and who waits for one is told why there is none."""
        log.error("Group %s, epoch %d: %s", plan.group_id, plan.epoch, error)
        group = self._planned(plan)
        if group is not None:
            group.problem = error if isinstance(error, AssignorFailed) else AssignorFailed(error.name, error.reason)
            self.to_wake[plan.group_id] = None

    def _planned(self, plan: TargetPlan) -> Group | None:
        group = self.state.groups.get(plan.group_id)
        if group is None or not group.is_assigning:
            return None
        if plan.is_of(group):
            return group
        self.to_assign[plan.group_id] = None
        return None

    def patterns_due(self) -> PatternWork | None:
        """Return what to match next, so that it is known which topics the members want.

        A pattern that no member has now is forgotten. Kept, it would count as known when a member comes with it again,
        and the topics that were made meanwhile would be found only with the next change of any topic.
        """
        self.has_new_pattern = False
        patterns = {pattern for group in self.state.groups.values() for pattern in group.patterns}
        return self._patterns.due(patterns, self._topics.by_name())

    def patterns_matched(self, work: PatternWork, found: Sequence[frozenset[str]]) -> None:
        self._patterns.learn(work, found)
        self.to_assign.update(self._unmatched)
        self._unmatched.clear()

    def topics_changed(self, at: Moment) -> None:
        """Look which groups need a new assignment for what has become of the topics; later, where patterns are unknown.
        """
        self.to_assign.update(self._behind)
        self._behind.clear()
        for group in list(self.state.groups.values()):
            if not knows_patterns(group, self._patterns):
                continue
            if group.racks is None:  # these are the ones of its targets, as far as this process can know
                wanted = wanted_topics(group, self._topics.by_name(), self._patterns)
                group.racks = racks_that_count(group, wanted)
            reason = topic_changes(group, self._topics, self._patterns)
            if reason:
                records = [membership.raised_epoch(group, reason, members=len(group.members), at=at)]
                self._change(group.group_id, membership.Change(records, reason))

    # --- time -----------------------------------------------------------------------------------------------------

    def heard(self, group_id: str, member_id: str, at: Moment) -> None:
        """A sign of life that is not answered."""
        group = self.state.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if member is not None:
            member.heard_at_ms = at.now_ms
        elif group is not None and group.classic is not None and member_id in group.classic.members:
            group.classic.members[member_id].heard_at_ms = at.now_ms

    def is_over(self, group_id: str, member_id: str, at: Moment) -> bool:
        """Whether `look_at` would remove the member."""
        group = self.state.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        return member is not None and min(_ends(member)) <= at.now_ms

    def look_at(self, group_id: str, member_id: str, at: Moment) -> int | None:
        """Remove the member if its time is over. Returns when to look next; None: it is no member (any more)."""
        group = self.state.groups.get(group_id)
        member = group.members.get(member_id) if group is not None else None
        if group is None or member is None:
            return None
        session_ends, revoking_ends = _ends(member)
        if session_ends <= at.now_ms:
            silent = at.now_ms - member.heard_at_ms
            allowed = f"session_timeout_ms {member.profile.session_timeout_ms}"
            self._remove(group, member, f"was silent for {silent} ms ({allowed})", at)
            return None
        if revoking_ends <= at.now_ms:
            slow = at.now_ms - member.revoking_since_ms
            count = len(member.revoking)
            self._remove(group, member, f"did not give {count} partitions up within {slow} ms", at)
            return None
        return min(session_ends, revoking_ends)

    def expire(self, at: Moment) -> None:
        """Delete what has been kept for long enough."""
        self._offsets.expire(at)

    # --- administration -------------------------------------------------------------------------------------------

    def _remove_members(self, request: RemoveMembers, at: Moment) -> Done:
        group = admin.existing(self.state, request.group)
        why = f"was removed by an administrator ({request.reason[: admin.MAX_REASON] or 'no reason given'})"
        if group.has_classic_members:
            self.classic.remove_members(group, request.members, request.instances, at)
            return Done()
        for member in admin.members_to_remove(group, request):
            self._remove(group, member, why, at)
        return Done()


def _ends(member: Member) -> tuple[int, int]:
    """Return when a member's session ends, and when it is to have given up what it was asked to."""
    session_ends = member.heard_at_ms + member.profile.session_timeout_ms
    if member.revoking_since_ms < 0:
        return session_ends, session_ends
    return session_ends, member.revoking_since_ms + member.profile.rebalance_timeout_ms


def _changes_nothing(group: Group, member: Member, request: GroupHeartbeat) -> bool:
    """The usual case: the member owns what it is to own, and says so."""
    return (
        request.epoch == member.epoch
        and request.profile is None
        and request.owned == member.owned
        and request.sequence > member.sequence
        and group.is_stable(member)
    )

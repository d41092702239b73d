"""Requests about offsets and about whole groups: from the message to decisions, and to the answer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Protocol

from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.transaction_messages import ResolveStaged
from raylog.errors import StaleTransaction
from raylog.groups.records.messages import (
    NO_EPOCH,
    AlterOffsets,
    CommitOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    FetchOffsets,
    ListGroups,
    ListStaged,
    OffsetsCommitted,
    OffsetsFetched,
    StageOffsets,
    each_of,
)
from raylog.groups.records.offsets_log import Topics
from raylog.groups.records.records import Record, TransactionKey
from raylog.groups.records.settings import GroupSettings, check_group_id
from raylog.groups.rules import admin, offset_commits
from raylog.groups.rules.group import Group, GroupsState, Member
from raylog.groups.rules.membership import Moment
from raylog.groups.rules.pattern_topics import PatternTopics

log = logging.getLogger(__name__)


class KnownMember(Protocol):
    """Finds a member, or raises what has become of it."""

    def __call__(self, group_id: str, member_id: str, epoch: int, at: Moment) -> Member: ...


class OffsetRequests:
    """`apply` replays records and puts them down to be written."""

    def __init__(
        self,
        state: GroupsState,
        settings: GroupSettings,
        topics: Topics,
        patterns: PatternTopics,
        apply: Callable[[Sequence[Record]], None],
        known_member: KnownMember,
    ) -> None:
        self._state = state
        self._settings = settings
        self._topics = topics
        self._patterns = patterns
        self._apply = apply
        self._known_member = known_member
        self._missing_since: dict[bytes, int] = {}
        # By producer: (epoch, sequence) of what was staged last. A late repetition comes over a socket of this process,
        # so its memory is enough.
        self._staged_last: dict[int, tuple[int, int]] = {}
        self.handlers: dict[type[Message], Callable[[Any, Moment], Message]] = {
            CommitOffsets: self._commit,
            StageOffsets: self._stage,
            ResolveStaged: self._resolve,
            FetchOffsets: self._fetch,
            ListGroups: lambda _request, _at: admin.list_groups(self._state),
            ListStaged: lambda _request, _at: admin.list_staged(self._state),
            DescribeGroup: lambda request, at: admin.describe(self._state, request, at),
            DeleteGroup: self._delete_group,
            DeleteOffsets: self._delete_offsets,
            AlterOffsets: self._alter_offsets,
        }

    def _commit(self, request: CommitOffsets, at: Moment) -> OffsetsCommitted:
        may = self._check_for(request, at)
        records, refused = offset_commits.commit(
            self._group_of(request.group), request.offsets, may, self._settings.max_metadata_bytes, at, self._topics
        )
        self._apply(records)
        return OffsetsCommitted(tuple(refused))

    def _stage(self, request: StageOffsets, at: Moment) -> OffsetsCommitted:
        self._check_order(request)
        may = self._check_for(request, at)
        records, refused = offset_commits.stage(
            self._state, request, may, self._settings.max_metadata_bytes, at, self._topics
        )
        self._staged_last[request.producer_id] = request.producer_epoch, request.sequence
        self._apply(records)
        return OffsetsCommitted(tuple(refused))

    def _check_order(self, request: StageOffsets) -> None:
        """Raise StaleTransaction: what was sent later has been here before."""
        epoch, sequence = self._staged_last.get(request.producer_id, (NO_EPOCH, 0))
        if request.producer_epoch < epoch:
            raise StaleTransaction(request.producer_id, request.producer_epoch, epoch, "Epoch")
        if request.producer_epoch == epoch and request.sequence < sequence:
            raise StaleTransaction(request.producer_id, request.sequence, sequence, "Request")

    def _check_for(self, request: CommitOffsets | StageOffsets, at: Moment) -> offset_commits.Check:
        check_group_id(request.group)
        group = self._group_of(request.group)
        if group.classic is not None and group.has_classic_members and request.member:
            instance = request.instance if isinstance(request, CommitOffsets) else ""
            group.classic.check_commit(request.member, instance, request.epoch, at)
            return lambda _partition: None  # a classic group's coordinator does not know who owns what
        member = self._known_member(request.group, request.member, request.epoch, at) if request.member else None
        return offset_commits.request_check(group, request, member, at, self._topics)

    def _group_of(self, group_id: str) -> Group:
        """Return that group, or what one would be like that has nothing."""
        return self._state.groups.get(group_id) or Group(group_id)

    def _resolve(self, request: ResolveStaged, at: Moment) -> Done:
        self._apply(offset_commits.resolve(self._state, request, at))
        last = self._staged_last.get(request.producer_id)
        if last is not None and last[0] <= request.producer_epoch:
            del self._staged_last[request.producer_id]
        return Done()

    def _fetch(self, request: FetchOffsets, at: Moment) -> OffsetsFetched:
        check_group_id(request.group)
        group = self._group_of(request.group)
        if request.member:
            member = self._known_member(request.group, request.member, request.epoch, at)
            offset_commits.member_check(group, member, request.epoch, at, self._topics)
        found, refused = offset_commits.fetch(group, request.partitions, self._topics)
        return OffsetsFetched(tuple(found), tuple(refused))

    # --- administration -------------------------------------------------------------------------------------------

    def _delete_group(self, request: DeleteGroup, _at: Moment) -> Done:
        self._apply(admin.delete_group(self._state, request.group, self._topics))
        log.info("Group %s is deleted.", request.group)
        return Done()

    def _delete_offsets(self, request: DeleteOffsets, _at: Moment) -> OffsetsCommitted:
        group = admin.existing(self._state, request.group)
        records, refused = admin.delete_offsets(
            group, each_of(request.partitions), self._topics, self._patterns
        )
        self._apply(records)
        return OffsetsCommitted(tuple(refused))

    def _alter_offsets(self, request: AlterOffsets, at: Moment) -> OffsetsCommitted:
        check_group_id(request.group)
        group = self._group_of(request.group)
        may = offset_commits.stranger_check(group, "altering its offsets")
        records, refused = offset_commits.commit(
            group, request.offsets, may, self._settings.max_metadata_bytes, at, self._topics
        )
        self._apply(records)
        return OffsetsCommitted(tuple(refused))

    # --- time -----------------------------------------------------------------------------------------------------

    def expire(self, at: Moment) -> None:
        """Offsets of idle groups and of topics that are gone, groups without either, transactions long over."""
        gone = self._topics_gone(at)
        retention = self._settings.offsets_retention_ms
        for group in list(self._state.groups.values()):
            self._apply(offset_commits.of_topics(group, gone))
            self._apply(offset_commits.expired(group, retention, at))
            idle = not (group.has_members or group.offsets or group.staged)
            if idle and at.wall_ms - group.empty_since_ms >= retention:
                self._apply(admin.own_records_gone(group))
        self._apply([
            (TransactionKey(producer_id), None)
            for producer_id, end in self._state.ended.items()
            if at.wall_ms - end.ended_at_ms >= self._settings.producer_retention_ms
            and producer_id not in self._state.staged_in
        ])

    def _topics_gone(self, at: Moment) -> set[bytes]:
        """Return the topics that have been missing for a while: what this process has heard of them may be old."""
        ids = {topic_id for group in self._state.groups.values() for topic_id, _ in group.offsets}
        missing = {topic_id for topic_id in ids if self._topics.by_id(topic_id) is None}
        self._missing_since = {each: self._missing_since.get(each, at.now_ms) for each in missing}
        longest = at.now_ms - self._settings.missing_topic_ms
        return {topic_id for topic_id, since in self._missing_since.items() if since <= longest}

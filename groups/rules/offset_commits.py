"""Committed offsets: committing, reading, staging for a transaction, expiring. Decides, and changes nothing.

What must stay true:
- Rule 24: a member's commit of a partition is taken iff (epoch from which on it owns the partition) ≤ the epoch it
  commits at ≤ its epoch now. Others commit only while there are no members.
- Rule 22: an offset that an open transaction has staged is decided by that transaction alone: until then reading it is
  UnstableOffset, and neither expiry nor deletion touches it.
- A transaction is known by (producer id, producer epoch), for each ends with a higher epoch (rule 20). What was staged
  at an epoch no higher than the last that ended is late, and refused.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from typing import Final, TypeAlias

from raylog.actors.protocol.transaction_messages import ResolveStaged
from raylog.errors import (
    CoordinatorFenced,
    FencedMember,
    GroupNotEmpty,
    InvalidOffset,
    OffsetBeyondEnd,
    OffsetMetadataTooLarge,
    PartitionNotOwned,
    RaylogError,
    StaleTransaction,
    UnknownPartition,
    UnknownTopic,
    UnstableOffset,
)
from raylog.groups.records.messages import (
    NO_OFFSET,
    CommitOffsets,
    OffsetToCommit,
    PartitionId,
    Partitions,
    Refusal,
    StageOffsets,
    each_of,
)
from raylog.groups.records.offsets_log import Topics
from raylog.groups.records.records import (
    OffsetKey,
    OffsetValue,
    Record,
    StagedKey,
    StagedValue,
    TransactionEnd,
    TransactionKey,
)
from raylog.groups.records.refusals import partition_name, refusal_of
from raylog.groups.rules.group import Group, GroupsState, Member
from raylog.groups.rules.membership import Moment

_LARGEST: Final = 2**63 - 1

Check: TypeAlias = Callable[[PartitionId], "RaylogError | None"]


# --- who may commit -----------------------------------------------------------------------------------------------


def member_check(group: Group, member: Member, epoch: int, at: Moment, topics: Topics) -> Check:
    """Return what tells, partition by partition, whether a member may commit at this epoch. FencedMember: none of them.
    """
    if epoch > member.epoch or epoch < 0:
        since = -1 if member.epoch_since_ms < 0 else at.now_ms - member.epoch_since_ms
        raise FencedMember(group.group_id, member.member_id, epoch, member.epoch, since)

    def check(partition: PartitionId) -> RaylogError | None:
        since = member.right_since(partition)
        if may_commit(since, epoch, member.epoch):
            return None
        heard = -1 if member.heard_at_ms < 0 else at.now_ms - member.heard_at_ms
        name = partition_name(partition, topics)
        return PartitionNotOwned(group.group_id, member.member_id, name, epoch, -1 if since is None else since, heard)

    return check


def may_commit(right_since: int | None, epoch: int, member_epoch: int) -> bool:
    """Rule 24."""
    return right_since is not None and right_since <= epoch <= member_epoch


def stranger_check(group: Group, what: str) -> Check:
    """Raises GroupNotEmpty: only members commit while there are any."""
    if group.has_members:
        raise GroupNotEmpty(group.group_id, group.member_count, what)
    return lambda _partition: None


# --- committing and staging ---------------------------------------------------------------------------------------


def commit(
    group: Group, offsets: Iterable[OffsetToCommit], may: Check, max_metadata: int, at: Moment, topics: Topics
) -> tuple[list[Record], list[Refusal]]:
    records: list[Record] = []
    refused = []
    for entry in offsets:
        topic_id, number, offset, leader_epoch, metadata = entry
        error = may((topic_id, number)) or _objection(group.group_id, entry, max_metadata, topics)
        if error is not None:
            refused.append(refusal_of((topic_id, number), error))
            continue
        name = _topic_name(topic_id, topics)
        value = OffsetValue(name, offset, leader_epoch, metadata, at.wall_ms)
        records.append((OffsetKey(group.group_id, topic_id, number), value))
    return records, refused


def stage(
    state: GroupsState, request: StageOffsets, may: Check, max_metadata: int, at: Moment, topics: Topics
) -> tuple[list[Record], list[Refusal]]:
    """Raises StaleTransaction where the transaction has ended."""
    ended = state.ended.get(request.producer_id)
    if ended is not None and request.producer_epoch <= ended.producer_epoch:
        raise StaleTransaction(request.producer_id, request.producer_epoch, ended.producer_epoch, "Epoch")
    records: list[Record] = []
    refused = []
    for entry in request.offsets:
        topic_id, number, offset, leader_epoch, metadata = entry
        error = may((topic_id, number)) or _objection(request.group, entry, max_metadata, topics)
        if error is not None:
            refused.append(refusal_of((topic_id, number), error))
            continue
        name = _topic_name(topic_id, topics)
        value = StagedValue(request.producer_epoch, name, offset, leader_epoch, metadata, at.wall_ms)
        records.append((StagedKey(request.group, request.producer_id, topic_id, number), value))
    return records, refused


def _objection(group_id: str, entry: OffsetToCommit, max_metadata: int, topics: Topics) -> RaylogError | None:
    topic_id, number, offset, _, metadata = entry
    partition = (topic_id, number)
    known = topics.by_id(topic_id)
    if known is None:
        return UnknownTopic(topic_id.hex())
    if not 0 <= number < known.partitions:
        return UnknownPartition(known.name, number)
    if not 0 <= offset <= _LARGEST:
        return InvalidOffset(group_id, partition_name(partition, topics), offset)
    size = len(metadata.encode("utf-8", "surrogatepass"))
    if size > max_metadata:
        return OffsetMetadataTooLarge(group_id, partition_name(partition, topics), size, max_metadata)
    end = topics.end_offset(topic_id, number)
    if end is not None and offset > end:
        return OffsetBeyondEnd(group_id, partition_name(partition, topics), offset, end)
    return None


def _topic_name(topic_id: bytes, topics: Topics) -> str:
    known = topics.by_id(topic_id)
    return "" if known is None else known.name


# --- the end of a transaction -------------------------------------------------------------------------------------


def resolve(state: GroupsState, request: ResolveStaged, at: Moment) -> list[Record]:
    """One batch: what was staged becomes committed or nothing. A repetition changes nothing.

    CoordinatorFenced, StaleTransaction: this is no word of that transaction's present coordinator (rule 20).
    """
    pid, ended = request.producer_id, state.ended.get(request.producer_id)
    if ended is not None:
        if request.coordinator_epoch < ended.coordinator_epoch:
            raise CoordinatorFenced(pid, request.coordinator_epoch, ended.coordinator_epoch)
        if request.producer_epoch < ended.producer_epoch:
            raise StaleTransaction(pid, request.producer_epoch, ended.producer_epoch, "Epoch")
    records: list[Record] = []
    for group_id, (topic_id, number) in state.staged_in.get(pid, ()):
        value = state.groups[group_id].staged[topic_id, number][pid]
        if value.producer_epoch > request.producer_epoch:
            continue  # a later transaction's
        if request.commit and value.producer_epoch == request.producer_epoch:
            offset = OffsetValue(value.topic, value.offset, value.leader_epoch, value.metadata, at.wall_ms)
            records.append((OffsetKey(group_id, topic_id, number), offset))
        records.append((StagedKey(group_id, pid, topic_id, number), None))
    end = TransactionEnd(request.producer_epoch, request.coordinator_epoch, at.wall_ms)
    if ended is None or (ended.producer_epoch, ended.coordinator_epoch) != (end.producer_epoch, end.coordinator_epoch):
        records.append((TransactionKey(pid), end))
    return records


# --- reading ------------------------------------------------------------------------------------------------------


def fetch(
    group: Group, partitions: Partitions | None, topics: Topics
) -> tuple[list[OffsetToCommit], list[Refusal]]:
    """The committed offsets, also that there is none, where a partition was asked for by name."""
    asked = {*group.offsets, *group.staged} if partitions is None else each_of(partitions)
    found: list[OffsetToCommit] = []
    refused = []
    for topic_id, number in sorted(asked):
        producers = group.staged.get((topic_id, number))
        if producers:
            name = partition_name((topic_id, number), topics)
            refused.append(refusal_of((topic_id, number), UnstableOffset(group.group_id, name, min(producers))))
            continue
        value = group.offsets.get((topic_id, number))
        if value is None:
            found.append((topic_id, number, NO_OFFSET, -1, ""))
        else:
            found.append((topic_id, number, value.offset, value.leader_epoch, value.metadata))
    return found, refused


# --- going --------------------------------------------------------------------------------------------------------


def expired(group: Group, retention_ms: int, at: Moment) -> list[Record]:
    """Offsets of a group without members for so long. Rule 22: not those that a transaction has staged."""
    if group.has_members:
        return []
    return [
        (OffsetKey(group.group_id, *partition), None)
        for partition, value in group.offsets.items()
        if partition not in group.staged
        and at.wall_ms - max(value.committed_at_ms, group.empty_since_ms) >= retention_ms
    ]


def of_topics(group: Group, topic_ids: Collection[bytes]) -> list[Record]:
    """Return records that delete what is committed of these topics, which are no more. What a transaction has staged
    of them is its own to decide (rule 22).
    """
    return [
        (OffsetKey(group.group_id, *partition), None)
        for partition in group.offsets
        if partition[0] in topic_ids and partition not in group.staged
    ]


def request_check(
    group: Group, request: CommitOffsets | StageOffsets, member: Member | None, at: Moment, topics: Topics
) -> Check:
    """`member`: the one who commits, None where the request names none."""
    if member is None:
        return stranger_check(group, "a commit without membership")
    return member_check(group, member, request.epoch, at, topics)

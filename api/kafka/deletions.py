"""Deletions of administrators, beside topics: records below an offset, groups, and committed offsets of groups.

Partition leaders delete records, a group's coordinator deletes what is the group's. Doing it twice is the same as doing
it once, so a client that hears of no answer asks again.
"""

from __future__ import annotations

from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.actors.protocol.replication_messages import DeleteRecords, RecordsDeleted
from raylog.api.kafka.fan_out import named_twice, some_at_a_time
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import OffsetOutOfRange, RaylogError
from raylog.groups.records.messages import (
    MOST_OFFSETS,
    DeleteGroup,
    DeleteOffsets,
    OffsetsCommitted,
    PartitionId,
    grouped,
)
from raylog.groups.records.refusals import error_of

_AT_HIGH_WATERMARK: Final = -1
_NO_OFFSET: Final = -1
_MOST_TIMEOUT_MS: Final = 600_000
_GRACE_SECONDS: Final = 5.0  # beyond the time in which a leader itself answers
_ANSWER_SECONDS: Final = 10.0

_Answer = TypeVar("_Answer", bound=Message)


class Deletions:
    """Serves DeleteRecords, DeleteGroups and OffsetDelete."""

    def __init__(self, link: ClusterLink, topics: KnownTopics) -> None:
        self._link = link
        self._topics = topics

    async def records(self, request: Any) -> Any:
        """Serve DeleteRecords. Each partition is deleted from, or refused, by itself."""
        timeout_ms = min(max(request.timeout_ms, 1), _MOST_TIMEOUT_MS)
        asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
        twice = named_twice((topic, part.partition_index) for topic, part in asked)

        async def delete(one: tuple[str, Any]) -> Any:
            topic, part = one
            if (topic, part.partition_index) in twice:
                told = message_type("DeleteRecordsResponse", "DeleteRecordsPartitionResult")
                return told(part.partition_index, _NO_OFFSET, ErrorCode.INVALID_REQUEST)
            return await self._delete_before(topic, part, timeout_ms)

        told = iter(await some_at_a_time(delete, asked))
        of_topic = message_type("DeleteRecordsResponse", "DeleteRecordsTopicResult")
        topics = [of_topic(topic.name, [next(told) for _ in topic.partitions]) for topic in request.topics]
        return message_type("DeleteRecordsResponse")(topics=topics)

    async def _delete_before(self, topic: str, part: Any, timeout_ms: int) -> Any:
        told = message_type("DeleteRecordsResponse", "DeleteRecordsPartitionResult")
        number, before = part.partition_index, part.offset
        try:
            leader = self._topics.leader(self._topics.find(topic, b"", by_id=False), number)
            if before < _AT_HIGH_WATERMARK:
                raise OffsetOutOfRange(before, _NO_OFFSET, _NO_OFFSET)
            seconds = timeout_ms / 1000 + _GRACE_SECONDS
            order = DeleteRecords(before, timeout_ms)
            answer = await self._link.order(leader, order, expect=RecordsDeleted, timeout=seconds)
        except RaylogError as error:
            return told(number, _NO_OFFSET, code_of(error))
        return told(number, answer.message.log_start_offset)

    async def groups(self, request: Any) -> Any:
        """Serve DeleteGroups: groups without members, with their offsets."""
        of_group = message_type("DeleteGroupsResponse", "DeletableGroupResult")
        groups = list(dict.fromkeys(request.groups_names))
        codes = await some_at_a_time(self._delete_group, groups)
        told = [of_group(group, code) for group, code in zip(groups, codes, strict=True)]
        return message_type("DeleteGroupsResponse")(results=told)

    async def _delete_group(self, group: str) -> ErrorCode:
        try:
            await self._ask(group, DeleteGroup(group), Done)
        except RaylogError as error:
            return code_of(error, Asked.OFFSET_FETCH)
        return ErrorCode.NONE

    async def offsets(self, request: Any) -> Any:
        """Serve OffsetDelete: offsets of topics that no member reads."""
        codes: dict[tuple[str, int], ErrorCode] = {}
        known: dict[PartitionId, tuple[str, int]] = {}
        for name, number in [(each.name, part.partition_index) for each in request.topics for part in each.partitions]:
            try:
                view = self._topics.find(name, b"", by_id=False)
                known[view.topic_id, number] = name, number
            except RaylogError as error:
                codes[name, number] = code_of(error)
        try:
            for partition, code in (await self._delete_offsets(request.group_id, list(known))).items():
                codes[known[partition]] = code
        except RaylogError as error:
            return message_type("OffsetDeleteResponse")(error_code=code_of(error, Asked.OFFSET_DELETE))
        return _offsets_deleted(request.topics, codes)

    async def _delete_offsets(self, group: str, partitions: list[PartitionId]) -> dict[PartitionId, ErrorCode]:
        """Return the codes of partitions that were refused."""
        refused: dict[PartitionId, ErrorCode] = {}
        for at in range(0, max(len(partitions), 1), MOST_OFFSETS):
            message = DeleteOffsets(group, grouped(partitions[at : at + MOST_OFFSETS]))
            answer = await self._ask(group, message, OffsetsCommitted)
            refused |= {(each[0], each[1]): code_of(error_of(each), Asked.OFFSET_DELETE) for each in answer.refused}
        return refused

    async def _ask(self, group: str, message: Message, expect: type[_Answer]) -> _Answer:
        coordinator = await self._link.find_coordinator(OFFSETS_TOPIC, group_hash(group), _ANSWER_SECONDS)
        return (await self._link.ask(coordinator, message, expect=expect, timeout=_ANSWER_SECONDS)).message


def _offsets_deleted(topics: Any, codes: dict[tuple[str, int], ErrorCode]) -> Any:
    of_topic, of_part = (
        message_type("OffsetDeleteResponse", f"OffsetDeleteResponse{each}") for each in ("Topic", "Partition")
    )
    told = [
        of_topic(
            topic.name,
            [
                of_part(part.partition_index, codes.get((topic.name, part.partition_index), ErrorCode.NONE))
                for part in topic.partitions
            ],
        )
        for topic in topics
    ]
    return message_type("OffsetDeleteResponse")(topics=told)

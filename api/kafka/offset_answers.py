"""Answers about offsets: ListOffsets and OffsetForLeaderEpoch. Each partition's leader is asked, many at a time."""

from __future__ import annotations

from typing import Any, Final

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.replication_messages import (
    EARLIEST,
    MAX_TIMESTAMP,
    EpochEndFound,
    FindEpochEnd,
    ListedOffset,
    ListOffset,
)
from raylog.api.kafka.fan_out import named_twice, some_at_a_time
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.protocol.error_codes import ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import OffsetNotAvailable, RaylogError

_LISTED: Final = "ListOffsetsResponse"
_ENDS: Final = "OffsetForLeaderEpochResponse"
_ANSWER_SECONDS: Final = 10.0
_EARLIEST_LOCAL: Final = -4  # the same as the earliest: raylog keeps no part of a log elsewhere
_READ_COMMITTED: Final = 1
_VERSION_WITH_NOT_AVAILABLE: Final = 5  # the first ListOffsets whose clients know OFFSET_NOT_AVAILABLE


class OffsetAnswers:
    """Serves requests about offsets."""

    def __init__(self, link: ClusterLink, topics: KnownTopics) -> None:
        self._link = link
        self._topics = topics

    async def list_offsets(self, version: int, request: Any) -> Any:
        """Serve ListOffsets."""
        committed = request.isolation_level == _READ_COMMITTED
        asked = [(topic.name, part) for topic in request.topics for part in topic.partitions]
        twice = named_twice((topic, part.partition_index) for topic, part in asked)

        async def answer(one: tuple[str, Any]) -> Any:
            topic, part = one
            if (topic, part.partition_index) in twice:
                told = message_type(_LISTED, "ListOffsetsPartitionResponse")
                return told(part.partition_index, ErrorCode.INVALID_REQUEST)
            return await self._list(version, topic, part, committed)

        found = iter(await some_at_a_time(answer, asked))
        of_topic = message_type(_LISTED, "ListOffsetsTopicResponse")
        topics = [of_topic(topic.name, [next(found) for _ in topic.partitions]) for topic in request.topics]
        return message_type(_LISTED)(topics=topics)

    async def _list(self, version: int, topic: str, part: Any, committed: bool) -> Any:
        told = message_type(_LISTED, "ListOffsetsPartitionResponse")
        timestamp = EARLIEST if part.timestamp == _EARLIEST_LOCAL else part.timestamp
        try:
            leader = self._leader(topic, part.partition_index)
            if timestamp < MAX_TIMESTAMP:  # about what is kept elsewhere: there is none
                return told(part.partition_index)
            question = ListOffset(timestamp, part.current_leader_epoch, committed)
            answer = await self._link.ask(leader, question, expect=ListedOffset, timeout=_ANSWER_SECONDS)
        except RaylogError as error:
            return told(part.partition_index, _code(error, version))
        found = answer.message
        return told(
            partition_index=part.partition_index,
            timestamp=found.timestamp,
            offset=found.offset,
            leader_epoch=found.leader_epoch,
        )

    async def ends_of_epochs(self, request: Any) -> Any:
        """Serve OffsetForLeaderEpoch."""
        asked = [(topic.topic, part) for topic in request.topics for part in topic.partitions]
        found = iter(await some_at_a_time(lambda each: self._end(*each), asked))
        of_topic = message_type(_ENDS, "OffsetForLeaderTopicResult")
        topics = [of_topic(topic.topic, [next(found) for _ in topic.partitions]) for topic in request.topics]
        return message_type(_ENDS)(topics=topics)

    async def _end(self, topic: str, part: Any) -> Any:
        told = message_type(_ENDS, "EpochEndOffset")
        try:
            leader = self._leader(topic, part.partition)
            question = FindEpochEnd(part.current_leader_epoch, part.leader_epoch)
            answer = await self._link.ask(leader, question, expect=EpochEndFound, timeout=_ANSWER_SECONDS)
        except RaylogError as error:
            return told(error_code=code_of(error), partition=part.partition)
        found = answer.message
        return told(partition=part.partition, leader_epoch=found.epoch, end_offset=found.end_offset)

    def _leader(self, topic: str, partition: int) -> PartitionLeader:
        return self._topics.leader(self._topics.find(topic, b"", by_id=False), partition)


def _code(error: RaylogError, version: int) -> ErrorCode:
    if isinstance(error, OffsetNotAvailable) and version < _VERSION_WITH_NOT_AVAILABLE:
        return ErrorCode.LEADER_NOT_AVAILABLE
    return code_of(error)

"""Deleting records for administrators: each leader is asked for its own partition."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, TypeAlias, TypeVar

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.environment import Environment
from raylog.actors.kernel.stream_interface import expected
from raylog.actors.kernel.stream_requests import refuse_all
from raylog.actors.link.questions import until_answered
from raylog.actors.protocol.control_messages import NO_LEADER, GetMetadata, Metadata, PartitionMetadata
from raylog.actors.protocol.endpoint import Endpoint
from raylog.actors.protocol.messages import NO_PARTITION, NO_TOPIC, Message
from raylog.actors.protocol.names import is_internal
from raylog.actors.protocol.replication_messages import DeleteRecords, RecordsDeleted
from raylog.config import TopicConfig
from raylog.errors import (
    EligibleLeadersNotAvailable,
    InternalTopic,
    MetadataNotReady,
    NotLeader,
    PeerUnreachable,
    PolicyViolation,
    RaylogError,
    RemoteFailed,
    StreamError,
    UnknownPartition,
    UnknownTopic,
)

_PAUSE_SECONDS: Final = 0.2
_LOOK_SECONDS: Final = 1.0
_PASSING: Final = (NotLeader, EligibleLeadersNotAvailable, StreamError)
_Answer = TypeVar("_Answer", bound=Message)
Partition: TypeAlias = tuple[str, int]

_log = logging.getLogger(__name__)


def check_deletable(topic: str, config: TopicConfig) -> None:
    """Raise InternalTopic or PolicyViolation where records must not be deleted: only compaction may remove them."""
    _check_not_internal(topic)
    if not config.deletes_old_segments:
        raise PolicyViolation(topic, config.cleanup_policy)


def _check_not_internal(topic: str) -> None:
    if is_internal(topic):
        raise InternalTopic(topic)


async def delete_records(
    env: Environment, brokers: Sequence[Endpoint], before: Mapping[Partition, int], node_id: str, timeout: float
) -> dict[Partition, int]:
    """Delete records below an offset of each partition, and return where each partition begins now.

    `brokers`: any of the cluster; `node_id`: the Ray node of the caller.

    InternalTopic, before anything is deleted. PolicyViolation, UnknownTopic, UnknownPartition, OffsetOutOfRange,
    EligibleLeadersNotAvailable, AppendTimedOut, StreamError.
    """
    for topic, _ in before:
        _check_not_internal(topic)
    found = await asyncio.gather(
        *(_delete(env, brokers, partition, offset, node_id, timeout) for partition, offset in before.items())
    )
    return dict(zip(before, found, strict=True))


async def _delete(
    env: Environment, brokers: Sequence[Endpoint], partition: Partition, offset: int, node_id: str, timeout: float
) -> int:
    """Delete, and try again until the time is over: doing it twice is the same as doing it once."""
    return await until_answered(
        partial(_delete_once, env, brokers, partition, offset, node_id),
        Backoff(_PAUSE_SECONDS, _PAUSE_SECONDS, env.random),
        is_final=_is_final,
        failed=partial(_log.debug, "Records of %s are not deleted yet: %s", partition),
        seconds=timeout,
    )


def _is_final(error: RaylogError) -> bool:
    return not isinstance(error, _PASSING)


async def _delete_once(
    env: Environment, brokers: Sequence[Endpoint], partition: Partition, offset: int, node_id: str, timeout: float
) -> int:
    topic, number = partition
    topic_id, metadata = await _leader_of(env, brokers, topic, number, timeout)
    if metadata.leader == NO_LEADER:
        raise EligibleLeadersNotAvailable(topic, number)
    near = metadata.node_id == node_id
    target = next(each for each in map(Endpoint.parse, metadata.endpoints) if each.is_unix == near)
    request = DeleteRecords(offset, max(1, int(timeout * 1000)))
    return (await _ask(env, target, request, RecordsDeleted, timeout, topic_id, number)).log_start_offset


async def _leader_of(
    env: Environment, brokers: Sequence[Endpoint], topic: str, number: int, timeout: float
) -> tuple[bytes, PartitionMetadata]:
    """Return the topic id and the leader by the newest metadata of any broker: one may be cut off and outdated."""
    told = await asyncio.gather(*(_metadata(env, each, topic, min(timeout, _LOOK_SECONDS)) for each in brokers))
    answers = [each for each in told if each is not None]
    if not answers:
        raise PeerUnreachable("every broker", "none of them answers")
    for told_topic in max(answers, key=lambda each: each.version).topics:
        for partition in told_topic.partitions:
            if partition.partition == number:
                return told_topic.topic_id, partition
        raise UnknownPartition(topic, number)
    raise UnknownTopic(topic)


async def _metadata(env: Environment, broker: Endpoint, topic: str, timeout: float) -> Metadata | None:
    try:
        return await asyncio.wait_for(_ask(env, broker, GetMetadata((topic,), -1, 0), Metadata, timeout), timeout)
    except (StreamError, MetadataNotReady, asyncio.TimeoutError):
        return None  # another broker may answer


async def _ask(
    env: Environment,
    endpoint: Endpoint,
    request: Message,
    expect: type[_Answer],
    timeout: float,
    topic_id: bytes = NO_TOPIC,
    partition: int = NO_PARTITION,
) -> _Answer:
    stream = await env.dial(endpoint, "admin", refuse_all)
    try:
        told = await stream.request(request, topic_id=topic_id, partition=partition, timeout=timeout)
        return expected(told.message, expect, stream.peer)
    except RemoteFailed as error:
        if error.error is None:
            raise
        raise error.error from None
    finally:
        await stream.close(timeout=0.0)

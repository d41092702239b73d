"""Administration of topics: CreateTopics, DeleteTopics, CreatePartitions.

Each topic of a request is carried out by itself, many at a time, and has an error code of its own. What is refused is
said to the client, and in the log.
"""

from __future__ import annotations

from collections.abc import Collection, Hashable
from typing import Any, Final

from raylog.actors.cluster.admin_requests import CreatePartitions, CreateTopic, DescribeTopic
from raylog.actors.cluster.descriptions import TopicDescription
from raylog.actors.link.cluster_link import ClusterLink
from raylog.api.kafka.administration import Administration
from raylog.api.kafka.fan_out import named_twice, some_at_a_time
from raylog.api.kafka.protocol.codecs import RequestHeader
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.refusals import Refusals
from raylog.api.kafka.rules.administrators import DEFAULT, MOST_PARTITIONS_AT_ONCE, assigned, seconds_for, settings_of
from raylog.api.kafka.rules.config_entries import topic_entries
from raylog.errors import InvalidRequest, RaylogError, TooManyPartitionsAtOnce, UnknownTopicId

_WITH_CONFIGS: Final = 5  # the first CreateTopics that is answered with the settings
_BY_ID: Final = 6  # the first DeleteTopics that may name topics by their ids
_NO_ID: Final = bytes(16)


class TopicAdministration:
    """Makes topics, lets them grow, and deletes them."""

    def __init__(self, link: ClusterLink, administration: Administration, refusals: Refusals) -> None:
        self._link = link
        self._administration = administration
        self._refusals = refusals

    # --- CreateTopics ---------------------------------------------------------------------------------------------

    async def create_topics(self, header: RequestHeader, request: Any) -> Any:
        """Serve CreateTopics."""
        twice = named_twice(each.name for each in request.topics)
        size = sum(len(each.assignments) or max(1, each.num_partitions) for each in request.topics)
        made = await some_at_a_time(
            lambda each: self._create(header, request, each, twice, size), request.topics, MOST_PARTITIONS_AT_ONCE
        )
        return message_type("CreateTopicsResponse")(topics=made)

    async def _create(
        self, header: RequestHeader, request: Any, topic: Any, twice: Collection[Hashable], size: int
    ) -> Any:
        result = message_type("CreateTopicsResponse", "CreatableTopicResult")
        try:
            _check_once(topic.name, twice)
            if size > MOST_PARTITIONS_AT_ONCE:
                raise TooManyPartitionsAtOnce(size, MOST_PARTITIONS_AT_ONCE)
            made = await self._administration.create_topic(
                _new_topic(topic, request.validate_only), seconds_for(request.timeout_ms)
            )
        except RaylogError as error:
            code = code_of(error, Asked.ASSIGNMENT)
            self._refusals.tell(header, f"topic {topic.name!r}", error)
            return result(name=topic.name, error_code=code, error_message=str(error))
        configs = _configs(made) if header.api_version >= _WITH_CONFIGS else None
        return result(
            name=topic.name,
            topic_id=_NO_ID if request.validate_only else made.topic_id,
            num_partitions=len(made.partitions),
            replication_factor=made.replication_factor,
            configs=configs,
        )

    # --- DeleteTopics ---------------------------------------------------------------------------------------------

    async def delete_topics(self, header: RequestHeader, request: Any) -> Any:
        """Serve DeleteTopics."""
        of_topic = message_type("DeleteTopicsRequest", "DeleteTopicState")
        asked = request.topics if header.api_version >= _BY_ID else [of_topic(each) for each in request.topic_names]
        twice = named_twice((each.name, each.topic_id) for each in asked)
        seconds = seconds_for(request.timeout_ms)
        done = await some_at_a_time(lambda each: self._delete(header, each, twice, seconds), asked)
        return message_type("DeleteTopicsResponse")(responses=done)

    async def _delete(self, header: RequestHeader, asked: Any, twice: Collection[Hashable], seconds: float) -> Any:
        result = message_type("DeleteTopicsResponse", "DeletableTopicResult")
        by_id = asked.name is None
        name, topic_id = asked.name, asked.topic_id
        try:
            _check_once((name, topic_id), twice)
            if by_id == (topic_id == _NO_ID):
                raise InvalidRequest("A topic to delete is named either by its name or by its id.")
            if by_id:
                name = await self._link.find_name(topic_id, seconds) or None
            else:
                topic_id = (await self._administration.ask(DescribeTopic(name), seconds)).topic_id
            if name is None:
                raise UnknownTopicId(topic_id.hex())
            await self._administration.delete_topic(name, topic_id, seconds)
        except RaylogError as error:
            code = code_of(error, Asked.BY_TOPIC_ID if by_id else Asked.ANYTHING)
            self._refusals.tell(header, f"topic {asked.topic_id.hex() if name is None else name!r}", error)
            return result(name, asked.topic_id, code, str(error))
        return result(name, topic_id if by_id else _NO_ID)

    # --- CreatePartitions -----------------------------------------------------------------------------------------

    async def create_partitions(self, header: RequestHeader, request: Any) -> Any:
        """Serve CreatePartitions."""
        twice = named_twice(each.name for each in request.topics)
        made = await some_at_a_time(lambda each: self._grow(header, request, each, twice), request.topics)
        return message_type("CreatePartitionsResponse")(results=made)

    async def _grow(self, header: RequestHeader, request: Any, topic: Any, twice: Collection[Hashable]) -> Any:
        result = message_type("CreatePartitionsResponse", "CreatePartitionsTopicResult")
        brokers = None if topic.assignments is None else [list(each.broker_ids) for each in topic.assignments]
        try:
            _check_once(topic.name, twice)
            if topic.count > MOST_PARTITIONS_AT_ONCE:
                raise TooManyPartitionsAtOnce(topic.count, MOST_PARTITIONS_AT_ONCE)
            grown = CreatePartitions(topic.name, topic.count, brokers, request.validate_only)
            await self._administration.create_partitions(grown, seconds_for(request.timeout_ms))
        except RaylogError as error:
            self._refusals.tell(header, f"topic {topic.name!r}", error)
            return result(topic.name, code_of(error, Asked.ASSIGNMENT), str(error))
        return result(topic.name, ErrorCode.NONE, None)


def _new_topic(topic: Any, validate_only: bool) -> CreateTopic:
    numbers = None if topic.num_partitions == DEFAULT else topic.num_partitions
    factor = None if topic.replication_factor == DEFAULT else topic.replication_factor
    brokers = assigned([(each.partition_index, each.broker_ids) for each in topic.assignments])
    if brokers is not None and (numbers, factor) != (None, None):
        raise InvalidRequest("Replicas are named for each partition, so both numbers have to be -1.")
    settings = settings_of((each.name, each.value) for each in topic.configs)
    return CreateTopic(topic.name, numbers, factor, brokers, settings, validate_only=validate_only)


def _configs(made: TopicDescription) -> list[Any]:
    config = message_type("CreateTopicsResponse", "CreatableTopicConfigs")
    entries = topic_entries(dict(made.settings), made.replication_factor)
    return [config(each.name, each.value, each.read_only, each.source, is_sensitive=False) for each in entries]


def _check_once(name: Hashable, twice: Collection[Hashable]) -> None:
    if name in twice:
        raise InvalidRequest(f"The request names {name!r} more than once.")

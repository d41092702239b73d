"""Answers about the cluster: Metadata, DescribeCluster, FindCoordinator.

What is told of topics is at least as new as what this gateway has seen. While no broker answers, all topics are told as
this gateway last saw them: clients take a topic that is left out for one that was deleted. A client that asks for a
topic that is being made hears that it has no leaders, until it has all of them. Clients are named gateways, not
brokers: a partition whose leader has no gateway beside it is named another one (`rules/named_brokers.py`).
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any, Final

from raylog.actors.kernel.rare_log import RareLog
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import TopicView
from raylog.actors.protocol.control_messages import Metadata, PartitionMetadata, TopicMetadata
from raylog.actors.protocol.names import check_topic_name, is_internal
from raylog.api.kafka.auto_creation import AutoCreation
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.protocol.error_codes import ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.named_brokers import NO_BROKER, GatewayAddress, Gateways
from raylog.errors import InvalidTopicName, MalformedRequest, RaylogError

_ANSWER_SECONDS: Final = 10.0
_NO_TOPIC_ID: Final = bytes(16)
_VERSION_WITH_IDS: Final = 12  # the first Metadata that names topics by their ids
_BROKERS: Final = 1  # the endpoint type of DescribeCluster
_MANY_KEYS: Final = 4  # the FindCoordinator that asks for several at once
_COORDINATOR_TYPES: Final = (0, 1)  # groups, transactions

_rare: Final = RareLog(logging.getLogger(__name__))


class MetadataAnswers:
    """Says what there is, and where clients find it."""

    def __init__(
        self, link: ClusterLink, topics: KnownTopics, gateways: Callable[[], Gateways], auto_creation: AutoCreation
    ) -> None:
        self._link = link
        self._auto_creation = auto_creation
        self._topics = topics
        self._gateways = gateways
        self._cluster_id = ""

    # --- Metadata -------------------------------------------------------------------------------------------------

    async def metadata(self, version: int, request: Any) -> Any:
        """Serve Metadata. MalformedRequest: a version that knows no ids names a topic by its id."""
        asked = request.topics
        if asked is None or (version == 0 and not asked):
            asked = None
        elif version < _VERSION_WITH_IDS and any(each.name is None for each in asked):
            raise MalformedRequest("MetadataRequest", version, "a topic has no name")
        gateways = self._gateways()
        if asked is None:
            return self._answer(await self._all(gateways), gateways, self._cluster_id or None)
        try:
            topics = await self._named(asked, gateways, request.allow_auto_topic_creation)
            cluster_id = await self._find_cluster_id()
        except RaylogError as error:
            _rare.warning("Kafka clients hear of no leaders: %s", error)
            topics = [_topic_error(each, ErrorCode.LEADER_NOT_AVAILABLE) for each in asked]  # they ask again
            cluster_id = self._cluster_id
        return self._answer(topics, gateways, cluster_id or None)

    async def _all(self, gateways: Gateways) -> list[Any]:
        try:
            found = (await self._describe(())).topics
        except RaylogError as error:
            _rare.warning("Kafka clients are told of all topics as they were last seen here: %s", error)
            found = tuple(map(_as_seen, self._link.topics()[1]))
        return [self._topic(each, gateways) for each in found]

    async def _named(self, asked: Sequence[Any], gateways: Gateways, may_create: bool) -> list[Any]:
        names = [self._name_of(each) for each in asked]
        known = tuple(sorted({name for name in names if name}))
        found = {each.name: each for each in (await self._describe(known)).topics} if known else {}
        missing = [each.name for each in asked if each.name is not None and each.name not in found]
        coming = await self._auto_creation.begin(missing) if may_create and missing else ()
        return [
            _topic_error(each, ErrorCode.LEADER_NOT_AVAILABLE)
            if name in coming
            else self._asked_topic(each, found.get(name), gateways)
            for each, name in zip(asked, names, strict=True)
        ]

    def _name_of(self, asked: Any) -> str:
        """Return the name of a topic; empty: no topic has this id."""
        if asked.name is not None:
            return str(asked.name)
        view = self._topics.of_id(asked.topic_id)
        return "" if view is None else view.name

    def _asked_topic(self, asked: Any, found: TopicMetadata | None, gateways: Gateways) -> Any:
        is_another = asked.name is None and found is not None and found.topic_id != asked.topic_id
        if found is None or is_another:
            return _topic_error(asked, _missing(asked))
        if self._topics.is_forming(found):
            return _topic_error(asked, ErrorCode.LEADER_NOT_AVAILABLE)
        return self._topic(found, gateways)

    async def _describe(self, topics: tuple[str, ...]) -> Metadata:
        told = await self._link.describe(topics, _ANSWER_SECONDS)
        self._cluster_id = told.cluster_id
        return told

    async def _find_cluster_id(self) -> str:
        return self._cluster_id or (await self._describe(())).cluster_id

    def _topic(self, topic: TopicMetadata, gateways: Gateways) -> Any:
        of_topic = message_type("MetadataResponse", "MetadataResponseTopic")
        partitions = [_partition(topic.topic_id, each, gateways) for each in sorted(topic.partitions)]
        return of_topic(
            name=topic.name, topic_id=topic.topic_id, is_internal=is_internal(topic.name), partitions=partitions
        )

    def _answer(self, topics: list[Any], gateways: Gateways, cluster_id: str | None) -> Any:
        broker = message_type("MetadataResponse", "MetadataResponseBroker")
        return message_type("MetadataResponse")(
            brokers=[broker(each.broker_id, each.host, each.port, each.rack or None) for each in gateways],
            cluster_id=cluster_id,
            controller_id=_any_of(gateways),
            topics=topics,
        )

    # --- the cluster and its coordinators -------------------------------------------------------------------------

    async def describe_cluster(self, request: Any) -> Any:
        """Serve DescribeCluster. There are no controllers that a client could reach."""
        answer, gateways = message_type("DescribeClusterResponse"), self._gateways()
        if request.endpoint_type != _BROKERS:
            return answer(
                error_code=ErrorCode.UNSUPPORTED_ENDPOINT_TYPE,
                error_message="Only brokers can be described here.",
                endpoint_type=request.endpoint_type,
            )
        try:
            cluster_id = await self._find_cluster_id()
        except RaylogError as error:
            return answer(error_code=code_of(error), error_message=str(error))
        broker = message_type("DescribeClusterResponse", "DescribeClusterBroker")
        return answer(
            cluster_id=cluster_id,
            controller_id=_any_of(gateways),
            brokers=[broker(each.broker_id, each.host, each.port, each.rack or None) for each in gateways],
        )

    async def find_coordinator(self, version: int, request: Any) -> Any:
        """Serve FindCoordinator. Each gateway serves every group, so this spreads them."""
        answer = message_type("FindCoordinatorResponse")
        keys = request.coordinator_keys if version >= _MANY_KEYS else [request.key]
        found = [self._coordinator(request.key_type, key) for key in keys]
        if version >= _MANY_KEYS:
            return answer(coordinators=found)
        (one,) = found
        return answer(
            error_code=one.error_code,
            error_message=one.error_message,
            node_id=one.node_id,
            host=one.host,
            port=one.port,
        )

    def _coordinator(self, key_type: int, key: str) -> Any:
        coordinator = message_type("FindCoordinatorResponse", "Coordinator")
        if key_type not in _COORDINATOR_TYPES:
            wrong = ErrorCode.INVALID_REQUEST
            return coordinator(key, NO_BROKER, "", NO_BROKER, wrong, f"There are no coordinators of type {key_type}.")
        named = self._gateways().for_key(key.encode("utf-8", "surrogatepass"))
        if named is None:
            missing = ErrorCode.COORDINATOR_NOT_AVAILABLE
            return coordinator(key, NO_BROKER, "", NO_BROKER, missing, "No gateway is known just now.")
        return coordinator(key, named.broker_id, named.host, named.port, ErrorCode.NONE, None)


def _as_seen(view: TopicView) -> TopicMetadata:
    """Return what is known of a topic without asking. Nobody but the leader is known to be in sync."""
    partitions = tuple(
        PartitionMetadata(each.partition, each.broker, each.epoch, each.replicas, _some(each.broker), (), each.node_id)
        for each in view.partitions
    )
    return TopicMetadata(view.name, view.topic_id, partitions, view.batch_format, view.max_batch_bytes)


def _some(broker: int) -> tuple[int, ...]:
    return () if broker < 0 else (broker,)


def _any_of(gateways: Gateways) -> int:
    """Return the broker that is named as controller: requests for it are taken by all."""
    first: GatewayAddress | None = next(iter(gateways), None)
    return NO_BROKER if first is None else first.broker_id


def _missing(asked: Any) -> ErrorCode:
    if asked.name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    try:
        check_topic_name(asked.name, internal=True)
    except InvalidTopicName as error:
        return code_of(error)
    return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _topic_error(asked: Any, code: ErrorCode) -> Any:
    of_topic = message_type("MetadataResponse", "MetadataResponseTopic")
    topic_id = asked.topic_id if asked.name is None else _NO_TOPIC_ID
    return of_topic(error_code=code, name=asked.name, topic_id=topic_id)


def _partition(topic_id: bytes, told: PartitionMetadata, gateways: Gateways) -> Any:
    named = None
    if told.leader >= 0:
        named = gateways.for_leader(told.leader, topic_id, told.partition)
    return message_type("MetadataResponse", "MetadataResponsePartition")(
        error_code=ErrorCode.LEADER_NOT_AVAILABLE if named is None else ErrorCode.NONE,
        partition_index=told.partition,
        leader_id=NO_BROKER if named is None else named.broker_id,
        leader_epoch=told.leader_epoch,
        replica_nodes=told.replicas,
        isr_nodes=told.isr,
    )

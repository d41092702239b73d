"""Places of partitions and logs: DescribeTopicPartitions, ListPartitionReassignments, DescribeLogDirs.

And DescribeAcls, to say that there are none.

Brokers tell where partitions are. Which of the replicas that have left an ISR may lead (KIP-966) only the controller
tells, so it is asked about topics with such replicas. While it does not answer, none are named.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, TypeAlias

from raylog.actors.cluster.admin_requests import DescribeBrokerLogs, DescribeTopic, ListReassignments
from raylog.actors.cluster.descriptions import BrokerLogs
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.control_messages import PartitionMetadata, TopicMetadata
from raylog.actors.protocol.names import is_internal
from raylog.api.kafka.administration import Administration
from raylog.api.kafka.fan_out import some_at_a_time
from raylog.api.kafka.protocol.codecs import RequestHeader
from raylog.api.kafka.protocol.error_codes import ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.refusals import Refusals
from raylog.api.kafka.rules.named_brokers import NO_BROKER, Gateways
from raylog.api.kafka.rules.partition_pages import Page, page_of
from raylog.errors import MalformedRequest, RaylogError

_SECONDS: Final = 20.0
_ELIGIBLE_SECONDS: Final = 2.0  # what else is asked does not wait longer for the controller
_WITH_AN_ERROR: Final = 3  # the first DescribeLogDirs that has an error for the whole
_PAGES: Final = "DescribeTopicPartitionsResponse"
_MOVES: Final = "ListPartitionReassignmentsResponse"
_DIRECTORIES: Final = "DescribeLogDirsResponse"

_Eligible: TypeAlias = dict[tuple[bytes, int], tuple[int, ...]]  # by topic id and partition: brokers


class ClusterLayout:
    """Says where partitions are. `broker_id` is the broker whose gateway this is."""

    def __init__(
        self,
        link: ClusterLink,
        administration: Administration,
        gateways: Callable[[], Gateways],
        refusals: Refusals,
        broker_id: int,
    ) -> None:
        self._link = link
        self._administration = administration
        self._gateways = gateways
        self._refusals = refusals
        self._broker_id = broker_id

    # --- DescribeTopicPartitions ----------------------------------------------------------------------------------

    async def topic_partitions(self, header: RequestHeader, request: Any) -> Any:
        """Serve DescribeTopicPartitions: a page of them, and where the next one begins. MalformedRequest."""
        cursor = request.cursor
        if cursor is not None and cursor.partition_index < 0:
            raise MalformedRequest("DescribeTopicPartitionsRequest", 0, "its cursor names no partition")
        names = tuple(sorted({each.name for each in request.topics}))
        begin = ("", 0) if cursor is None else (cursor.topic_name, cursor.partition_index)
        try:
            told = await self._link.describe(names, _SECONDS)
        except RaylogError as error:
            self._refusals.tell(header, "partitions", error)
            of_topic = message_type(_PAGES, "DescribeTopicPartitionsResponseTopic")
            return message_type(_PAGES)(topics=[of_topic(code_of(error), each) for each in names])
        found = {each.name: each for each in told.topics}
        counts = {name: len(each.partitions) for name, each in found.items()}
        page = page_of(names or sorted(counts), counts, begin, request.response_partition_limit)
        lagging = [found[name] for name, chosen in page.topics if name in found and _lags(found[name], chosen)]
        eligible: _Eligible = {}
        for of_topic in await some_at_a_time(lambda topic: self._eligible(header, topic), lagging):
            eligible.update(of_topic)
        topics = [self._topic(name, found.get(name), chosen, eligible) for name, chosen in page.topics]
        return message_type(_PAGES)(topics=topics, next_cursor=_cursor(page))

    async def _eligible(self, header: RequestHeader, topic: TopicMetadata) -> _Eligible:
        """Return which replicas outside the ISR may lead partitions of a topic; none where that is unknown."""
        try:
            told = await self._administration.ask(DescribeTopic(topic.name), _ELIGIBLE_SECONDS)
        except RaylogError as error:
            self._refusals.tell(header, f"eligible leaders of topic {topic.name!r}", error)
            return {}
        return {(topic.topic_id, each.partition): each.eligible for each in told.partitions}

    def _topic(self, name: str, found: TopicMetadata | None, chosen: range, eligible: _Eligible) -> Any:
        of_topic = message_type(_PAGES, "DescribeTopicPartitionsResponseTopic")
        if found is None:
            return of_topic(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, name)
        partitions = [
            self._partition(found.topic_id, each, eligible.get((found.topic_id, each.partition), ()))
            for each in found.partitions
            if each.partition in chosen
        ]
        return of_topic(
            name=name, topic_id=found.topic_id, is_internal=is_internal(name), partitions=sorted(partitions)
        )

    def _partition(self, topic_id: bytes, told: PartitionMetadata, eligible: tuple[int, ...]) -> Any:
        named = None
        if told.leader >= 0:
            named = self._gateways().for_leader(told.leader, topic_id, told.partition)
        return message_type(_PAGES, "DescribeTopicPartitionsResponsePartition")(
            error_code=ErrorCode.LEADER_NOT_AVAILABLE if named is None else ErrorCode.NONE,
            partition_index=told.partition,
            leader_id=NO_BROKER if named is None else named.broker_id,
            leader_epoch=told.leader_epoch,
            replica_nodes=told.replicas,
            isr_nodes=told.isr,
            eligible_leader_replicas=eligible,  # null is allowed, and more than Java's client bears
            last_known_elr=(),
        )

    # --- ListPartitionReassignments -------------------------------------------------------------------------------

    async def reassignments(self, header: RequestHeader, request: Any) -> Any:
        """Serve ListPartitionReassignments."""
        of_topic, of_partition = (message_type(_MOVES, f"Ongoing{each}Reassignment") for each in ("Topic", "Partition"))
        wanted = None if request.topics is None else {each.name: set(each.partition_indexes) for each in request.topics}
        try:
            moves = await self._administration.ask(ListReassignments(), _SECONDS)
        except RaylogError as error:
            self._refusals.tell(header, "reassignments", error)
            return message_type(_MOVES)(error_code=code_of(error), error_message=str(error))
        topics: dict[str, list[Any]] = {}
        for each in moves:
            if wanted is None or each.partition in wanted.get(each.topic, ()):
                move = of_partition(each.partition, each.replicas, each.adding, each.removing)
                topics.setdefault(each.topic, []).append(move)
        return message_type(_MOVES)(topics=[of_topic(*each) for each in topics.items()])

    # --- DescribeLogDirs ------------------------------------------------------------------------------------------

    async def log_directories(self, header: RequestHeader, request: Any) -> Any:
        """Serve DescribeLogDirs: the one directory of this broker."""
        result = message_type(_DIRECTORIES, "DescribeLogDirsResult")
        wanted = None if request.topics is None else {each.topic: set(each.partitions) for each in request.topics}
        try:
            logs = await self._administration.ask(DescribeBrokerLogs(self._broker_id), _SECONDS)
        except RaylogError as error:
            self._refusals.tell(header, f"broker {self._broker_id}", error)
            code = code_of(error)
            if header.api_version >= _WITH_AN_ERROR:
                return message_type(_DIRECTORIES)(error_code=code)
            return message_type(_DIRECTORIES)(results=[result(code, "")])
        topics = _directory_topics(logs, wanted)
        told = result(ErrorCode.NONE, logs.directory, topics, logs.total_bytes, logs.free_bytes)
        return message_type(_DIRECTORIES)(results=[told])

    # --- DescribeAcls ---------------------------------------------------------------------------------------------

    async def access_rules(self, _header: RequestHeader, _request: Any) -> Any:
        """Serve DescribeAcls. Everybody who reaches a gateway may do all, and tools are told so in Kafka's words."""
        return message_type("DescribeAclsResponse")(
            error_code=ErrorCode.SECURITY_DISABLED, error_message="There are no access rules here: security is off."
        )


def _lags(topic: TopicMetadata, chosen: range) -> bool:
    """Return whether any of these partitions has replicas that are not in its ISR."""
    return any(each.partition in chosen and len(each.isr) < len(each.replicas) for each in topic.partitions)


def _directory_topics(logs: BrokerLogs, wanted: dict[str, set[int]] | None) -> Sequence[Any]:
    of_topic, of_partition = (message_type(_DIRECTORIES, f"DescribeLogDirs{each}") for each in ("Topic", "Partition"))
    topics: dict[str, list[Any]] = {}
    for each in logs.logs:
        if wanted is None or each.partition in wanted.get(each.topic, ()):
            log = of_partition(each.partition, each.size_bytes, each.lag, is_future_key=False)
            topics.setdefault(each.topic, []).append(log)
    return [of_topic(*each) for each in topics.items()]


def _cursor(page: Page) -> Any:
    if page.next is None:
        return None
    return message_type(_PAGES, "Cursor")(*page.next)

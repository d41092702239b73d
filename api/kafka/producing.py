"""Produce: the batches of a request, each to the leader of its partition.

What must stay true:
- Batches of one connection for one partition reach its leader in the order in which they came. So nothing is awaited
  between the beginning of a request and the sending of its batches, but what the link itself keeps in order.
- A batch is for the leadership that is known when it comes. One that is late is refused by the next leadership.
- A batch that becomes columns first (`column_conversion.py`) keeps its place before those that came after it.
- No batch of an idempotent producer passes one before it that failed (rule 18, `rules/producer_order.py`).
- A batch is sent once. Whether it is repeated is the client's decision: it alone knows whether the batch has a sequence
  (rules 18 and 27).
- A partition's failure is that partition's. With acks=0 there is no answer to say it in, so the connection is closed,
  as Kafka does it. Leaders are asked for an answer all the same: a client that is faster than a leader waits for room
  (rule 31), and what a leader refuses is known. Its client may go as soon as it has sent them: they are appended.
- A batch of a client that has gone before its answer is given up: the client does not know the outcome anyway.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Final, NamedTuple, TypeAlias

from raylog.actors.kernel.prompt_call import PromptCall, all_of
from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader, TopicView
from raylog.actors.protocol.names import is_internal
from raylog.actors.protocol.replication_messages import Append, Appended
from raylog.api.kafka.batch_turns import BatchTurns
from raylog.api.kafka.column_conversion import ColumnConversion
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.leader_hints import LeaderHints
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.named_brokers import Gateways
from raylog.api.kafka.rules.produced_batch import check_produced
from raylog.api.kafka.rules.producer_order import Ending, Numbered, Partition, numbered
from raylog.api.kafka.unanswered_work import UnansweredWork
from raylog.errors import BatchTooLarge, EarlierBatchFailed, InternalTopic, RaylogError
from raylog.storage.format.record_batch import BatchHeader, Bytes, read_header

_ANSWER: Final = "ProduceResponse"
_VERSION_WITH_IDS: Final = 13
_NO_ANSWER: Final = 0
_NO_OFFSET: Final = -1
_ACKS: Final = (-1, 0, 1)
_MOST_TIMEOUT_MS: Final = 600_000
_MOST_UNANSWERED_MS: Final = 30_000  # with acks=0, whose leader waits for nobody
_GRACE_SECONDS: Final = 5.0  # beyond the time in which the leader itself answers

_Outcome: TypeAlias = Appended | RaylogError | ErrorCode

# After which Kafka's producers send the same batch again.
_REPEATED: Final = frozenset(
    {
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NOT_ENOUGH_REPLICAS,
        ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        ErrorCode.NOT_CONTROLLER,
        ErrorCode.CONCURRENT_TRANSACTIONS,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)


class _Batch(NamedTuple):
    """The part of a request that is about one partition."""

    name: str
    topic_id: bytes
    by_id: bool
    partition: int
    records: Bytes | None

    @property
    def key(self) -> Partition:
        return (self.topic_id if self.by_id else self.name), self.partition


class Producing:
    """Serves Produce requests."""

    def __init__(
        self, link: ClusterLink, topics: KnownTopics, gateways: Callable[[], Gateways], unanswered: UnansweredWork
    ) -> None:
        self._link = link
        self._topics = topics
        self._gateways = gateways
        self._unanswered = unanswered

    async def serve(self, version: int, request: Any, turns: BatchTurns, conversion: ColumnConversion) -> Any:
        """Append what was sent. None: the client wants no answer. With acks=0 the first error is raised.

        `turns` and `conversion` are those of the connection.
        """
        batches = [
            _Batch(topic.name, topic.topic_id, version >= _VERSION_WITH_IDS, part.index, part.records)
            for topic in request.topic_data
            for part in topic.partition_data
        ]
        appending = all_of([self._append(batch, version, request, turns, conversion) for batch in batches])
        if request.acks != _NO_ANSWER:
            return self._answer(request, await appending)
        size = sum(len(batch.records or b"") for batch in batches)
        for outcome in await self._unanswered.finish(PromptCall(appending), size):
            if isinstance(outcome, RaylogError):
                try:
                    raise outcome
                finally:
                    del outcome  # its traceback has this frame, which must not have it
        return None

    def _place(self, batch: _Batch) -> tuple[TopicView, PartitionLeader]:
        view = self._topics.find(batch.name, batch.topic_id, by_id=batch.by_id)
        if is_internal(view.name):  # its leader refuses it too (rules 25, 36)
            raise InternalTopic(view.name)
        return view, self._topics.leader(view, batch.partition)

    async def _append(
        self, batch: _Batch, version: int, request: Any, turns: BatchTurns, conversion: ColumnConversion
    ) -> _Outcome:
        if request.acks not in _ACKS:
            return ErrorCode.INVALID_REQUIRED_ACKS
        try:
            produced = check_produced(batch.records, version)
        except RaylogError as error:
            return error
        header = read_header(produced)
        numbers = numbered(header)
        try:
            topic, leader = self._place(batch)
            payload = await conversion.stored(batch.key, header, produced, topic)
        except RaylogError as error:
            if numbers is not None and _ending(error, header) is Ending.REPEATED:
                turns.not_sent(batch.key, numbers)
            return error
        try:
            if numbers is None:
                return await self._ask(leader, payload, request)
            return await self._in_turn(batch, header, numbers, leader, payload, request, turns)
        except RaylogError as error:
            return error
        finally:
            if payload is not produced:
                conversion.let_go(payload)

    async def _in_turn(
        self,
        batch: _Batch,
        header: BatchHeader,
        numbers: Numbered,
        leader: PartitionLeader,
        payload: Bytes,
        request: Any,
        turns: BatchTurns,
    ) -> _Outcome:
        turn = turns.arrived(batch.key, numbers, (leader.topic_id, leader.epoch))
        if not await turns.may_send(turn):
            raise EarlierBatchFailed(leader.topic, leader.partition, numbers.producer_id, numbers.first)
        outcome: _Outcome
        try:
            outcome = await self._ask(leader, payload, request)
        except RaylogError as error:
            outcome = error
        turns.ended(turn, _ending(outcome, header))
        return outcome

    async def _ask(self, leader: PartitionLeader, payload: Bytes, request: Any) -> Appended:
        most_ms = _MOST_UNANSWERED_MS if request.acks == _NO_ANSWER else _MOST_TIMEOUT_MS
        timeout_ms = min(max(request.timeout_ms, 0), most_ms)
        append, seconds = Append(leader.epoch, request.acks, timeout_ms), timeout_ms / 1000 + _GRACE_SECONDS
        return (await self._link.ask(leader, append, payload, expect=Appended, timeout=seconds)).message

    # --- the answer -----------------------------------------------------------------------------------------------

    def _answer(self, request: Any, outcomes: Sequence[_Outcome]) -> Any:
        of_topic = message_type(_ANSWER, "TopicProduceResponse")
        hints = LeaderHints(self._gateways(), _ANSWER)
        left = iter(outcomes)
        topics = [
            of_topic(
                topic.name,
                topic.topic_id,
                [self._told(topic, part.index, next(left), hints) for part in topic.partition_data],
            )
            for topic in request.topic_data
        ]
        return message_type(_ANSWER)(topics, node_endpoints=hints.endpoints())

    def _told(self, topic: Any, partition: int, outcome: _Outcome, hints: LeaderHints) -> Any:
        told = message_type(_ANSWER, "PartitionProduceResponse")
        if isinstance(outcome, Appended):
            return told(
                index=partition,
                base_offset=outcome.base_offset,
                log_append_time_ms=outcome.append_time_ms,
                log_start_offset=outcome.log_start_offset,
            )
        code = outcome if isinstance(outcome, ErrorCode) else code_of(outcome, Asked.PRODUCE)
        return told(
            index=partition,
            error_code=code,
            base_offset=_NO_OFFSET,
            error_message=str(outcome) if isinstance(outcome, RaylogError) else None,
            current_leader=hints.hint(code, lambda: self._known_leader(topic, partition)),
        )

    def _known_leader(self, topic: Any, partition: int) -> PartitionLeader | None:
        view = None if topic.name else self._topics.of_id(topic.topic_id)
        return self._link.leader(topic.name if view is None else view.name, partition)


def _ending(outcome: _Outcome, header: BatchHeader) -> Ending:
    """Return what the client does after this outcome."""
    if isinstance(outcome, Appended):
        return Ending.TAKEN
    if isinstance(outcome, BatchTooLarge):  # Java's producer splits it, and its parts have the same sequences
        return Ending.REPEATED if header.record_count > 1 else Ending.GIVEN_UP
    code = outcome if isinstance(outcome, ErrorCode) else code_of(outcome, Asked.PRODUCE)
    return Ending.REPEATED if code in _REPEATED else Ending.GIVEN_UP

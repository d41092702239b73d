"""Fetch: what a client reads of its partitions, once there is enough of it or its time is over.

    request ──session──► partitions ──► a poll for each (`partition_polls.py`) ──► waits ──► answer
                              └── unknown, or without a leader: an error, and the answer goes out at once

What must stay true:
- An answer goes out when the polls have `min_bytes` together, when one has an error or a divergence to tell, or when
  `max_wait_ms` is over; with less, where there is no room to hold more (rule 31). Within that time it may be later
  than Kafka's: a leader holds a poll until that has its share of `min_bytes`.
- No answer has more than `max_bytes`, but for the first partition in it (KIP-74). Each partition polls its share of
  that, so all polls together hold little more. What does not fit stays for the next fetch.
- No damaged batch is passed on: its leader is told (rule 1), and the client asks again.
- Nothing keeps the loop for long: what is large is checked and looked through beside it, and columnar batches that
  unpack to much or hold many records are converted there (rule 34).
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Done
from raylog.actors.protocol.replication_messages import SuspectBatch
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.leader_hints import LeaderHints
from raylog.api.kafka.partition_polls import MOST_BYTES, Bounds, Key, Marks, PartitionPolls, Polled, Question
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.rules.batch_conversion import (
    Visible,
    as_kafka,
    check_fetched,
    codec_for,
    conversion_bytes,
    visible_batches,
)
from raylog.api.kafka.rules.converted_batches import ConvertedBatch, ConvertedBatches
from raylog.api.kafka.rules.fetch_sessions import Fetch, FetchAsked, FetchSessions, PartitionState
from raylog.api.kafka.rules.named_brokers import Gateways
from raylog.errors import BatchError, RaylogError
from raylog.storage.format.record_batch import MAGIC_KAFKA, BatchHeader, Bytes, first_unsound

_ANSWER: Final = "FetchResponse"
_VERSION_WITH_IDS: Final = 13
_READ_COMMITTED: Final = 1
_UNKNOWN: Final = -1
_NO_MARKS: Final = Marks(_UNKNOWN, _UNKNOWN, _UNKNOWN)
_CHECKED_ON_LOOP: Final = 256 * 1024  # some thousand batches at most
_CONVERTED_ON_LOOP: Final = 128 * 1024  # of `conversion_bytes`: some thousand records at most
_SUSPECT_SECONDS: Final = 5.0
_MOST_WAIT_MS: Final = 600_000
_LOOK_SECONDS: Final = 1.0  # for the first answer about a partition, however little time the client gives

_Done = TypeVar("_Done")


class _Wanted(NamedTuple):
    """A partition of a fetch: what was asked, and who can be asked for it or why nobody can."""

    topic: Any  # its name or its id, as the client names it
    part: Any
    leader: PartitionLeader | None
    error: RaylogError | None

    @property
    def name(self) -> tuple[Any, int]:
        """The partition as sessions know it."""
        return self.topic, self.part.partition

    @property
    def key(self) -> Key | None:
        """The partition as polls know it."""
        return None if self.leader is None else (self.leader.topic_id, self.leader.partition)


class _Limits(NamedTuple):
    """The bounds of an answer."""

    min_bytes: int
    max_bytes: int
    deadline: float


class Fetching:
    """Serves Fetch requests."""

    def __init__(
        self,
        link: ClusterLink,
        topics: KnownTopics,
        gateways: Callable[[], Gateways],
        sessions: FetchSessions,
        converted: ConvertedBatches,
    ) -> None:
        self._link = link
        self._topics = topics
        self._gateways = gateways
        self._sessions = sessions
        self._converted = converted
        self._loop = asyncio.get_running_loop()

    async def serve(self, version: int, request: Any, polls: PartitionPolls) -> Any:
        """Serve one Fetch. `polls` are those of the connection."""
        now = self._loop.time()
        fetch = self._sessions.fetch(_asked(version, request), now)
        if fetch.error is not ErrorCode.NONE:
            return message_type(_ANSWER)(error_code=fetch.error)
        by_id = version >= _VERSION_WITH_IDS
        wanted = [self._wanted(name, part, by_id=by_id) for name, part in fetch.partitions]
        polls.keep_only({each.key for each in wanted if each.key is not None})
        wait_ms = min(max(request.max_wait_ms, 0), _MOST_WAIT_MS)
        max_bytes = min(max(request.max_bytes, 1), MOST_BYTES)
        limits = _Limits(request.min_bytes, max_bytes, now + wait_ms / 1000)
        polls.begin_fetch()
        try:
            await self._poll(version, request, wanted, polls, limits)
            return self._answer(fetch, wanted, polls, max_bytes, by_id=by_id)
        finally:
            polls.end_fetch()

    def _wanted(self, name: Any, part: Any, *, by_id: bool) -> _Wanted:
        topic = name[0]
        try:
            view = self._topics.find("" if by_id else topic, topic if by_id else b"", by_id=by_id)
            return _Wanted(topic, part, self._topics.leader(view, part.partition), None)
        except RaylogError as error:
            return _Wanted(topic, part, None, error)

    # --- waiting --------------------------------------------------------------------------------------------------

    async def _poll(
        self, version: int, request: Any, wanted: list[_Wanted], polls: PartitionPolls, limits: _Limits
    ) -> None:
        """Return when there is enough to answer with, or nothing more is to be waited for."""
        may_wait = limits.min_bytes > 0 and all(each.error is None for each in wanted)
        left = limits.deadline - self._loop.time()
        self._begin_all(version, request, wanted, polls, limits, left if may_wait else 0.0)
        looks = polls.looks()
        if looks:
            await asyncio.wait(looks, timeout=_LOOK_SECONDS)
        while may_wait and not self._is_enough(wanted, polls, limits):
            left = limits.deadline - self._loop.time()
            if left <= 0:
                return
            self._begin_all(version, request, wanted, polls, limits, left)
            if not polls.is_under_way:
                return
            await polls.change(left)

    def _begin_all(
        self, version: int, request: Any, wanted: list[_Wanted], polls: PartitionPolls, limits: _Limits, seconds: float
    ) -> None:
        """Have a poll for each partition that can be asked, held for so long. Each has its share of the bounds."""
        count = max(len(wanted), 1)
        committed = request.isolation_level == _READ_COMMITTED
        for each in wanted:
            part = each.part
            if each.leader is None:
                continue
            most = max(min(limits.max_bytes // count, part.partition_max_bytes), 1)
            bounds = Bounds(min(max(limits.min_bytes // count, 1), most), most, round(max(seconds, 0.0) * 1000))
            epochs = part.current_leader_epoch, part.last_fetched_epoch
            polls.begin(each.leader, Question(part.fetch_offset, *epochs, committed, version), bounds, self._show)

    @staticmethod
    def _is_enough(wanted: list[_Wanted], polls: PartitionPolls, limits: _Limits) -> bool:
        size = 0
        for each in wanted:
            outcome = None if each.key is None else polls.outcome(each.key)
            if isinstance(outcome, RaylogError) or (outcome is not None and outcome.diverged is not None):
                return True
            size += 0 if outcome is None else outcome.size
        return size >= min(limits.min_bytes, limits.max_bytes) or (size > 0 and polls.is_pressed)

    # --- batches --------------------------------------------------------------------------------------------------

    async def _show(self, leader: PartitionLeader, data: Bytes, asked: Question) -> Visible:
        """Return stored batches as the client gets them. BatchError: one is damaged, and its leader has been told."""
        try:
            is_large = len(data) > _CHECKED_ON_LOOP
            batches, passes = await self._do(lambda: _checked(data, asked.offset), beside=is_large)
            if passes:
                return Visible([data], batches[-1][0].next_offset, True)
            converted = await self._convert(leader, batches, asked.version)
            return await self._do(
                lambda: visible_batches(data, lambda _batch, header: converted[header.base_offset]), beside=is_large
            )
        except BatchError:
            suspicion = SuspectBatch(leader.epoch, first_unsound(data, asked.offset))
            await self._link.ask(leader, suspicion, expect=Done, timeout=_SUSPECT_SECONDS)
            raise

    async def _convert(
        self, leader: PartitionLeader, batches: list[tuple[BatchHeader, memoryview]], version: int
    ) -> dict[int, Bytes]:
        """Return those of them that are columnar as Kafka's own, by base offset."""
        found: dict[int, Bytes] = {}
        missing: dict[ConvertedBatch, memoryview] = {}
        work = 0
        for header, batch in batches:
            if header.magic == MAGIC_KAFKA or header.record_count == 0:
                continue
            name = ConvertedBatch.of(leader.topic_id, leader.partition, header, codec_for(header.codec, version))
            kept = self._converted.find(name)
            if kept is None:
                missing[name] = batch
                work += conversion_bytes(header, batch)
            else:
                found[name.base_offset] = kept
        make = partial(_converted, missing)
        for name, made in (await self._do(make, beside=work > _CONVERTED_ON_LOOP)).items():
            self._converted.keep(name, made)
            found[name.base_offset] = made
        return found

    async def _do(self, work: Callable[[], _Done], *, beside: bool) -> _Done:
        """Do it here, or beside the loop."""
        return await self._link.env.off_loop(work) if beside else work()

    # --- the answer -----------------------------------------------------------------------------------------------

    def _answer(
        self, fetch: Fetch, wanted: list[_Wanted], polls: PartitionPolls, max_bytes: int, *, by_id: bool
    ) -> Any:
        hints = LeaderHints(self._gateways(), _ANSWER)
        topics: dict[Any, list[Any]] = {}
        room = max_bytes
        for each in wanted:
            outcome = self._outcome(each, polls, room, is_first=room == max_bytes)
            room -= outcome.size if isinstance(outcome, Polled) else 0
            told, state = self._told(each, outcome, polls, hints)
            if fetch.session is None or fetch.session.must_tell(each.name, state, is_whole=fetch.is_whole):
                topics.setdefault(each.topic, []).append(told)
        of_topic = message_type(_ANSWER, "FetchableTopicResponse")
        named = "topic_id" if by_id else "topic"
        responses = [of_topic(**{named: topic, "partitions": parts}) for topic, parts in topics.items()]
        return message_type(_ANSWER)(
            session_id=fetch.session_id, responses=responses, node_endpoints=hints.endpoints()
        )

    @staticmethod
    def _outcome(wanted: _Wanted, polls: PartitionPolls, room: int, *, is_first: bool) -> Polled | RaylogError | None:
        """Return what is told of a partition, which is then no longer kept. None: nothing new."""
        if wanted.key is None:
            return wanted.error
        outcome = polls.outcome(wanted.key)
        if isinstance(outcome, Polled) and outcome.size > room and not is_first:
            return None
        if outcome is not None:
            polls.take(wanted.key)
        return outcome

    def _told(
        self, wanted: _Wanted, outcome: Polled | RaylogError | None, polls: PartitionPolls, hints: LeaderHints
    ) -> tuple[Any, PartitionState]:
        if isinstance(outcome, RaylogError):
            return self._refused(wanted, outcome, hints)
        marks = (None if wanted.key is None else polls.marks(wanted.key)) or _NO_MARKS
        told = message_type(_ANSWER, "PartitionData")(
            partition_index=wanted.part.partition,
            high_watermark=marks.high_watermark,
            last_stable_offset=marks.last_stable_offset,
            log_start_offset=marks.log_start_offset,
            aborted_transactions=None,
            records=[] if outcome is None else outcome.pieces,
        )
        if outcome is None:
            return told, PartitionState(marks.high_watermark, marks.log_start_offset)
        has_records, has_diverged = outcome.size > 0, outcome.diverged is not None
        state = PartitionState(marks.high_watermark, marks.log_start_offset, has_records, has_diverged=has_diverged)
        if outcome.diverged is not None:
            told = told._replace(diverging_epoch=message_type(_ANSWER, "EpochEndOffset")(*outcome.diverged))
        if outcome.aborted:
            aborted = message_type(_ANSWER, "AbortedTransaction")
            told = told._replace(aborted_transactions=[aborted(*each) for each in outcome.aborted])
        return told, state

    def _refused(self, wanted: _Wanted, error: RaylogError, hints: LeaderHints) -> tuple[Any, PartitionState]:
        code, asked = code_of(error, Asked.FETCH), wanted.leader
        told = message_type(_ANSWER, "PartitionData")(
            partition_index=wanted.part.partition,
            error_code=code,
            high_watermark=_UNKNOWN,
            aborted_transactions=None,
            records=[],
            current_leader=hints.hint(
                code, lambda: None if asked is None else self._link.leader(asked.topic, asked.partition)
            ),
        )
        return told, PartitionState(_UNKNOWN, _UNKNOWN, has_error=True)


def _checked(data: Bytes, offset: int) -> tuple[list[tuple[BatchHeader, memoryview]], bool]:
    """Return the batches, and whether all of them go to the client as they are. BatchError."""
    batches = check_fetched(data, offset)
    return batches, all(header.magic == MAGIC_KAFKA and header.record_count > 0 for header, _ in batches)


def _converted(missing: dict[ConvertedBatch, memoryview]) -> dict[ConvertedBatch, Bytes]:
    return {name: as_kafka(batch, name.codec) for name, batch in missing.items()}


def _asked(version: int, request: Any) -> FetchAsked:
    """The fetch as sessions take it. A partition's name is (its topic's name or id, its number)."""
    by_id = version >= _VERSION_WITH_IDS
    topics = [(topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.topics]
    forgotten = [
        (topic.topic_id if by_id else topic.topic, topic.partitions) for topic in request.forgotten_topics_data
    ]
    return FetchAsked(
        request.session_id,
        request.session_epoch,
        {(topic, part.partition): part for topic, parts in topics for part in parts},
        [(topic, partition) for topic, partitions in forgotten for partition in partitions],
        by_id,
    )

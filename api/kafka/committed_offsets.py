"""Committed offsets of groups: OffsetCommit and OffsetFetch, asked of the group's coordinator.

A commit is one of a member, in the generation that it has joined, or of a client that was assigned its partitions by
hand. The coordinator takes the latter while the group has no members (rule 24).

What must stay true:
- Each partition gets a code of its own. What fails as a whole fails for all of them.
- A code is one that readers of that answer bear: Java's takes few errors in an OffsetFetch for a reason to ask again.
- An offset that a transaction has staged is not known before that has ended (rule 22).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import TopicView
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.api.kafka.fan_out import AnswerBudget, some_at_a_time
from raylog.api.kafka.known_topics import KnownTopics
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import RaylogError, UnknownPartition, UnstableOffset
from raylog.groups.records.messages import (
    MOST_OFFSETS,
    NO_EPOCH,
    NO_OFFSET,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
    PartitionId,
    grouped,
    portions,
)
from raylog.groups.records.refusals import error_of

_ANSWER_SECONDS: Final = 10.0
_WITH_TOPIC_IDS: Final = 10  # the first versions of both that name topics by id
_WITH_GROUPS: Final = 8  # the first OffsetFetch of many groups
_KNOWS_UNSTABLE: Final = 7  # the first OffsetFetch whose clients know UNSTABLE_OFFSET_COMMIT
_GROUPS_AT_A_TIME: Final = 10
_COST_OF_AN_OFFSET: Final = 100
_NOBODY: Final = ("", NO_EPOCH)  # the member of a commit without membership
_NOTHING: Final = (NO_OFFSET, -1, "")  # offset, leader epoch, metadata

_Answer = TypeVar("_Answer", bound=Message)
_Found = tuple[int, int, str, ErrorCode]  # offset, leader epoch, metadata, code


class CommittedOffsets:
    """Serves requests about the offsets of groups."""

    def __init__(self, link: ClusterLink, topics: KnownTopics) -> None:
        self._link = link
        self._topics = topics

    # --- OffsetCommit ---------------------------------------------------------------------------------------------

    async def commit(self, version: int, request: Any) -> Any:
        """Serve OffsetCommit."""
        codes = [[ErrorCode.NONE] * len(topic.partitions) for topic in request.topics]
        entries: dict[PartitionId, OffsetToCommit] = {}
        places: dict[PartitionId, list[tuple[int, int]]] = {}  # more than one where a partition is named twice
        for row, topic in enumerate(request.topics):
            for column, part in enumerate(topic.partitions):
                try:
                    found = self._partition(topic, part.partition_index, by_id=version >= _WITH_TOPIC_IDS)
                except RaylogError as error:
                    codes[row][column] = code_of(error, Asked.COMMIT)
                    continue
                places.setdefault(found, []).append((row, column))
                metadata = part.committed_metadata or ""
                entries[found] = (*found, part.committed_offset, part.committed_leader_epoch, metadata)
        for partition, code in (await self._commit(request, entries)).items():
            for row, column in places[partition]:
                codes[row][column] = code
        return _committed(request.topics, codes)

    async def _commit(
        self, request: Any, entries: Mapping[PartitionId, OffsetToCommit]
    ) -> dict[PartitionId, ErrorCode]:
        """Return the codes of partitions that were refused."""
        member = request.member_id, request.generation_id_or_member_epoch
        if not request.member_id and member != _NOBODY:
            return dict.fromkeys(entries, ErrorCode.UNKNOWN_MEMBER_ID)
        refused: dict[PartitionId, ErrorCode] = {}
        for some in portions(list(entries.values())) if entries else ():
            try:
                message = CommitOffsets(request.group_id, *member, some, request.group_instance_id or "")
                answer = await self._ask(request.group_id, message, OffsetsCommitted)
            except RaylogError as error:
                refused |= dict.fromkeys(((each[0], each[1]) for each in some), code_of(error, Asked.COMMIT))
            else:
                refused |= {(each[0], each[1]): code_of(error_of(each), Asked.COMMIT) for each in answer.refused}
        return refused

    # --- OffsetFetch ----------------------------------------------------------------------------------------------

    async def fetch(self, version: int, request: Any) -> Any:
        """Serve OffsetFetch, for one group or for many."""
        if version < _WITH_GROUPS:
            topics, code = await self._fetch(version, request.group_id, request.topics, AnswerBudget())
            return message_type("OffsetFetchResponse")(topics=topics, error_code=code)
        groups, room = request.groups, AnswerBudget()
        found = await some_at_a_time(
            lambda each: self._fetch(version, each.group_id, each.topics, room), groups, _GROUPS_AT_A_TIME
        )
        of_group = message_type("OffsetFetchResponse", "OffsetFetchResponseGroup")
        told = [of_group(each.group_id, topics, code) for each, (topics, code) in zip(groups, found, strict=True)]
        return message_type("OffsetFetchResponse")(groups=told)

    async def _fetch(
        self, version: int, group: str, topics: Sequence[Any] | None, room: AnswerBudget
    ) -> tuple[list[Any], ErrorCode]:
        """Return the topics of the answer, and the code of the group. `topics` None: all that have an offset."""
        by_id = version >= _WITH_TOPIC_IDS
        asked = None if topics is None else {each: self._named(each, by_id=by_id) for each in _partitions(topics)}
        wanted = None if asked is None else [each for each in asked.values() if not isinstance(each, ErrorCode)]
        found: dict[PartitionId, _Found] = {}
        code = ErrorCode.NONE
        try:
            room.check()
            found = await self._offsets(version, group, wanted)
            room.take(sum(_COST_OF_AN_OFFSET + len(each[2]) for each in found.values()))
        except RaylogError as error:
            code = code_of(error, Asked.OFFSET_FETCH)
        if asked is None:
            return self._all(version, found), code
        told: dict[tuple[str, bytes], list[Any]] = {}
        for (name, topic_id, number), place in asked.items():
            if isinstance(place, ErrorCode):
                offset: _Found = (*_NOTHING, place)
            else:
                offset = found.get(place, (*_NOTHING, code))
            told.setdefault((name, topic_id), []).append(_fetched(version, number, offset))
        return [_topic(version, *each, parts) for each, parts in told.items()], code

    async def _offsets(self, version: int, group: str, wanted: list[PartitionId] | None) -> dict[PartitionId, _Found]:
        pieces: list[list[PartitionId] | None] = [None]
        if wanted is not None:
            pieces = [wanted[at : at + MOST_OFFSETS] for at in range(0, len(wanted), MOST_OFFSETS)]
        found: dict[PartitionId, _Found] = {}
        for piece in pieces:
            message = FetchOffsets(group, *_NOBODY, None if piece is None else grouped(piece))
            answer = await self._ask(group, message, OffsetsFetched)
            found |= {(each[0], each[1]): (*each[2:], ErrorCode.NONE) for each in answer.offsets}
            for refusal in answer.refused:
                found[refusal[0], refusal[1]] = (*_NOTHING, _refused(error_of(refusal), version))
        return found

    def _all(self, version: int, found: Mapping[PartitionId, _Found]) -> list[Any]:
        told: dict[TopicView, list[Any]] = {}
        for (topic_id, number), offset in sorted(found.items()):
            view = self._topics.of_id(topic_id)
            if view is not None:
                told.setdefault(view, []).append(_fetched(version, number, offset))
        return [_topic(version, view.name, view.topic_id, parts) for view, parts in told.items()]

    # --- both -----------------------------------------------------------------------------------------------------

    async def _ask(self, group: str, message: Message, expect: type[_Answer]) -> _Answer:
        coordinator = await self._link.find_coordinator(OFFSETS_TOPIC, group_hash(group), _ANSWER_SECONDS)
        return (await self._link.ask(coordinator, message, expect=expect, timeout=_ANSWER_SECONDS)).message

    def _named(self, asked: tuple[str, bytes, int], *, by_id: bool) -> PartitionId | ErrorCode:
        name, topic_id, number = asked
        try:
            return self._known(name, topic_id, number, by_id=by_id)
        except RaylogError as error:
            return code_of(error, Asked.OFFSET_FETCH)

    def _partition(self, topic: Any, number: int, *, by_id: bool) -> PartitionId:
        return self._known(topic.name, topic.topic_id, number, by_id=by_id)

    def _known(self, name: str, topic_id: bytes, number: int, *, by_id: bool) -> PartitionId:
        """Return the id of a partition. UnknownTopic, UnknownTopicId, UnknownPartition."""
        view = self._topics.find(name, topic_id, by_id=by_id)
        if not 0 <= number < len(view.partitions):
            raise UnknownPartition(view.name, number)
        return view.topic_id, number


def _partitions(topics: Iterable[Any]) -> Iterator[tuple[str, bytes, int]]:
    for topic in topics:
        for number in topic.partition_indexes:
            yield getattr(topic, "name", ""), getattr(topic, "topic_id", b""), number


def _refused(error: RaylogError, version: int) -> ErrorCode:
    if isinstance(error, UnstableOffset) and version < _KNOWS_UNSTABLE:
        return ErrorCode.COORDINATOR_LOAD_IN_PROGRESS  # the one after which all of them ask again in a moment
    return code_of(error, Asked.OFFSET_FETCH)


def _committed(topics: Sequence[Any], codes: Sequence[Sequence[ErrorCode]]) -> Any:
    of_topic, of_part = (
        message_type("OffsetCommitResponse", f"OffsetCommitResponse{each}") for each in ("Topic", "Partition")
    )
    told = [
        of_topic(
            topic.name,
            topic.topic_id,
            [of_part(part.partition_index, code) for part, code in zip(topic.partitions, some, strict=True)],
        )
        for topic, some in zip(topics, codes, strict=True)
    ]
    return message_type("OffsetCommitResponse")(topics=told)


def _fetched(version: int, number: int, found: _Found) -> Any:
    kind = "OffsetFetchResponsePartition" if version < _WITH_GROUPS else "OffsetFetchResponsePartitions"
    return message_type("OffsetFetchResponse", kind)(number, *found)


def _topic(version: int, name: str, topic_id: bytes, parts: list[Any]) -> Any:
    if version < _WITH_GROUPS:
        return message_type("OffsetFetchResponse", "OffsetFetchResponseTopic")(name, parts)
    return message_type("OffsetFetchResponse", "OffsetFetchResponseTopics")(name, topic_id, parts)

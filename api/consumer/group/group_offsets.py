"""Committed offsets of one group: read and written for one consumer, as a member or without being one.

What must stay true:
- Commits of one consumer reach the coordinator one after the other, in the order in which they were asked for: an older
  one that is repeated never overwrites a newer one.
- A commit is made once, as the member that read the records, at most at the epoch that it was told then; what is
  repeated is the same request (rule 24).
- An offset that a transaction has staged is not known before that has ended (rule 22): it is asked for again.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable, Iterable, Mapping
from typing import Final, TypeAlias

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.replication_messages import LATEST
from raylog.api.connection.group_calls import GroupCalls, offset_of
from raylog.api.connection.leader_requests import look_up
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.errors import GroupError, GroupRequestTimedOut, OffsetBeyondEnd, UnknownMember, UnstableOffset
from raylog.groups.member.member import GroupMember
from raylog.groups.records.messages import (
    NO_EPOCH,
    CommitOffsets,
    FetchOffsets,
    OffsetsCommitted,
    OffsetsFetched,
    OffsetToCommit,
    PartitionId,
    Refusal,
    grouped,
    portions,
)
from raylog.groups.records.refusals import error_of

Speaker: TypeAlias = tuple[str, int]  # member id and epoch

_UNSTABLE_PAUSE_SECONDS: Final = 0.1


class GroupOffsets:
    """Made on the link's loop. `member`: as whom to speak; None: as nobody, while the group has no members.

    `known_id`: of a partition that the member holds. `known_end`: a log reaches this far, and perhaps further.
    """

    def __init__(
        self,
        link: ClusterLink,
        calls: GroupCalls,
        member: Callable[[], GroupMember | None],
        known_id: Callable[[TopicPartition], PartitionId | None],
        known_end: Callable[[TopicPartition], int],
    ) -> None:
        self._link = link
        self._calls = calls
        self._member = member
        self._known_id = known_id
        self._known_end = known_end
        self._loop = asyncio.get_running_loop()
        self._turn = asyncio.Lock()

    async def commit(
        self, offsets: Mapping[TopicPartition, OffsetAndMetadata], timeout: float, speaker: Speaker | None = None
    ) -> None:
        """Raises UnknownTopic, OffsetBeyondEnd, errors of the group, GroupRequestTimedOut; the first of several
        refusals.

        `speaker`: as which member, from which epoch on, the program read these; None: as whoever this is then.
        """
        deadline = self._loop.time() + timeout
        async with self._in_turn(timeout):
            await self._check_ends(offsets, deadline)
            entries: list[OffsetToCommit] = []
            for partition, given in sorted(offsets.items()):
                topic_id, number = await self._id_of(partition, deadline)
                entries.append((topic_id, number, given.offset, given.leader_epoch, given.metadata))
            refused = [each for some in portions(entries) for each in await self._commit(some, speaker, deadline)]
        for refusal in refused:
            self._doubt()
            raise error_of(refusal)

    async def _commit(
        self, entries: tuple[OffsetToCommit, ...], speaker: Speaker | None, deadline: float
    ) -> tuple[Refusal, ...]:
        request = self._request(entries, speaker)
        try:
            answer = await self._calls.ask_until(request, OffsetsCommitted, max(0.0, deadline - self._loop.time()))
        except GroupError:
            self._doubt()
            raise
        return answer.refused

    @contextlib.asynccontextmanager
    async def _in_turn(self, timeout: float) -> AsyncIterator[None]:
        """Wait for all commits that were asked for before. GroupRequestTimedOut: they took too long."""
        try:
            await asyncio.wait_for(self._turn.acquire(), timeout)
        except asyncio.TimeoutError:
            raise GroupRequestTimedOut(self._calls.group, round(timeout * 1000)) from None
        try:
            yield
        finally:
            self._turn.release()

    async def settled(self, timeout: float) -> None:
        """Wait until all commits that were asked for before have an outcome, or the time is over."""
        with contextlib.suppress(GroupRequestTimedOut):
            async with self._in_turn(timeout):
                return

    async def _check_ends(self, offsets: Mapping[TopicPartition, OffsetAndMetadata], deadline: float) -> None:
        """Ask the leaders of partitions whose offsets are beyond what is known: the coordinator knows no ends."""
        beyond = [each for each, given in offsets.items() if given.offset > self._known_end(each)]
        if not beyond:
            return
        ends = await look_up(self._link, dict.fromkeys(beyond, LATEST), False, max(0.0, deadline - self._loop.time()))
        for partition, found in ends.items():
            if offsets[partition].offset > found.offset:
                raise OffsetBeyondEnd(self._calls.group, str(partition), offsets[partition].offset, found.offset)

    async def committed(
        self, partitions: Iterable[TopicPartition], timeout: float
    ) -> dict[TopicPartition, OffsetAndMetadata | None]:
        """Raises UnknownTopic; UnstableOffset where a transaction was open for so long; GroupRequestTimedOut."""
        deadline = self._loop.time() + timeout
        wanted = set(partitions)
        found: dict[TopicPartition, OffsetAndMetadata | None] = {}
        unstable: UnstableOffset | None = None
        while wanted:
            try:
                some, unstable = await self.known_now(wanted, max(0.0, deadline - self._loop.time()))
            except GroupRequestTimedOut:
                if unstable is None:
                    raise
                raise unstable from None  # there was no time left for another look
            found.update(some)
            wanted -= some.keys()
            if unstable is not None:
                if self._loop.time() + _UNSTABLE_PAUSE_SECONDS >= deadline:
                    raise unstable
                await asyncio.sleep(_UNSTABLE_PAUSE_SECONDS)
        return found

    async def known_now(
        self, partitions: Iterable[TopicPartition], timeout: float
    ) -> tuple[dict[TopicPartition, OffsetAndMetadata | None], UnstableOffset | None]:
        """Return the offsets of all but those that a transaction has staged, and an error that names one of these."""
        deadline = self._loop.time() + timeout
        wanted = {await self._id_of(partition, deadline): partition for partition in sorted(partitions)}
        request = FetchOffsets(self._calls.group, "", NO_EPOCH, grouped(wanted))
        answer = await self._calls.ask_until(request, OffsetsFetched, max(0.0, deadline - self._loop.time()))
        unstable = None
        for error in map(error_of, answer.refused):
            if not isinstance(error, UnstableOffset):
                raise error
            unstable = error
        found = {wanted[each[0], each[1]]: offset_of(each) for each in answer.offsets}
        return found, unstable

    async def _id_of(self, partition: TopicPartition, deadline: float) -> PartitionId:
        known = self._known_id(partition)
        if known is not None:
            return known
        view = await self._link.find_topic(partition.topic, max(0.0, deadline - self._loop.time()))
        return view.topic_id, partition.partition

    def _request(self, entries: tuple[OffsetToCommit, ...], speaker: Speaker | None) -> CommitOffsets:
        """A commit that has waited is one of the member that the records were read by, at its epoch, or none: the
        partition may have been another's since, which has come further (rule 24).
        """
        member = self._member()
        if member is None:
            if speaker is not None:
                raise UnknownMember(self._calls.group, *speaker, -1, "it has left")
            return CommitOffsets(self._calls.group, "", NO_EPOCH, entries)
        if not member.is_member:
            raise member.absence(int(self._loop.time() * 1000))
        if speaker is None:
            return member.commit(entries)
        if speaker[0] != member.member_id:
            raise UnknownMember(member.group, *speaker, -1, f"it has joined anew since, as {member.member_id!r}")
        return CommitOffsets(member.group, member.member_id, min(speaker[1], member.epoch), entries)

    def _doubt(self) -> None:
        member = self._member()
        if member is not None:
            member.doubted(int(self._loop.time() * 1000))

"""Looking at groups and changing them from outside, over a link. For `cluster_groups.py`.

What must stay true: offsets are changed only while the group has no members, which its coordinator checks as it writes
them; a dry run says beforehand what would come of it, also while there are some.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterable, Mapping
from typing import Final, NamedTuple, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC
from raylog.actors.protocol.replication_messages import EARLIEST, LATEST
from raylog.api.admin.rules.group_descriptions import (
    GroupDescription,
    GroupListing,
    GroupPartition,
    MemberDescription,
)
from raylog.api.connection.group_calls import GroupCalls, offset_of
from raylog.api.connection.leader_requests import NO_OFFSET, look_up
from raylog.api.connection.records import OffsetAndMetadata, TopicPartition
from raylog.errors import GroupNotEmpty, OffsetBeyondEnd, RaylogError, UnknownGroup, UnknownPartition, UnknownTopic
from raylog.groups.records.messages import (
    AlterOffsets,
    DeleteGroup,
    DeleteOffsets,
    DescribeGroup,
    GroupDescribed,
    GroupsListed,
    ListGroups,
    OffsetsCommitted,
    PartitionId,
    Partitions,
    Profile,
    RemoveMembers,
    each_of,
    grouped,
    portions,
)
from raylog.groups.records.messages import MemberDescription as DescribedMember
from raylog.groups.records.refusals import error_of
from raylog.groups.records.settings import check_group_id

_END_SECONDS: Final = 5.0  # a partition that nobody leads does not hold up what is told of its group

_Answer = TypeVar("_Answer", bound=Message)


class ResetTo(NamedTuple):
    """The place that offsets are put to: exactly one of these."""

    position: str | None = None  # "earliest", "latest"
    offset: int | None = None
    timestamp_ms: int | None = None  # milliseconds since 1970: the first record then or later
    shift: int | None = None  # from what is committed

    def check(self) -> None:
        """Raise ValueError."""
        if sum(each is not None for each in self) != 1:
            raise ValueError("Say one of: to='earliest', to='latest', offset=…, timestamp_ms=…, shift=….")
        if self.position not in (None, "earliest", "latest"):
            raise ValueError(f"to is 'earliest' or 'latest', and not {self.position!r}.")
        for name in ("offset", "timestamp_ms"):
            value = getattr(self, name)
            if value is not None and (type(value) is not int or value < 0):
                raise ValueError(f"{name} is a whole number from 0 on, and not {value!r}.")


class GroupAdministration:
    """Made on the link's loop, for one call."""

    def __init__(self, link: ClusterLink, timeout: float) -> None:
        self._link = link
        self._loop = asyncio.get_running_loop()
        self._deadline = self._loop.time() + timeout
        self._names: dict[bytes, str] = {}
        self._counts: dict[str, tuple[bytes, int]] = {}

    # --- looking --------------------------------------------------------------------------------------------------

    async def list_groups(self) -> tuple[GroupListing, ...]:
        """Return the groups of all coordinators."""
        try:
            view = await self._link.find_topic(OFFSETS_TOPIC, self._left())
        except UnknownTopic:
            return ()
        answers = await asyncio.gather(*(self._listed_by(number) for number in range(len(view.partitions))))
        return tuple(sorted((each for found in answers for each in found), key=lambda each: each.group_id))

    async def _listed_by(self, number: int) -> list[GroupListing]:
        answer = await GroupCalls(self._link, "", number).ask_until(ListGroups(), GroupsListed, self._left())
        return [GroupListing(*each) for each in answer.groups]

    async def describe(self, group: str) -> GroupDescription:
        """Describe a group; how far it is behind is asked of the partitions' leaders. UnknownGroup."""
        told = await self._told(group)
        await self._learn_topics()
        members = tuple(self._member(each) for each in told.members)
        committed = self._committed(told)
        owners = {partition: each.member_id for each in members for partition in each.assignment}
        ends, begins = await asyncio.gather(
            self._offsets_at(LATEST, {*committed, *owners}),
            self._offsets_at(EARLIEST, owners.keys() - committed.keys()),
        )
        partitions = tuple(
            _partition(each, owners.get(each, ""), committed.get(each), begins.get(each), ends.get(each, -1))
            for each in sorted({*committed, *owners})
        )
        return GroupDescription(
            told.group, told.state, told.epoch, told.assignor, told.reason, told.problem, members, partitions
        )

    async def offsets(self, group: str) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return the committed offsets of a group. UnknownGroup."""
        told = await self._told(group)
        await self._learn_topics()
        return self._committed(told)

    # --- changing -------------------------------------------------------------------------------------------------

    async def delete(self, group: str) -> None:
        """Raises UnknownGroup, GroupNotEmpty."""
        await self._ask_existing(group, DeleteGroup(group), Done)

    async def remove_members(
        self, group: str, members: Collection[str], instances: Collection[str], reason: str
    ) -> None:
        """Raises UnknownGroup, UnknownMember."""
        await self._ask_existing(group, RemoveMembers(group, tuple(members), tuple(instances), reason), Done)

    async def alter_offsets(self, group: str, offsets: Mapping[TopicPartition, OffsetAndMetadata]) -> None:
        """Raises GroupNotEmpty, UnknownTopic, UnknownPartition, OffsetBeyondEnd."""
        check_group_id(group)
        await self._learn_topics()
        for partition in offsets:
            self._id_of(partition)
        for partition, end in (await self._look_up(offsets, LATEST)).items():
            if offsets[partition].offset > end:
                raise OffsetBeyondEnd(group, str(partition), offsets[partition].offset, end)
        entries = [
            (*self._id_of(partition), given.offset, given.leader_epoch, given.metadata)
            for partition, given in sorted(offsets.items())
        ]
        for portion in portions(entries):
            _all_done(await self._ask(group, AlterOffsets(group, portion), OffsetsCommitted))

    async def delete_offsets(self, group: str, partitions: Iterable[TopicPartition]) -> None:
        """Raises UnknownGroup; GroupNotEmpty of topics that members read."""
        await self._learn_topics()
        ids = [self._id_of(each) for each in partitions]
        _all_done(await self._ask_existing(group, DeleteOffsets(group, grouped(ids)), OffsetsCommitted))

    async def reset(
        self,
        group: str,
        to: ResetTo,
        topics: Collection[str] | None,
        partitions: Collection[TopicPartition] | None,
        dry_run: bool,
    ) -> dict[TopicPartition, int]:
        """Return the offset of each partition after the reset, or now. GroupNotEmpty, UnknownTopic, UnknownPartition,
        UnknownGroup.
        """
        committed = await self._committed_before(group, dry_run, is_named=topics is not None or partitions is not None)
        chosen = self._chosen(committed, topics, partitions)
        if to.shift is not None:
            chosen = [each for each in chosen if each in committed]
        found = await self._places(to, chosen, committed)
        if found and not dry_run:
            await self.alter_offsets(group, {each: OffsetAndMetadata(offset) for each, offset in found.items()})
        return found

    async def _committed_before(
        self, group: str, dry_run: bool, *, is_named: bool
    ) -> dict[TopicPartition, OffsetAndMetadata]:
        """Return what a group without members has committed; in a dry run it may have members. One that is not there
        yet may begin where it `is_named`.
        """
        check_group_id(group)
        await self._learn_topics()
        try:
            told = await self._told(group)
        except UnknownGroup:
            if not is_named:
                raise
            return {}
        if told.members and not dry_run:
            raise GroupNotEmpty(group, len(told.members), "resetting its offsets")
        return self._committed(told)

    def _chosen(
        self,
        committed: Iterable[TopicPartition],
        topics: Collection[str] | None,
        partitions: Collection[TopicPartition] | None,
    ) -> list[TopicPartition]:
        """Return the named partitions; where none is named, all that have a committed offset."""
        if topics is None and partitions is None:
            return sorted(committed)
        named = list(partitions or ())
        for topic in topics or ():
            if topic not in self._counts:
                raise UnknownTopic(topic)
            named += [TopicPartition(topic, number) for number in range(self._counts[topic][1])]
        for each in named:
            self._id_of(each)
        return sorted(set(named))

    async def _places(
        self, to: ResetTo, chosen: list[TopicPartition], committed: Mapping[TopicPartition, OffsetAndMetadata]
    ) -> dict[TopicPartition, int]:
        """Return the offset for each chosen partition, within what its log holds."""
        first = await self._look_up(chosen, EARLIEST)
        last = await self._look_up(chosen, LATEST)
        if to.timestamp_ms is not None:
            at_time = await self._look_up(chosen, to.timestamp_ms)
            wanted = {each: last[each] if at == NO_OFFSET else at for each, at in at_time.items()}
        elif to.offset is not None:
            wanted = dict.fromkeys(chosen, to.offset)
        elif to.shift is not None:
            wanted = {each: committed[each].offset + to.shift for each in chosen}
        else:
            wanted = first if to.position == "earliest" else last
        return {each: min(max(wanted[each], first[each]), last[each]) for each in chosen}

    # --- how ------------------------------------------------------------------------------------------------------

    def _left(self) -> float:
        return max(0.0, self._deadline - self._loop.time())

    async def _ask(self, group: str, message: Message, expect: type[_Answer]) -> _Answer:
        return await GroupCalls(self._link, group).ask_until(message, expect, self._left())

    async def _ask_existing(self, group: str, message: Message, expect: type[_Answer]) -> _Answer:
        """Ask the coordinator, but do not make the topic of groups for this where there are no groups at all."""
        check_group_id(group)
        try:
            await self._link.find_topic(OFFSETS_TOPIC, self._left())
        except UnknownTopic:
            raise UnknownGroup(group) from None
        return await self._ask(group, message, expect)

    async def _told(self, group: str) -> GroupDescribed:
        return await self._ask_existing(group, DescribeGroup(group), GroupDescribed)

    async def _learn_topics(self) -> None:
        views = await self._link.list_topics(self._left())
        self._names = {view.topic_id: view.name for view in views}
        self._counts = {view.name: (view.topic_id, len(view.partitions)) for view in views}

    def _id_of(self, partition: TopicPartition) -> PartitionId:
        if partition.topic not in self._counts:
            raise UnknownTopic(partition.topic)
        topic_id, count = self._counts[partition.topic]
        if partition.partition >= count:
            raise UnknownPartition(*partition)
        return topic_id, partition.partition

    def _named(self, partitions: Partitions) -> frozenset[TopicPartition]:
        """Return these partitions without those of topics that are gone."""
        return frozenset(TopicPartition(self._names[id_], n) for id_, n in each_of(partitions) if id_ in self._names)

    def _member(self, told: DescribedMember) -> MemberDescription:
        member_id, epoch, fields, assigned, revoking, target, heard = told
        profile = Profile(*fields)
        held = self._named(assigned) | self._named(revoking)
        return MemberDescription(
            member_id, profile.instance_id, profile.client_id, profile.host, epoch,
            held, self._named(revoking), self._named(target), heard,
        )  # fmt: skip

    def _committed(self, told: GroupDescribed) -> dict[TopicPartition, OffsetAndMetadata]:
        found = {}
        for entry in told.offsets:
            offset = offset_of(entry)
            if entry[0] in self._names and offset is not None:
                found[TopicPartition(self._names[entry[0]], entry[1])] = offset
        return found

    async def _look_up(self, partitions: Iterable[TopicPartition], timestamp: int) -> dict[TopicPartition, int]:
        answers = await look_up(self._link, dict.fromkeys(partitions, timestamp), False, self._left())
        return {each: found.offset for each, found in answers.items()}

    async def _offsets_at(self, timestamp: int, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the ends or the beginnings of those logs whose leader answers soon."""
        found: dict[TopicPartition, int] = {}
        seconds = min(self._left(), _END_SECONDS)

        async def look(partition: TopicPartition) -> None:
            try:
                answer = await look_up(self._link, {partition: timestamp}, False, seconds)
                found[partition] = answer[partition].offset
            except RaylogError:
                return  # described without it: a partition without a leader must not hide the group

        await asyncio.gather(*map(look, partitions))
        return found


def _partition(
    partition: TopicPartition, member_id: str, committed: OffsetAndMetadata | None, begin: int | None, end: int
) -> GroupPartition:
    place = begin if committed is None else committed.offset
    lag = None if place is None or end < 0 else max(0, end - place)
    return GroupPartition(partition, member_id, committed, end, lag)


def _all_done(answer: OffsetsCommitted) -> None:
    for refusal in answer.refused:
        raise error_of(refusal)

"""Groups as Kafka's tools see them: DescribeGroups, ListGroups. Groups of raylog's own kind are among them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.link.rules.topic_cache import PartitionLeader
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.api.kafka.fan_out import AnswerBudget, some_at_a_time
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import RaylogError, UnknownGroup
from raylog.groups.records.classic_messages import BothKindsListed, ClassicDescribed, DescribeClassic, ListBothKinds
from raylog.groups.records.messages import DescribeGroup, GroupDescribed, Profile

_ANSWER_SECONDS: Final = 10.0
_DESCRIBED_AT_A_TIME: Final = 10  # each may have some megabytes
_COST_OF_A_MEMBER: Final = 500
_TELLS_MISSING: Final = 6  # the first DescribeGroups that says that there is no such group
_Answer = TypeVar("_Answer", bound=Message)


class GroupDescriptions:
    """Serves what tools ask about groups."""

    def __init__(self, link: ClusterLink) -> None:
        self._link = link

    async def describe(self, version: int, request: Any) -> Any:
        """Serve DescribeGroups."""
        names, room = list(dict.fromkeys(request.groups)), AnswerBudget()
        groups = await some_at_a_time(lambda each: self._described(version, each, room), names, _DESCRIBED_AT_A_TIME)
        return message_type("DescribeGroupsResponse")(groups=groups)

    async def _described(self, version: int, group: str, room: AnswerBudget) -> Any:
        described = message_type("DescribeGroupsResponse", "DescribedGroup")
        try:
            room.check()
            found = await self._either_kind(group)
            room.take(sum(map(_size_of, found.members)))
            return found
        except UnknownGroup as error:
            code = ErrorCode.GROUP_ID_NOT_FOUND if version >= _TELLS_MISSING else ErrorCode.NONE
            return described(error_code=code, error_message=str(error), group_id=group, group_state="Dead")
        except RaylogError as error:
            code = code_of(error, Asked.OFFSET_FETCH)
            return described(error_code=code, error_message=str(error), group_id=group)

    async def _either_kind(self, group: str) -> Any:
        described, of_member = (
            message_type("DescribeGroupsResponse", each) for each in ("DescribedGroup", "DescribedGroupMember")
        )
        place = await self._link.find_coordinator(OFFSETS_TOPIC, group_hash(group), _ANSWER_SECONDS)
        try:
            told = await self._ask(place, DescribeClassic(group), ClassicDescribed)
        except UnknownGroup:
            other = await self._ask(place, DescribeGroup(group), GroupDescribed)
            profiles = [(each[0], Profile(*each[2])) for each in other.members]
            members = [of_member(name, of.instance_id or None, of.client_id, of.host) for name, of in profiles]
            return described(
                group_id=group, group_state=other.state, protocol_type="consumer", protocol_data=other.assignor,
                members=members,
            )  # fmt: skip
        members = [
            of_member(name, instance or None, client_id, host, metadata, assignment)
            for name, instance, client_id, host, metadata, assignment in told.members
        ]
        return described(
            group_id=group, group_state=told.state, protocol_type=told.protocol_type, protocol_data=told.protocol,
            members=members,
        )  # fmt: skip

    async def list_groups(self, request: Any) -> Any:
        """Serve ListGroups: the groups of all coordinators, because each gateway serves every group.

        Clients ask all brokers, and take what comes again for the same group.
        """
        answer = message_type("ListGroupsResponse")
        of_group = message_type("ListGroupsResponse", "ListedGroup")
        topic = self._link.topic(OFFSETS_TOPIC)
        count = 0 if topic is None else len(topic.partitions)
        try:
            listed = await some_at_a_time(self._listed, range(count))
        except RaylogError as error:
            return answer(error_code=code_of(error, Asked.OFFSET_FETCH))
        told = [
            of_group(group, protocol_type, state, kind)
            for groups in listed
            for group, state, protocol_type, is_classic in groups
            if _is_wanted(state, request.states_filter)
            and _is_wanted(kind := "classic" if is_classic else "consumer", request.types_filter)
        ]
        return answer(groups=told)

    async def _listed(self, number: int) -> Sequence[tuple[str, str, str, bool]]:
        place = await self._link.find_coordinator(OFFSETS_TOPIC, number, _ANSWER_SECONDS)
        return (await self._ask(place, ListBothKinds(), BothKindsListed)).groups

    async def _ask(self, place: PartitionLeader, message: Message, expect: type[_Answer]) -> _Answer:
        return (await self._link.ask(place, message, expect=expect, timeout=_ANSWER_SECONDS)).message


def _size_of(member: Any) -> int:
    return _COST_OF_A_MEMBER + len(member.member_metadata) + len(member.member_assignment)


def _is_wanted(found: str, wanted: Sequence[str]) -> bool:
    return not wanted or found.lower() in {each.lower() for each in wanted}

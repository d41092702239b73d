"""Members of classic groups: JoinGroup, SyncGroup, Heartbeat, LeaveGroup, carried to the group's coordinator.

What must stay true:
- Nothing of a membership is kept here, so a member may speak to another gateway from one request to the next.
- A code is one after which clients do the right thing: NOT_COORDINATOR lets them look for it again and keep their
  membership; UNKNOWN_MEMBER_ID and ILLEGAL_GENERATION let them join anew.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, TypeVar

from raylog.actors.link.cluster_link import ClusterLink
from raylog.actors.protocol.messages import Done, Message
from raylog.actors.protocol.names import OFFSETS_TOPIC, group_hash
from raylog.api.kafka.protocol.error_codes import Asked, ErrorCode, code_of
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import RaylogError
from raylog.groups.records.classic_messages import (
    NO_GENERATION,
    ClassicHeartbeat,
    ClassicJoined,
    ClassicSynced,
    JoinClassic,
    LeaveClassic,
    SyncClassic,
    packed_assignments,
)

_ANSWER_SECONDS: Final = 10.0
_LONGEST_SECONDS: Final = 24 * 3600.0
_WITH_IDS_FIRST: Final = 4  # the JoinGroup whose clients are told their id before they join
_MAY_SKIP: Final = 9  # the JoinGroup whose leader can be told that it need not assign
_WITH_REBALANCE_TIMEOUT: Final = 1  # the first JoinGroup
_OF_MANY: Final = 3  # the first LeaveGroup of several members
_NULL_PROTOCOL: Final = 7  # the first JoinGroup whose answer may have none
_NAME_CHARACTERS: Final = 60  # of a client's id, in the id of a member

_Answer = TypeVar("_Answer", bound=Message)


class ClassicMembership:
    """`new_number` gives a number of 31 bits that nobody can guess."""

    def __init__(self, link: ClusterLink, new_number: Callable[[], int]) -> None:
        self._link = link
        self._new_number = new_number

    async def join(self, version: int, request: Any, client_id: str | None) -> Any:
        """Serve JoinGroup."""
        has_timeout = version >= _WITH_REBALANCE_TIMEOUT and request.rebalance_timeout_ms > 0
        rebalance_ms = request.rebalance_timeout_ms if has_timeout else request.session_timeout_ms
        instance = request.group_instance_id or ""
        message = JoinClassic(
            group=request.group_id,
            member=request.member_id,
            new_member=self._new_id(instance or client_id or "member"),
            needs_id=version >= _WITH_IDS_FIRST,
            instance=instance,
            client_id=(client_id or "")[:_NAME_CHARACTERS],
            host="",
            session_timeout_ms=request.session_timeout_ms,
            rebalance_timeout_ms=rebalance_ms,
            protocol_type=request.protocol_type,
            protocols=tuple((each.name, bytes(each.metadata)) for each in request.protocols),
        )
        try:
            seconds = min(rebalance_ms / 1000, _LONGEST_SECONDS) + _ANSWER_SECONDS
            told = await self._ask(request.group_id, message, ClassicJoined, seconds)
        except RaylogError as error:
            return _refused_join(version, request.member_id, code_of(error, Asked.CLASSIC_GROUP))
        if told.generation == NO_GENERATION:
            return _refused_join(version, told.member, ErrorCode.MEMBER_ID_REQUIRED)
        is_follower = told.keeps_assignment and version < _MAY_SKIP  # which is told so by another one's id
        of_member = message_type("JoinGroupResponse", "JoinGroupResponseMember")
        return message_type("JoinGroupResponse")(
            generation_id=told.generation,
            protocol_type=told.protocol_type,
            protocol_name=told.protocol,
            leader="" if is_follower else told.leader,
            skip_assignment=told.keeps_assignment,
            member_id=told.member,
            members=[] if is_follower else [of_member(name, of or None, data) for name, of, data in told.members],
        )

    async def sync(self, request: Any) -> Any:
        """Serve SyncGroup."""
        answer = message_type("SyncGroupResponse")
        assignments = tuple((each.member_id, bytes(each.assignment)) for each in request.assignments)
        message = SyncClassic(
            request.group_id, request.member_id, request.group_instance_id or "", request.generation_id,
            request.protocol_type or "", request.protocol_name or "", (),
        )  # fmt: skip
        given = packed_assignments(assignments)
        try:
            told = await self._ask(request.group_id, message, ClassicSynced, _LONGEST_SECONDS, given)
        except RaylogError as error:
            return answer(error_code=code_of(error, Asked.SYNC))
        return answer(protocol_type=told.protocol_type, protocol_name=told.protocol, assignment=told.assignment)

    async def heartbeat(self, request: Any) -> Any:
        """Serve Heartbeat."""
        instance = request.group_instance_id or ""
        message = ClassicHeartbeat(request.group_id, request.member_id, instance, request.generation_id)
        code = await self._code(request.group_id, message)
        if code == ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
            code = ErrorCode.NONE  # as Kafka says: it will begin the member's session anew, once it has loaded
        return message_type("HeartbeatResponse")(error_code=code)

    async def leave(self, version: int, request: Any) -> Any:
        """Serve LeaveGroup."""
        answer = message_type("LeaveGroupResponse")
        if version < _OF_MANY:
            message = LeaveClassic(request.group_id, request.member_id, "")
            return answer(error_code=await self._code(request.group_id, message))
        of_member = message_type("LeaveGroupResponse", "MemberResponse")
        told = []
        for each in request.members:
            message = LeaveClassic(request.group_id, each.member_id, each.group_instance_id or "")
            code = await self._code(request.group_id, message)
            told.append(of_member(each.member_id, each.group_instance_id, code))
        return answer(members=told)

    def _new_id(self, name: str) -> str:
        return f"{name[:_NAME_CHARACTERS]}-{''.join(f'{self._new_number():08x}' for _ in range(4))}"

    async def _code(self, group: str, message: Message) -> ErrorCode:
        try:
            await self._ask(group, message, Done, _ANSWER_SECONDS)
        except RaylogError as error:
            return code_of(error, Asked.CLASSIC_GROUP)
        return ErrorCode.NONE

    async def _ask(
        self, group: str, message: Message, expect: type[_Answer], seconds: float, payload: bytes = b""
    ) -> _Answer:
        coordinator = await self._link.find_coordinator(OFFSETS_TOPIC, group_hash(group), _ANSWER_SECONDS)
        return (await self._link.ask(coordinator, message, payload, expect=expect, timeout=seconds)).message


def _refused_join(version: int, member_id: str, code: ErrorCode) -> Any:
    protocol = None if version >= _NULL_PROTOCOL else ""
    return message_type("JoinGroupResponse")(error_code=code, protocol_name=protocol, member_id=member_id)

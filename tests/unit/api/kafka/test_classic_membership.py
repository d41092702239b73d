"""What members of classic groups hear while their coordinator loads."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.actors.link.rules.topic_cache import CoordinatorAddress
from raylog.api.kafka.classic_membership import ClassicMembership
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.errors import CoordinatorLoading, RaylogError, UnknownMember


class Refusing:
    """A link to a coordinator that refuses all."""

    def __init__(self, error: RaylogError) -> None:
        self._error = error

    async def find_coordinator(self, topic: str, _hashed: int, _timeout: float) -> CoordinatorAddress:
        return CoordinatorAddress(topic, b"", 0, 1, 1, (), "")

    async def ask(self, *_: Any, **__: Any) -> Any:
        raise self._error


def heard(error: RaylogError) -> list[int]:
    """The codes in answer to JoinGroup, SyncGroup, Heartbeat and LeaveGroup."""

    async def ask() -> list[int]:
        members = ClassicMembership(Refusing(error), lambda: 7)  # type: ignore[arg-type] # all of a link that they use
        asked: dict[str, Any] = {"group_id": "g", "member_id": "m"}
        sync = message_type("SyncGroupRequest")(**asked, generation_id=1)
        beat = message_type("HeartbeatRequest")(**asked, generation_id=1)
        join = message_type("JoinGroupRequest")(**asked, session_timeout_ms=1_000, protocol_type="consumer")
        leave = message_type("LeaveGroupRequest")(**asked)
        answers = [
            await members.join(2, join, "client"),
            await members.sync(sync),
            await members.heartbeat(beat),
            await members.leave(1, leave),
        ]
        return [each.error_code for each in answers]

    return asyncio.run(ask())


def test_a_loading_coordinator_is_no_reason_to_give_up() -> None:
    loading = ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
    assert heard(CoordinatorLoading("g", 10)) == [loading, ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.NONE, loading]
    unknown = [ErrorCode.UNKNOWN_MEMBER_ID] * 4
    assert heard(UnknownMember("g", "m", -1, -1, "it was removed")) == unknown

"""Requests that name many things, each of which another process is asked about."""

from __future__ import annotations

import asyncio
from itertools import pairwise
from typing import Any

import pytest

pytest.importorskip("kafka", reason="the extra `kafka` is not installed")

from raylog.api.kafka.config_administration import ConfigAdministration
from raylog.api.kafka.fan_out import MOST_AT_A_TIME, AnswerBudget, named_twice, some_at_a_time
from raylog.api.kafka.protocol.codecs import RequestHeader
from raylog.api.kafka.protocol.error_codes import ErrorCode
from raylog.api.kafka.protocol.message_types import message_type
from raylog.api.kafka.refusals import Refusals
from raylog.api.kafka.rules.named_brokers import Gateways
from raylog.errors import NotLeader, TooManyBytesInFlight


class Asked:
    """Answers when the test says so."""

    def __init__(self) -> None:
        self.under_way: dict[int, asyncio.Future[str]] = {}
        self.cancelled: list[int] = []

    async def ask(self, number: int) -> str:
        self.under_way[number] = asyncio.get_running_loop().create_future()
        try:
            return await self.under_way[number]
        except asyncio.CancelledError:
            self.cancelled.append(number)
            raise


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_bounded_number_is_under_way_and_they_begin_in_order() -> None:
    async def run() -> None:
        asked = Asked()
        all_of_them = asyncio.ensure_future(some_at_a_time(asked.ask, range(7), most=3))
        await settle()
        assert list(asked.under_way) == [0, 1, 2]
        asked.under_way[1].set_result("1")
        await settle()
        assert list(asked.under_way) == [0, 1, 2, 3]
        for number in (3, 2, 0, 4, 5, 6):
            asked.under_way[number].set_result(str(number))
            await settle()
        assert await all_of_them == [str(number) for number in range(7)]
        assert await some_at_a_time(asked.ask, []) == []

    asyncio.run(run())


def test_an_error_ends_all_and_so_does_a_client_that_goes() -> None:
    async def run(*, fails: bool) -> None:
        asked = Asked()
        all_of_them = asyncio.ensure_future(some_at_a_time(asked.ask, range(7), most=3))
        await settle()
        if fails:
            asked.under_way[1].set_exception(NotLeader("clicks", 0, 3, 7))
        else:
            all_of_them.cancel()
        with pytest.raises((NotLeader, asyncio.CancelledError)):
            await all_of_them
        await settle()
        assert asked.cancelled == ([0, 2] if fails else [0, 1, 2])

    asyncio.run(run(fails=True))
    asyncio.run(run(fails=False))


def test_others_have_their_turns_between_answers_that_are_known_at_once() -> None:
    async def run() -> list[int]:
        done: list[int] = []
        turns: list[int] = []

        async def ask(number: int) -> None:
            done.append(number)

        all_of_them = asyncio.ensure_future(some_at_a_time(ask, range(2_000), most=2))
        while not all_of_them.done():
            turns.append(len(done))
            await asyncio.sleep(0)
        assert done == list(range(2_000))
        return [after - before for before, after in pairwise(turns)]

    assert max(asyncio.run(run())) <= 64


def test_what_is_answered_has_a_bounded_room() -> None:
    room = AnswerBudget(100)
    for _ in range(3):
        room.check()
        room.take(40)
    with pytest.raises(TooManyBytesInFlight):
        room.check()


def test_what_is_named_twice_is_found() -> None:
    assert named_twice([("a", 0), ("b", 0), ("a", 1), ("a", 0)]) == {("a", 0)}


class Administered:
    """A cluster whose administration takes a moment."""

    def __init__(self) -> None:
        self.under_way = self.most = self.asked = 0

    async def ask(self, _request: Any, _seconds: float) -> None:
        self.asked += 1
        self.under_way += 1
        self.most = max(self.most, self.under_way)
        await asyncio.sleep(0)
        self.under_way -= 1


def test_settings_of_many_topics_are_changed_many_at_a_time() -> None:
    administered = Administered()
    configs = ConfigAdministration(
        administered,  # type: ignore[arg-type] # all that is used of it
        Gateways,
        Refusals(),
    )
    resource = message_type("IncrementalAlterConfigsRequest", "AlterConfigsResource")
    names = [f"t{number}" for number in range(3_000)]
    resources = [resource(2, name, []) for name in (*names, "t7")]
    request = message_type("IncrementalAlterConfigsRequest")(resources=resources)
    answer = asyncio.run(configs.alter_incrementally(RequestHeader(44, 1, 1, "tool", 0), request))
    refused = [each.resource_name for each in answer.responses if each.error_code == ErrorCode.INVALID_REQUEST]
    assert refused == ["t7", "t7"]
    assert (administered.asked, administered.most) == (2_999, MOST_AT_A_TIME)

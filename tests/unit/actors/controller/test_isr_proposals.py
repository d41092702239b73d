"""Proposals of one turn are recorded together, and decided and answered one by one."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any, cast

import pytest

from raylog.actors.cluster.state import ClusterState, Liveness
from raylog.actors.controller import isr_proposals
from raylog.actors.controller.isr_proposals import IsrProposals
from raylog.actors.protocol.control_messages import ProposeIsr
from raylog.actors.protocol.messages import Message
from raylog.errors import ControllerFenced, StaleIncarnation, StalePartitionEpoch, TooManyBytesInFlight
from tests.unit.actors.small_cluster import SmallCluster

_PARTITIONS = 5


class _Changes:
    """Each change that was submitted. They are committed when the test says so."""

    def __init__(self, cluster: SmallCluster) -> None:
        self.cluster = cluster
        self.submitted: list[int] = []
        self.is_full = False
        self.committed: asyncio.Future[int] = asyncio.get_running_loop().create_future()

    @property
    def state(self) -> ClusterState:
        return self.cluster.state

    @property
    def live(self) -> Liveness:
        return self.cluster.live

    def submit(self, records: Sequence[Message]) -> asyncio.Future[int]:
        if self.is_full:
            raise TooManyBytesInFlight(1, 1, 1)
        self.submitted.append(len(records))
        self.cluster.apply(records)
        return self.committed


class _Case:
    def __init__(self) -> None:
        self.cluster = SmallCluster()
        self.cluster.create("t", *[[1, 2, 3]] * _PARTITIONS)
        self.changes = _Changes(self.cluster)
        self.proposals = IsrProposals(cast(Any, self.changes))

    def shrunk(self, number: int) -> ProposeIsr:
        return self.cluster.proposal("t", [1, 2], number)

    async def carried(self, *proposals: ProposeIsr) -> list[asyncio.Task[None]]:
        """Each in a task of its own, a moment later."""
        tasks = [asyncio.ensure_future(self.proposals.carry(each)) for each in proposals]
        for _ in range(4):
            await asyncio.sleep(0)
        return tasks


def test_those_of_a_turn_are_one_change_and_wait_for_its_commit() -> None:
    async def check() -> None:
        case = _Case()
        tasks = await case.carried(*map(case.shrunk, range(_PARTITIONS)))
        assert case.changes.submitted == [_PARTITIONS]
        assert not any(task.done() for task in tasks)
        case.changes.committed.set_result(1)
        await asyncio.gather(*tasks)
        assert all(case.cluster.partition("t", number).isr == (1, 2) for number in range(_PARTITIONS))

    asyncio.run(check())


def test_a_refused_one_takes_nothing_from_the_others() -> None:
    async def check() -> None:
        case = _Case()
        good = case.shrunk(0)
        bad = ProposeIsr(good.topic_id, 1, 1, 0, case.cluster.partition("t", 1).partition_epoch, ((1, 10**9), (2, 1)))
        refused, taken = await case.carried(bad, good)
        assert isinstance(refused.exception(), StaleIncarnation)
        case.changes.committed.set_result(1)
        await taken
        assert case.changes.submitted == [1]

    asyncio.run(check())


def test_the_second_for_a_partition_is_decided_on_what_the_first_has_made() -> None:
    async def check() -> None:
        case = _Case()
        first, second = await case.carried(case.shrunk(0), case.shrunk(0))
        assert isinstance(second.exception(), StalePartitionEpoch)
        case.changes.committed.set_result(1)
        await first

    asyncio.run(check())


def test_no_change_grows_without_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(isr_proposals, "MOST_AT_ONCE", 2)

    async def check() -> None:
        case = _Case()
        case.changes.committed.set_result(1)
        await asyncio.gather(*await case.carried(*map(case.shrunk, range(_PARTITIONS))))
        assert case.changes.submitted == [2, 2, 1]

    asyncio.run(check())


@pytest.mark.parametrize("how", ["no room", "fenced", "closed"])
def test_where_the_change_fails_all_hear_of_it(how: str) -> None:
    async def check() -> None:
        case = _Case()
        case.changes.is_full = how == "no room"
        tasks = await case.carried(case.shrunk(0), case.shrunk(1))
        if how == "fenced":
            case.changes.committed.set_exception(ControllerFenced(1, 2))
        elif how == "closed":
            case.changes.committed.cancel()
        expected = {"no room": TooManyBytesInFlight, "fenced": ControllerFenced, "closed": asyncio.CancelledError}[how]
        for outcome in await asyncio.gather(*tasks, return_exceptions=True):
            assert isinstance(outcome, expected)

    asyncio.run(check())


def test_one_that_is_given_up_meanwhile_is_left_out() -> None:
    async def check() -> None:
        case = _Case()
        given_up = asyncio.ensure_future(case.proposals.carry(case.shrunk(0)))
        await asyncio.sleep(0)
        given_up.cancel()
        (taken,) = await case.carried(case.shrunk(1))
        case.changes.committed.set_result(1)
        await taken
        assert case.cluster.partition("t", 0).isr == (1, 2, 3)

    asyncio.run(check())

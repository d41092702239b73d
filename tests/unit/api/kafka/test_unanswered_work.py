"""Batches with acks=0: they are appended though their client has gone."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import pytest

from raylog.actors.kernel.rare_log import RareLog
from raylog.api.kafka import unanswered_work
from raylog.api.kafka.rules.memory_budget import MemoryBudget
from raylog.api.kafka.unanswered_work import UnansweredWork
from raylog.errors import NotLeader


class Stage:
    """A client that waits for one piece of work, which ends when the test says so."""

    def __init__(self) -> None:
        self.budget = MemoryBudget(1_000)
        self.unanswered = UnansweredWork(self.budget)
        self.end: asyncio.Future[Any] = asyncio.get_running_loop().create_future()
        self.work: asyncio.Future[list[Any]] = asyncio.gather(*[self._part()])
        self.client = asyncio.ensure_future(self.unanswered.finish(self.work, 600))

    async def _part(self) -> Any:
        return await self.end

    async def client_goes(self) -> None:
        await settle()
        self.client.cancel()
        await settle()
        assert self.client.cancelled()


async def settle() -> None:
    for _ in range(5):
        await asyncio.sleep(0)


def test_a_client_that_waits_hears_the_outcomes_and_nothing_is_counted_twice() -> None:
    async def main() -> None:
        stage = Stage()
        await settle()
        assert (len(stage.unanswered), stage.budget.held) == (0, 0)
        stage.end.set_result("appended")
        assert await stage.client == ["appended"]
        assert (len(stage.unanswered), stage.budget.held) == (0, 0)

    asyncio.run(main())


def test_what_a_client_left_behind_is_finished_and_counts_for_all_meanwhile() -> None:
    async def main() -> None:
        stage = Stage()
        await stage.client_goes()
        assert not stage.work.done()
        assert (len(stage.unanswered), stage.budget.held) == (1, 600)
        stage.end.set_result("appended")
        await settle()
        assert stage.work.result() == ["appended"]
        assert (len(stage.unanswered), stage.budget.held) == (0, 0)

    asyncio.run(main())


def test_a_refusal_that_nobody_waits_for_is_in_the_log(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(unanswered_work, "_of_clients", RareLog(logging.getLogger("clients")))

    async def main() -> None:
        stage = Stage()
        await stage.client_goes()
        stage.end.set_result(NotLeader("clicks", 3, 1, 7))
        await settle()

    asyncio.run(main())
    (line,) = (record.getMessage() for record in caplog.records)
    assert "acks=0" in line
    assert "clicks" in line


@pytest.mark.parametrize("goes_first", [True, False])
def test_nothing_is_finished_once_the_gateway_is_closed(goes_first: bool) -> None:
    async def main() -> None:
        reported: list[dict[str, Any]] = []
        asyncio.get_running_loop().set_exception_handler(lambda _, context: reported.append(context))
        stage = Stage()
        if goes_first:
            await stage.client_goes()
            stage.unanswered.close()
        else:
            stage.unanswered.close()
            await stage.client_goes()
        await settle()
        assert stage.work.done()
        assert stage.end.cancelled()
        assert (len(stage.unanswered), stage.budget.held) == (0, 0)
        assert reported == []

    asyncio.run(main())

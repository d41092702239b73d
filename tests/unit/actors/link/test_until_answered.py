"""Asking again and again, in virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any

import pytest

from raylog.actors.kernel.backoff import Backoff
from raylog.actors.kernel.stream_interface import expected
from raylog.actors.link.questions import may_pass, until_answered
from raylog.actors.protocol.messages import Done, Ping
from raylog.errors import (
    AnswerUnexpected,
    InvalidRequest,
    NotLeader,
    PeerNotAdmitted,
    PeerUnreachable,
    RaylogError,
    RequestTimedOut,
    StreamClosed,
)
from tests.simulator.world.machines import SimEnvironment
from tests.simulator.world.world import World
from tests.unit.longest_pauses import LongestPauses

LOST, LATE = StreamClosed("leader", "it died"), RequestTimedOut("leader", 5_000)
NO = InvalidRequest("No.")


class Asked:
    """`ask` ends as `outcomes` say, each after `takes` seconds; the last one stands for all that come after it."""

    def __init__(self, *outcomes: RaylogError | str, takes: float = 0.0) -> None:
        self.left: list[float] = []
        self.told: list[RaylogError] = []
        self.times: list[float] = []
        self._outcomes = list(outcomes)
        self._takes = takes

    async def ask(self, left: float) -> str:
        self.left.append(left)
        self.times.append(asyncio.get_running_loop().time())
        await asyncio.sleep(min(self._takes, left))
        outcome = self._outcomes.pop(0) if len(self._outcomes) > 1 else self._outcomes[0]
        if isinstance(outcome, str):
            return outcome
        raise outcome

    async def until_answered(self, **options: Any) -> str:
        return await until_answered(
            self.ask, Backoff(0.1, 0.4, LongestPauses()), is_final=is_final, failed=self.told.append, **options
        )


def is_final(error: RaylogError) -> bool:
    return error is NO


def _run(main: Callable[[], Coroutine[Any, Any, None]]) -> None:
    over = []

    async def body(_: SimEnvironment) -> None:
        await main()
        over.append(True)

    with World(1) as world:
        world.add_machine("one").start("test", body)
        assert world.run_until_idle_or(lambda: bool(over), 1_000)


def test_what_fails_is_asked_again_after_growing_pauses() -> None:
    async def main() -> None:
        asked = Asked(LOST, LATE, LOST, LOST, "yes")
        assert await asked.until_answered() == "yes"
        pauses = [after - before for before, after in zip(asked.times, asked.times[1:], strict=False)]
        assert pauses == pytest.approx([0.1, 0.2, 0.4, 0.4], abs=0.001)
        assert asked.told == [LOST, LATE, LOST, LOST]

    _run(main)


def test_a_final_error_is_raised_at_once() -> None:
    async def main() -> None:
        asked = Asked(LOST, NO)
        with pytest.raises(InvalidRequest):
            await asked.until_answered(seconds=100.0)
        assert len(asked.times) == 2
        assert asked.told == [LOST]

    _run(main)


def test_the_last_error_is_raised_when_the_time_is_over_and_not_later() -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        asked, began = Asked(LOST, LATE, takes=0.3), loop.time()
        with pytest.raises(RequestTimedOut):
            await asked.until_answered(seconds=2.0)
        assert loop.time() - began == pytest.approx(2.0, abs=0.001)
        assert asked.left == pytest.approx([2.0, 1.6, 1.1, 0.4], abs=0.005)

    _run(main)


def test_nothing_is_asked_after_a_pause_that_the_end_of_the_time_cuts_short() -> None:
    async def news(_: float) -> None:
        return

    async def main() -> None:
        asked = Asked(LOST, "yes")
        with pytest.raises(StreamClosed):
            await asked.until_answered(pause=news, seconds=0.05)
        assert len(asked.times) == 1

    _run(main)


def test_without_any_time_it_is_asked_once() -> None:
    async def main() -> None:
        asked = Asked(LOST)
        with pytest.raises(StreamClosed):
            await asked.until_answered(seconds=0.0)
        assert asked.left == [0.0]
        assert await Asked("yes").until_answered(seconds=0.0) == "yes"

    _run(main)


def test_a_pause_may_end_early_and_what_it_raises_is_raised() -> None:
    async def news(_: float) -> None:
        await asyncio.sleep(0.01)

    async def over(_: float) -> None:
        raise NO

    async def main() -> None:
        asked = Asked(LOST, LOST, "yes")
        await asked.until_answered(pause=news)
        assert asked.times[-1] - asked.times[0] == pytest.approx(0.02, abs=0.001)
        with pytest.raises(InvalidRequest):
            await Asked(LOST).until_answered(pause=over)

    _run(main)


def test_an_answer_of_the_wrong_kind_is_final_whatever_the_question() -> None:
    async def main() -> None:
        asked = Asked(AnswerUnexpected("leader", "Appended", "Done"))
        with pytest.raises(AnswerUnexpected):
            await asked.until_answered()
        assert len(asked.times) == 1

    _run(main)


def test_an_answer_has_to_be_of_the_kind_that_was_asked_for() -> None:
    assert expected(Done(), Done, "leader") == Done()
    with pytest.raises(AnswerUnexpected, match="leader answered with Done and not with Ping") as caught:
        expected(Done(), Ping, "leader")
    assert caught.value.outcome_unknown, "the request may have been carried out"


@pytest.mark.parametrize(
    ("error", "passes"),
    [
        (NotLeader("t", 0, -1, -1), True),
        (PeerUnreachable("leader", "it is gone"), True),
        (LOST, True),
        (PeerNotAdmitted("leader", "it has another secret"), False),
        (AnswerUnexpected("leader", "Appended", "Done"), False),
        (NO, False),
    ],
)
def test_errors_that_may_pass_by_themselves(error: RaylogError, passes: bool) -> None:
    assert may_pass(error) is passes

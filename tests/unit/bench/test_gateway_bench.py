"""Two servers measured beside each other: rounds take turns, and the ratio has the goal."""

from __future__ import annotations

from typing import Any, cast

import pytest

from bench.gateway.comparing import KAFKA, RAYLOG, Server, compared, in_turns

_NOBODY: Any = cast(Any, None)


def test_rounds_take_turns_after_one_to_warm_up() -> None:
    order: list[str] = []

    def measure(name: str) -> float:
        order.append(name)
        return float(len(order))

    found = in_turns([lambda: measure("a"), lambda: measure("b")], rounds=2)
    assert order == ["a", "b"] * 3
    assert found == [[3.0, 5.0], [4.0, 6.0]]


@pytest.mark.parametrize(("smaller", "meets"), [(False, False), (True, True)])
def test_the_ratio_has_the_goal(smaller: bool, meets: bool) -> None:
    ours, theirs = Server(RAYLOG, "", _NOBODY), Server(KAFKA, "", _NOBODY)
    figures = list(compared("rate", "M/s", [(ours, [1.0, 3.0, 2.0]), (theirs, [4.0])], 0.8, smaller=smaller))
    assert [each.name for each in figures] == ["rate, raylog", "rate, Kafka", "rate, ratio"]
    assert [each.median for each in figures] == [2.0, 4.0, 0.5]
    assert [each.meets_goal for each in figures] == [None, None, meets]


def test_without_a_peer_there_is_no_ratio() -> None:
    assert [each.name for each in compared("rate", "M/s", [(Server(RAYLOG, "", _NOBODY), [1.0])], 0.8)] == [
        "rate, raylog"
    ]

"""Delays in the simulated world: usually within a narrow range, now and then far longer."""

from __future__ import annotations

from random import Random
from typing import NamedTuple


class Rarely(NamedTuple):
    """A range that a delay lies in with this chance. In it short ones are as likely as long ones."""

    chance: float
    shortest: int
    longest: int


class Delays:
    """Microseconds, drawn one at a time, mostly with one random number."""

    __slots__ = ("_ranges", "_rare", "_scale", "_shortest", "_uniform")

    def __init__(self, random: Random, shortest: int, longest: int, *rare: Rarely) -> None:
        self._uniform = random.random
        self._shortest = shortest
        self._rare = sum(each.chance for each in rare)
        self._ranges = rare
        self._scale = (longest + 1 - shortest) / (1.0 - self._rare)

    def draw(self) -> int:
        kind = self._uniform()
        if kind >= self._rare:
            return self._shortest + int((kind - self._rare) * self._scale)
        for each in self._ranges:
            chosen = each
            kind -= each.chance
            if kind < 0:
                break
        return draw_wide(self._uniform(), chosen.shortest, chosen.longest)


def draw_wide(uniform: float, shortest: int, longest: int) -> int:
    """Return a delay between two times far apart, for a number between 0 and 1."""
    shortest = max(1, shortest)
    return int(shortest * (max(shortest, longest) / shortest) ** uniform)

"""How long Python's matcher may be at it with a pattern and a text of some length: steps, told from the pattern alone.

The matcher goes back and tries every other way, until one fits the whole text. Whatever the text is, no more ways lead
through a part of a pattern than the pattern has for that many characters. So a walk over the parsed pattern counts
`ways`: by number of characters, in how many ways the matcher may get to a place with these behind it. Each of them
costs a step at each thing it meets. What optional, chosen and repeated parts multiply, side by side or within each
other, is multiplied here too; that a text can be no longer than it is bounds them as it bounds the matcher.
"""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterable, Mapping
from typing import Any, Final, TypeAlias

_PARSER: Final = importlib.import_module("re._parser" if sys.version_info >= (3, 11) else "sre_parse")

_Ways: TypeAlias = Mapping[int, int]

_OF_ONE_CHARACTER: Final = frozenset({"LITERAL", "NOT_LITERAL", "ANY", "IN"})
_REPEATS: Final = frozenset({"MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"})
_OF_NO_CHARACTER: Final = frozenset({"AT", "FAILURE"})
_LOOKS: Final = frozenset({"ASSERT", "ASSERT_NOT"})
_GROUPS: Final = frozenset({"SUBPATTERN", "ATOMIC_GROUP"})


class NotBounded(Exception):
    """Why a pattern is too much, as the end of a sentence."""


def steps_at_most(pattern: str, longest: int, limit: int) -> int:
    """With a text of up to `longest` characters; the pattern is valid. NotBounded: it may take more than `limit`."""
    walk = _Walk(longest, limit)
    walk.arrive(walk.through(parsed(pattern), {0: 1}))
    return walk.steps


def parsed(pattern: str) -> Any:
    """As Python's matcher gets it: pairs of what it is, and what belongs to that."""
    return _PARSER.parse(pattern)


class _Walk:
    def __init__(self, longest: int, limit: int) -> None:
        self.steps = 0
        self._longest = longest
        self._limit = limit

    def arrive(self, ways: _Ways, cost: int = 1) -> None:
        self.steps += cost * sum(ways.values())
        if self.steps > self._limit:
            raise NotBounded("a name may fit it in too many ways: it repeats, chooses or leaves open too much")

    def through(self, parts: Iterable[tuple[Any, Any]], ways: _Ways) -> _Ways:
        for what, argument in parts:
            if not ways:  # the text is over before
                break
            ways = self._part(str(what), argument, ways)
        return ways

    def _part(self, what: str, argument: Any, ways: _Ways) -> _Ways:
        self.arrive(ways, _cost_of_set(argument) if what == "IN" else 1)
        if what in _OF_ONE_CHARACTER:
            return {length + 1: count for length, count in ways.items() if length < self._longest}
        if what in _REPEATS:
            return self._repeat(argument, ways)
        if what in _GROUPS:
            return self.through(argument[-1] if what == "SUBPATTERN" else argument, ways)
        if what == "BRANCH":
            return _together(self.through(each, ways) for each in argument[1])
        if what in _LOOKS:  # from wherever it is, and in the end it is there again
            self.through(argument[1], {0: sum(ways.values())})
            return ways
        if what in _OF_NO_CHARACTER:
            return ways
        raise NotBounded("it refers back to what it has matched" if "GROUPREF" in what else f"it uses {what}")

    def _repeat(self, argument: tuple[int, int, Any], ways: _Ways) -> _Ways:
        least, most, body = argument
        if most > 1 and body.getwidth()[0] == 0:
            raise NotBounded("a part of it that is repeated may be empty")
        after: list[_Ways] = []
        count = 0
        while ways:  # each time takes a character, so they come to an end
            if count >= least:
                after.append(ways)
            if count == most:
                break
            ways = self.through(body, ways)
            count += 1
        return _together(after)


def _together(several: Iterable[_Ways]) -> _Ways:
    total: dict[int, int] = {}
    for ways in several:
        for length, count in ways.items():
            total[length] = total.get(length, 0) + count
    return total


def _cost_of_set(members: Iterable[tuple[Any, Any]]) -> int:
    """Characters and ranges are looked up, and classes asked one after the other."""
    return max(1, sum(str(what) == "CATEGORY" for what, _ in members))

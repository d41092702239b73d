"""Which patterns are taken, and that none of them keeps the matcher for long. No time is taken: steps are counted."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.topic_names import MAX_NAME_LENGTH
from raylog.errors import InvalidSubscription
from raylog.groups.pattern_steps import NotBounded, parsed, steps_at_most
from raylog.groups.topic_patterns import MOST_STEPS, check_pattern, matches

_LONGEST = 5
_ENOUGH = 10**6


@pytest.mark.parametrize(
    ("pattern", "fits", "does_not"),
    [
        ("logs-.*", "logs-eu", "log-eu"),
        (r"(a|b)-\d+", "b-17", "c-17"),
        (r"orders\..+", "orders.paid", "orders-paid"),
        ("^app-[a-z]+-(prod|test)$", "app-shop-test", "app-shop-dev"),
        ("(eu|us|ap)-(prod|test)-.*", "us-prod-clicks", "us-dev-clicks"),
        (".*-eu-.*-v[0-9]+", "clicks-eu-raw-v2", "clicks-us-raw-v2"),
        (r"(\w+\.){2}\w+", "a.b.c", "a.b"),
        ("[a-z0-9]+-[a-z0-9]+-[a-z0-9]+(-dlq)?", "a-b-c-dlq", "a-b-dlq_"),
        (".*(login|logout|purchase).*", "eu-login-2", "eu-clicks"),
        ("(?!test-).*", "clicks", "test-clicks"),
        ("(?i)logs-[a-z]{2}", "LOGS-eu", "LOGS-e"),
        ("(?x) a .* # all of a", "abc", "bc"),
        ("(ab)*", "ababab", "aba"),
        ("[(+*]*x+", "xx", "(("),
    ],
)
def test_useful_ones_are_taken(pattern: str, fits: str, does_not: str) -> None:
    check_pattern("g", pattern)
    assert matches(pattern, fits)
    assert not matches(pattern, does_not)


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("a?" * 60 + "a" * 60, "too many ways"),
        ("a{0,1}" * 30 + "a" * 30, "too many ways"),
        ("(a|ab)" * 30, "too many ways"),
        ("(?:a|a.)?" * 24, "too many ways"),
        ("((aa?)?b?)?" * 20, "too many ways"),
        ("(ab?){30}", "too many ways"),
        ("(a+)+", "too many ways"),
        ("(?:a+b?)+?c", "too many ways"),
        ("[a-z]+(-[a-z]+)*", "too many ways"),
        (".*.*.*.*", "too many ways"),
        (".*.*.*(?=.*.*x)", "too many ways"),
        ("(?x) (a+ # it is ) here\n )+", "too many ways"),
        ("(a?)*", "that is repeated may be empty"),
        ("(?:a*){2}", "that is repeated may be empty"),
        (r"(a*)\1*", "that is repeated may be empty|refers back"),
        (r"(a)?(?(1)b|c)", "refers back"),
        ("(?P<x>a)(?P=x)", "refers back"),
    ],
)
def test_others_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidSubscription, match=reason):
        check_pattern("g", pattern)
    assert not matches(pattern, "a")


@pytest.mark.parametrize(
    "pattern", ["((a{249}){249}){249}", "(a{83}b){40}", "x{248}" + "a*" * 100, "(" * 99 + ")" * 99]
)
def test_counting_is_quick_where_texts_are_over_before(pattern: str) -> None:
    assert steps_at_most(pattern, MAX_NAME_LENGTH, MOST_STEPS) < 40_000


# --- the bound, against a matcher that counts -----------------------------------------------------------------------


class _Counting:
    """Goes back as Python's matcher does, one step for each thing it meets."""

    def __init__(self, text: str) -> None:
        self.steps = 0
        self._text = text

    def try_every_way(self, pattern: str) -> None:
        """As if the last thing in it never fitted: the most that can be."""
        for _ in self._ends(list(parsed(pattern)), 0):
            self.steps += 1

    def _ends(self, parts: list[Any], place: int) -> Iterator[int]:
        if not parts:
            yield place
            return
        (what, argument), rest = parts[0], parts[1:]
        for end in self._ends_of_one(str(what), argument, place):
            yield from self._ends(rest, end)

    def _ends_of_one(self, what: str, argument: Any, place: int) -> Iterator[int]:
        self.steps += 1
        if what == "BRANCH":
            for each in argument[1]:
                yield from self._ends(list(each), place)
        elif what == "SUBPATTERN":
            yield from self._ends(list(argument[-1]), place)
        elif what == "MAX_REPEAT":
            yield from self._ends_of_repeat(argument, place)
        elif place < len(self._text) and self._fits(what, argument, self._text[place]):
            yield place + 1

    def _ends_of_repeat(self, argument: tuple[int, int, Any], place: int) -> Iterator[int]:
        least, most, body = argument
        if most > 0:
            for end in self._ends(list(body), place):
                yield from self._ends_of_repeat((least - 1, most - 1, body), end)
        if least <= 0:
            yield place

    def _fits(self, what: str, argument: Any, letter: str) -> bool:
        if what == "IN":
            return any(ord(letter) == each for _, each in argument)
        return what == "ANY" or ord(letter) == argument


def _bigger(patterns: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    several = st.lists(patterns, min_size=1, max_size=4)
    repeats = st.sampled_from(["?", "*", "+", "{0,1}", "{2}", "{0,2}", "{1,9}"])
    return st.one_of(
        several.map("".join),
        several.map(lambda parts: f"({'|'.join(parts)})"),
        st.builds(lambda part, times: f"(?:{part}){times}", patterns, repeats),
    )


@given(st.recursive(st.sampled_from(["a", "b", ".", "ab"]), _bigger, max_leaves=8))
def test_no_text_takes_more_steps_than_the_bound(pattern: str) -> None:
    try:
        bound = steps_at_most(pattern, _LONGEST, _ENOUGH)
    except NotBounded:
        return
    for letters in itertools.product("ab", repeat=_LONGEST):
        counting = _Counting("".join(letters))
        counting.try_every_way(pattern)
        assert counting.steps <= bound


def test_the_bound_is_what_the_worst_text_takes() -> None:
    pattern, text = "a?" * 8 + "a" * 8, "a" * 8
    counting = _Counting(text)
    counting.try_every_way(pattern)
    assert steps_at_most(pattern, len(text), _ENOUGH) == counting.steps

"""Which patterns are taken, and that none of them keeps the matcher for long."""

from __future__ import annotations

import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.names import MAX_NAME_LENGTH
from raylog.errors import InvalidSubscription
from raylog.groups.records.topic_patterns import check_pattern, matching

_SLOWEST_SECONDS = 0.1  # a hundred times what the slowest takes here, and a hundredth of what Python's matcher took


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
        ("(?i)logs-[a-z]{2}", "LOGS-eu", "LOGS-e"),
        ("(ab)*", "ababab", "aba"),
        ("[(+*]*x+", "xx", "(("),
        ("(a+)+", "aaa", "aab"),
        ("[a-z]+(-[a-z]+)*", "a-b-c", "a--c"),
        (r"(?i)logs-[a-z]{2,40}[.][a-z0-9_]{1,40}", "logs-eu.a", "logs-eu"),
        (r"[\w.-]{1,200}", "a.b-c", "ä"),
        (".?" * 23 + "!", "aaa!", "aaa"),
    ],
)
def test_useful_ones_are_taken(pattern: str, fits: str, does_not: str) -> None:
    check_pattern("g", pattern)
    assert matching(pattern, [fits, does_not]) == {fits}


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [
        ("(?!test-).*", "invalid perl operator"),
        ("(?x) a .* # all of a", "invalid perl operator"),
        (r"(a)\1", "invalid escape sequence"),
        ("(a", "missing"),
        ("*a", "no argument for repetition"),
        ("a{2000}", "invalid repetition size"),
        ("(((.?){9}){9}){9}x", "pattern too large"),
        (r"\pN{1000}", "pattern too large"),
        ("a" * 256, "more than 255 bytes"),
        ("\ud800", "it is no text"),
    ],
)
def test_others_are_refused(pattern: str, reason: str) -> None:
    with pytest.raises(InvalidSubscription, match=reason):
        check_pattern("g", pattern)
    assert not matching(pattern, ["a"])


def test_raylogs_own_topics_fit_no_pattern() -> None:
    assert matching(".*", ["__consumer_offsets", "_mine", "a"]) == {"_mine", "a"}


@pytest.mark.parametrize(
    "pattern",
    [".?" * 23 + "!", "a?" * 60 + "a" * 60, "(a|ab)*c", "(.*a){50}", ".*a.{240}", "(.?){250}x", "((aa?)?b?)?" * 20],
)
@pytest.mark.parametrize("name", ["a" * MAX_NAME_LENGTH, ("ab" * MAX_NAME_LENGTH)[:MAX_NAME_LENGTH]])
def test_none_keeps_the_matcher_for_long(pattern: str, name: str) -> None:
    began = time.process_time()
    matching(pattern, [name])
    assert time.process_time() - began < _SLOWEST_SECONDS


@given(st.text(max_size=300), st.text(alphabet="ab.-_9", min_size=1, max_size=MAX_NAME_LENGTH))
def test_any_text_is_taken_or_refused(pattern: str, name: str) -> None:
    try:
        check_pattern("g", pattern)
    except InvalidSubscription:
        assert pattern
        assert not matching(pattern, [name])
    else:
        matching(pattern, [name])

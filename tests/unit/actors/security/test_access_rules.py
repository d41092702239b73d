"""The decision about a request, against one that walks through all rules."""

from __future__ import annotations

from itertools import product
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.security_names import (
    ANY_HOST,
    ANY_NAME,
    EVERYBODY,
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.actors.security.access_rules import AccessRules

ANN, BOB = "User:ann", "User:bob"
HERE, THERE = "10.0.0.1", "10.0.0.2"
ALLOW, DENY = ACLPermissionType.ALLOW, ACLPermissionType.DENY
LITERAL, PREFIXED = ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED
TOPIC, GROUP = ResourceType.TOPIC, ResourceType.GROUP
_OPERATIONS: Final = [each for each in ACLOperation if each is not ACLOperation.ANY]
_ASKED: Final = [each for each in _OPERATIONS if each is not ACLOperation.ALL]
_IMPLIED_BY: Final = {
    ACLOperation.DESCRIBE: {ACLOperation.READ, ACLOperation.WRITE, ACLOperation.DELETE, ACLOperation.ALTER},
    ACLOperation.DESCRIBE_CONFIGS: {ACLOperation.ALTER_CONFIGS},
}

names = st.text("ab.", min_size=1, max_size=4) | st.sampled_from([ANY_NAME, "clicks", "clicks.eu", "click"])
rules = st.builds(
    AccessRule,
    resource_type=st.sampled_from([TOPIC, GROUP]).map(int),
    name=names,
    pattern_type=st.sampled_from([LITERAL, PREFIXED]).map(int),
    principal=st.sampled_from([ANN, BOB, EVERYBODY]),
    host=st.sampled_from([HERE, THERE, ANY_HOST]),
    operation=st.sampled_from(_OPERATIONS).map(int),
    permission=st.sampled_from([ALLOW, DENY]).map(int),
)


def topic_rule(
    name: str,
    operation: int = ACLOperation.READ,
    permission: int = ALLOW,
    *,
    pattern: int = LITERAL,
    principal: str = ANN,
    host: str = ANY_HOST,
) -> AccessRule:
    return AccessRule(TOPIC, name, pattern, principal, host, operation, permission)


def may(held: list[AccessRule], operation: int = ACLOperation.READ, name: str = "clicks", host: str = HERE) -> bool:
    return AccessRules(held).allow(ANN, host, operation, TOPIC, name)


def oracle(held: list[AccessRule], principal: str, host: str, operation: int, kind: int, name: str) -> bool:
    """Walk through all rules."""
    holding = [
        rule
        for rule in held
        if rule.resource_type == kind
        and rule.principal in (principal, EVERYBODY)
        and rule.host in (host, ANY_HOST)
        and (name.startswith(rule.name) if rule.pattern_type == PREFIXED else rule.name in (name, ANY_NAME))
    ]
    denying = {rule.operation for rule in holding if rule.permission == DENY}
    allowing = {rule.operation for rule in holding if rule.permission == ALLOW}
    asked = {operation, int(ACLOperation.ALL)}
    return not denying & asked and bool(allowing & (asked | _IMPLIED_BY.get(ACLOperation(operation), set())))


@given(st.lists(rules, max_size=30), names)
def test_every_decision_is_that_of_a_walk_through_all_rules(held: list[AccessRule], name: str) -> None:
    decide = AccessRules(held)
    for principal, host, operation, kind in product((ANN, BOB, "User:eve"), (HERE, THERE), _ASKED, (TOPIC, GROUP)):
        told = decide.allow(principal, host, operation, kind, name)
        assert told == oracle(held, principal, host, operation, kind, name), (principal, host, operation, kind)


@given(st.lists(rules, max_size=10), rules, names, st.sampled_from(_ASKED))
def test_more_denial_allows_nothing_more_and_less_allows_nothing_less(
    held: list[AccessRule], more: AccessRule, name: str, operation: ACLOperation
) -> None:
    before, after = may(held, operation, name), may([*held, more], operation, name)
    assert after <= before if more.permission == DENY else after >= before


def test_nothing_is_allowed_without_a_rule() -> None:
    assert not may([])
    assert not may([topic_rule("views")])
    assert not AccessRules([topic_rule("clicks")]).allow(ANN, HERE, ACLOperation.READ, GROUP, "clicks")


def test_a_denial_wins_over_all_that_allows() -> None:
    held = [topic_rule("clicks", ACLOperation.ALL), topic_rule("clicks", ACLOperation.READ)]
    assert may(held)
    assert not may([*held, topic_rule("cl", ACLOperation.READ, DENY, pattern=PREFIXED, principal=EVERYBODY)])
    assert may([*held, topic_rule("cl", ACLOperation.READ, DENY)])  # a literal name, of another topic


@pytest.mark.parametrize(
    ("allowed", "implied"),
    [
        (ACLOperation.READ, {ACLOperation.DESCRIBE}),
        (ACLOperation.WRITE, {ACLOperation.DESCRIBE}),
        (ACLOperation.DELETE, {ACLOperation.DESCRIBE}),
        (ACLOperation.ALTER, {ACLOperation.DESCRIBE}),
        (ACLOperation.ALTER_CONFIGS, {ACLOperation.DESCRIBE_CONFIGS}),
        (ACLOperation.CREATE, set()),
        (ACLOperation.DESCRIBE, set()),
        (ACLOperation.ALL, set(_ASKED)),
    ],
)
def test_what_is_allowed_implies_what_it_needs(allowed: ACLOperation, implied: set[ACLOperation]) -> None:
    held = [topic_rule("clicks", allowed)]
    assert {each for each in _ASKED if may(held, each)} == (implied | {allowed}) & set(_ASKED)


def test_a_denial_implies_nothing() -> None:
    held = [topic_rule("clicks", ACLOperation.ALL), topic_rule("clicks", ACLOperation.READ, DENY)]
    assert may(held, ACLOperation.DESCRIBE)


def test_names_hosts_and_prefixes() -> None:
    assert may([topic_rule(ANY_NAME)])
    assert not may([topic_rule("click")])
    assert may([topic_rule("click", pattern=PREFIXED)])
    assert not may([topic_rule("clicks.", pattern=PREFIXED)])
    assert may([topic_rule("clicks", host=HERE)])
    assert not may([topic_rule("clicks", host=HERE)], host=THERE)


def test_prefixes_within_prefixes_all_hold() -> None:
    held = [topic_rule(each, pattern=PREFIXED) for each in ("a", "ab", "abc", "abd", "b")]
    for name, expected in (("abcd", True), ("abx", True), ("ax", True), ("bx", True), ("c", False)):
        assert may(held, name=name) is expected
    assert not may([*held, topic_rule("a", permission=DENY, pattern=PREFIXED)], name="abd.x")

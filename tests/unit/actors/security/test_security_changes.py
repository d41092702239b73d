"""Changes of users and rules: what is refused, and what the records make of the state."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from raylog.actors.protocol.messages import Message, pack, unpack
from raylog.actors.protocol.security_names import (
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security import security_changes
from raylog.actors.security.rule_filters import RuleFilter
from raylog.actors.security.security_changes import (
    MOST_AT_ONCE,
    add_rules,
    alter_user,
    create_user,
    delete_user,
    find_rules,
    remove_rules,
)
from raylog.actors.security.security_state import RULES_IN_RECORD, SecurityState
from raylog.errors import InvalidAccessRule, InvalidUser, RaylogError, SecurityLimitReached, UnknownUser, UserExists
from tests.unit.actors.security.examples import credential, rule
from tests.unit.actors.security.test_access_rules import rules

_GOOD = credential("ann")


def folded(state: SecurityState, records: list[Message]) -> SecurityState:
    """As the records come back from the bytes of the log, and once more, which changes nothing."""
    for _ in range(2):
        for record in records:
            state.apply(unpack(*pack(record)))
    return state


def copied(state: SecurityState) -> SecurityState:
    return folded(SecurityState(), state.to_records())


# --- users ------------------------------------------------------------------------------------------------------------


def test_a_user_comes_changes_and_goes() -> None:
    state = SecurityState()
    both = [credential("ann"), credential("ann", "SCRAM-SHA-512")]
    folded(state, create_user(state, "ann", both))
    folded(state, create_user(state, "bob", [credential("bob")]))
    assert state.users["ann"] == {each.mechanism: each for each in both}
    assert copied(state) == state
    newer = credential("ann", "SCRAM-SHA-512", "other")
    folded(state, alter_user(state, "ann", [newer]))
    assert state.users["ann"] == {"SCRAM-SHA-512": newer}
    folded(state, delete_user(state, "ann"))
    assert list(state.users) == ["bob"]
    with pytest.raises(UnknownUser):
        alter_user(state, "ann", [newer])
    with pytest.raises(UnknownUser):
        delete_user(state, "ann")
    with pytest.raises(UserExists):
        create_user(state, "bob", [credential("bob")])


@pytest.mark.parametrize("name", ["", "x" * 256, " ann", "ann\n", "an\x00n", "*", "ANONYMOUS"])
def test_some_names_are_refused(name: str) -> None:
    with pytest.raises(InvalidUser):
        create_user(SecurityState(), name, [replace(_GOOD, user=name)])


@pytest.mark.parametrize(
    "wrong",
    [
        [],
        [_GOOD, _GOOD],
        [replace(_GOOD, user="bob")],
        [replace(_GOOD, mechanism="SCRAM-SHA-1")],
        [replace(_GOOD, mechanism="SCRAM-SHA-512")],
        [replace(_GOOD, iterations=4095)],
        [replace(_GOOD, iterations=16_385)],
        [replace(_GOOD, salt=b"short")],
    ],
)
def test_some_credentials_are_refused(wrong: list[ScramCredential]) -> None:
    with pytest.raises(InvalidUser):
        create_user(SecurityState(), "ann", wrong)


def test_users_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(security_changes, "MOST_USERS", 1)
    state = folded(SecurityState(), create_user(SecurityState(), "ann", [_GOOD]))
    with pytest.raises(SecurityLimitReached, match="1 users"):
        create_user(state, "bob", [credential("bob")])


# --- rules ------------------------------------------------------------------------------------------------------------


def test_rules_are_added_once_and_removed_by_filters() -> None:
    state = SecurityState()
    folded(state, add_rules(state, [rule("clicks"), rule("views"), rule("clicks")]))
    assert add_rules(state, [rule("clicks")]) == []
    assert copied(state) == state
    meant, records = remove_rules(state, [RuleFilter(name="clicks"), RuleFilter(name="gone"), RuleFilter()])
    assert meant == [[rule("clicks")], [], [rule("clicks"), rule("views")]]
    assert folded(state, records).rules == set()


def test_many_rules_take_several_records() -> None:
    state = SecurityState()
    asked = [rule(f"topic-{each}") for each in range(RULES_IN_RECORD + 1)]
    assert len(add_rules(state, asked)) == 2
    assert len(folded(state, add_rules(state, asked)).rules) == len(asked)
    assert len(copied(state).to_records()) == 2
    assert copied(state) == state


def test_rules_are_bounded_in_number(monkeypatch: pytest.MonkeyPatch) -> None:
    state = SecurityState()
    with pytest.raises(SecurityLimitReached):
        add_rules(state, [rule(str(each)) for each in range(MOST_AT_ONCE + 1)])
    with pytest.raises(SecurityLimitReached):
        remove_rules(state, [RuleFilter()] * (MOST_AT_ONCE + 1))
    monkeypatch.setattr(security_changes, "MOST_RULES", 1)
    folded(state, add_rules(state, [rule("clicks")]))
    with pytest.raises(SecurityLimitReached):
        add_rules(state, [rule("views")])
    assert add_rules(state, [rule("clicks")]) == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"resource_type": ResourceType.ANY}, "type of resources"),
        ({"resource_type": 8}, "type of resources"),
        ({"pattern_type": ACLResourcePatternType.MATCH}, "neither literal"),
        ({"name": ""}, "1 to 255"),
        ({"name": "x" * 256}, "1 to 255"),
        ({"resource_type": ResourceType.CLUSTER}, "kafka-cluster"),
        ({"principal": "ann"}, "principal"),
        ({"principal": "User:"}, "principal"),
        ({"principal": "Group:User:ann"}, "principal"),
        ({"host": "example.com"}, "host"),
        ({"host": ""}, "host"),
        ({"operation": ACLOperation.ANY}, "operation"),
        ({"operation": 99}, "operation"),
        ({"permission": ACLPermissionType.ANY}, "neither allows"),
    ],
)
def test_some_rules_are_refused_with_all_of_the_request(changes: dict[str, object], reason: str) -> None:
    with pytest.raises(InvalidAccessRule, match=reason):
        add_rules(SecurityState(), [rule("clicks"), rule("views")._replace(**changes)])  # type: ignore[arg-type]


def test_hosts_are_written_as_connections_have_them() -> None:
    state = SecurityState()
    folded(state, add_rules(state, [rule("clicks")._replace(host="2001:DB8:0::1")]))
    (held,) = state.rules
    assert held.host == "2001:db8::1"
    assert find_rules(state, RuleFilter(host="2001:db8:0:0::1")) == [held]
    assert find_rules(state, RuleFilter(host="nowhere")) == []


def test_what_is_refused_says_what_is_wrong_and_no_more_than_that() -> None:
    refused: list[RaylogError] = []
    for long in ("x" * 9999, "User:" + "x" * 9999):
        with pytest.raises(InvalidAccessRule) as error:
            add_rules(SecurityState(), [rule(long, long)])
        refused.append(error.value)
    assert all(len(str(each)) < 1000 for each in refused)


# --- filters ----------------------------------------------------------------------------------------------------------


@given(st.lists(rules, max_size=10), rules)
def test_a_filter_of_all_that_a_rule_says_means_that_rule(held: list[AccessRule], wanted: AccessRule) -> None:
    state = SecurityState(rules={*held, wanted})
    assert find_rules(state, RuleFilter(*wanted)) == [wanted]
    assert find_rules(state, RuleFilter()) == sorted(state.rules)


def test_a_filter_may_mean_all_rules_that_hold_for_a_name() -> None:
    prefixed = rule("cli")._replace(pattern_type=int(ACLResourcePatternType.PREFIXED))
    state = SecurityState(rules={rule("clicks"), rule("*"), prefixed, rule("cli")})
    match = RuleFilter(name="clicks", pattern_type=ACLResourcePatternType.MATCH)
    assert find_rules(state, match) == sorted({rule("clicks"), rule("*"), prefixed})
    assert find_rules(state, RuleFilter(name="cli")) == sorted({prefixed, rule("cli")})
    only = RuleFilter(name="cli", pattern_type=ACLResourcePatternType.PREFIXED)
    assert find_rules(state, only) == [prefixed]
    assert len(find_rules(state, RuleFilter(pattern_type=ACLResourcePatternType.MATCH))) == 4

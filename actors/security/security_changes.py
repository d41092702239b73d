"""Changes of users and access rules: what is refused, and the records of what is taken.

What must stay true:
- No user is called as everybody is, or as those who have not proved who they are: rules about these would be his.
- Users and rules are bounded in number, and what is asked for at once is too: gateways decide by all of them, and hear
  of each change.
- Hosts are written in one way, the one in which the address of a connection is.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from ipaddress import ip_address
from typing import Final

from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.security_names import (
    ANY_HOST,
    CLUSTER_NAME,
    EVERYBODY,
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.actors.protocol.security_records import (
    AccessRulesAdded,
    AccessRulesRemoved,
    ScramCredential,
    ScramCredentialRemoved,
)
from raylog.actors.security.rule_filters import RuleFilter
from raylog.actors.security.scram_credentials import LEAST_ITERATIONS, MECHANISMS, MOST_ITERATIONS, SALT_BYTES
from raylog.actors.security.security_state import RULES_IN_RECORD, SecurityState
from raylog.errors import InvalidAccessRule, InvalidUser, SecurityLimitReached, UnknownUser, UserExists

USER: Final = "User:"  # before the name of a user in a principal
ANONYMOUS: Final = "ANONYMOUS"  # the name of whoever has not proved who he is
MOST_USERS: Final = 10_000
MOST_RULES: Final = 20_000
MOST_AT_ONCE: Final = 1_000
_MOST_NAME: Final = 255
_PATTERNS: Final = (ACLResourcePatternType.LITERAL, ACLResourcePatternType.PREFIXED)
_PERMISSIONS: Final = (ACLPermissionType.ALLOW, ACLPermissionType.DENY)


# --- users ------------------------------------------------------------------------------------------------------------


def create_user(state: SecurityState, user: str, credentials: Sequence[ScramCredential]) -> list[Message]:
    """Let a user exist, with these credentials. InvalidUser, UserExists, SecurityLimitReached."""
    _check_user(user)
    if user in state.users:
        raise UserExists(user)
    if len(state.users) >= MOST_USERS:
        raise SecurityLimitReached("users", MOST_USERS)
    return list(_checked(user, credentials))


def alter_user(state: SecurityState, user: str, credentials: Sequence[ScramCredential]) -> list[Message]:
    """Let a user have these credentials and no others. UnknownUser, InvalidUser."""
    held = _held_by(state, user)
    given = _checked(user, credentials)
    others = sorted(held.keys() - {each.mechanism for each in given})
    return [*given, *(ScramCredentialRemoved(user, mechanism) for mechanism in others)]


def delete_user(state: SecurityState, user: str) -> list[Message]:
    """Let a user be no more. Rules that name him stay. UnknownUser."""
    return [ScramCredentialRemoved(user, mechanism) for mechanism in sorted(_held_by(state, user))]


def _held_by(state: SecurityState, user: str) -> dict[str, ScramCredential]:
    held = state.users.get(user)
    if held is None:
        raise UnknownUser(user)
    return held


def _check_user(user: str) -> None:
    if not 0 < len(user) <= _MOST_NAME:
        raise InvalidUser(user[:_MOST_NAME], f"a name has 1 to {_MOST_NAME} characters")
    if not user.isprintable() or user != user.strip():
        raise InvalidUser(user, "a name has characters that can be seen, and no blanks around them")
    if user == ANONYMOUS or USER + user == EVERYBODY:
        raise InvalidUser(user, "in rules this name means others")


def _checked(user: str, credentials: Sequence[ScramCredential]) -> Sequence[ScramCredential]:
    if not credentials or len({each.mechanism for each in credentials}) < len(credentials):
        raise InvalidUser(user, "a user has one credential for each mechanism, and at least one")
    for each in credentials:
        mechanism = MECHANISMS.get(each.mechanism)
        if mechanism is None:
            raise InvalidUser(user, f"there is no mechanism {each.mechanism[:50]!r}, but {', '.join(MECHANISMS)}")
        if each.user != user or {len(each.stored_key), len(each.server_key)} != {mechanism.size}:
            raise InvalidUser(user, "its credential is none")
        if not LEAST_ITERATIONS <= each.iterations <= MOST_ITERATIONS or len(each.salt) < SALT_BYTES:
            raise InvalidUser(
                user,
                f"a password is hashed {LEAST_ITERATIONS} to {MOST_ITERATIONS} times, "
                f"with a salt of {SALT_BYTES} bytes or more",
            )
    return credentials


# --- rules ------------------------------------------------------------------------------------------------------------


def add_rules(state: SecurityState, rules: Iterable[AccessRule]) -> list[Message]:
    """Let these rules hold too. InvalidAccessRule: none of them is added. SecurityLimitReached."""
    asked = list(rules)
    if len(asked) > MOST_AT_ONCE:
        raise SecurityLimitReached("rules in one request", MOST_AT_ONCE)
    new = {_checked_rule(rule): None for rule in asked}
    added = [rule for rule in new if rule not in state.rules]
    if len(state.rules) + len(added) > MOST_RULES:
        raise SecurityLimitReached("rules", MOST_RULES)
    return [AccessRulesAdded(each) for each in _portions(added)]


def remove_rules(state: SecurityState, filters: Sequence[RuleFilter]) -> tuple[list[list[AccessRule]], list[Message]]:
    """Let rules hold no more: those that each filter means, and the records. SecurityLimitReached."""
    if len(filters) > MOST_AT_ONCE:
        raise SecurityLimitReached("filters in one request", MOST_AT_ONCE)
    meant = [find_rules(state, each) for each in filters]
    removed = sorted({rule for rules in meant for rule in rules})
    return meant, [AccessRulesRemoved(each) for each in _portions(removed)]


def find_rules(state: SecurityState, asked: RuleFilter) -> list[AccessRule]:
    """Return the rules that a filter means, sorted."""
    written = RuleFilter(
        asked.resource_type,
        asked.name,
        asked.pattern_type,
        asked.principal,
        None if asked.host is None else _address(asked.host) or asked.host,
        asked.operation,
        asked.permission,
    )
    return sorted(filter(written.matches, state.rules))


def _portions(rules: Sequence[AccessRule]) -> Iterable[tuple[AccessRule, ...]]:
    return (tuple(rules[start : start + RULES_IN_RECORD]) for start in range(0, len(rules), RULES_IN_RECORD))


def _checked_rule(rule: AccessRule) -> AccessRule:
    """Return the rule, its host as addresses are written."""
    host = rule.host if rule.host == ANY_HOST else _address(rule.host)
    _, who, user = rule.principal.partition(USER)
    problems = (
        (not ResourceType.ANY < rule.resource_type <= max(ResourceType), "there is no such type of resources"),
        (rule.pattern_type not in _PATTERNS, "its name is neither literal nor a prefix"),
        (not 0 < len(rule.name) <= _MOST_NAME, f"the name of a resource has 1 to {_MOST_NAME} characters"),
        (
            rule.resource_type == ResourceType.CLUSTER
            and (rule.name, rule.pattern_type) != (CLUSTER_NAME, ACLResourcePatternType.LITERAL),
            f"the cluster is called {CLUSTER_NAME!r}, and by this name only",
        ),
        (
            not who or not user or not rule.principal.startswith(USER) or len(rule.principal) > _MOST_NAME,
            f"a principal is {USER}NAME, or {EVERYBODY} for each of them",
        ),
        (not host, f"a host is the address of a client, or {ANY_HOST}"),
        (not ACLOperation.ANY < rule.operation <= max(ACLOperation), "there is no such operation"),
        (rule.permission not in _PERMISSIONS, "it neither allows nor denies"),
    )
    for is_wrong, reason in problems:
        if is_wrong:
            raise InvalidAccessRule(rule.principal[:_MOST_NAME], rule.name[:_MOST_NAME], reason)
    return AccessRule(
        int(rule.resource_type), rule.name, int(rule.pattern_type), rule.principal, host, int(rule.operation),
        int(rule.permission),
    )  # fmt: skip


def _address(host: str) -> str:
    """Return an address as it is written where a connection has it; empty: it is none."""
    try:
        return str(ip_address(host))
    except ValueError:
        return ""

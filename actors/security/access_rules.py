"""The decision whether a principal may do something (rule 36): Kafka's, of all rules that hold for the resource.

    denied     a rule denies the operation, or ALL. Nothing that allows it makes up for that.
    allowed    a rule allows the operation, ALL, or an operation that implies it
    denied     no rule says anything

A rule holds for a resource if its type is the same, and its name is the same, is `*`, or is prefixed and begins the
resource's name; if its principal is the same or `User:*`; and if its host is the same or `*`.

    allowed            implies
    READ, WRITE,       DESCRIBE
    DELETE, ALTER
    ALTER_CONFIGS      DESCRIBE_CONFIGS

A decision costs a few look-ups, however many rules there are (`python -m bench access-rules`). Rules are kept by type
and principal, there by name, and there by host, as bits. Prefixes are sorted, and each one knows the longest other one
that it begins with. Of a name, the last prefix that is not greater, or one of those that it begins with, is the longest
that holds: whatever sorts between a prefix of the name and the name begins with that prefix too.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Mapping
from typing import Final, TypeAlias

from raylog.actors.protocol.security_names import (
    ANY_HOST,
    ANY_NAME,
    EVERYBODY,
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
)

_NONE: Final = -1
_DENIED_AT: Final = 16  # the bits of what is denied, above those of what is allowed
_IS_ALLOWED: Final = 1  # the two bits of an operation, shifted down, where only the lower one is set
_BOTH: Final = 1 | 1 << _DENIED_AT
_ALL: Final = sum(1 << each for each in ACLOperation)
_IMPLIED: Final[Mapping[int, int]] = {
    ACLOperation.READ: 1 << ACLOperation.DESCRIBE,
    ACLOperation.WRITE: 1 << ACLOperation.DESCRIBE,
    ACLOperation.DELETE: 1 << ACLOperation.DESCRIBE,
    ACLOperation.ALTER: 1 << ACLOperation.DESCRIBE,
    ACLOperation.ALTER_CONFIGS: 1 << ACLOperation.DESCRIBE_CONFIGS,
}

_Hosts: TypeAlias = dict[str, int]


class AccessRules:
    """Rules, ready for decisions."""

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        kept: dict[tuple[int, str], list[AccessRule]] = {}
        for rule in rules:
            kept.setdefault((rule.resource_type, rule.principal), []).append(rule)
        self._kept = {key: _OfPrincipal(rules) for key, rules in kept.items()}

    def allow(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        """Return whether this principal, from this address, may do this with the resource of that type and name."""
        told = 0
        for whom in (principal, EVERYBODY):
            of_principal = self._kept.get((resource_type, whom))
            if of_principal is not None:
                told |= of_principal.told(name, host)
        return told >> operation & _BOTH == _IS_ALLOWED


class _OfPrincipal:
    """The rules for one principal and one type of resources."""

    __slots__ = ("_begins_with", "_hosts", "_literal", "_prefixes")

    def __init__(self, rules: Iterable[AccessRule]) -> None:
        self._literal: dict[str, _Hosts] = {}
        prefixed: dict[str, _Hosts] = {}
        for rule in rules:
            is_literal = rule.pattern_type == ACLResourcePatternType.LITERAL
            hosts = (self._literal if is_literal else prefixed).setdefault(rule.name, {})
            hosts[rule.host] = hosts.get(rule.host, 0) | _bits(rule)
        self._prefixes = sorted(prefixed)
        self._hosts = [prefixed[each] for each in self._prefixes]
        self._begins_with = list(_longest_others(self._prefixes))

    def told(self, name: str, host: str) -> int:
        """Return the bits of all rules that hold for this name and host."""
        told = 0
        for literal in (name, ANY_NAME):
            hosts = self._literal.get(literal)
            if hosts is not None:
                told |= hosts.get(host, 0) | hosts.get(ANY_HOST, 0)
        place = bisect_right(self._prefixes, name) - 1
        while place != _NONE:
            if name.startswith(self._prefixes[place]):
                hosts = self._hosts[place]
                told |= hosts.get(host, 0) | hosts.get(ANY_HOST, 0)
            place = self._begins_with[place]
        return told


def _longest_others(prefixes: list[str]) -> Iterator[int]:
    """Yield for each of these, which are sorted, the place of the longest other one that it begins with."""
    open_ones: list[int] = []  # each begins with the one before it
    for place, prefix in enumerate(prefixes):
        while open_ones and not prefix.startswith(prefixes[open_ones[-1]]):
            open_ones.pop()
        yield open_ones[-1] if open_ones else _NONE
        open_ones.append(place)


def _bits(rule: AccessRule) -> int:
    bits = _ALL if rule.operation == ACLOperation.ALL else 1 << rule.operation
    if rule.permission == ACLPermissionType.DENY:
        return bits << _DENIED_AT
    return bits | _IMPLIED.get(rule.operation, 0)

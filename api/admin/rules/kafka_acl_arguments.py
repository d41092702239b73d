"""Access rules as kafka-python's admin client writes them. Decides; touches nothing.

kafka-python's own objects are taken as well as these: only their attributes are looked at.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Protocol

from raylog.actors.protocol.security_names import (
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.actors.security.rule_filters import RuleFilter
from raylog.errors import InvalidAccessRule


@dataclass(frozen=True)
class ResourcePatternFilter:
    """Names resources by type and name, those of rules that are looked for. A name of None: any."""

    resource_type: ResourceType
    resource_name: str | None
    pattern_type: ACLResourcePatternType


@dataclass(frozen=True)
class ResourcePattern(ResourcePatternFilter):
    """Names the resources that a rule is about: the one of this name or, prefixed, all whose names begin so.

    >>> raylog.ResourcePattern(raylog.ResourceType.TOPIC, "clicks")
    """

    resource_name: str
    pattern_type: ACLResourcePatternType = ACLResourcePatternType.LITERAL


@dataclass(frozen=True)
class ACLFilter:
    """Names rules by a part of what they say. None, and the ANY of each enumeration, leave open what they stand for."""

    principal: str | None
    host: str | None
    operation: ACLOperation
    permission_type: ACLPermissionType
    resource_pattern: ResourcePatternFilter


@dataclass(frozen=True)
class ACL(ACLFilter):
    """One rule: this principal, from this host, may or may not do this with these resources.

    >>> raylog.ACL("User:ann", "*", raylog.ACLOperation.READ, raylog.ACLPermissionType.ALLOW, pattern)
    """

    principal: str
    host: str
    resource_pattern: ResourcePattern


class _Pattern(Protocol):
    @property
    def resource_type(self) -> int: ...
    @property
    def resource_name(self) -> str | None: ...
    @property
    def pattern_type(self) -> int: ...


class KafkaRule(Protocol):
    """An `ACL` or `ACLFilter`, ours or kafka-python's."""

    @property
    def principal(self) -> str | None: ...
    @property
    def host(self) -> str | None: ...
    @property
    def operation(self) -> int: ...
    @property
    def permission_type(self) -> int: ...
    @property
    def resource_pattern(self) -> _Pattern: ...


EVERY_RULE = ACLFilter(
    None,
    None,
    ACLOperation.ANY,
    ACLPermissionType.ANY,
    ResourcePatternFilter(ResourceType.ANY, None, ACLResourcePatternType.ANY),
)


def rule_of(acl: KafkaRule) -> AccessRule:
    """Return the rule that is written so. InvalidAccessRule: it leaves something open."""
    pattern = acl.resource_pattern
    if acl.principal is None or acl.host is None or pattern.resource_name is None:
        raise InvalidAccessRule(str(acl.principal), str(pattern.resource_name), "it leaves open what only a filter may")
    return AccessRule(
        int(pattern.resource_type),
        pattern.resource_name,
        int(pattern.pattern_type),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission_type),
    )


def filter_of(acl: KafkaRule) -> RuleFilter:
    """Return the filter that is written so. A rule is the filter that means just it."""
    pattern = acl.resource_pattern
    return RuleFilter(
        int(pattern.resource_type),
        pattern.resource_name,
        int(pattern.pattern_type),
        acl.principal,
        acl.host,
        int(acl.operation),
        int(acl.permission_type),
    )


def acl_of(rule: AccessRule) -> ACL:
    """Return a rule as kafka-python writes it."""
    kind, pattern = ResourceType(rule.resource_type), ACLResourcePatternType(rule.pattern_type)
    return ACL(
        rule.principal,
        rule.host,
        ACLOperation(rule.operation),
        ACLPermissionType(rule.permission),
        ResourcePattern(kind, rule.name, pattern),
    )

"""Filters of access rules, as Kafka has them: which rules are meant by a part of what a rule says."""

from __future__ import annotations

from dataclasses import dataclass

from raylog.actors.protocol.security_names import (
    ANY_NAME,
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)


@dataclass(frozen=True)
class RuleFilter:
    """Names rules. None, and the ANY of each enumeration, leave open what they stand for."""

    resource_type: int = ResourceType.ANY
    name: str | None = None
    pattern_type: int = ACLResourcePatternType.ANY
    principal: str | None = None
    host: str | None = None
    operation: int = ACLOperation.ANY
    permission: int = ACLPermissionType.ANY

    def matches(self, rule: AccessRule) -> bool:
        """Return whether this rule is meant."""
        return (
            self.resource_type in (ResourceType.ANY, rule.resource_type)
            and self._matches_name(rule)
            and self.principal in (None, rule.principal)
            and self.host in (None, rule.host)
            and self.operation in (ACLOperation.ANY, rule.operation)
            and self.permission in (ACLPermissionType.ANY, rule.permission)
        )

    def _matches_name(self, rule: AccessRule) -> bool:
        if self.pattern_type == ACLResourcePatternType.MATCH:
            return self.name is None or _holds_for(rule, self.name)
        return self.pattern_type in (ACLResourcePatternType.ANY, rule.pattern_type) and self.name in (None, rule.name)


def _holds_for(rule: AccessRule, name: str) -> bool:
    if rule.pattern_type == ACLResourcePatternType.PREFIXED:
        return name.startswith(rule.name)
    return rule.name in (name, ANY_NAME)

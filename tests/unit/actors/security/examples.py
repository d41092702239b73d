"""A user's credential and an access rule, for tests."""

from __future__ import annotations

from raylog.actors.protocol.security_names import (
    ANY_HOST,
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.scram_credentials import LEAST_ITERATIONS, SALT_BYTES, new_credential


def credential(user: str, mechanism: str = "SCRAM-SHA-256", password: str = "pencil") -> ScramCredential:
    return new_credential(user, mechanism, password, b"s" * SALT_BYTES, LEAST_ITERATIONS)


def rule(topic: str, principal: str = "User:ann") -> AccessRule:
    """One that allows to read a topic."""
    return AccessRule(
        ResourceType.TOPIC,
        topic,
        ACLResourcePatternType.LITERAL,
        principal,
        ANY_HOST,
        ACLOperation.READ,
        ACLPermissionType.ALLOW,
    )

"""The part of a cluster's handle for users and access rules.

A password is hashed here, and goes no further: not over a stream, not into a log, not into an error.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, TypeVar

from raylog.actors.cluster.security_requests import (
    AlterUser,
    CreateAcls,
    CreateUser,
    DeleteAcls,
    DeleteUser,
    DescribeAcls,
    ListUsers,
    UserDescription,
)
from raylog.actors.protocol.security_names import ACLOperation, ResourceType
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.access_rules import AccessRules
from raylog.actors.security.rule_filters import RuleFilter
from raylog.actors.security.scram_credentials import DEFAULT_ITERATIONS, MECHANISMS, SALT_BYTES, new_credential
from raylog.api.admin.asking import ask_admin
from raylog.api.admin.rules.kafka_acl_arguments import ACL, EVERY_RULE, KafkaRule, acl_of, filter_of, rule_of
from raylog.api.connection.call_times import CALL_SECONDS
from raylog.errors import InvalidUser, RaylogError

if TYPE_CHECKING:
    from raylog.api.connection.controller_calls import ControllerCalls

_Rule = TypeVar("_Rule", bound=KafkaRule)


class ClusterSecurity:
    """`Cluster` is one of these."""

    _calls: ControllerCalls

    # --- users ----------------------------------------------------------------------------------------------------

    def create_user(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[str] = tuple(MECHANISMS),
        timeout: float = CALL_SECONDS,
    ) -> None:
        """Create a user, who can prove himself by these mechanisms: SCRAM-SHA-256, SCRAM-SHA-512, or both.

        The cluster keeps salted hashes of the password. UserExists, InvalidUser, SecurityLimitReached.

        >>> cluster.create_user("ann", getpass.getpass())
        """
        ask_admin(self._calls, CreateUser(name, _credentials(name, password, mechanisms)), timeout)

    def set_password(
        self,
        name: str,
        password: str,
        *,
        mechanisms: Sequence[str] = tuple(MECHANISMS),
        timeout: float = CALL_SECONDS,
    ) -> None:
        """Let a user have another password, for these mechanisms and no others. UnknownUser, InvalidUser."""
        ask_admin(self._calls, AlterUser(name, _credentials(name, password, mechanisms)), timeout)

    def delete_user(self, name: str, *, timeout: float = CALL_SECONDS) -> None:
        """Delete a user. Access rules that name him stay: they hold for whoever is called so next. UnknownUser."""
        ask_admin(self._calls, DeleteUser(name), timeout)

    def list_users(self, *, timeout: float = CALL_SECONDS) -> tuple[UserDescription, ...]:
        """All users, with the mechanisms by which each can prove himself."""
        return ask_admin(self._calls, ListUsers(), timeout)

    # --- access rules, as kafka-python has them -------------------------------------------------------------------

    def create_acls(
        self, acls: Iterable[KafkaRule], *, timeout: float = CALL_SECONDS
    ) -> dict[str, list[KafkaRule]]:
        """Let these rules hold too: all of them or, where one is refused, none. InvalidAccessRule.

        Return them under `succeeded`, beside an empty list under `failed`. Nothing obeys rules yet.

        >>> pattern = raylog.ResourcePattern(raylog.ResourceType.TOPIC, "clicks")
        >>> allow, read = raylog.ACLPermissionType.ALLOW, raylog.ACLOperation.READ
        >>> cluster.create_acls([raylog.ACL("User:ann", "*", read, allow, pattern)])
        """
        asked = list(acls)
        ask_admin(self._calls, CreateAcls([rule_of(each) for each in asked]), timeout)
        return {"succeeded": asked, "failed": []}

    def delete_acls(
        self, acl_filters: Iterable[_Rule], *, timeout: float = CALL_SECONDS
    ) -> list[tuple[_Rule, list[ACL], RaylogError | None]]:
        """Remove the rules that these filters mean. Return each filter with them, and with None for no error."""
        asked = list(acl_filters)
        meant = ask_admin(self._calls, DeleteAcls([filter_of(each) for each in asked]), timeout)
        return [(each, [acl_of(rule) for rule in rules], None) for each, rules in zip(asked, meant, strict=True)]

    def describe_acls(
        self, acl_filter: KafkaRule = EVERY_RULE, *, timeout: float = CALL_SECONDS
    ) -> tuple[list[ACL], RaylogError | None]:
        """Return the rules that a filter means, all without one; and None for no error."""
        rules = ask_admin(self._calls, DescribeAcls(filter_of(acl_filter)), timeout)
        return [acl_of(each) for each in rules], None

    def would_allow(
        self,
        principal: str,
        operation: ACLOperation,
        resource_type: ResourceType,
        name: str,
        *,
        host: str = "127.0.0.1",
        timeout: float = CALL_SECONDS,
    ) -> bool:
        """Return whether the rules that there are allow this.

        >>> cluster.would_allow("User:ann", raylog.ACLOperation.READ, raylog.ResourceType.TOPIC, "clicks")
        """
        rules = ask_admin(self._calls, DescribeAcls(RuleFilter(resource_type)), timeout)
        return AccessRules(rules).allow(principal, host, operation, resource_type, name)


def _credentials(name: str, password: str, mechanisms: Sequence[str]) -> tuple[ScramCredential, ...]:
    unknown = [each for each in mechanisms if each not in MECHANISMS]
    if unknown:
        raise InvalidUser(name, f"there is no mechanism {unknown[0]!r}, but {', '.join(MECHANISMS)}")
    return tuple(
        new_credential(name, each, password, secrets.token_bytes(SALT_BYTES), DEFAULT_ITERATIONS)
        for each in mechanisms
    )

"""The requests of administrators about users and access rules, and what they change."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from typing import Final, TypeAlias

from raylog.actors.cluster.security_requests import UserDescription
from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.security_names import AccessRule
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.rule_filters import RuleFilter
from raylog.actors.security.security_changes import (
    add_rules,
    alter_user,
    create_user,
    delete_user,
    find_rules,
    remove_rules,
)
from raylog.actors.security.security_state import SecurityState

_ADMIN_SECONDS: Final = 30.0
# Has records committed within so many seconds, or raises AdminTimedOut, which names what was to be done.
_Make: TypeAlias = Callable[[Sequence[Message], float, str], Awaitable[None]]


class SecurityAdmin:
    """`state` returns the newest there is."""

    def __init__(self, state: Callable[[], SecurityState], make: _Make) -> None:
        self._state = state
        self._make = make

    def list_users(self) -> tuple[UserDescription, ...]:
        users = sorted(self._state().users.items())
        return tuple(
            UserDescription(name, {each: held[each].iterations for each in sorted(held)}) for name, held in users
        )

    async def create_user(
        self, user: str, credentials: Sequence[ScramCredential], *, timeout: float = _ADMIN_SECONDS
    ) -> None:
        """InvalidUser, UserExists, SecurityLimitReached."""
        await self._make(create_user(self._state(), user, credentials), timeout, f"creating user {user!r}")

    async def alter_user(
        self, user: str, credentials: Sequence[ScramCredential], *, timeout: float = _ADMIN_SECONDS
    ) -> None:
        """Let a user have these credentials and no others. UnknownUser, InvalidUser."""
        await self._make(alter_user(self._state(), user, credentials), timeout, f"changing user {user!r}")

    async def delete_user(self, user: str, *, timeout: float = _ADMIN_SECONDS) -> None:
        """UnknownUser."""
        await self._make(delete_user(self._state(), user), timeout, f"deleting user {user!r}")

    def describe_acls(self, meant: RuleFilter) -> tuple[AccessRule, ...]:
        return tuple(find_rules(self._state(), meant))

    async def create_acls(self, rules: Sequence[AccessRule], *, timeout: float = _ADMIN_SECONDS) -> None:
        """InvalidAccessRule, SecurityLimitReached."""
        await self._make(add_rules(self._state(), rules), timeout, f"adding {len(rules)} access rules")

    async def delete_acls(
        self, meant: Sequence[RuleFilter], *, timeout: float = _ADMIN_SECONDS
    ) -> tuple[tuple[AccessRule, ...], ...]:
        """Return the rules that each of these meant. SecurityLimitReached."""
        found, records = remove_rules(self._state(), meant)
        await self._make(records, timeout, "removing access rules")
        return tuple(map(tuple, found))

"""The requests of administrators about users and access rules. They are carried out as those in `admin_requests.py`.

A password is in none of them: whoever asks has made the credentials of it (`security/scram_credentials.py`).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from raylog.actors.cluster.admin_requests import AdminRequest
from raylog.actors.protocol.security_names import AccessRule
from raylog.actors.protocol.security_records import ScramCredential
from raylog.actors.security.rule_filters import RuleFilter


@dataclass(frozen=True)
class UserDescription:
    """A user, with how often each mechanism hashes his password."""

    name: str
    iterations: dict[str, int]

    @property
    def mechanisms(self) -> list[str]:
        """The mechanisms by which the user can prove himself."""
        return list(self.iterations)


@dataclass(frozen=True)
class ListUsers(AdminRequest[tuple[UserDescription, ...]]):
    """All users, by name."""

    call = "list_users"
    is_repeatable = True


@dataclass(frozen=True)
class CreateUser(AdminRequest[None]):
    """A new user, with a credential for each mechanism."""

    call = "create_user"

    user: str
    credentials: Sequence[ScramCredential]

    @property
    def about(self) -> str:
        return self.user


@dataclass(frozen=True)
class AlterUser(AdminRequest[None]):
    """Other credentials of a user, in place of all he has."""

    call = "alter_user"

    user: str
    credentials: Sequence[ScramCredential]

    @property
    def about(self) -> str:
        return self.user


@dataclass(frozen=True)
class DeleteUser(AdminRequest[None]):
    """The end of a user. Rules that name him stay."""

    call = "delete_user"

    user: str

    @property
    def about(self) -> str:
        return self.user


@dataclass(frozen=True)
class DescribeAcls(AdminRequest[tuple[AccessRule, ...]]):
    """The access rules that a filter means."""

    call = "describe_acls"
    is_repeatable = True

    meant: RuleFilter


@dataclass(frozen=True)
class CreateAcls(AdminRequest[None]):
    """More access rules: all of these or, where one is refused, none."""

    call = "create_acls"

    rules: Sequence[AccessRule]


@dataclass(frozen=True)
class DeleteAcls(AdminRequest[tuple[tuple[AccessRule, ...], ...]]):
    """The end of access rules. The answer has those that each filter meant."""

    call = "delete_acls"

    meant: Sequence[RuleFilter]

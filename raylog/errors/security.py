"""Changes of users and access rules that the cluster refuses."""

from __future__ import annotations

from raylog.errors.admin import AdminError


class UnknownUser(AdminError):
    """There is no user of this name."""

    advice = "Create the user, or correct the name."

    user: str

    def describe(self) -> str:
        return f"There is no user {self.user!r}."


class UserExists(AdminError):
    """A user of this name exists already."""

    advice = "Set another password, or choose another name."

    user: str

    def describe(self) -> str:
        return f"User {self.user!r} exists already."


class InvalidUser(AdminError):
    """A user cannot be called so, or cannot have this credential."""

    advice = "Correct the name, the password or the mechanism."

    user: str
    reason: str

    def describe(self) -> str:
        return f"User {self.user!r} is refused: {self.reason}."


class InvalidAccessRule(AdminError):
    """A rule of access says nothing that can be decided by. No rule of the same request was added."""

    advice = "Correct the rule and ask for all of them again."

    principal: str
    resource: str
    reason: str

    def describe(self) -> str:
        return f"A rule for {self.principal!r} about {self.resource!r} is refused: {self.reason}."


class SecurityLimitReached(AdminError):
    """A cluster has no more users, or access rules, than this."""

    advice = "Remove some; prefixed names and `User:*` say in one rule what many others say."

    what: str
    limit: int

    def describe(self) -> str:
        return f"There are at most {self.limit} {self.what}."

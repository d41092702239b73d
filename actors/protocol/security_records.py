"""The records of users and access rules in the metadata log. Kinds 200 to 203.

What must stay true:
- A password is in no record. What is kept proves that a client knows it, and only its hash under a salt can do that.
- Salt and keys are left out where a record is printed: whoever has them can guess passwords for as long as he likes.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from raylog.actors.protocol.messages import Message, message
from raylog.actors.protocol.security_names import AccessRule


@message(kind=200)
@dataclass(frozen=True, slots=True)
class ScramCredential(Message):
    """Keys that a user has for this mechanism from now on: they check that he knows his password (RFC 5802)."""

    user: str
    mechanism: str
    salt: bytes = field(repr=False)
    iterations: int
    stored_key: bytes = field(repr=False)
    server_key: bytes = field(repr=False)


@message(kind=201)
@dataclass(frozen=True, slots=True)
class ScramCredentialRemoved(Message):
    """A user cannot prove himself by this mechanism any more."""

    user: str
    mechanism: str


@message(kind=202)
@dataclass(frozen=True, slots=True)
class AccessRulesAdded(Message):
    """More rules that hold."""

    rules: tuple[AccessRule, ...]


@message(kind=203)
@dataclass(frozen=True, slots=True)
class AccessRulesRemoved(Message):
    """Rules that hold no more."""

    rules: tuple[AccessRule, ...]

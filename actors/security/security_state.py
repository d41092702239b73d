"""Users and access rules as the metadata log has them: a part of the cluster's state, on every broker."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Final

from raylog.actors.protocol.messages import Message
from raylog.actors.protocol.security_names import AccessRule
from raylog.actors.protocol.security_records import (
    AccessRulesAdded,
    AccessRulesRemoved,
    ScramCredential,
    ScramCredentialRemoved,
)

RULES_IN_RECORD: Final = 500  # so that no record comes near the bound of a message


@dataclass(slots=True)
class SecurityState:
    """`users`: the credentials of each, by mechanism. A user without any is not there.

    `edition` counts the changes of users, so that whoever passes them on sees at once that there are none.
    """

    users: dict[str, dict[str, ScramCredential]] = field(default_factory=dict)
    rules: set[AccessRule] = field(default_factory=set)
    edition: int = field(default=0, compare=False)

    def apply(self, record: Message) -> None:
        """Fold in a record, of a kind that is in `SECURITY_RECORDS`."""
        SECURITY_RECORDS[type(record)](self, record)

    def to_records(self) -> list[Message]:
        """Return records that make an equal state of an empty one."""
        records: list[Message] = []
        for user in sorted(self.users):
            records += [self.users[user][mechanism] for mechanism in sorted(self.users[user])]
        rules = sorted(self.rules)
        for start in range(0, len(rules), RULES_IN_RECORD):
            records.append(AccessRulesAdded(tuple(rules[start : start + RULES_IN_RECORD])))
        return records

    def _apply_credential(self, record: ScramCredential) -> None:
        self.users.setdefault(record.user, {})[record.mechanism] = record
        self.edition += 1

    def _apply_removed_credential(self, record: ScramCredentialRemoved) -> None:
        self.edition += 1
        held = self.users.get(record.user, {})
        held.pop(record.mechanism, None)
        if not held:
            self.users.pop(record.user, None)

    def _apply_rules(self, record: AccessRulesAdded) -> None:
        self.rules.update(record.rules)

    def _apply_removed_rules(self, record: AccessRulesRemoved) -> None:
        self.rules.difference_update(record.rules)


SECURITY_RECORDS: Final[dict[type[Message], Callable[[SecurityState, Any], None]]] = {
    ScramCredential: SecurityState._apply_credential,
    ScramCredentialRemoved: SecurityState._apply_removed_credential,
    AccessRulesAdded: SecurityState._apply_rules,
    AccessRulesRemoved: SecurityState._apply_removed_rules,
}

"""One decision of access rules on one core, at 10,000 rules, and making these ready for decisions."""

from __future__ import annotations

from collections.abc import Iterator
from time import process_time
from typing import Final

from bench.measuring import Figure, rate_of, rounds_of
from raylog.actors.protocol.security_names import (
    ANY_HOST,
    EVERYBODY,
    AccessRule,
    ACLOperation,
    ACLPermissionType,
    ACLResourcePatternType,
    ResourceType,
)
from raylog.actors.security.access_rules import AccessRules

_RULES: Final = 10_000
_CALLS_AT_ONCE: Final = 100
_ASKED: Final = ("User:ann", "10.0.0.1", ACLOperation.READ, ResourceType.TOPIC, "team5.area1001.clicks")


def run() -> Iterator[Figure]:
    for title, principals in (("of one principal", 1), ("of 100 principals", 100)):
        rules = list(_rules(principals))
        decide = AccessRules(rules)

        def ask(decide: AccessRules = decide) -> None:
            for _ in range(_CALLS_AT_ONCE):
                decide.allow(*_ASKED)

        seconds = rounds_of(lambda: 1_000_000 / rate_of(ask, _CALLS_AT_ONCE, clock=process_time)())
        yield Figure(f"a decision, 10,000 rules {title}", seconds, "µs", 2.0, smaller_is_better=True)
    made = rounds_of(lambda: 1_000 / rate_of(lambda: AccessRules(rules), 1, clock=process_time)())
    yield Figure("making 10,000 rules ready", made, "ms", 50.0, smaller_is_better=True)


def _rules(principals: int) -> Iterator[AccessRule]:
    """Yield as many literal names as prefixes, a few of them for everybody, and some that deny."""
    for place in range(_RULES):
        number = place % principals
        principal = "User:ann" if number == 0 else f"User:{number}"
        yield AccessRule(
            ResourceType.TOPIC,
            f"team{place % 97}.area{place}",
            ACLResourcePatternType.PREFIXED if place % 2 else ACLResourcePatternType.LITERAL,
            EVERYBODY if place % 100 == 50 else principal,
            ANY_HOST,
            ACLOperation.READ,
            ACLPermissionType.ALLOW if place % 5 else ACLPermissionType.DENY,
        )

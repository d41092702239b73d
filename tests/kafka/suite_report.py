"""The report of pytest on somebody else's tests, as a table: how many passed, and why the others did not."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final, NamedTuple
from xml.etree import ElementTree

_REASON_CHARACTERS: Final = 120


class Outcome(NamedTuple):
    """`how`: passed, failed or skipped."""

    test: str
    how: str
    reason: str


def outcomes_of(report: str) -> list[Outcome]:
    """Return what became of each test, from pytest's report in XML."""
    found = []
    for case in ElementTree.fromstring(report).iter("testcase"):
        test = f"{case.get('classname', '').rpartition('.')[2]}::{case.get('name')}"
        outcome = Outcome(test, "passed", "")
        for part in case:
            if part.tag in ("failure", "error"):
                outcome = Outcome(test, "failed", _short(part.get("message") or ""))
            elif part.tag == "skipped":
                outcome = Outcome(test, "skipped", _short(part.get("message") or ""))
        found.append(outcome)
    return found


def _short(reason: str) -> str:
    return " ".join(reason.split())[:_REASON_CHARACTERS]


def as_table(outcomes: Sequence[Outcome]) -> str:
    """Return how many passed, failed and were skipped, and each that did not pass with its reason."""
    counts = Counter(each.how for each in outcomes)
    lines = [f"{counts['passed']} passed, {counts['failed']} failed, {counts['skipped']} skipped", ""]
    lines += ["| test | | reason |", "|---|---|---|"]
    lines += [f"| {each.test} | {each.how} | {each.reason} |" for each in outcomes if each.how != "passed"]
    return "\n".join(lines)

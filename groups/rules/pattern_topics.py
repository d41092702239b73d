"""Topics that each pattern of a coordinator's members means: matched beside its loop, and each name once (rule 34).

    due(patterns, names)     → the next piece of work, or None
    match_patterns(work)     → done on any thread; it takes a second or two at most
    learn(work, found)       → from then on `means` knows of it

What must stay true: nothing is decided for a member whose pattern has never been matched against all names (`knows`);
later topics may be missing for a moment, and count as new when they have been matched.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass
from typing import Final, NamedTuple

from raylog.groups.records.topic_patterns import matching

_MATCHES: Final = 2_000  # in one piece of work: of the slowest patterns that are taken, a second
_NOTHING: Final[frozenset[str]] = frozenset()


class PatternWork(NamedTuple):
    """(pattern, names that it has not been matched against); `names`: all that there are."""

    names: frozenset[str]
    to_match: tuple[tuple[str, tuple[str, ...]], ...]


@dataclass(slots=True)
class _Matched:
    seen: frozenset[str] = _NOTHING
    found: frozenset[str] = _NOTHING
    is_complete: bool = False  # all names that there were have been seen once


def match_patterns(work: PatternWork) -> list[frozenset[str]]:
    return [matching(pattern, names) for pattern, names in work.to_match]


class PatternTopics:
    def __init__(self) -> None:
        self._matched: dict[str, _Matched] = {}

    def knows(self, pattern: str) -> bool:
        """Whether the pattern's topics are known; they are also where there is no pattern."""
        matched = self._matched.get(pattern)
        return not pattern or (matched is not None and matched.is_complete)

    def means(self, pattern: str) -> frozenset[str]:
        """Topics that there are, or were a moment ago."""
        matched = self._matched.get(pattern)
        return _NOTHING if matched is None else matched.found

    def due(self, patterns: Iterable[str], names: Collection[str]) -> PatternWork | None:
        """Return what to match next, so that all of `patterns` are known; of others nothing is kept."""
        present = frozenset(names)
        self._matched = {pattern: self._matched.get(pattern) or _Matched() for pattern in sorted(set(patterns))}
        unseen: dict[int, list[str]] = {}  # by what was seen, which most patterns have in common
        to_match: list[tuple[str, tuple[str, ...]]] = []
        room = _MATCHES
        for pattern, matched in self._matched.items():
            key = id(matched.seen)
            if key not in unseen:
                unseen[key] = sorted(present - matched.seen)
            if (unseen[key] or not matched.is_complete) and room > 0:
                to_match.append((pattern, tuple(unseen[key][:room])))
                room -= len(to_match[-1][1])
        return PatternWork(present, tuple(to_match)) if to_match else None

    def learn(self, work: PatternWork, found: Iterable[frozenset[str]]) -> None:
        for (pattern, names), fits in zip(work.to_match, found, strict=True):
            matched = self._matched.get(pattern)
            if matched is None:  # nobody asks for it any more
                continue
            seen = matched.seen | frozenset(names)
            matched.found = (matched.found | fits) & work.names
            if seen >= work.names:
                matched.seen, matched.is_complete = work.names, True
            else:
                matched.seen = seen

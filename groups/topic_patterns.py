"""Subscriptions by regular expression: which are taken, and which topics they mean.

Python's matcher tries every way in which a pattern could fit, and holds the interpreter while it does. So a pattern in
which repetitions multiply, as `(a+)+`, is refused; what is left is fast for names as long as topics have.
"""

from __future__ import annotations

import re
import warnings
from functools import lru_cache
from typing import Final

from raylog.errors import InvalidSubscription

_MAX_BYTES: Final = 255
_MAX_REPETITIONS: Final = 3
_SHOWN: Final = 60


def check_pattern(group: str, pattern: str) -> None:
    """InvalidSubscription."""
    if not pattern:
        return
    if reason := _objection(pattern):
        raise InvalidSubscription(group, pattern[:_SHOWN], reason)


def matches(pattern: str, topic: str) -> bool:
    """Whether the whole name fits a pattern that was checked."""
    return _compiled(pattern).fullmatch(topic) is not None


@lru_cache(maxsize=1_024)
def _compiled(pattern: str) -> re.Pattern[str]:
    with warnings.catch_warnings():
        warnings.simplefilter("error")  # what may soon mean something else is refused now
        return re.compile(pattern)


def _objection(pattern: str) -> str:
    if len(pattern.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        return f"it has more than {_MAX_BYTES} bytes"
    try:
        _compiled(pattern)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        return f"it is no regular expression ({error})"
    return _repetitions(pattern)


def _repetitions(pattern: str) -> str:
    """Walks over the pattern, which is valid; a group that is repeated may not repeat or choose in itself."""
    if re.search(r"(?<!\\)(?:\\\\)*(?:\\[1-9]|\(\?P=|\(\?\()", pattern):
        return "it refers back to what it has matched"
    bare = re.sub(r"\[\^?\]?(?:\\.|[^\]\\])*\]", "x", re.sub(r"\\.", "x", pattern))
    total = 0
    choosing = [False]  # for each group that is open, whether it repeats or chooses
    closed = False  # whether the group that was just closed does
    place = 0
    while place < len(bare):
        found = re.compile(r"[*+]|\{\d*,\d*\}|\{\d+\}").match(bare, place)
        if found is not None:
            if closed:
                return "a part of it that is repeated repeats or chooses within itself"
            total += 1
            choosing[-1] = True
            place = found.end()
            continue
        char = bare[place]
        closed = False
        if char == "(":
            choosing.append(False)
        elif char == ")":
            closed = choosing.pop()
            choosing[-1] |= closed
        elif char == "|":
            choosing[-1] = True
        place += 1
    return f"it has more than {_MAX_REPETITIONS} repetitions" if total > _MAX_REPETITIONS else ""

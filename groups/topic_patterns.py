"""Subscriptions by regular expression: which are taken, and which topics they mean.

Python's matcher tries every way in which a pattern could fit, and holds the interpreter while it does: on the
coordinator that is everybody's. So a pattern is taken only if it is bounded in the steps that it may take with the
longest name of a topic (`pattern_steps.py`). One that is in the log already and is not taken any more, since it was
written under other rules or another Python, means no topics: it must not keep a coordinator from serving.
"""

from __future__ import annotations

import logging
import re
import warnings
from functools import lru_cache
from typing import Final

from raylog.actors.topic_names import MAX_NAME_LENGTH
from raylog.errors import InvalidSubscription
from raylog.groups.pattern_steps import NotBounded, steps_at_most

_MAX_BYTES: Final = 255
MOST_STEPS: Final = 1 << 25  # some tenths of a second
_SHOWN: Final = 60

_log = logging.getLogger(__name__)


def check_pattern(group: str, pattern: str) -> None:
    """InvalidSubscription."""
    if not pattern:
        return
    if reason := _objection(pattern):
        raise InvalidSubscription(group, pattern[:_SHOWN], reason)


def matches(pattern: str, topic: str) -> bool:
    """Whether the whole name fits. Nothing fits a pattern that is not taken."""
    usable = _usable(pattern)
    return usable is not None and usable.fullmatch(topic) is not None


@lru_cache(maxsize=1_024)
def _usable(pattern: str) -> re.Pattern[str] | None:
    if reason := _objection(pattern):
        _log.warning("A member's subscription to %r means no topics: %s.", pattern[:_SHOWN], reason)
        return None
    return re.compile(pattern)


def _objection(pattern: str) -> str:
    if len(pattern.encode("utf-8", "surrogatepass")) > _MAX_BYTES:
        return f"it has more than {_MAX_BYTES} bytes"
    return _objection_of_short(pattern)


@lru_cache(maxsize=1_024)
def _objection_of_short(pattern: str) -> str:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error")  # what may soon mean something else is refused now
            re.compile(pattern)
            steps_at_most(pattern, MAX_NAME_LENGTH, MOST_STEPS)
    except (re.error, OverflowError, RecursionError, Warning) as error:
        return f"it is no regular expression ({error})"
    except NotBounded as error:
        return str(error)
    return ""

"""Subscriptions by regular expression: which are taken, and which topics they mean.

RE2 matches in a time that grows with the length of the name and no faster, whatever the pattern; in return it has no
look-around and no references back. What a pattern may take of memory is bounded, and with that how long one name may
take: 1 ms. A pattern that is in the log already and is not taken any more, since it was written under other rules,
means no topics: it must not keep a coordinator from serving.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable
from typing import Any, Final

import re2

from raylog.actors.protocol.names import is_internal
from raylog.errors import InvalidSubscription

_MAX_BYTES: Final = 255
_MAX_MEMORY: Final = 64 * 1024  # of one compiled pattern
_SHOWN: Final = 60

_log = logging.getLogger(__name__)


def check_pattern(group: str, pattern: str) -> None:
    """Raise InvalidSubscription."""
    if not pattern:
        return
    if reason := _objection(pattern):
        raise InvalidSubscription(group, pattern[:_SHOWN], reason)


def matching(pattern: str, topics: Iterable[str]) -> frozenset[str]:
    """The topics whose whole name fits, without raylog's own. Nothing fits a pattern that is not taken."""
    if reason := _objection(pattern):
        _log.warning("A member's subscription to %r means no topics: %s.", pattern[:_SHOWN], reason)
        return frozenset()
    fits = _compiled(pattern).fullmatch
    return frozenset(name for name in topics if not is_internal(name) and fits(name) is not None)


def _objection(pattern: str) -> str:
    try:
        if len(pattern.encode()) > _MAX_BYTES:
            return f"it has more than {_MAX_BYTES} bytes"
        _compiled(pattern)
    except UnicodeEncodeError as error:
        return f"it is no text ({error})"
    except re2.error as error:
        (why,) = error.args
        return f"RE2 does not take it ({why.decode(errors='replace') if isinstance(why, bytes) else why})"
    return ""


def _compiled(pattern: str) -> Any:
    """The library keeps the 128 that were used last."""
    options = re2.Options()
    options.max_mem = _MAX_MEMORY
    options.never_capture = True
    options.log_errors = False
    return re2.compile(pattern, options)
